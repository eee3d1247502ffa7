//! Settings of a volume, and the operations that change them: one row, stable before it is acknowledged.

use super::{Pool, VolumeKey};
use crate::{
    engine::ChangeLock,
    error::Result,
    format::{
        BLOCK_BYTES, BlockCount, RedundancyClass, RowKey, VolumeNumber,
        row::{VolumeRow, WriteCache},
    },
    log::LogItem,
    volume::{Bounds, Rates},
};

/// Settings of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSetting {
    /// Copies of its data and that of its snapshots: raid1 has as many as the pool, raid0 one. Recently
    /// written data is mirrored in either case. Fixed for the life of the volume.
    pub class: RedundancyClass,
    /// Off: every write is stable before it is acknowledged. On: a write without FUA becomes stable with the
    /// next flush, or with the next stable command on any volume of the pool.
    pub write_cache: WriteCache,
    pub rates: Rates,
    pub bounds: Bounds,
}

impl Default for VolumeSetting {
    /// All copies, no write cache, no limits.
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
    /// Switches the write cache of a volume. Writes acknowledged before are stable on return.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub async fn set_write_cache<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        write_cache: WriteCache,
    ) -> Result<()> {
        self.set(volume.into(), |row| row.write_cache = write_cache).await
    }

    /// Limits the rates of a volume from the next command on.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub async fn set_rates<'k>(&self, volume: impl Into<VolumeKey<'k>>, rates: Rates) -> Result<()> {
        let Rates { iops_max, kib_per_second_max } = rates;
        self.set(volume.into(), |row| (row.iops_max, row.kib_per_second_max) = (iops_max, kib_per_second_max))
            .await
    }

    /// Sets limit and reserve of a volume. A volume that exceeds its new limit keeps its data.
    ///
    /// # Errors
    ///
    /// No such volume; the reserve exceeds the limit; or there is no room for the reserve.
    pub async fn set_bounds<'k>(&self, volume: impl Into<VolumeKey<'k>>, bounds: Bounds) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let number = self.number_of(volume.into())?;
        self.host.admission.check_bounds(Some(number), bounds).await?;
        self.set_row(one_at_a_time, number, |row| (row.reserve, row.limit) = blocks_of(bounds)).await
    }

    async fn set(&self, volume: VolumeKey<'_>, change: impl FnOnce(&mut VolumeRow)) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        self.set_row(one_at_a_time, self.number_of(volume)?, change).await
    }

    async fn set_row(
        &self,
        one_at_a_time: ChangeLock,
        number: VolumeNumber,
        change: impl FnOnce(&mut VolumeRow),
    ) -> Result<()> {
        let mut row = self.volume_row(number);
        self.check_settable(&row)?;
        change(&mut row);
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        self.answer(one_at_a_time, self.log.append(vec![put])).await
    }
}

/// Reserve and limit.
pub(super) fn blocks_of(bounds: Bounds) -> (BlockCount, BlockCount) {
    let blocks = |bytes: u64| BlockCount(bytes / BLOCK_BYTES as u64);
    (blocks(bounds.reserve_bytes), blocks(bounds.limit_bytes))
}
