//! DR groups that an apply is making: the UUID that each was to get, so that the next apply finds what it began at both sites.

use super::{DaemonJournal, JournalError};
use array::format::GroupId;
use redb::{ReadableTable, TableDefinition};
use serving::uuid::parse_uuid;
use std::collections::BTreeMap;

/// UUIDs by the names of groups.
pub(super) const DR_MAKINGS: TableDefinition<&str, &str> = TableDefinition::new("dr groups being made");

impl DaemonJournal {
    /// The groups whose making began and did not end, by name.
    pub fn dr_groups_being_made(&self) -> Result<BTreeMap<String, GroupId>, JournalError> {
        let records = self.0.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(DR_MAKINGS)?.iter()? {
                let (name, group) = record?;
                records.push((name.value().to_owned(), group.value().to_owned()));
            }
            Ok(records)
        })?;
        let parsed = |(name, group): (String, String)| match parse_uuid(&group) {
            Ok(group) => Ok((name, GroupId(group))),
            Err(problem) => Err(self.0.damaged(format!("its record of DR group {name}: {problem}"))),
        };
        records.into_iter().map(parsed).collect()
    }

    /// Records that a group of this name is being made.
    pub fn begin_dr_group(&self, name: &str, group: GroupId) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_MAKINGS)?.insert(name, &*group.to_string())?;
            Ok(())
        })
    }

    /// Forgets that a group was being made.
    pub fn end_dr_group(&self, name: &str) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(DR_MAKINGS)?.remove(name)?;
            Ok(())
        })
    }
}
