//! The clients of DR groups at their other sites.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use std::collections::BTreeMap;

/// By the UUIDs of groups, as JSON.
pub(super) const DR_CLIENTS: TableDefinition<&str, &str> = TableDefinition::new("dr clients");

impl DaemonJournal {
    /// The clients of all groups as text, by the UUIDs of the groups.
    pub fn dr_clients(&self) -> Result<BTreeMap<String, String>, JournalError> {
        self.0.read(|transaction| {
            let mut records = BTreeMap::new();
            for record in transaction.open_table(DR_CLIENTS)?.iter()? {
                let (group, text) = record?;
                records.insert(group.value().to_owned(), text.value().to_owned());
            }
            Ok(records)
        })
    }

    /// Records the clients of a group, in the place of those before.
    pub fn put_dr_clients(&self, group: &str, text: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_CLIENTS)?.insert(group, text)?;
            Ok(())
        })
    }

    /// Forgets the clients of a group.
    pub fn forget_dr_clients(&self, group: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_CLIENTS)?.remove(group)?;
            Ok(())
        })
    }
}
