//! Sets whose volumes lie in DR groups, and what their other sites told of them.

use super::{DaemonJournal, JournalError};
use redb::{ReadableTable, TableDefinition};
use std::collections::BTreeMap;

/// By the names of sets, as JSON.
pub(super) const DR_SETS: TableDefinition<&str, &str> = TableDefinition::new("dr sets");

impl DaemonJournal {
    /// The records of all sets as text, by the names of the sets.
    pub fn dr_sets(&self) -> Result<BTreeMap<String, String>, JournalError> {
        self.0.read(|transaction| {
            let mut records = BTreeMap::new();
            for record in transaction.open_table(DR_SETS)?.iter()? {
                let (set, text) = record?;
                records.insert(set.value().to_owned(), text.value().to_owned());
            }
            Ok(records)
        })
    }

    /// Records what is known of a set, in the place of what was known before.
    pub fn put_dr_set(&self, set: &str, text: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_SETS)?.insert(set, text)?;
            Ok(())
        })
    }
}
