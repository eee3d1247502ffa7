//! Operations on volumes: create, find, resize, rename, delete. Each changes rows in one record, which is
//! stable before it is acknowledged.

use super::{
    FillStatus, ImportStatus, Pool, VolumeKey, VolumeSetting, copy::is_incomplete_copy,
    given_commands::EndBlock, snapshots::deletion_bytes, volume_setting::blocks_of,
};
use crate::{
    engine::{Catalogue, PlannedDeletion},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, BlockCount, BlockIndex, BlockKey, BranchNumber, Compression, Interval,
        RedundancyClass, RowKey, SECTOR_BYTES, Stamp, VolumeId, VolumeNumber,
        features::INCOMPATIBLE_REPLICAS,
        node::BRANCH_BLOCKS_MAX,
        row::{BranchRow, NAME_BYTES_MAX, VOLUME_SECTORS_MAX, VolumeRow, VolumeState, WithholdingRow},
        sectors_to_blocks,
    },
    log::LogItem,
    simulation::canary::{self, Canary},
    tree::WalkPace,
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
    /// Number of its present branch: another one after each rollback.
    pub branch: u32,
    pub setting: VolumeSetting,
    /// Number of snapshots.
    pub snapshots: usize,
    /// The state it began with, of a clone or after a rollback.
    pub origin: Option<VolumeOrigin>,
    /// Name of the volume whose rollback left it: it is read-only, and its room counts to that volume.
    pub left_by: Option<String>,
    /// It is being filled with what it reads through its source.
    pub filling: Option<FillStatus>,
    /// It is being imported.
    pub importing: Option<ImportStatus>,
    /// Name of its group.
    pub group: Option<String>,
    /// Clients from which it is withheld, because their caches belong to contents that a rollback took away.
    pub withheld_from: Vec<WithholdingRow>,
}

/// The state of a volume at which another one, or its own present branch, began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeOrigin {
    /// Its name, or the last one it had.
    pub volume: String,
    /// None if the clone was made of the volume as it was then.
    pub snapshot: Option<String>,
    /// The snapshot, or the volume, was deleted since. Its data stays while it is needed.
    pub is_deleted: bool,
}

impl VolumeInfo {
    pub(super) fn of(catalogue: &Catalogue, number: VolumeNumber, row: &VolumeRow) -> Self {
        Self {
            name: row.name.clone(),
            volume: row.volume,
            size_bytes: row.sectors * SECTOR_BYTES,
            branch: row.branch.0,
            setting: VolumeSetting::of(row),
            snapshots: catalogue.unsorted_snapshots_of(number).count(),
            origin: VolumeOrigin::of(catalogue, row.branch),
            left_by: row.left_by.map(|number| match catalogue.volume(number) {
                Some(row) => row.name.clone(),
                None => format!("number {number}, deleted"),
            }),
            filling: FillStatus::of(catalogue, row.branch, sectors_to_blocks(row.sectors)),
            importing: ImportStatus::of(catalogue, number, row),
            group: row.group.and_then(|group| catalogue.group_name(group)).map(str::to_owned),
            withheld_from: catalogue.withheld_from(number).map(|(_, row)| row.clone()).collect(),
        }
    }
}

impl VolumeOrigin {
    fn of(catalogue: &Catalogue, branch: BranchNumber) -> Option<Self> {
        let row = catalogue.branch(branch).filter(|_| !catalogue.is_importing(branch))?;
        let (parent, stamp) = row.parent?;
        let point = catalogue.point(parent, stamp)?;
        let volume = catalogue.volume(point.volume)?;
        let is_live = |state| state == VolumeState::Live;
        Some(Self {
            volume: volume.name.clone(),
            snapshot: point.uses.snapshot.then(|| point.name.clone()),
            is_deleted: !is_live(volume.state) || !is_live(point.state),
        })
    }
}

impl Pool {
    /// The identity of the live volume of this name.
    ///
    /// # Errors
    ///
    /// No such volume.
    pub fn volume_id(&self, name: &str) -> Result<VolumeId> {
        let state = self.shared.state.borrow();
        let number = state.catalogue.volume_named(name);
        let number = number.ok_or_else(|| Error::NoVolume(name.to_owned()))?;
        Ok(state.catalogue.volume(number).expect("a name is that of a volume").volume)
    }

