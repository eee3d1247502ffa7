//! The journal's part of the documents in the pools: the number of the site's last change, and the recovery key.

use super::{DaemonJournal, JournalError};
use crate::{
    hexadecimal::{hexadecimal, of_hexadecimal},
    recovery::RecoveryKey,
};
use redb::TableDefinition;
use serde::{Deserialize, Serialize};

/// Records as JSON.
pub(super) const RECOVERY: TableDefinition<&str, &str> = TableDefinition::new("recovery");
const SITE_KEY: &str = "site";
const KEY_KEY: &str = "key";
/// Until the first apply.
pub(super) const IMPORTED_KEY: &str = "imported";

/// The site as its pools keep it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSite {
    pub site: [u8; 16],
    /// Counted up with each change, from 1.
    pub generation: u64,
    /// Of all documents and secrets of this generation; empty if they are to be written again.
    pub fingerprint: String,
}

/// The recovery key, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryRecord {
    pub key: RecoveryKey,
    /// Seconds since 1970, UTC.
    pub made_unix_s: i64,
    /// A person has been shown it, or it was written to a file.
    pub is_shown: bool,
}

#[derive(Serialize, Deserialize)]
struct RecoveryText {
    key: String,
    made_unix_s: i64,
    is_shown: bool,
}

impl DaemonJournal {
    /// The site as its pools keep it; `None` before the first document.
    pub fn kept_site(&self) -> Result<Option<KeptSite>, JournalError> {
        let record = self.recovery(SITE_KEY)?;
        record.map(|record| self.0.parsed(&record, "its record of the site")).transpose()
    }

    pub fn put_kept_site(&self, site: &KeptSite) -> Result<(), JournalError> {
        self.put_recovery(SITE_KEY, &serde_json::to_string(site).expect("plain fields"))
    }

    /// The key of the secrets in the pools; `None` if there was none to seal.
    pub fn recovery_key(&self) -> Result<Option<RecoveryRecord>, JournalError> {
        let Some(record) = self.recovery(KEY_KEY)? else { return Ok(None) };
        let damaged = || self.0.damaged("its record of the recovery key");
        let RecoveryText { key, made_unix_s, is_shown } =
            serde_json::from_str(&record).map_err(|_| damaged())?;
        let bytes = of_hexadecimal(&key).and_then(|bytes| bytes.try_into().ok()).ok_or_else(damaged)?;
        Ok(Some(RecoveryRecord { key: RecoveryKey::of_bytes(bytes), made_unix_s, is_shown }))
    }

    /// Records the key, in the place of the one of before.
    pub fn put_recovery_key(&self, record: &RecoveryRecord) -> Result<(), JournalError> {
        let RecoveryRecord { key, made_unix_s, is_shown } = record;
        let (made_unix_s, is_shown) = (*made_unix_s, *is_shown);
        let text = RecoveryText { key: hexadecimal(key.bytes()), made_unix_s, is_shown };
        self.put_recovery(KEY_KEY, &serde_json::to_string(&text).expect("plain fields"))
    }

    /// The text of the site file that an import writes, or wrote, if nothing was applied since: it may be repeated.
    pub fn imported_site(&self) -> Result<Option<String>, JournalError> {
        self.recovery(IMPORTED_KEY)
    }

    pub fn put_imported_site(&self, text: &str) -> Result<(), JournalError> {
        self.put_recovery(IMPORTED_KEY, text)
    }

    fn recovery(&self, key: &str) -> Result<Option<String>, JournalError> {
        self.0.read(|transaction| {
            let records = transaction.open_table(RECOVERY)?;
            Ok(records.get(key)?.map(|record| record.value().to_owned()))
        })
    }

    fn put_recovery(&self, key: &str, record: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(RECOVERY)?.insert(key, record)?;
            Ok(())
        })
    }
}
