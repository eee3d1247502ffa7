use maildb::{
    ColumnDefinition, ColumnId, ColumnType, Database, DatabaseLocation, Durability, Error, Instance,
    InstanceConfig, PageSize, Session, Table, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{collections::BTreeMap, path::Path, rc::Rc};
use verify::{
    FindingSeverity,
    in_world::{verify_database, verify_trees},
};
use world::{ByteCount, Directory, Random, World, real::FolderDirectory};

pub const MAILBOX: ColumnId = ColumnId(1);
pub const MESSAGE: ColumnId = ColumnId(2);
pub const SUBJECT: ColumnId = ColumnId(128);
pub const BODY: ColumnId = ColumnId(256);

/// Expected rows of a table: (mailbox, message) to (subject, body).
pub type Rows = BTreeMap<(i32, i64), (String, Vec<u8>)>;

pub fn columns() -> Vec<ColumnDefinition> {
    TableSchema::from_kinds([
        ("MailboxId", ColumnType::I32, CodePage::Western),
        ("MessageId", ColumnType::I64, CodePage::Western),
        ("Subject", ColumnType::Text, CodePage::Western),
        ("Body", ColumnType::LongBinary, CodePage::Western),
    ])
    .expect("the test's schema is sound")
    .columns()
    .to_vec()
}

pub fn config(page_size: PageSize, cache: ByteCount) -> InstanceConfig {
    InstanceConfig::new(page_size, cache)
}

pub fn folder(path: &Path) -> Rc<dyn Directory> {
    Rc::new(FolderDirectory::open(path).expect("a folder just made can be opened"))
}

pub fn file_name(index: usize) -> String {
    format!("priv{}.edb", index + 1)
}

pub async fn open(world: &World, path: &Path, databases: usize, config: InstanceConfig) -> Instance {
    try_open(world, path, databases, config).await.expect("the group opens")
}

pub async fn try_open(
    world: &World,
    path: &Path,
    databases: usize,
    config: InstanceConfig,
) -> Result<Instance, Error> {
    let directory = folder(path);
    let locations = (0..databases)
        .map(|index| DatabaseLocation { directory: Rc::clone(&directory), file_name: file_name(index) })
        .collect();
    Instance::open(world, directory, locations, config).await
}

pub async fn mail_table(database: &Database) -> Table {
    if let Some(table) = database.table("Mail") {
        return table;
    }
    let definition =
        TableDefinition { name: "Mail".to_owned(), columns: columns(), primary_key: vec![MAILBOX, MESSAGE] };
    database.create_table(definition).await.expect("the table can be made")
}

pub fn key_values(key: (i32, i64)) -> Vec<Value> {
    vec![Value::I32(key.0), Value::I64(key.1)]
}

pub fn row_values(key: (i32, i64), (subject, body): &(String, Vec<u8>)) -> Vec<(ColumnId, Value)> {
    vec![
        (MAILBOX, Value::I32(key.0)),
        (MESSAGE, Value::I64(key.1)),
        (SUBJECT, Value::Text(subject.clone())),
        (BODY, Value::LongBinary(body.clone())),
    ]
}

pub fn random_row(random: &mut Random, body_bytes_max: u64) -> (String, Vec<u8>) {
    let mut body = vec![0; 1 + random.below(body_bytes_max) as usize];
    random.fill(&mut body);
    (format!("subject {}", random.below(1_000_000)), body)
}

/// Changes of a running transaction: a row, or `None` for a deleted one.
type Changes = BTreeMap<(i32, i64), Option<(String, Vec<u8>)>>;

/// Parameters of random changes.
#[derive(Clone, Copy)]
pub struct Mix {
    pub body_bytes_max: u64,
    pub mailboxes: u64,
    pub delete_percent: f64,
}

/// Makes about `count` random changes in transactions of one to four, most committed, some rolled back;
/// applies the committed ones to `rows`.
pub async fn change_at_random(
    session: &mut Session,
    table: &Table,
    rows: &mut Rows,
    random: &mut Random,
    count: usize,
    mix: Mix,
) {
    let mut done = 0;
    while done < count {
        let mut changes = Changes::new();
        for _ in 0..=random.below(4) {
            change_one(session, table, rows, &mut changes, random, mix).await;
            done += 1;
        }
        if random.percent(10.0) {
            session.rollback().await.expect("rolling back succeeds");
            continue;
        }
        let durability = if random.percent(20.0) { Durability::Stable } else { Durability::Lazy };
        session.commit(durability).await.expect("committing succeeds");
        for (key, row) in changes {
            match row {
                Some(row) => rows.insert(key, row),
                None => rows.remove(&key),
            };
        }
    }
}

/// An existing key near a random one, as seen by the transaction.
fn existing_key(rows: &Rows, changes: &Changes, random: &mut Random, mix: Mix) -> Option<(i32, i64)> {
    let from = (random.below(mix.mailboxes) as i32, random.below(1 << 20) as i64);
    let key = rows.range(from..).next().or_else(|| rows.iter().next()).map(|(&key, _)| key)?;
    (!matches!(changes.get(&key), Some(None))).then_some(key)
}

async fn change_one(
    session: &mut Session,
    table: &Table,
    rows: &Rows,
    changes: &mut Changes,
    random: &mut Random,
    mix: Mix,
) {
    let existing = existing_key(rows, changes, random, mix);
    match existing {
        Some(key) if random.percent(mix.delete_percent) => {
            session.delete(table, &key_values(key)).await.expect("a row that exists can be deleted");
            changes.insert(key, None);
        }
        Some(key) if random.percent(30.0) => {
            let row = random_row(random, mix.body_bytes_max);
            let values = row_values(key, &row);
            session
                .replace(table, &key_values(key), &values)
                .await
                .expect("a row that exists can be replaced");
            changes.insert(key, Some(row));
        }
        _ => {
            let key = (random.below(mix.mailboxes) as i32, random.below(1 << 20) as i64);
            let row = random_row(random, mix.body_bytes_max);
            let there = match changes.get(&key) {
                Some(change) => change.is_some(),
                None => rows.contains_key(&key),
            };
            let result = session.insert(table, &row_values(key, &row)).await;
            assert_eq!(matches!(result, Err(Error::DuplicateKey)), there, "{result:?}");
            if !there {
                result.expect("a new row can be inserted");
                changes.insert(key, Some(row));
            }
        }
    }
}

/// All rows of a table, read in key order.
pub async fn read_all(database: &Database, table: &Table) -> Rows {
    let mut cursor = database.cursor(table, &[]).expect("an empty key is a prefix of every key");
    let mut rows = Rows::new();
    loop {
        let batch = cursor.next_rows().await.expect("a scan succeeds");
        if batch.is_empty() {
            return rows;
        }
        for row in batch {
            let (key, row) = from_values(row);
            assert!(rows.insert(key, row).is_none(), "a scan gives a row once");
        }
    }
}

pub fn from_values(row: Vec<(ColumnId, Value)>) -> ((i32, i64), (String, Vec<u8>)) {
    let [(MAILBOX, Value::I32(mailbox)), (MESSAGE, Value::I64(message)), (SUBJECT, subject), (BODY, body)] =
        &row[..]
    else {
        panic!("a row has its four columns, not {row:?}")
    };
    let (Value::Text(subject), Value::LongBinary(body)) = (subject, body) else { panic!("{row:?}") };
    ((*mailbox, *message), (subject.clone(), body.clone()))
}

/// Fails unless the closed database at `path` is undamaged: checksums, trees, space.
pub async fn check_whole(path: &Path, file: &str, page_size: PageSize) -> verify::deep::TreeVerdict {
    let open = folder(path).open(file).await.expect("the database is there");
    let report = verify_database(Rc::clone(&open), file, &mut |_, _| {}).await.expect("readable");
    assert!(report.is_clean(), "{file}: {:?}", report.damaged);
    assert_eq!(report.page_size, page_size);
    let deep = verify_trees(open, file).await.expect("the trees can be walked");
    let findings: Vec<_> =
        deep.findings.iter().filter(|finding| finding.severity > FindingSeverity::Note).collect();
    assert!(findings.is_empty(), "{file}: {:#?}", &findings[..findings.len().min(10)]);
    assert_eq!(deep.separators_missing, 0, "{file}: a branch ends as its parent says");
    deep
}
