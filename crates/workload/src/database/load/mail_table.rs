//! A mail database: the table under test, and a label that identifies the test it was made for.

use crate::{
    database::{
        load::{
            dial_tone::{DialTone, read_dial_tone},
            error::Error,
            key_space::KeySpace,
            mail_record::{ContentError, MailKey, MailRecord, RecordMaker, RecordVersion},
        },
        plan::profile::{RecordForm, Skew},
    },
    yield_now::yield_now,
};
use maildb::{
    BulkLoadSettings, BulkLoader, ColumnDefinition, ColumnId, ColumnType, Database, Durability, Session,
    Table, TableDefinition, Value, format::record::CodePage,
};
use std::collections::BTreeMap;
use world::ByteCount;

pub(super) const MAIL_TABLE: &str = "Mail";
/// Holds one record, the label.
pub(super) const LABEL_TABLE: &str = "Spindle";

const MAILBOX_ID: ColumnId = ColumnId(1);
const MESSAGE_ID: ColumnId = ColumnId(2);
const RECEIVED: ColumnId = ColumnId(3);
const FLAGS: ColumnId = ColumnId(4);
const SUBJECT: ColumnId = ColumnId(128);
const BODY: ColumnId = ColumnId(256);

pub(super) const LABEL_ID: ColumnId = ColumnId(1);
pub(super) const LABEL_TEXT: ColumnId = ColumnId(128);
/// Key of the only record of the label table.
const LABEL_KEY: [Value; 1] = [Value::I32(1)];

/// An open mail database.
pub struct MailDatabase {
    pub database: Database,
    table: Table,
    pub maker: RecordMaker,
    /// It is empty until the databases that were lost are back.
    pub dial_tone: Option<DialTone>,
}

/// A bulk load at the end of the mail table.
pub struct MailLoad<'a> {
    maker: &'a RecordMaker,
    loader: BulkLoader,
    /// The last record, reused for its memory.
    record: MailRecord,
}

impl MailLoad<'_> {
    /// Adds `key` in its first version. Keys must ascend and be above all existing ones.
    pub async fn push(&mut self, key: MailKey) -> maildb::Result<()> {
        self.maker.make_in(&mut self.record, key, RecordVersion::FIRST);
        let MailRecord { received, flags, subject, body, .. } = &mut self.record;
        let mut values = values_of(key, *received, *flags, std::mem::take(subject), std::mem::take(body));
        let outcome = self.loader.push(&values).await;
        if let [.., (_, Value::Text(text)), (_, Value::LongBinary(bytes))] = &mut values {
            (*subject, *body) = (std::mem::take(text), std::mem::take(bytes));
        }
        outcome
    }

    /// Size of the database if the load finished now.
    pub fn size(&self) -> ByteCount {
        self.loader.size()
    }

    /// Makes all records visible, with a lazy commit.
    pub async fn finish(self) -> maildb::Result<()> {
        self.loader.finish(Durability::Lazy).await
    }
}

/// The version of a record, or its fault.
pub type RecordCheck = Result<RecordVersion, ContentError>;

impl MailDatabase {
    /// Attaches to `database` if its label matches `form`; creates its tables and label if it has none. An
    /// existing database keeps the seed it was made with; `seed` is for a new one.
    pub async fn attach(
        database: Database,
        session: &mut Session,
        seed: u64,
        form: RecordForm,
    ) -> Result<Self, Error> {
        let label = match database.table(LABEL_TABLE) {
            Some(table) => read_label(&database, session, &table).await?,
            None => None,
        };
        let seed = match label {
            Some(label) if label.form == form => label.seed,
            Some(label) => {
                let (theirs, asked) = (label.form, form);
                let problem = if theirs.record_bytes != asked.record_bytes {
                    format!(
                        "made for records of {} bytes, not {}; use --set record_bytes={0} or another folder",
                        theirs.record_bytes, asked.record_bytes
                    )
                } else {
                    format!(
                        "made of records that are compressible by {} %, not {} %; use --set \
                         compressible_percent={0} or another folder",
                        theirs.compressible_percent, asked.compressible_percent
                    )
                };
                return Err(Error::Mismatch { database: database.name(), problem });
            }
            None => seed,
        };
        let table = match database.table(MAIL_TABLE) {
            Some(table) => table,
            None => database.create_table(mail_definition()).await?,
        };
        if label.is_none() {
            write_label(&database, session, Label { seed, form }).await?;
        }
        let dial_tone = read_dial_tone(&database).await?;
        Ok(Self { database, table, maker: RecordMaker::new(seed, form), dial_tone })
    }

