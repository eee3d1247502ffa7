//! Clients from which volumes are withheld. Only live volumes are.

use super::Catalogue;
use crate::format::{
    RowKey, VolumeNumber,
    row::{VolumeState, WithheldClient, WithholdingRow},
};
use std::ops::RangeInclusive;

fn all_of(volume: VolumeNumber) -> RangeInclusive<(VolumeNumber, u64)> {
    (volume, 0)..=(volume, u64::MAX)
}

impl Catalogue {
    /// Clients from which a volume is withheld, by the numbers of their rows.
    pub fn withheld_from(&self, volume: VolumeNumber) -> impl Iterator<Item = (u64, &WithholdingRow)> {
        self.withheld.range(all_of(volume)).map(|(&(_, number), row)| (number, row))
    }

    /// Keys for the rows of `clients` that have none for the volume yet.
    pub fn new_withholdings(
        &self,
        volume: VolumeNumber,
        clients: &[WithheldClient],
    ) -> Vec<(RowKey, WithheldClient)> {
        let is_known =
            |client: &WithheldClient| self.withheld_from(volume).any(|(_, row)| row.client == *client);
        let mut new: Vec<&WithheldClient> = clients.iter().filter(|client| !is_known(client)).collect();
        new.sort();
        new.dedup();
        let next = self.withheld_from(volume).last().map_or(0, |(last, _)| last + 1);
        (next..)
            .zip(new)
            .map(|(number, client)| (RowKey::of_withholding(volume, number), client.clone()))
            .collect()
    }

    /// Keeps a row, if its volume is live.
    pub(super) fn put_withholding(&mut self, volume: VolumeNumber, number: u64, row: WithholdingRow) {
        if self.volumes.get(&volume).is_some_and(|row| row.state == VolumeState::Live) {
            self.withheld.insert((volume, number), row);
        }
    }

    /// A volume was deleted: nothing is withheld any more.
    pub(super) fn end_withholding(&mut self, volume: VolumeNumber) {
        let numbers: Vec<u64> = self.withheld_from(volume).map(|(number, _)| number).collect();
        for number in numbers {
            self.withheld.remove(&(volume, number));
            self.changed.insert(RowKey::of_withholding(volume, number));
        }
    }
}
