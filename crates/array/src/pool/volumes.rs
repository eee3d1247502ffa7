//! Operations on volumes: create, find, resize, rename, delete. Each changes rows in one record, which is
//! stable before it is acknowledged.

use super::{Pool, VolumeKey, VolumeSetting, volume_setting::blocks_of};
use crate::{
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, BlockCount, BlockIndex, BlockKey, BranchNumber, Compression, Interval,
        RedundancyClass, RowKey, SECTOR_BYTES, VolumeId, VolumeNumber,
        row::{BranchRow, NAME_BYTES_MAX, VOLUME_SECTORS_MAX, VolumeRow, VolumeState},
        sectors_to_blocks,
    },
    log::LogItem,
    simulation::canary::{self, Canary},
    volume::Volume,
};
use std::rc::Rc;
use world::LocalFuture;

/// Limit of the volumes of a pool.
pub const VOLUMES_MAX: usize = 4096;

/// Properties of a new volume.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// Unique in the pool.
    pub name: String,
    /// Globally unique.
    pub volume: VolumeId,
    /// A multiple of 512.
    pub size_bytes: u64,
    pub setting: VolumeSetting,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub name: String,
    /// The same on every replica.
    pub volume: VolumeId,
    pub size_bytes: u64,
    pub setting: VolumeSetting,
    /// Number of snapshots.
    pub snapshots: usize,
}

