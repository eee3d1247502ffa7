//! Volumes that were moved to other pools while they were served, for site files that say the old ones.
//!
//! Invariant: a move is known with what is served of its volume, or neither is.

use super::{DaemonJournal, JournalError};
use crate::site::moved_volumes::{MovedPlaces, add_move};
use redb::{ReadableTable, TableDefinition};

/// The places of volumes, `POOL/VOLUME`: where each is by where it was.
pub(super) const MOVES: TableDefinition<&str, &str> = TableDefinition::new("moves");

impl DaemonJournal {
    /// The volumes that were moved, and of which the site file may say where they were.
    pub fn moved_volumes(&self) -> Result<MovedPlaces, JournalError> {
        self.0.read(|transaction| Ok(places(&transaction.open_table(MOVES)?)?))
    }

    /// Records that a volume is in another place, with the texts of the site that change by that, as
    /// [`DaemonJournal::change_rows`].
    pub fn follow_move(
        &self,
        from: &str,
        to: &str,
        changed: impl Fn(&str) -> Option<String>,
    ) -> Result<(), JournalError> {
        self.change_texts(changed, |transaction| {
            let mut table = transaction.open_table(MOVES)?;
            let before = places(&table)?;
            let mut now = before.clone();
            add_move(&mut now, from, to);
            for gone in before.keys().filter(|place| !now.contains_key(*place)) {
                table.remove(&**gone)?;
            }
            for (was, is) in &now {
                table.insert(&**was, &**is)?;
            }
            Ok(())
        })
    }

    /// Forgets moves by where the volumes were.
    pub fn forget_moves(&self, settled: &[String]) -> Result<(), JournalError> {
        if settled.is_empty() {
            return Ok(());
        }
        self.0.change(|transaction| {
            let mut table = transaction.open_table(MOVES)?;
            for from in settled {
                table.remove(&**from)?;
            }
            Ok(())
        })
    }
}

fn places(table: &impl ReadableTable<&'static str, &'static str>) -> Result<MovedPlaces, redb::StorageError> {
    let mut places = MovedPlaces::new();
    for place in table.iter()? {
        let (from, to) = place?;
        places.insert(from.value().to_owned(), to.value().to_owned());
    }
    Ok(places)
}
