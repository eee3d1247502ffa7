//! The tables of each database, and their rows in the model.

use super::violation::{GroupRunError, GroupViolation};
use maildb::{
    ColumnId, ColumnType, Database, Table, TableDefinition, Value,
    format::record::{CodePage, TableSchema},
};
use std::{collections::BTreeMap, rc::Rc};
use world::Random;

/// Name of the table that sessions share.
pub const TABLE: &str = "Mail";
/// Name of the bulk-loaded table.
pub const LOADED_TABLE: &str = "Loaded";
/// Mailboxes from this one on are in the bulk-loaded table.
pub const LOADED_MAILBOX_MIN: i32 = 1000;

const MAILBOX: ColumnId = ColumnId(1);
const MESSAGE: ColumnId = ColumnId(2);
const SUBJECT: ColumnId = ColumnId(128);
const BODY: ColumnId = ColumnId(256);

/// The address of a row: database, mailbox, message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    /// Index of the database in its group.
    pub database: usize,
    /// First column of the primary key.
    pub mailbox: i32,
    /// Second column of the primary key.
    pub message: i64,
}

/// The columns of a row beside its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    pub subject: String,
    pub body: Vec<u8>,
}

pub type Rows = BTreeMap<RowKey, Rc<Mail>>;

impl Mail {
    /// A row with a body of 1 to `body_bytes_max` bytes.
    pub fn random(random: &mut Random, body_bytes_max: u64) -> Rc<Self> {
        let mut body = vec![0; 1 + random.below(body_bytes_max) as usize];
        random.fill(&mut body);
        Rc::new(Self { subject: format!("subject {}", random.below(1_000_000)), body })
    }

    /// The column values for the engine.
    pub fn values(&self, key: RowKey) -> Vec<(ColumnId, Value)> {
        vec![
            (MAILBOX, Value::I32(key.mailbox)),
            (MESSAGE, Value::I64(key.message)),
            (SUBJECT, Value::Text(self.subject.clone())),
            (BODY, Value::LongBinary(self.body.clone())),
        ]
    }

    /// Parses a row from the engine; a violation if it has other columns.
    pub fn from_values(
        database: usize,
        row: Vec<(ColumnId, Value)>,
    ) -> Result<(RowKey, Rc<Self>), GroupRunError> {
        match <[_; 4]>::try_from(row) {
            Ok(
                [
                    (MAILBOX, Value::I32(mailbox)),
                    (MESSAGE, Value::I64(message)),
                    (SUBJECT, Value::Text(subject)),
                    (BODY, Value::LongBinary(body)),
                ],
            ) => Ok((RowKey { database, mailbox, message }, Rc::new(Self { subject, body }))),
            other => Err(GroupViolation::NotARow { row: format!("{other:?}") }.into()),
        }
    }
}

impl RowKey {
    /// The primary key for the engine.
    pub fn values(self) -> Vec<Value> {
        vec![Value::I32(self.mailbox), Value::I64(self.message)]
    }
}

/// The definition of a table.
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

/// Scans a database from a key prefix on, as long as `wanted` returns true.
pub async fn scan(
    (index, database, table): (usize, &Database, &Table),
    from: &[Value],
    wanted: impl Fn(&RowKey) -> bool,
) -> Result<Rows, GroupRunError> {
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
                return Err(GroupViolation::OutOfOrder { key }.into());
            }
            rows.insert(key, mail);
        }
    }
}
