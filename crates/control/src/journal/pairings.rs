//! The identity of this site towards others, and the sites that it is paired with.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize};

/// The own identity, and those of other sites by their UUIDs, as JSON.
pub(super) const PAIRINGS: TableDefinition<&str, &str> = TableDefinition::new("pairings");
const OWN_KEY: &str = "own";

/// This site, as others know it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnIdentity {
    pub site: [u8; 16],
    /// PEM.
    pub certificate: String,
    /// PEM.
    pub key: String,
}

/// A paired site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairedSite {
    pub site: [u8; 16],
    /// SHA-256 of its certificate.
    pub certificate: [u8; 32],
    /// As people here call it.
    pub name: String,
    /// Nobody chose the name: it follows that of the other site.
    pub is_named_by_itself: bool,
    /// Its addresses, to which this site connects; none if the other one connects.
    pub addresses: Vec<String>,
}

impl DaemonJournal {
    /// The identity of this site, if it was made.
    pub fn own_identity(&self) -> Result<Option<OwnIdentity>, JournalError> {
        let record = self.0.read(|transaction| {
            let pairings = transaction.open_table(PAIRINGS)?;
            Ok(pairings.get(OWN_KEY)?.map(|record| record.value().to_owned()))
        })?;
        record.map(|record| self.0.parsed(&record, "its identity towards other sites")).transpose()
    }

    pub fn put_own_identity(&self, identity: &OwnIdentity) -> Result<(), JournalError> {
        self.put_pairing(OWN_KEY, &serde_json::to_string(identity).expect("plain fields"))
    }

    /// All paired sites.
    pub fn paired_sites(&self) -> Result<Vec<PairedSite>, JournalError> {
        let records = self.0.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(PAIRINGS)?.iter()? {
                let (key, record) = record?;
                if key.value() != OWN_KEY {
                    records.push(record.value().to_owned());
                }
            }
            Ok(records)
        })?;
        records.iter().map(|record| self.0.parsed(record, "its record of a paired site")).collect()
    }

    /// Records a paired site, in the place of what was known of it.
    pub fn put_paired_site(&self, paired: &PairedSite) -> Result<(), JournalError> {
        let key = crate::hexadecimal::hexadecimal(&paired.site);
        self.put_pairing(&key, &serde_json::to_string(paired).expect("plain fields"))
    }

    pub fn forget_paired_site(&self, site: &[u8; 16]) -> Result<(), JournalError> {
        let key = crate::hexadecimal::hexadecimal(site);
        self.0.change(|transaction| {
            transaction.open_table(PAIRINGS)?.remove(&*key)?;
            Ok(())
        })
    }

    fn put_pairing(&self, key: &str, record: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(PAIRINGS)?.insert(key, record)?;
            Ok(())
        })
    }
}
