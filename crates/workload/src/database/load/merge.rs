//! Joining a dial-tone database with the lost one that came back: what came in meanwhile is added to it.
//!
//! Invariant: a message of the database that is added to is never changed. One that both have with other content is a conflict,
//! and stays where it is in each.

use super::{
    error::Error,
    mail_record::{ContentError, MailKey},
    mail_table::{MAIL_TABLE, from_values, key_values},
};
use maildb::{Database, Durability, Session};

/// Messages between two commits.
const BATCH: u64 = 256;
/// Conflicts that are named.
const CONFLICTS_MAX: usize = 1_000;

/// The result for one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedMail {
    /// Messages that the lost database did not have.
    pub added: u64,
    /// Messages that both have, with the same content.
    pub same: u64,
    pub conflicts: u64,
    /// The first of them.
    pub named: Vec<MailKey>,
}

/// Adds the messages of `from` to `into`, which is open with `session`; stable on return.
///
/// # Errors
///
/// A database cannot be read or written, has no mail table, or has a record that is no message.
pub async fn merge_into(
    from: &Database,
    (into, session): (&Database, &mut Session),
) -> Result<MergedMail, Error> {
    let table = |database: &Database| {
        let problem = "it has no mail table".to_owned();
        database.table(MAIL_TABLE).ok_or_else(|| Error::Mismatch { database: database.name(), problem })
    };
    let (source, target) = (table(from)?, table(into)?);
    let mut merged = MergedMail::default();
    let mut near = MailKey { mailbox: i32::MIN, message: i64::MIN };
    let mut cursor = from.cursor(&source, &key_values(near))?;
    loop {
        let rows = cursor.next_rows().await?;
        if rows.is_empty() {
            session.commit(Durability::Stable).await?;
            return Ok(merged);
        }
        for values in rows {
            let garbled = || Error::Content { database: from.name(), error: ContentError::Garbled(near) };
            near = from_values(values.clone()).ok_or_else(garbled)?.key;
            match session.read(&target, &key_values(near)).await? {
                None => {
                    session.insert(&target, &values).await?;
                    merged.added += 1;
                    if merged.added.is_multiple_of(BATCH) {
                        session.commit(Durability::Lazy).await?;
                    }
                }
                Some(present) if from_values(present.clone()) == from_values(values) => merged.same += 1,
                Some(_) => {
                    merged.conflicts += 1;
                    if merged.named.len() < CONFLICTS_MAX {
                        merged.named.push(near);
                    }
                }
            }
        }
    }
}
