//! Databases and logs to verify, made by the engine in the test's own process.

use maildb::{
    ColumnId, ColumnType, DatabaseLocation, Durability, Instance, InstanceConfig, LogRetention, PageSize,
    PageStampMode, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{fs, path::Path, rc::Rc};
use world::{
    ByteCount, Directory,
    real::{self, FolderDirectory, RealOptions},
};

/// Bytes of a page of these databases.
pub const PAGE: usize = 8192;
const NUMBER: ColumnId = ColumnId(1);
const BODY: ColumnId = ColumnId(256);

/// State of the files.
#[derive(Clone, Copy, Default)]
pub struct MailState {
    pub stamps: bool,
    /// Leave it as a snapshot would: in use, its pages behind its logs.
    pub dirty: bool,
}

/// Makes `priv1.edb` and its logs in `folder`, or adds `rows` to them, from number `first` on.
pub fn make(folder: &Path, first: i32, rows: i32, how: MailState) {
    real::run(7, RealOptions::default(), async |world| {
        let at_work = folder.with_extension("at-work");
        fs::create_dir_all(folder).expect("a folder");
        let place = if how.dirty { &at_work } else { folder };
        fs::create_dir_all(place).expect("a folder");
        let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(place).expect("a folder"));
        let location =
            DatabaseLocation { directory: Rc::clone(&directory), file_name: "priv1.edb".to_owned() };
        let config = InstanceConfig {
            log_file: ByteCount::kib(256),
            log_retention: LogRetention::UntilReleased,
            page_stamps: if how.stamps { PageStampMode::Durable } else { PageStampMode::Off },
            torn_page_protection: false,
            ..InstanceConfig::new(PageSize::Kib8, ByteCount::mib(8))
        };
        let instance = Instance::open(&world, directory, vec![location], config).await.expect("it opens");
        let database = instance.databases().remove(0);
        let table = match database.table("Mail") {
            Some(table) => table,
            None => database.create_table(definition()).await.expect("a table"),
        };
        let mut session = instance.session();
        for number in first..first + rows {
            let body = vec![number as u8; 900];
            let values = [(NUMBER, Value::I32(number)), (BODY, Value::LongBinary(body))];
            session.insert(&table, &values).await.expect("a row");
            session.commit(Durability::Lazy).await.expect("a commit");
        }
        session.insert(&table, &[(NUMBER, Value::I32(-first - 1))]).await.expect("a row");
        session.commit(Durability::Stable).await.expect("a commit");
        drop(session);
        if how.dirty {
            copy_files(&at_work, folder);
        }
        instance.close().await.expect("it closes");
        if how.dirty {
            fs::remove_dir_all(&at_work).expect("removed");
        }
    });
}

fn definition() -> TableDefinition {
    let kinds = [("Number", ColumnType::I32), ("Body", ColumnType::LongBinary)];
    let schema = TableSchema::from_kinds(kinds.map(|(name, kind)| (name, kind, CodePage::Western)));
    let columns = schema.expect("a sound schema").columns().to_vec();
    TableDefinition { name: "Mail".to_owned(), columns, primary_key: vec![NUMBER] }
}

/// Copies all files of a folder.
pub fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// The bytes of a page in those of a file.
pub fn page(file: &[u8], number: usize) -> &[u8] {
    &file[(number + 1) * PAGE..(number + 2) * PAGE]
}

/// The number of the last page of a file that holds anything.
pub fn last_used(file: &[u8]) -> usize {
    let pages = file.len() / PAGE - 2;
    let is_used = |&number: &usize| page(file, number).iter().any(|&byte| byte != 0);
    (1..=pages).rev().find(is_used).expect("a page in use")
}

/// Changes the bytes of a file.
pub fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).expect("a file");
    change(&mut bytes);
    fs::write(path, bytes).expect("written");
}
