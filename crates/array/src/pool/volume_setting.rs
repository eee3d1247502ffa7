//! What a volume promises and may take, and the verbs that change it: one row, stable when it is answered.

use super::Pool;
use crate::{
    error::Result,
    format::{
        RowKey,
        row::{VolumeRow, WriteCache},
    },
    log::Part,
    volume::Rates,
};

/// What a volume promises, and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSetting {
    /// Off: every write is stable when it is answered. On: one that does not ask to be is stable with the next flush,
    /// or with the next command of any volume of the pool that is.
    pub write_cache: WriteCache,
    /// Operations and bytes a second it may have.
    pub rates: Rates,
}

impl Default for VolumeSetting {
    /// No write cache, and no bounds.
    fn default() -> Self {
        Self { write_cache: WriteCache::Off, rates: Rates::default() }
    }
}

impl VolumeSetting {
    pub(super) fn of(row: &VolumeRow) -> Self {
        let rates = Rates { iops_max: row.iops_max, kib_per_second_max: row.kib_per_second_max };
        Self { write_cache: row.write_cache, rates }
    }
}

impl Pool {
    /// Switches the write cache of a volume. What was answered before is stable when this is.
    ///
    /// # Errors
    ///
    /// There is no such volume.
    pub async fn set_write_cache(&self, name: &str, write_cache: WriteCache) -> Result<()> {
        self.set(name, |row| row.write_cache = write_cache).await
    }

    /// Bounds what a volume may have, from the next command on.
    ///
    /// # Errors
    ///
    /// There is no such volume.
    pub async fn set_rates(&self, name: &str, rates: Rates) -> Result<()> {
        let Rates { iops_max, kib_per_second_max } = rates;
        self.set(name, |row| (row.iops_max, row.kib_per_second_max) = (iops_max, kib_per_second_max)).await
    }

    async fn set(&self, name: &str, change: impl FnOnce(&mut VolumeRow)) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        let number = self.number_of(name)?;
        let mut row = self.volume_row(number);
        change(&mut row);
        self.lane.append(vec![Part::Put { row: RowKey::of_volume(number), bytes: row.encode() }]).await
    }
}