    /// The key space before its records are read.
    pub fn key_space(&self, skew: Skew) -> KeySpace {
        match self.dial_tone {
            Some(DialTone { mailboxes, first_message }) => {
                KeySpace::of_dial_tone(skew, mailboxes as usize, first_message)
            }
            None => KeySpace::new(skew),
        }
    }

    /// Starts a bulk load after all existing records; the file is expected to reach `size`.
    pub async fn begin_load(&self, size: ByteCount) -> maildb::Result<MailLoad<'_>> {
        let settings = BulkLoadSettings { size_expected: size, ..BulkLoadSettings::default() };
        let loader = self.database.bulk_load(&self.table, settings).await?;
        let record = self.maker.make(MailKey { mailbox: 0, message: 0 }, RecordVersion::FIRST);
        Ok(MailLoad { maker: &self.maker, loader, record })
    }

    pub async fn insert(&self, session: &mut Session, key: MailKey) -> maildb::Result<()> {
        session.insert(&self.table, &to_values(self.maker.make(key, RecordVersion::FIRST))).await
    }

    /// Inserts a message as it is.
    pub async fn put(&self, session: &mut Session, message: MailRecord) -> maildb::Result<()> {
        session.insert(&self.table, &to_values(message)).await
    }

    pub async fn replace(
        &self,
        session: &mut Session,
        key: MailKey,
        version: RecordVersion,
    ) -> maildb::Result<()> {
        session.replace(&self.table, &key_values(key), &to_values(self.maker.make(key, version))).await
    }

    pub async fn delete(&self, session: &mut Session, key: MailKey) -> maildb::Result<()> {
        session.delete(&self.table, &key_values(key)).await
    }

    /// Reads `key` and checks its content and version.
    pub async fn read(
        &self,
        session: &Session,
        key: MailKey,
        expected: RecordVersion,
    ) -> maildb::Result<RecordCheck> {
        Ok(match session.read(&self.table, &key_values(key)).await? {
            None => Err(ContentError::Gone(key)),
            Some(values) => match from_values(values) {
                None => Err(ContentError::Garbled(key)),
                Some(record) => self.maker.check(key, Some(expected), &record),
            },
        })
    }

    /// Reads and checks every record in key order. Passes batches to `on_records` until that returns false.
    pub async fn scan(
        &self,
        mut on_records: impl FnMut(&[(MailKey, RecordVersion)]) -> bool,
    ) -> Result<(), Error> {
        let wrong = |error| Error::Content { database: self.database.name(), error };
        let mut cursor = self.database.cursor(&self.table, &[])?;
        let mut last = None;
        loop {
            let mut found = Vec::new();
            for values in cursor.next_rows().await? {
                let near = last.unwrap_or(MailKey { mailbox: 0, message: 0 });
                let record = from_values(values).ok_or_else(|| wrong(ContentError::Garbled(near)))?;
                let version = self.maker.check(record.key, None, &record).map_err(wrong)?;
                if last >= Some(record.key) {
                    return Err(wrong(ContentError::Unexpected(record.key)));
                }
                last = Some(record.key);
                found.push((record.key, version));
            }
            if found.is_empty() || !on_records(&found) {
                return Ok(());
            }
            yield_now().await;
        }
    }
}

fn column(id: ColumnId, name: &str, kind: ColumnType) -> ColumnDefinition {
    ColumnDefinition { id, name: name.to_owned(), kind, code_page: CodePage::Western }
}

pub(super) fn mail_definition() -> TableDefinition {
    TableDefinition {
        name: MAIL_TABLE.to_owned(),
        columns: vec![
            column(MAILBOX_ID, "MailboxId", ColumnType::I32),
            column(MESSAGE_ID, "MessageId", ColumnType::Currency),
            column(RECEIVED, "Received", ColumnType::Currency),
            column(FLAGS, "Flags", ColumnType::I32),
            column(SUBJECT, "Subject", ColumnType::Text),
            column(BODY, "Body", ColumnType::LongBinary),
        ],
        primary_key: vec![MAILBOX_ID, MESSAGE_ID],
    }
}

pub(super) fn key_values(key: MailKey) -> [Value; 2] {
    [Value::I32(key.mailbox), Value::I64(key.message)]
}

fn to_values(record: MailRecord) -> Vec<(ColumnId, Value)> {
    let MailRecord { key, received, flags, subject, body } = record;
    values_of(key, received, flags, subject, body).into()
}

fn values_of(
    key: MailKey,
    received: i64,
    flags: i32,
    subject: String,
    body: Vec<u8>,
) -> [(ColumnId, Value); 6] {
    [
        (MAILBOX_ID, Value::I32(key.mailbox)),
        (MESSAGE_ID, Value::I64(key.message)),
        (RECEIVED, Value::I64(received)),
        (FLAGS, Value::I32(flags)),
        (SUBJECT, Value::Text(subject)),
        (BODY, Value::LongBinary(body)),
    ]
}

