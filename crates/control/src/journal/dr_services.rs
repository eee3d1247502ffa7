//! The rows that came with DR groups from their other sites. They have CHAP secrets, as the files of this server do.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use std::collections::BTreeMap;

/// By the UUIDs of groups, as JSON.
pub(super) const DR_SERVICES: TableDefinition<&str, &str> = TableDefinition::new("dr services");

impl DaemonJournal {
    /// The rows of all groups as text, by the UUIDs of the groups.
    pub fn dr_services(&self) -> Result<BTreeMap<String, String>, JournalError> {
        self.0.read(|transaction| {
            let mut records = BTreeMap::new();
            for record in transaction.open_table(DR_SERVICES)?.iter()? {
                let (group, text) = record?;
                records.insert(group.value().to_owned(), text.value().to_owned());
            }
            Ok(records)
        })
    }

    /// Records the rows of a group, in the place of those before.
    pub fn put_dr_services(&self, group: &str, text: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_SERVICES)?.insert(group, text)?;
            Ok(())
        })
    }

    /// Forgets the rows of a group.
    pub fn forget_dr_services(&self, group: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_SERVICES)?.remove(group)?;
            Ok(())
        })
    }
}
