//! The daemon's journal: what it must remember over a restart and no pool keeps. Today that is the site file that was
//! applied last, an apply that is under way, the pools that were made or opened, what callers of the API may and have done, and events.
//!
//! It is a redb database in one file: every change is a transaction with two-phase commit, and with quick repair, so that
//! opening after a crash does not have to find out which pages are in use. Texts are stored as they are, records as JSON.
//! All calls block, for as long as the file's syncs take.
//!
//! Invariants:
//!
//! 1. A method that returns `Ok` has made its change durable. One that fails has changed nothing, except after a failed
//!    sync: then nobody knows, and the journal takes nothing more until the daemon starts again.
//! 2. At most one apply is under way. Its end, and its text becoming the served site, are one transaction.
//! 3. A file is believed only as far as its checksums go: all of them are checked when it is opened. Damage is an error of
//!    one line, never a panic: without that check redb may panic later, with it 85,000 damaged files did not make it. One bit
//!    that no checksum covers, the choice between redb's two commit slots, may lead back to the transaction before.
//! 4. The table of settings has the number of the journal's format from the first transaction on. A file with another
//!    number is not touched.
//!
//! Reading order: `error`, `database` (opening, and the file below redb), this file, then the API's part: [`tokens`],
//! [`audit`], [`replies`], [`events`]; `jobs`; `moves`; [`pairings`], [`rehearsals`], `dr_services`, `dr_clients`, `dr_sets` and `dr_makings`, of other sites; and [`recovery`], of the documents in the pools.

pub mod audit;
mod database;
mod dr_clients;
mod dr_makings;
mod dr_services;
mod dr_sets;
mod error;
pub mod events;
mod jobs;
mod moves;
pub mod pairings;
mod presentations;
pub mod recovery;
pub mod rehearsals;
pub mod replies;
pub mod tokens;

pub use self::error::JournalError;

use self::database::{JournalDatabase, TransactionResult};
use redb::{ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};
use world::StateFile;

/// Number of the format of tables and values.
const FORMAT: u64 = 1;

/// Settings of the journal itself.
const SETTINGS: TableDefinition<&str, u64> = TableDefinition::new("settings");
const FORMAT_KEY: &str = "format";
/// Texts of site files.
const SITES: TableDefinition<&str, &str> = TableDefinition::new("sites");
const SERVED_KEY: &str = "served";
/// The file that was applied last: without what was changed online since.
const FILE_KEY: &str = "file";
/// Applies, as JSON.
const APPLIES: TableDefinition<&str, &str> = TableDefinition::new("applies");
const UNDER_WAY_KEY: &str = "under way";
/// Pools by their names, as JSON.
const POOLS: TableDefinition<&str, &str> = TableDefinition::new("pools");

/// An apply of a site file, from its first step to its last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyRecord {
    /// The site file.
    pub text: String,
    /// Names of what it may destroy.
    pub destroy: Vec<String>,
    /// The file, if `text` differs from it by what was changed online.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The site as the apply began with it, if rows were changed since, which `text` has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
    /// Of one row without a file: the change in words. The file stays as it was applied then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub online: Option<String>,
}

/// A pool that the daemon has made or opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalPool {
    pub folder: PathBuf,
    /// UUID that it was to get, while it is being made; none once it is there.
    pub being_made: Option<[u8; 16]>,
}

/// An open journal. Changes from several threads take turns; reads wait for none of them.
#[derive(Debug)]
pub struct DaemonJournal(JournalDatabase);

impl DaemonJournal {
    /// Opens the journal in `file`, or begins one if the file is empty. The caller has the only handle of the file.
    ///
    /// # Errors
    ///
    /// The file is damaged, of another format, or cannot be read or written.
    pub fn open(file: Arc<dyn StateFile>) -> Result<Self, JournalError> {
        Ok(Self(JournalDatabase::open(file)?))
    }

    /// Text of the site file that was applied last.
    pub fn served_site(&self) -> Result<Option<String>, JournalError> {
        self.0.read(|transaction| {
            let sites = transaction.open_table(SITES)?;
            Ok(sites.get(SERVED_KEY)?.map(|text| text.value().to_owned()))
        })
    }

    /// Text of the site file that was applied last, without what was changed online since; none if no change was made online
    /// yet.
    pub fn applied_file(&self) -> Result<Option<String>, JournalError> {
        self.0.read(|transaction| {
            let sites = transaction.open_table(SITES)?;
            Ok(sites.get(FILE_KEY)?.map(|text| text.value().to_owned()))
        })
    }

