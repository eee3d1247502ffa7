//! Creation of the databases, and the scan of existing ones.
//!
//! Records are loaded in key order (mailbox after mailbox, 1,024 messages each) in one bulk load, until the
//! file has the wanted size. Key order gives sequential I/O and full pages, and makes creation resumable:
//! after a stop the table holds a prefix, and its last key is where to continue. The databases of a group are
//! filled concurrently, each group on its thread.

use crate::{
    database::load::{
        error::Error,
        key_space::KeySpace,
        mail_record::{ContentError, MailKey, RecordVersion},
        mail_table::MailDatabase,
    },
    yield_now::yield_now,
};
use maildb::{Durability, Session};
use serde::{Deserialize, Serialize};
use world::ByteCount;

/// Messages of a new mailbox: about 1 MiB of mail at the usual record size.
pub const MESSAGES_PER_MAILBOX: i64 = 1024;
/// Records between two checks of the file size and of the stop flag.
const LOOK_RECORDS: u32 = 64;
/// A database this near to its wanted size, in percent, is not filled further: files grow in extents, and an
/// earlier run may have grown the database.
const NEAR_ENOUGH_PERCENT: u64 = 97;
/// Share of a small database that is records, in percent; pages and trees take the rest.
const SMALL_PERCENT: u64 = 80;

/// Receives progress, and can stop a creation.
pub trait CreationObserver {
    /// Reports bytes done of all bytes in this database.
    fn progress(&self, done: ByteCount, total: ByteCount);
    /// True if the creation must stop at the next opportunity.
    fn stopped(&self) -> bool;
}

/// Result of creating one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreationOutcome {
    /// Records found in the file.
    pub found: u64,
    pub inserted: u64,
    /// False if creation was stopped before the database had its wanted size.
    pub complete: bool,
}

/// Grows one database to `wanted` bytes, and makes `keys` describe its content.
pub async fn create(
    mail: &MailDatabase,
    session: &mut Session,
    keys: &mut KeySpace,
    wanted: ByteCount,
    watch: &impl CreationObserver,
) -> Result<CreationOutcome, Error> {
    let last = scan_existing(mail, keys, watch).await?;
    let found = keys.existing();
    if mail.dial_tone.is_some() {
        // It is filled by what arrives, until the lost databases are back.
        return Ok(CreationOutcome { found, inserted: 0, complete: !watch.stopped() });
    }
    if watch.stopped() {
        return Ok(CreationOutcome { found, inserted: 0, complete: false });
    }
    let mut next = last.map_or(MailKey { mailbox: 0, message: 0 }, following);
    let near_enough = ByteCount(wanted.0 / 100 * NEAR_ENOUGH_PERCENT);
    let wanted = if found > 0 { near_enough } else { wanted };
    if mail.database.size() >= wanted {
        // A file starts with an extent of free pages, and a bulk load would start after it: a small database
        // fits into the extent.
        let records =
            if found > 0 { 0 } else { wanted.0 / 100 * SMALL_PERCENT / mail.maker.record_bytes() as u64 };
        let inserted = insert_few(mail, session, keys, records, watch).await?;
        return Ok(CreationOutcome { found, inserted, complete: inserted == records });
    }
    let mut load = mail.begin_load(wanted).await?;
    // The records between two checks must not grow the file beyond its size by a whole extent.
    let look_bytes = u64::from(LOOK_RECORDS) * 2 * mail.maker.record_bytes() as u64;
    let (mut inserted, mut stopped) = (0, false);
    while load.size().0 + look_bytes < wanted.0 && !stopped {
        for _ in 0..LOOK_RECORDS {
            load.push(next).await?;
            keys.note(next, RecordVersion::FIRST);
            next = following(next);
            inserted += 1;
        }
        watch.progress(load.size(), wanted);
        stopped = watch.stopped();
    }
    load.finish().await?;
    Ok(CreationOutcome { found, inserted, complete: !stopped })
}

/// Inserts up to `records` records one by one into an empty database; returns the number inserted before a
/// stop.
async fn insert_few(
    mail: &MailDatabase,
    session: &mut Session,
    keys: &mut KeySpace,
    records: u64,
    watch: &impl CreationObserver,
) -> Result<u64, Error> {
    let mut next = MailKey { mailbox: 0, message: 0 };
    let mut inserted = 0;
    while inserted < records && !watch.stopped() {
        for _ in 0..u64::from(LOOK_RECORDS).min(records - inserted) {
            mail.insert(session, next).await?;
            keys.note(next, RecordVersion::FIRST);
            next = following(next);
            inserted += 1;
        }
        session.commit(Durability::Lazy).await?;
        yield_now().await;
        watch.progress(ByteCount(inserted), ByteCount(records));
    }
    Ok(inserted)
}

fn following(key: MailKey) -> MailKey {
    match key.message + 1 {
        message if message < MESSAGES_PER_MAILBOX => MailKey { message, ..key },
        _ => MailKey { mailbox: key.mailbox + 1, message: 0 },
    }
}

/// Reads and checks every record; returns the last key.
async fn scan_existing(
    mail: &MailDatabase,
    keys: &mut KeySpace,
    watch: &impl CreationObserver,
) -> Result<Option<MailKey>, Error> {
    let size = mail.database.size();
    let record_bytes = mail.maker.record_bytes() as u64;
    let (mut last, mut foreign) = (None, None);
    mail.scan(|records| {
        for (key, version) in records {
            if !keys.may_hold(*key) {
                foreign = Some(*key);
                return false;
            }
            keys.note(*key, *version);
            last = Some(*key);
        }
        watch.progress(ByteCount((keys.existing() * record_bytes).min(size.0)), size);
        !watch.stopped()
    })
    .await?;
    match foreign {
        Some(key) => {
            Err(Error::Content { database: mail.database.name(), error: ContentError::Unexpected(key) })
        }
        None => Ok(last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_from_mailbox_to_mailbox_without_gaps() {
        let key = |mailbox, message| MailKey { mailbox, message };
        assert_eq!(following(key(0, 0)), key(0, 1));
        assert_eq!(following(key(0, 1023)), key(1, 0));
        assert_eq!(following(key(4, 9000)), key(5, 0), "a mailbox that has grown is left as it is");
    }
}
