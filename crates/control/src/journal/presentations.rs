//! Presentations of points to hosts, which end by the clock.

use super::{DaemonJournal, JournalError};
use crate::{hexadecimal::hexadecimal, presenting::Presentation};
use redb::{ReadableTable, TableDefinition};

/// By the UUIDs of the presentations, as JSON.
pub(super) const PRESENTATIONS: TableDefinition<&str, &str> = TableDefinition::new("presentations");

impl DaemonJournal {
    /// All presentations, also those that begin or end.
    pub fn presentations(&self) -> Result<Vec<Presentation>, JournalError> {
        let records = self.0.read(|transaction| {
            let mut records = Vec::new();
            for record in transaction.open_table(PRESENTATIONS)?.iter()? {
                records.push(record?.1.value().to_owned());
            }
            Ok(records)
        })?;
        records.iter().map(|record| self.0.parsed(record, "its record of a presentation")).collect()
    }

    /// Records a presentation, in the place of what was known of it.
    pub fn put_presentation(&self, presentation: &Presentation) -> Result<(), JournalError> {
        let record = serde_json::to_string(presentation).expect("plain fields");
        self.0.change(|transaction| {
            let id = hexadecimal(&presentation.id);
            transaction.open_table(PRESENTATIONS)?.insert(id.as_str(), record.as_str())?;
            Ok(())
        })
    }

    /// Forgets a presentation.
    pub fn forget_presentation(&self, id: [u8; 16]) -> Result<(), JournalError> {
        self.0.change(|transaction| {
            transaction.open_table(PRESENTATIONS)?.remove(hexadecimal(&id).as_str())?;
            Ok(())
        })
    }
}