    /// Replaces the text of the served site, without an apply.
    pub fn set_served_site(&self, text: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(SITES)?.insert(SERVED_KEY, text)?;
            Ok(())
        })
    }

    /// Records an apply before its first step. It takes the place of one that is under way.
    pub fn begin_apply(&self, apply: &ApplyRecord) -> Result<(), JournalError> {
        let record = serde_json::to_string(apply).expect("strings can be written as JSON");
        self.0.change(|transaction| {
            transaction.open_table(APPLIES)?.insert(UNDER_WAY_KEY, record.as_str())?;
            transaction.open_table(recovery::RECOVERY)?.remove(recovery::IMPORTED_KEY)?;
            Ok(())
        })
    }

    /// The apply that has begun and not ended, if there is one.
    pub fn apply_under_way(&self) -> Result<Option<ApplyRecord>, JournalError> {
        let record = self.0.read(|transaction| Ok(text_under_way(&transaction.open_table(APPLIES)?)?))?;
        self.apply_of(record)
    }

    /// Ends the apply that is under way: its text becomes that of the served site. Without one nothing changes.
    pub fn end_apply(&self) -> Result<(), JournalError> {
        self.change_apply(|transaction, apply| {
            let Some(ApplyRecord { text, file, begun, online, .. }) = apply else { return Ok(()) };
            let mut sites = transaction.open_table(SITES)?;
            let before = sites.get(SERVED_KEY)?.map(|text| text.value().to_owned());
            let known_file = sites.get(FILE_KEY)?.map(|text| text.value().to_owned());
            // The first online change comes after a file that was served as it was.
            let file = if online.is_some() {
                known_file.or(before)
            } else {
                file.or(begun).or_else(|| Some(text.clone()))
            };
            if let Some(file) = file {
                sites.insert(FILE_KEY, file.as_str())?;
            }
            sites.insert(SERVED_KEY, text.as_str())?;
            transaction.open_table(APPLIES)?.remove(UNDER_WAY_KEY)?;
            Ok(())
        })
    }

    /// Records a row that was changed while a site file is applied to a part: in the site that was served before, and in that of
    /// the apply. `changed` gives the text that takes the place of one, if one does.
    pub fn change_rows(&self, changed: impl Fn(&str) -> Option<String>) -> Result<(), JournalError> {
        self.change_texts(changed, |_| Ok(()))
    }

    /// As [`Self::change_rows`], with another change in the same transaction.
    fn change_texts(
        &self,
        changed: impl Fn(&str) -> Option<String>,
        more: impl FnOnce(&WriteTransaction) -> TransactionResult<()>,
    ) -> Result<(), JournalError> {
        self.change_apply(|transaction, apply| {
            more(transaction)?;
            let mut sites = transaction.open_table(SITES)?;
            let served = sites.get(SERVED_KEY)?.map(|text| text.value().to_owned());
            if let Some(before) = served
                && let Some(after) = changed(&before)
            {
                if sites.get(FILE_KEY)?.is_none() {
                    sites.insert(FILE_KEY, before.as_str())?;
                }
                sites.insert(SERVED_KEY, after.as_str())?;
            }
            if let Some(mut apply) = apply
                && let Some(after) = changed(&apply.text)
            {
                let before = std::mem::replace(&mut apply.text, after);
                apply.begun.get_or_insert(before);
                let record = serde_json::to_string(&apply).expect("strings can be written as JSON");
                transaction.open_table(APPLIES)?.insert(UNDER_WAY_KEY, record.as_str())?;
            }
            Ok(())
        })
    }

    /// A change that begins with the apply that is under way, in one transaction.
    fn change_apply(
        &self,
        change: impl FnOnce(&WriteTransaction, Option<ApplyRecord>) -> TransactionResult<()>,
    ) -> Result<(), JournalError> {
        let mut unreadable = None;
        let changed = self.0.change(|transaction| {
            let record = text_under_way(&transaction.open_table(APPLIES)?)?;
            match self.apply_of(record) {
                Ok(apply) => change(transaction, apply),
                // Nothing is changed then.
                Err(error) => {
                    unreadable = Some(error);
                    Ok(())
                }
            }
        });
        unreadable.map_or(changed, Err)
    }

    fn apply_of(&self, record: Option<String>) -> Result<Option<ApplyRecord>, JournalError> {
        record.map(|record| self.0.parsed(&record, "its record of an apply")).transpose()
    }

    /// Pools that were made or opened, or are being made, by their names.
    pub fn pools(&self) -> Result<BTreeMap<String, JournalPool>, JournalError> {
        let database = &self.0;
        let records = database.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(POOLS)?.iter()? {
                let (name, record) = record?;
                records.push((name.value().to_owned(), record.value().to_owned()));
            }
            Ok(records)
        })?;
        let parsed =
            |(name, record): (String, String)| Ok((name, database.parsed(&record, "its record of a pool")?));
        records.into_iter().map(parsed).collect()
    }

    /// Records a pool, in the place of what was known under its name.
    pub fn put_pool(&self, name: &str, pool: &JournalPool) -> Result<(), JournalError> {
        let record = serde_json::to_string(pool).expect("paths and numbers can be written as JSON");
        self.0.change(|transaction| {
            transaction.open_table(POOLS)?.insert(name, record.as_str())?;
            Ok(())
        })
    }

    /// Forgets a pool.
    pub fn forget_pool(&self, name: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(POOLS)?.remove(name)?;
            Ok(())
        })
    }
}

/// The record of the apply that is under way.
fn text_under_way(
    applies: &impl ReadableTable<&'static str, &'static str>,
) -> Result<Option<String>, redb::StorageError> {
    Ok(applies.get(UNDER_WAY_KEY)?.map(|record| record.value().to_owned()))
}