pub(super) fn label_definition() -> TableDefinition {
    let columns = vec![column(LABEL_ID, "Id", ColumnType::I32), column(LABEL_TEXT, "Text", ColumnType::Text)];
    TableDefinition { name: LABEL_TABLE.to_owned(), columns, primary_key: vec![LABEL_ID] }
}

/// None if a column is missing or of another type.
pub(super) fn from_values(values: Vec<(ColumnId, Value)>) -> Option<MailRecord> {
    let mut values: BTreeMap<ColumnId, Value> = values.into_iter().collect();
    let mut take = |id| values.remove(&id);
    let (Value::I32(mailbox), Value::I64(message)) = (take(MAILBOX_ID)?, take(MESSAGE_ID)?) else {
        return None;
    };
    let (Value::I64(received), Value::I32(flags)) = (take(RECEIVED)?, take(FLAGS)?) else { return None };
    let (Value::Text(subject), Value::LongBinary(body)) = (take(SUBJECT)?, take(BODY)?) else { return None };
    Some(MailRecord { key: MailKey { mailbox, message }, received, flags, subject, body })
}

/// Seed and record form a database was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label {
    seed: u64,
    form: RecordForm,
}

impl Label {
    /// First word of a label of incompressible records; the number changes whenever the content of records
    /// does.
    const PLAIN: &str = "spindle-mail-1";
    /// First word of a label that has a third figure, the compressible share.
    const COMPRESSIBLE: &str = "spindle-mail-2";

    fn to_text(self) -> String {
        let RecordForm { record_bytes, compressible_percent } = self.form;
        match compressible_percent {
            0 => format!("{} {} {record_bytes}", Self::PLAIN, self.seed),
            percent => format!("{} {} {record_bytes} {percent}", Self::COMPRESSIBLE, self.seed),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let (seed, record_bytes, compressible_percent) = match words.as_slice() {
            [Self::PLAIN, seed, record_bytes] => (seed, record_bytes, 0),
            [Self::COMPRESSIBLE, seed, record_bytes, percent] => (seed, record_bytes, percent.parse().ok()?),
            _ => return None,
        };
        let (seed, record_bytes) = (seed.parse().ok()?, record_bytes.parse().ok()?);
        let form = RecordForm { record_bytes, compressible_percent };
        (compressible_percent <= 100).then_some(Self { seed, form })
    }
}

async fn read_label(
    database: &Database,
    session: &mut Session,
    table: &Table,
) -> Result<Option<Label>, Error> {
    let Some(values) = session.read(table, &LABEL_KEY).await? else { return Ok(None) };
    let text = values.into_iter().find_map(|(id, value)| match value {
        Value::Text(text) if id == LABEL_TEXT => Some(text),
        _ => None,
    });
    match text.as_deref().and_then(Label::parse) {
        Some(label) => Ok(Some(label)),
        None => Err(Error::Mismatch {
            database: database.name(),
            problem: "its label was not written by this version of Spindle; use another folder".to_owned(),
        }),
    }
}

async fn write_label(database: &Database, session: &mut Session, label: Label) -> Result<(), Error> {
    let table = match database.table(LABEL_TABLE) {
        Some(table) => table,
        None => database.create_table(label_definition()).await?,
    };
    let [id] = LABEL_KEY;
    session.insert(&table, &[(LABEL_ID, id), (LABEL_TEXT, Value::Text(label.to_text()))]).await?;
    session.commit(Durability::Stable).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: RecordForm = RecordForm { record_bytes: 1000, compressible_percent: 0 };

    #[test]
    fn records_go_to_columns_and_back_unchanged() {
        let record = RecordMaker::new(1, FORM).make(MailKey { mailbox: 5, message: 6 }, RecordVersion::FIRST);
        assert_eq!(from_values(to_values(record.clone())), Some(record.clone()));
        let mut short = to_values(record);
        short.pop();
        assert_eq!(from_values(short), None);
    }

    #[test]
    fn labels_are_read_as_written_and_others_refused() {
        for compressible_percent in [0, 1, 100] {
            let label = Label { seed: u64::MAX, form: RecordForm { compressible_percent, ..FORM } };
            assert_eq!(Label::parse(&label.to_text()), Some(label));
        }
        let plain = Label { seed: 7, form: FORM };
        assert_eq!(plain.to_text(), "spindle-mail-1 7 1000", "as it always was");
        assert_eq!(Label::parse("spindle-mail-2 1 1000 101"), None);
        assert_eq!(Label::parse("spindle-mail-1 1 1000 50"), None);
        assert_eq!(Label::parse("spindle-mail-2 1 1000"), None);
        assert_eq!(Label::parse(""), None);
    }
}
