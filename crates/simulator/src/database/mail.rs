//! The tables of each database, and their rows as the model knows them.

use super::trouble::{Trouble, Violation};
use maildb::{
    ColumnId, ColumnType, Database, Table, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{collections::BTreeMap, rc::Rc};
use world::Random;

/// Name of the table that sessions share.
pub const TABLE: &str = "Mail";
/// Name of the table that is bulk loaded.
pub const LOADED_TABLE: &str = "Loaded";
/// Mailboxes from this one on are in the table that is bulk loaded.
pub const LOADED_MAILBOX_MIN: i32 = 1000;

const MAILBOX: ColumnId = ColumnId(1);
const MESSAGE: ColumnId = ColumnId(2);
const SUBJECT: ColumnId = ColumnId(128);
const BODY: ColumnId = ColumnId(256);

/// Where a row lies: database, mailbox, message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Place of the database in its group.
    pub database: usize,
    /// First column of the primary key.
    pub mailbox: i32,
    /// Second column of the primary key.
    pub message: i64,
}

/// What a row holds beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// A short text.
    pub subject: String,
    /// Some bytes.
    pub body: Vec<u8>,
}

/// Rows by key.
pub type Rows = BTreeMap<Key, Rc<Mail>>;

impl Mail {
    /// A row with a body of 1 to `body_bytes_max` bytes.
    pub fn random(random: &mut Random, body_bytes_max: u64) -> Rc<Self> {
        let mut body = vec![0; 1 + random.below(body_bytes_max) as usize];
        random.fill(&mut body);
        Rc::new(Self { subject: format!("subject {}", random.below(1_000_000)), body })
    }

    /// The row as the engine takes it.
    pub fn values(&self, key: Key) -> Vec<(ColumnId, Value)> {
        vec![
            (MAILBOX, Value::I32(key.mailbox)),
            (MESSAGE, Value::I64(key.message)),
            (SUBJECT, Value::Text(self.subject.clone())),
            (BODY, Value::LongBinary(self.body.clone())),
        ]
    }

    /// A row as the engine gives it; a violation if it has other columns.
    pub fn from_values(database: usize, row: Vec<(ColumnId, Value)>) -> Result<(Key, Rc<Self>), Trouble> {
        match <[_; 4]>::try_from(row) {
            Ok(
                [
                    (MAILBOX, Value::I32(mailbox)),
                    (MESSAGE, Value::I64(message)),
                    (SUBJECT, Value::Text(subject)),
                    (BODY, Value::LongBinary(body)),
                ],
            ) => Ok((Key { database, mailbox, message }, Rc::new(Self { subject, body }))),
            other => Err(Violation::NotARow { row: format!("{other:?}") }.into()),
        }
    }
}

impl Key {
    /// The primary key as the engine takes it.
    pub fn values(self) -> Vec<Value> {
        vec![Value::I32(self.mailbox), Value::I64(self.message)]
    }
}

/// How a table is made.
pub fn definition(name: &str) -> TableDefinition {
    let schema = TableSchema::from_kinds([
        ("MailboxId", ColumnType::I32, CodePage::Western),
        ("MessageId", ColumnType::I64, CodePage::Western),
        ("Subject", ColumnType::Text, CodePage::Western),
        ("Body", ColumnType::LongBinary, CodePage::Western),
    ]);
    let columns = schema.expect("these columns suit each other").columns().to_vec();
    TableDefinition { name: name.to_owned(), columns, primary_key: vec![MAILBOX, MESSAGE] }
}

/// The rows of one database from a key prefix on, as long as `wanted` says so.
pub async fn scan(
    (index, database, table): (usize, &Database, &Table),
    from: &[Value],
    wanted: impl Fn(&Key) -> bool,
) -> Result<Rows, Trouble> {
    let mut cursor = database.cursor(table, from)?;
    let mut rows = Rows::new();
    loop {
        let batch = cursor.next_rows().await?;
        if batch.is_empty() {
            return Ok(rows);
        }
        for row in batch {
            let (key, mail) = Mail::from_values(index, row)?;
            if !wanted(&key) {
                return Ok(rows);
            }
            if rows.last_key_value().is_some_and(|(last, _)| *last >= key) {
                return Err(Violation::OutOfOrder { key }.into());
            }
            rows.insert(key, mail);
        }
    }
}
