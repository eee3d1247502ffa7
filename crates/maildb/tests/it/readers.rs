//! Third-party readers open this engine's databases and see every row.
//!
//! The files come from a mixed run with deletions and have a tree of three levels. The readers' output is
//! compared with the model that drove the run, never with the engine's own reading. The readers check
//! structure only: none of them verifies page checksums; our verifier does.

use crate::model::{self, Mix, Rows};
use maildb::{
    BulkLoadSettings, ColumnId, ColumnType, Durability, Instance, PageSize, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{collections::BTreeMap, path::Path, process::Command};
use world::{ByteCount, Random, World, real};

const DEEP_KEY: ColumnId = ColumnId(128);
const DEEP_NUMBER: ColumnId = ColumnId(1);
/// Rows of the deep table before a third of them is deleted: enough for three levels.
fn deep_rows(page_size: PageSize) -> i32 {
    if page_size == PageSize::Kib32 { 20_000 } else { 5_000 }
}

/// Rows as text: a vector of cells for each row, in key order.
type Cells = Vec<Vec<String>>;

/// Long keys with a long common prefix, so that a root holds few separators: three levels in little space.
fn deep_key(number: i32) -> String {
    format!("{:-<225}{number:06}", "")
}

async fn make_deep_table(instance: &Instance, count: i32, random: &mut Random) -> BTreeMap<i32, i32> {
    let database = instance.databases().remove(0);
    let kinds = [("Number", ColumnType::I32), ("Key", ColumnType::Text)];
    let schema = TableSchema::from_kinds(kinds.map(|(name, kind)| (name, kind, CodePage::Western)));
    let columns = schema.expect("the test's schema is sound").columns().to_vec();
    let definition = TableDefinition { name: "Deep".to_owned(), columns, primary_key: vec![DEEP_KEY] };
    let table = database.create_table(definition).await.expect("the table can be made");
    let mut numbers: Vec<i32> = (0..count).collect();
    for index in (1..numbers.len()).rev() {
        numbers.swap(index, random.below(index as u64 + 1) as usize);
    }
    let mut rows = BTreeMap::new();
    let mut session = instance.session();
    for number in numbers {
        let values = [(DEEP_KEY, Value::Text(deep_key(number))), (DEEP_NUMBER, Value::I32(-number))];
        session.insert(&table, &values).await.expect("a new row can be inserted");
        session.commit(Durability::Lazy).await.expect("committing succeeds");
        rows.insert(number, -number);
    }
    for number in (0..count).filter(|number| number % 3 == 1) {
        session.delete(&table, &[Value::Text(deep_key(number))]).await.expect("a row can be deleted");
        session.commit(Durability::Lazy).await.expect("committing succeeds");
        rows.remove(&number);
    }
    rows
}

/// Bulk loads a table: a first part on sparse pages, for three levels, and a second behind it.
async fn load_table(instance: &Instance, random: &mut Random) -> Rows {
    let database = instance.databases().remove(0);
    let definition = TableDefinition {
        name: "Loaded".to_owned(),
        columns: model::columns(),
        primary_key: vec![model::MAILBOX, model::MESSAGE],
    };
    let table = database.create_table(definition).await.expect("the table can be made");
    let mut rows = Rows::new();
    for (mailbox, fill_percent, count) in [(0, 1, 60), (1, 100, 2000)] {
        let settings = BulkLoadSettings { fill_percent, ..BulkLoadSettings::default() };
        let mut loader = database.bulk_load(&table, settings).await.expect("a load can begin");
        for message in 0..count {
            let row = model::random_row(random, 700);
            loader.push(&model::row_values((mailbox, message), &row)).await.expect("a row is taken");
            rows.insert((mailbox, message), row);
        }
        loader.finish(Durability::Lazy).await.expect("a load ends");
    }
    rows
}

/// Creates the database; returns the expected rows of its tables.
async fn make(world: &World, path: &Path, page_size: PageSize) -> [(&'static str, Cells); 3] {
    let config = model::config(page_size, ByteCount(256 * page_size.bytes() as u64));
    let instance = model::open(world, path, 1, config).await;
    let database = instance.databases().remove(0);
    let table = model::mail_table(&database).await;
    let mut rows = Rows::new();
    let mut random = Random::new(u64::from(page_size.bytes() as u32), "readers");
    let mix = Mix { body_bytes_max: 700, mailboxes: 30, delete_percent: 25.0 };
    {
        let mut session = instance.session();
        model::change_at_random(&mut session, &table, &mut rows, &mut random, 3000, mix).await;
    }
    let deep = make_deep_table(&instance, deep_rows(page_size), &mut random).await;
    let loaded = load_table(&instance, &mut random).await;
    instance.close().await.expect("the group closes");
    let verdict = model::check_whole(path, "priv1.edb", page_size).await;
    assert_eq!(verdict.levels_max, 3, "{page_size:?}: {verdict:?}");

    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let cells = |rows: &Rows| {
        let row = |((mailbox, message), (subject, body)): (&(i32, i64), &(String, Vec<u8>))| {
            vec![mailbox.to_string(), message.to_string(), subject.clone(), hex(body)]
        };
        rows.iter().map(row).collect::<Cells>()
    };
    let deep = deep.iter().map(|(number, value)| vec![value.to_string(), deep_key(*number)]);
    [("Mail", cells(&rows)), ("Deep", deep.collect()), ("Loaded", cells(&loaded))]
}

/// Runs `judge` on a database of each page size and compares its output with both tables.
fn compare(judge: impl Fn(&Path, &str) -> Cells) {
    for page_size in [PageSize::Kib4, PageSize::Kib8, PageSize::Kib32] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path();
        let tables =
            real::run(3, real::RealOptions::default(), async |world| make(&world, path, page_size).await);
        for (table, expected) in tables {
            let found = judge(&path.join("priv1.edb"), table);
            assert_eq!(found.len(), expected.len(), "{page_size:?}, {table}: number of rows");
            let different = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(different, None, "{page_size:?}, {table}: first row that differs");
        }
    }
}

/// True if a reader is installed. Otherwise prints a note, or fails if outside judges are required.
fn is_here(name: &str, install: &str, probe: &mut Command) -> bool {
    let here = probe.output().is_ok_and(|output| output.status.success());
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "{name} is required: {install}");
    if !here {
        println!("skipped: {name} is not installed ({install})");
    }
    here
}