    /// Creates a volume. It takes no space until it is written.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid, the size is invalid, or the class is not implemented; or the pool cannot
    /// write.
    pub async fn create_volume(&self, new: &NewVolume) -> Result<()> {
        check_name(&new.name)?;
        self.create_named(new).await
    }

    /// As [`Pool::create_volume`], whatever the name.
    pub(super) async fn create_named(&self, new: &NewVolume) -> Result<()> {
        self.create_written_by(new, VolumeWriter::Hosts).await
    }

    /// As [`Self::create_named`], for hosts or for a follower.
    pub(super) async fn create_written_by(&self, new: &NewVolume, writer: VolumeWriter) -> Result<()> {
        let sectors = check_size(new.size_bytes)?;
        if !matches!(new.setting.class, RedundancyClass::Raid0 | RedundancyClass::Raid1) {
            return Err(Error::NotYet("a volume of a class other than raid0 and raid1"));
        }
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let is_replica = writer == VolumeWriter::Follower;
        let features = if is_replica { INCOMPATIBLE_REPLICAS } else { 0 };
        let feature = self.shared.begin_rows(features).await?;
        let (number, branch) = {
            self.check_new_volume(&new.name)?;
            self.check_new_identity(new.volume)?;
            let state = self.shared.state.borrow();
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
            left_by: None,
        };
        let branch_row = BranchRow {
            state: VolumeState::Live,
            volume: number,
            parent: None,
            depth: 0,
            is_replica,
            stamp_max: Default::default(),
            filled_below: None,
        };
        let parts = vec![
            LogItem::Put { row: RowKey::of_branch(branch), bytes: branch_row.encode() },
            LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() },
        ];
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await
    }

    /// A volume. All callers share one handle.
    ///
    /// # Errors
    ///
    /// No such volume; it may have to be rolled back once the other pools of its group are seen; or it is being imported,
    /// and its source is not attached.
    pub fn volume<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<Rc<Volume>> {
        let number = self.number_of(volume.into())?;
        self.check_awaits_no_rollback(number)?;
        self.check_source(number)?;
        Ok(self.handle(number))
    }

    pub(super) fn handle(&self, number: VolumeNumber) -> Rc<Volume> {
        self.handles.get(number)
    }

    /// All volumes, by number.
    pub fn volumes(&self) -> Vec<VolumeInfo> {
        let state = self.shared.state.borrow();
        let live = state.catalogue.volumes().filter(|(_, row)| row.state == VolumeState::Live);
        live.map(|(number, row)| {
            let info = VolumeInfo::of(&state.catalogue, number, row);
            let filling = info.filling.map(|filling| self.explain(row.branch, filling));
            let importing = info.importing.map(|importing| self.explain_import(info.volume, importing));
            VolumeInfo { filling, importing, ..info }
        })
        .collect()
    }

    /// A number that changes whenever volumes, snapshots or groups are made, changed or deleted.
    pub fn catalogue_revision(&self) -> u64 {
        self.shared.state.borrow().catalogue.revision()
    }

    /// Renames a volume.
    ///
    /// # Errors
    ///
    /// No such volume, or it is an incomplete copy, or the new name is taken or invalid.
    pub async fn rename_volume<'k>(&self, volume: impl Into<VolumeKey<'k>>, new_name: &str) -> Result<()> {
        check_name(new_name)?;
        let volume = volume.into();
        let name = self.volume_row(self.number_of(volume)?).name;
        if is_incomplete_copy(&name) {
            return Err(Error::IncompleteCopy(name));
        }
        self.rename(volume, new_name).await
    }

    /// As [`Pool::rename_volume`], whatever both names.
    pub(super) async fn rename(&self, volume: VolumeKey<'_>, new_name: &str) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        self.check_no_operation()?;
        let number = self.number_of(volume)?;
        if self.shared.state.borrow().catalogue.volume_named(new_name).is_some() {
            return Err(Error::NameTaken(new_name.to_owned()));
        }
        let row = VolumeRow { name: new_name.to_owned(), ..self.volume_row(number) };
        self.check_not_left(&row)?;
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        self.answer(one_at_a_time, self.log.append(vec![put])).await
    }

    /// Resizes a volume. Shrinking discards the end of its head; snapshots keep it.
    ///
    /// # Errors
    ///
    /// No such volume, or the size is invalid.
    pub async fn resize_volume<'k>(&self, volume: impl Into<VolumeKey<'k>>, size_bytes: u64) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let sectors = check_size(size_bytes)?;
        let number = self.number_of(volume.into())?;
        let before = self.volume_row(number);
        self.check_changeable(&before)?;
        if !size_bytes.is_multiple_of(BLOCK_BYTES as u64) && self.check_not_replicated(&before).is_err() {
            return Err(Error::ReplicatedInPart(before.name, size_bytes));
        }
        // The end is discarded before anyone can grow the volume again and read it.
        let (no_writes, tail) = self.end_of(number, &before, sectors).await?;
        let stamp = self.shared.state.borrow_mut().next_stamp_of([before.branch]);
        let parts = self.parts_of_resize((number, &before), (sectors, tail), stamp);
        self.answer((one_at_a_time, no_writes), self.log.append_together(parts)).await
    }

    /// The changes of a resize: its stamp is in the row of the branch, so a volume that grows has one, too. `tail` is
    /// the block in which it will end, if it shrinks.
    pub(super) fn parts_of_resize(
        &self,
        (number, before): (VolumeNumber, &VolumeRow),
        (sectors, tail): (u64, EndBlock),
        stamp: Stamp,
    ) -> Vec<LogItem> {
        let branch = before.branch;
        let mut parts = Vec::new();
        if let Some((block, data)) = tail {
            parts.push(LogItem::Write { key: BlockKey { branch, block, stamp }, data });
        }
        let (first, end) = (sectors_to_blocks(sectors), sectors_to_blocks(before.sectors));
        if first < end && !canary::is(Canary::ShrinkKeepsTheEnd) {
            let (first, count) = (BlockIndex(first), BlockCount(end - first));
            parts.push(LogItem::Discard(Interval { branch, first, count, stamp }));
        }
        parts.push(self.stamped_branch(branch, stamp));
        let row = VolumeRow { sectors, ..before.clone() };
        parts.push(LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() });
        parts
    }

    /// The row of a branch with a stamp that it was given, for commands that change rows alone.
    pub(super) fn stamped_branch(&self, branch: BranchNumber, stamp: Stamp) -> LogItem {
        let state = self.shared.state.borrow();
        let row = state.catalogue.branch(branch).expect("a volume writes it");
        let row = BranchRow { stamp_max: row.stamp_max.max(stamp), ..row.clone() };
        LogItem::Put { row: RowKey::of_branch(branch), bytes: row.encode() }
    }

    /// Deletes a volume, and its snapshots if `with_snapshots`. It disappears at once, and its name is free;
    /// checkpoints reclaim its space, except for what clones of it, or volumes that its rollbacks left, read.
    ///
    /// # Errors
    ///
    /// No such volume, or it has snapshots, or is in a group; a difference reads one of its points; or a
    /// snapshot is part of a cut over several pools that is not settled.
    pub async fn delete_volume<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        with_snapshots: bool,
    ) -> Result<()> {
        let volume = volume.into();
        let row = self.volume_row(self.number_of(volume)?);
        // A volume that a rollback left is no replica any more: no command is for it.
        if row.left_by.is_none() {
            self.check_no_replica_of(&row)?;
        }
        self.check_not_replicated(&row)?;
        self.delete_volume_of_any(volume, with_snapshots).await
    }

    /// As [`Pool::delete_volume`], of a replica, too.
    pub(super) async fn delete_volume_of_any(
        &self,
        volume: VolumeKey<'_>,
        with_snapshots: bool,
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let number = self.number_of(volume)?;
        let row = self.volume_row(number);
        self.check_deletable((number, &row), with_snapshots)?;
        let stamp = self.shared.state.borrow_mut().next_stamp_of([row.branch]);
        let parts = self.parts_of_deletion((number, row), stamp);
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    pub(super) fn check_deletable(
        &self,
        (number, row): (VolumeNumber, &VolumeRow),
        with_snapshots: bool,
    ) -> Result<()> {
        self.check_ungrouped(row)?;
        self.check_no_operation()?;
        let count = self.shared.state.borrow().catalogue.unsorted_snapshots_of(number).count();
        if count > 0 && !with_snapshots {
            return Err(Error::HasSnapshots { volume: row.name.clone(), count });
        }
        self.check_no_cuts_of(number)?;
        self.holds.check_unused(number, &row.name)
    }

    /// The changes that delete a volume with its snapshots.
    pub(super) fn parts_of_deletion(
        &self,
        (number, row): (VolumeNumber, VolumeRow),
        stamp: Stamp,
    ) -> Vec<LogItem> {
        let branch = row.branch;
        let row = VolumeRow { state: VolumeState::Deleting, ..row };
        // The points of a volume under deletion do not count, so this deletes all of them.
        let mut parts = vec![LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() }];
        let state = self.shared.state.borrow();
        let before = state.catalogue.branch(branch).expect("its head is on it").clone();
        let stamp_max = before.stamp_max.max(stamp);
        let branch_row = BranchRow { state: VolumeState::Deleting, is_replica: false, stamp_max, ..before };
        parts.push(LogItem::Put { row: RowKey::of_branch(branch), bytes: branch_row.encode() });
        // Others may read the branch on: what only its head had is discarded.
        if state.catalogue.outlives_its_head(branch, &PlannedDeletion::of_volume(&state.catalogue, number)) {
            let (first, count) = (BlockIndex(0), BlockCount(BRANCH_BLOCKS_MAX));
            parts.push(LogItem::Discard(Interval { branch, first, count, stamp }));
        }
        parts
    }

    /// Bytes that deleting a volume with its snapshots would free, exactly and as of now: what its clones and
    /// volumes left by its rollbacks read is not among them. Reads the map of its branches.
    ///
    /// # Errors
    ///
    /// No such volume; or a part of the map cannot be read.
    pub async fn deletion_bytes<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<u64> {
        let number = self.number_of(volume.into())?;
        let planned = PlannedDeletion::of_volume(&self.shared.state.borrow().catalogue, number);
        deletion_bytes(&self.map, &planned).await
    }

    /// Space used by a volume, its snapshots, and what its rollbacks left, in bytes; data that it shares with
    /// the volume it was cloned from counts there. Of a volume that a rollback left, the space of its branch,
    /// which counts to the other volume as well. Overwritten blocks count until the next checkpoint. The first
    /// call reads the whole map of the volume.
    ///
    /// # Errors
    ///
    /// No such volume; or a part of its map cannot be read.
    pub async fn used_by<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<u64> {
        let number = self.number_of(volume.into())?;
        let row = self.volume_row(number);
        let grains = match row.left_by {
            Some(_) => self.usage.count_branch(row.branch, WalkPace::Straight).await?,
            None => {
                self.usage.count_volume(number).await?;
                self.usage.taken_by_volume(number)
            }
        };
        Ok(grains / BLOCK_GRAINS as u64 * BLOCK_BYTES as u64)
    }

    /// Answers a verb: releases its locks when its record is applied, even if its caller goes away before; then waits
    /// until the log's subscribers let it be answered.
    ///
    /// # Errors
    ///
    /// Those of the append; or the pool stopped while the answer was held.
    pub(super) async fn answer<L: Unpin + 'static>(
        &self,
        locks: L,
        logged: LocalFuture<Result<()>>,
    ) -> Result<()> {
        drop(self.shared.logged_under(locks, logged).await?);
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
    // A path names pool, volume and snapshot as POOL/VOLUME@SNAPSHOT; ~ is for what rollbacks leave.
    let is_allowed = |char: char| !char.is_control() && !['/', '@', '~'].contains(&char);
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_allowed);
    if is_name { Ok(()) } else { Err(Error::BadName(name.to_owned())) }
}

/// The writer of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeWriter {
    Hosts,
    /// With the stamps of another pool.
    Follower,
}

pub(super) fn check_size(size_bytes: u64) -> Result<u64> {
    let sectors = size_bytes / SECTOR_BYTES;
    let is_size = size_bytes.is_multiple_of(SECTOR_BYTES) && (1..=VOLUME_SECTORS_MAX).contains(&sectors);
    if is_size { Ok(sectors) } else { Err(Error::BadSize(size_bytes)) }
}
