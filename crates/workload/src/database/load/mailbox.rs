//! Reading mailboxes of a database that may be in a backup.

use super::{
    error::Error,
    mail_record::{ContentError, MailKey, MailRecord},
    mail_table::{MAIL_TABLE, from_values, key_values},
};
use maildb::{Database, Table};
use std::ops::ControlFlow;

/// The mail table of a database, for reading.
pub struct MailReader {
    database: Database,
    table: Table,
}

/// Count and times of a mailbox's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxSummary {
    pub messages: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Arrival of the newest one, in seconds since 1970.
    pub newest_s: Option<i64>,
}

impl MailReader {
    /// `None` if the database has no mail table.
    pub fn of(database: &Database) -> Option<Self> {
        let table = database.table(MAIL_TABLE)?;
        Some(Self { database: database.clone(), table })
    }

    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Passes the messages of a mailbox to `on_message` in the order of their numbers, until it breaks.
    ///
    /// # Errors
    ///
    /// The database cannot be read, or has a record that is no message.
    pub async fn read(
        &self,
        mailbox: i32,
        on_message: impl FnMut(MailRecord) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        self.read_from(MailKey { mailbox, message: i64::MIN }, on_message).await
    }

    /// As [`Self::read`], from a message on.
    ///
    /// # Errors
    ///
    /// As of [`Self::read`].
    pub async fn read_from(
        &self,
        first: MailKey,
        mut on_message: impl FnMut(MailRecord) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut near = first;
        let mailbox = first.mailbox;
        let mut cursor = self.database.cursor(&self.table, &key_values(near))?;
        loop {
            let rows = cursor.next_rows().await?;
            if rows.is_empty() {
                return Ok(());
            }
            for values in rows {
                let garbled =
                    || Error::Content { database: self.database.name(), error: ContentError::Garbled(near) };
                let message = from_values(values).ok_or_else(garbled)?;
                near = message.key;
                if near.mailbox != mailbox || on_message(message).is_break() {
                    return Ok(());
                }
            }
        }
    }

    /// Counts the messages of a mailbox.
    ///
    /// # Errors
    ///
    /// As of [`Self::read`].
    pub async fn summary(&self, mailbox: i32) -> Result<MailboxSummary, Error> {
        let mut summary = MailboxSummary::default();
        self.read(mailbox, |message| {
            summary.messages += 1;
            summary.bytes += message.body.len() as u64;
            summary.newest_s = summary.newest_s.max(Some(message.received_s()));
            ControlFlow::Continue(())
        })
        .await?;
        Ok(summary)
    }
}