impl Pool {
    /// Creates a volume. It takes no space until it is written.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid, the size is invalid, or the class is not implemented; or the pool cannot
    /// write.
    pub async fn create_volume(&self, new: &NewVolume) -> Result<()> {
        check_name(&new.name)?;
        let sectors = check_size(new.size_bytes)?;
        if !matches!(new.setting.class, RedundancyClass::Raid0 | RedundancyClass::Raid1) {
            return Err(Error::NotYet("a volume of a class other than raid0 and raid1"));
        }
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let (number, branch) = {
            let state = self.shared.state.borrow();
            if state.catalogue.volume_named(&new.name).is_some() {
                return Err(Error::NameTaken(new.name.clone()));
            }
            if state.catalogue.live_volumes() >= VOLUMES_MAX {
                return Err(Error::TooManyVolumes(VOLUMES_MAX));
            }
            (state.catalogue.volume_next(), state.catalogue.branch_next())
        };
        self.host.admission.check_bounds(None, new.setting.bounds).await?;
        let (reserve, limit) = blocks_of(new.setting.bounds);
        let row = VolumeRow {
            volume: new.volume,
            name: new.name.clone(),
            state: VolumeState::Live,
            class: new.setting.class,
            branch,
            group: None,
            write_cache: new.setting.write_cache,
            compression: Compression::None,
            sectors,
            reserve,
            limit,
            iops_max: new.setting.rates.iops_max,
            kib_per_second_max: new.setting.rates.kib_per_second_max,
            created_at: self.shared.wall_now(),
            key: [0; 16],
        };
        let branch_row = BranchRow {
            state: VolumeState::Live,
            volume: number,
            parent: None,
            depth: 0,
            is_replica: false,
            stamp_max: Default::default(),
            filled_below: None,
        };
        let parts = vec![
            LogItem::Put { row: RowKey::of_branch(branch), bytes: branch_row.encode() },
            LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() },
        ];
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// A volume. All callers share one handle.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn volume<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<Rc<Volume>> {
        Ok(self.handle(self.number_of(volume.into())?))
    }

    fn handle(&self, number: VolumeNumber) -> Rc<Volume> {
        let mut volumes = self.volumes.borrow_mut();
        volumes.retain(|_, volume| volume.strong_count() > 0);
        if let Some(volume) = volumes.get(&number).and_then(std::rc::Weak::upgrade) {
            return volume;
        }
        let volume = Rc::new(Volume::new(Rc::clone(&self.host), number));
        volumes.insert(number, Rc::downgrade(&volume));
        volume
    }

    /// All volumes, by number.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let state = self.shared.state.borrow();
        let live = state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
        live.map(|(number, row)| VolumeInfo {
            name: row.name.clone(),
            volume: row.volume,
            size_bytes: row.sectors * SECTOR_BYTES,
            setting: VolumeSetting::of(row),
            snapshots: state.catalogue.snapshots_of(number).count(),
        })
        .collect()
    }

    /// Renames a volume.
    ///
    /// # Errors
    ///
    /// No such volume, or the new name is taken or invalid.
    pub async fn rename_volume<'k>(&self, volume: impl Into<VolumeKey<'k>>, new_name: &str) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        check_name(new_name)?;
        let number = self.number_of(volume.into())?;
        if self.shared.state.borrow().catalogue.volume_named(new_name).is_some() {
            return Err(Error::NameTaken(new_name.to_owned()));
        }
        let row = VolumeRow { name: new_name.to_owned(), ..self.volume_row(number) };
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        self.answer(one_at_a_time, self.log.append(vec![put])).await
    }

    /// Resizes a volume. Shrinking discards the end of its head; snapshots keep it.
    ///
    /// # Errors
    ///
    /// No such volume, or the size is invalid.
    pub async fn resize_volume<'k>(&self, volume: impl Into<VolumeKey<'k>>, size_bytes: u64) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let sectors = check_size(size_bytes)?;
        let number = self.number_of(volume.into())?;
        let before = self.volume_row(number);
        let row = VolumeRow { sectors, ..before.clone() };
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        if sectors >= before.sectors {
            return self.answer(one_at_a_time, self.log.append(vec![put])).await;
        }
        // The end is discarded before anyone can grow the volume again and read it.
        let volume = self.handle(number);
        let no_writes = volume.hold_writes().await;
        let (first, end) = (sectors_to_blocks(sectors), sectors_to_blocks(before.sectors));
        let mut parts = Vec::new();
        let tail = volume.block_cut_at(sectors).await?;
        let stamp = self.shared.state.borrow_mut().next_stamp_of([before.branch]);
        if let Some((block, data)) = tail {
            let key = BlockKey { branch: before.branch, block, stamp };
            parts.push(LogItem::Write { key, data });
        }
        if first < end && !canary::is(Canary::ShrinkKeepsTheEnd) {
            parts.push(LogItem::Discard(Interval {
                branch: before.branch,
                first: BlockIndex(first),
                count: BlockCount(end - first),
                stamp,
            }));
        }
        parts.push(put);
        self.answer((one_at_a_time, no_writes), self.log.append_together(parts)).await
    }

    /// Deletes a volume, and its snapshots if `with_snapshots`. It disappears at once; checkpoints reclaim
    /// its space.
    ///
    /// # Errors
    ///
    /// No such volume, or it has snapshots; or a difference reads one of its points.
    pub async fn delete_volume<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        with_snapshots: bool,
    ) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let number = self.number_of(volume.into())?;
        let row = self.volume_row(number);
        let (branches, snapshots) = {
            let state = self.shared.state.borrow();
            let rows = state.catalogue.branches_of(number).map(|branch| {
                let row = state.catalogue.branch(branch).expect("it is listed");
                (branch, BranchRow { state: VolumeState::Deleting, ..row.clone() })
            });
            (rows.collect::<Vec<_>>(), state.catalogue.snapshots_of(number).count())
        };
        if snapshots > 0 && !with_snapshots {
            return Err(Error::HasSnapshots { volume: row.name, count: snapshots });
        }
        self.holds.check_unused(number, &row.name)?;
        let row = VolumeRow { state: VolumeState::Deleting, ..row };
        // The points of a volume under deletion do not count, so this deletes all of them.
        let volume = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        let branches = branches
            .into_iter()
            .map(|(branch, row)| LogItem::Put { row: RowKey::of_branch(branch), bytes: row.encode() });
        let parts = std::iter::once(volume).chain(branches).collect();
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// Space used by a volume and its snapshots, in bytes. Overwritten blocks count until the next
    /// checkpoint. The first call reads the whole map of the volume.
    ///
    /// # Errors
    ///
    /// No such volume; or a part of its map cannot be read.
    pub async fn used_by<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<u64> {
        let number = self.number_of(volume.into())?;
        self.usage.count_volume(number).await?;
        Ok(self.usage.taken_by_volume(number) / BLOCK_GRAINS as u64 * BLOCK_BYTES as u64)
    }

    /// Answers a verb: releases its locks when its record is applied, then waits until the log's subscribers
    /// let it be answered.
    ///
    /// # Errors
    ///
    /// Those of the append; or the pool stopped while the answer was held.
    pub(super) async fn answer<L>(&self, locks: L, logged: LocalFuture<Result<()>>) -> Result<()> {
        logged.await?;
        drop(locks);
        self.shared.wait_for_release().await
    }

    pub(super) fn volume_row(&self, number: VolumeNumber) -> VolumeRow {
        let state = self.shared.state.borrow();
        state.catalogue.volume(number).expect("numbers of volumes stay").clone()
    }

    pub(super) fn branch_of(&self, volume: VolumeKey<'_>) -> Result<(VolumeNumber, BranchNumber)> {
        let number = self.number_of(volume)?;
        Ok((number, self.volume_row(number).branch))
    }
}

pub(super) fn check_name(name: &str) -> Result<()> {
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    if is_name { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

fn check_size(size_bytes: u64) -> Result<u64> {
    let sectors = size_bytes / SECTOR_BYTES;
    let is_size = size_bytes.is_multiple_of(SECTOR_BYTES) && (1..=VOLUME_SECTORS_MAX).contains(&sectors);
    if is_size { Ok(sectors) } else { Err(Error::BadSize(size_bytes)) }
}
