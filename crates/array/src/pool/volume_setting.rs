//! What a volume promises and may take, and the verbs that change it: one row, stable when it is answered.

use super::Pool;
use crate::{
    error::Result,
    format::{
        BLOCK_BYTES, BlockCount, RedundancyClass, RowKey, VolumeNumber,
        row::{VolumeRow, WriteCache},
    },
    log::Part,
    volume::{Bounds, Rates},
};

/// What a volume promises, and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSetting {
    /// How its data rests, and that of its snapshots: raid1 with all the copies the pool has, raid0 with one. What was
    /// just written has all of them in any case. It stays as it is for the volume's life.
    pub class: RedundancyClass,
    /// Off: every write is stable when it is answered. On: one that does not ask to be is stable with the next flush,
    /// or with the next command of any volume of the pool that is.
    pub write_cache: WriteCache,
    /// Operations and bytes a second it may have.
    pub rates: Rates,
    /// How much it may take, and can always.
    pub bounds: Bounds,
}

impl Default for VolumeSetting {
    /// All copies, no write cache, and no bounds.
    fn default() -> Self {
        Self {
            class: RedundancyClass::Raid1,
            write_cache: WriteCache::Off,
            rates: Rates::default(),
            bounds: Bounds::default(),
        }
    }
}

impl VolumeSetting {
    pub(super) fn of(row: &VolumeRow) -> Self {
        let rates = Rates { iops_max: row.iops_max, kib_per_second_max: row.kib_per_second_max };
        let bytes = |blocks: BlockCount| blocks.0 * BLOCK_BYTES as u64;
        let bounds = Bounds { reserve_bytes: bytes(row.reserve), limit_bytes: bytes(row.limit) };
        Self { class: row.class, write_cache: row.write_cache, rates, bounds }
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

    /// Bounds what a volume may take, or keeps room for it. Nobody is made to give back what he has.
    ///
    /// # Errors
    ///
    /// There is no such volume; the bounds contradict each other; or there is no room to be kept.
    pub async fn set_bounds(&self, name: &str, bounds: Bounds) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        let number = self.number_of(name)?;
        self.check_bounds(Some(number), bounds).await?;
        self.set_row(number, |row| (row.reserve, row.limit) = blocks_of(bounds)).await
    }

    async fn set(&self, name: &str, change: impl FnOnce(&mut VolumeRow)) -> Result<()> {
        let _one_at_a_time = self.changing.lock().await;
        self.set_row(self.number_of(name)?, change).await
    }

    async fn set_row(&self, number: VolumeNumber, change: impl FnOnce(&mut VolumeRow)) -> Result<()> {
        let mut row = self.volume_row(number);
        change(&mut row);
        self.lane.append(vec![Part::Put { row: RowKey::of_volume(number), bytes: row.encode() }]).await
    }
}

/// Reserve and limit.
pub(super) fn blocks_of(bounds: Bounds) -> (BlockCount, BlockCount) {
    let blocks = |bytes: u64| BlockCount(bytes / BLOCK_BYTES as u64);
    (blocks(bounds.reserve_bytes), blocks(bounds.limit_bytes))
}