#[test]
fn esedbexport_sees_every_row_of_the_model() {
    if !is_here("esedbexport", "apt-get install libesedb-utils", Command::new("esedbexport").arg("-V")) {
        return;
    }
    compare(|file, table| {
        let target = file.with_file_name(format!("exported-{table}"));
        let run = Command::new("esedbexport").arg("-t").arg(&target).arg(file).output().expect("it was here");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        let folder = target.with_extension("export");
        let exported = std::fs::read_dir(folder)
            .expect("it made a folder")
            .map(|entry| entry.expect("readable").path())
            .find(|path| path.file_stem().is_some_and(|stem| stem == table))
            .expect("the table is exported");
        let text = std::fs::read_to_string(exported).expect("readable");
        text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    });
}

#[test]
fn esedbinfo_lists_the_tables() {
    if !is_here("esedbinfo", "apt-get install libesedb-utils", Command::new("esedbinfo").arg("-V")) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path();
    real::run(3, real::RealOptions::default(), async |world| make(&world, path, PageSize::Kib4).await);
    let run = Command::new("esedbinfo").arg(path.join("priv1.edb")).output().expect("it was here");
    let said = String::from_utf8_lossy(&run.stdout);
    for expected in ["Page size:\t\t4096 bytes", "Mail", "Deep", "MSysObjects", "MSysObjectsShadow"] {
        assert!(said.contains(expected), "no {expected:?} in\n{said}");
    }
}

/// Prints a table as dissect.esedb reads it: cells separated by tabs, binary as hex, in tree order.
const DISSECT: &str = r#"
import sys
from dissect.esedb import EseDB
with open(sys.argv[1], "rb") as file:
    for table in EseDB(file).tables():
        if table.name != sys.argv[2]:
            continue
        for record in table.records():
            cells = [record.get(name) for name in table.column_names]
            print("\t".join(c.hex() if isinstance(c, bytes) else str(c) for c in cells))
"#;

#[test]
fn dissect_sees_every_row_of_the_model() {
    let python = std::env::var("SPINDLE_DISSECT_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let install = "cargo xtask test --install";
    if !is_here("dissect.esedb", install, Command::new(&python).args(["-c", "import dissect.esedb"])) {
        return;
    }
    compare(|file, table| {
        let run =
            Command::new(&python).args(["-c", DISSECT]).arg(file).arg(table).output().expect("it was here");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let text = String::from_utf8(run.stdout).expect("the test's text is ASCII");
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    });
}
