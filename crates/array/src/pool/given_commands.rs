//! Commands of another pool that change rows, applied by a follower with the stamps they had there.
//!
//! Each may come again, after a crash or when its confirmation was lost. It is one record, so it is there or it is not:
//!
//! * a stamp above all of the branch is new. The record has the row of the branch with this stamp, so that is kept,
//!   however little else it changes;
//! * a stamp that is not above the last one was applied, as commands come in the order of their stamps. What a later
//!   command can have changed is not looked at; what it cannot is compared, and a difference is refused.
//!
//! A volume that is not there was deleted by a later command: the command does nothing.

use super::{
    NewSnapshot, Pool,
    difference::row_of_deleted,
    snapshots::{new_features, new_point},
};
use crate::{
    error::{Error, Result},
    format::{
        BlockIndex, BranchNumber, RowKey, SnapshotId, Stamp, VolumeId, VolumeNumber, WallNanoseconds,
        features::INCOMPATIBLE_REPLICAS,
        record::ENTRIES_MAX,
        row::{BranchRow, PointRow, VOLUME_SECTORS_MAX, VolumeRow},
    },
    log::LogItem,
};
use std::sync::Arc;
use world::Buffer;

/// Most volumes of a command with two entries for each.
const PAIRS_MAX: usize = ENTRIES_MAX / 2;

/// A snapshot as another pool took it.
#[derive(Clone, Copy, Debug)]
pub struct GivenSnapshot<'n> {
    pub new: NewSnapshot<'n>,
    pub created_at: WallNanoseconds,
    pub stamp: Stamp,
}

impl Pool {
    /// Takes a snapshot of several volumes at its given stamp, unless it was taken. Volumes that are not there are
    /// passed over. Returns the number of volumes of which it was missing.
    ///
    /// # Errors
    ///
    /// The snapshot has another stamp or name; its name is taken; the stamp was used for something else; more than
    /// 124 volumes; or the pool cannot write.
    pub async fn ensure_snapshot(&self, volumes: &[VolumeId], given: &GivenSnapshot<'_>) -> Result<usize> {
        given.new.check()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let feature = self.shared.begin_rows(new_features(&given.new)).await?;
        let missing = self.volumes_without(&self.followed(volumes, ENTRIES_MAX)?, given)?;
        if missing.is_empty() {
            self.shared.wait_for_release().await?;
            return Ok(0);
        }
        let parts = {
            let mut state = self.shared.state.borrow_mut();
            for (_, row) in &missing {
                state.take_stamp(row.branch, given.stamp)?;
            }
            let points = missing.iter().map(|(number, row)| {
                let point = new_point((*number, row), &given.new, given.created_at);
                let key = RowKey::of_point(row.branch, given.stamp);
                LogItem::Put { row: key, bytes: point.encode() }
            });
            points.collect()
        };
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await?;
        Ok(missing.len())
    }

    /// The volumes that lack a snapshot and may get it.
    fn volumes_without(
        &self,
        volumes: &[(VolumeNumber, VolumeRow)],
        given: &GivenSnapshot<'_>,
    ) -> Result<Vec<(VolumeNumber, VolumeRow)>> {
        let state = self.shared.state.borrow();
        let mut missing = Vec::new();
        for (number, row) in volumes {
            let has = state.catalogue.unsorted_snapshots_of(*number).find_map(|(_, stamp, point)| {
                (point.snapshot == given.new.snapshot).then(|| (stamp, point.name.clone()))
            });
            match has {
                Some((stamp, name)) if stamp == given.stamp && name == given.new.name => continue,
                Some((stamp, name)) => {
                    let found = format!("the snapshot is {name:?} of {:?} at stamp {stamp}", row.name);
                    return Err(Error::Contradiction { stamp: given.stamp, found });
                }
                None => {}
            }
            let last = state.last_stamp_of(row.branch);
            if given.stamp < last {
                // Deleted since.
                continue;
            }
            if given.stamp == last {
                return Err(Error::StampTaken { branch: row.branch, stamp: given.stamp, last });
            }
            let mut snapshots = state.catalogue.unsorted_snapshots_of(*number);
            if snapshots.any(|(_, _, point)| point.name == given.new.name) {
                return Err(Error::NameTaken(given.new.name.to_owned()));
            }
            missing.push((*number, row.clone()));
        }
        Ok(missing)
    }

    /// Deletes a snapshot of several volumes, where it is there. Returns the number of volumes that had it.
    ///
    /// # Errors
    ///
    /// More than 62 volumes; or the pool cannot write.
    pub async fn ensure_snapshot_deleted(
        &self,
        volumes: &[VolumeId],
        snapshot: SnapshotId,
        stamp: Stamp,
    ) -> Result<usize> {
        let one_at_a_time = self.shared.lock_changes().await;
        let volumes = self.followed(volumes, PAIRS_MAX)?;
        let found = volumes.iter().filter_map(|(number, row)| {
            let state = self.shared.state.borrow();
            let mut snapshots = state.catalogue.unsorted_snapshots_of(*number);
            let (branch, at, point) = snapshots.find(|(_, _, point)| point.snapshot == snapshot)?;
            Some((row.branch, (branch, at), point.clone()))
        });
        let found: Vec<(BranchNumber, (BranchNumber, Stamp), PointRow)> = found.collect();
        let mut parts = Vec::new();
        for (head, (branch, at), point) in &found {
            let bytes = row_of_deleted(point.clone()).encode();
            parts.push(LogItem::Put { row: RowKey::of_point(*branch, *at), bytes });
            parts.extend(self.stamp_if_new(*head, stamp)?);
        }
        if parts.is_empty() {
            self.shared.wait_for_release().await?;
            return Ok(0);
        }
        self.answer(one_at_a_time, self.log.append_together(parts)).await?;
        Ok(found.len())
    }

    /// Resizes a volume with a given stamp, unless that is done. What the resize discards and the block in which the
    /// volume ends are part of this command: they are not applied as others of the same stamp. Returns false if
    /// nothing was done.
    ///
    /// # Errors
    ///
    /// The size is invalid; the last command of the branch has this stamp, and the size is another one; or the pool
    /// cannot write.
    pub async fn ensure_size(&self, volume: VolumeId, sectors: u64, stamp: Stamp) -> Result<bool> {
        if !(1..=VOLUME_SECTORS_MAX).contains(&sectors) {
            return Err(Error::BadSize(sectors.saturating_mul(crate::format::SECTOR_BYTES)));
        }
        let one_at_a_time = self.shared.lock_changes().await;
        let [(number, before)] = &self.followed(&[volume], 1)?[..] else { return Ok(false) };
        let last = self.shared.state.borrow().last_stamp_of(before.branch);
        if stamp == last && before.sectors != sectors {
            return Err(Error::StampTaken { branch: before.branch, stamp, last });
        }
        if stamp <= last {
            self.shared.wait_for_release().await?;
            return Ok(false);
        }
        let (no_writes, tail) = self.end_of(*number, before, sectors).await?;
        let stamp = self.shared.state.borrow_mut().take_stamp(before.branch, stamp)?;
        let parts = self.parts_of_resize((*number, before), (sectors, tail), stamp);
        self.answer((one_at_a_time, no_writes), self.log.append_together(parts)).await?;
        Ok(true)
    }

    /// Keeps writers out of a volume that is to end at another size, and reads the block in which it will end.
    pub(super) async fn end_of(
        &self,
        number: VolumeNumber,
        before: &VolumeRow,
        sectors: u64,
    ) -> Result<(Option<crate::volume::BlockLock>, EndBlock)> {
        if sectors >= before.sectors {
            return Ok((None, None));
        }
        let volume = self.handle(number);
        let no_writes = volume.hold_writes().await;
        Ok((Some(no_writes), volume.block_cut_at(sectors).await?))
    }

    /// Rolls a volume back to a snapshot with a given stamp, unless that is done. What it had goes on as the volume
    /// `left`, which is never written. Returns false if nothing was done.
    ///
    /// # Errors
    ///
    /// No such snapshot; `left` is another volume; the stamp was used for something else; the snapshot is on a branch
    /// with 16 above it, which is being filled; or the pool cannot write.
    pub async fn ensure_rolled_back(
        &self,
        volume: VolumeId,
        snapshot: SnapshotId,
        left: VolumeId,
        stamp: Stamp,
    ) -> Result<bool> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let [(number, before)] = &self.followed(&[volume], 1)?[..] else { return Ok(false) };
        let last = self.shared.state.borrow().last_stamp_of(before.branch);
        if let Ok(there) = self.number_of(left.into()) {
            let row = self.volume_row(there);
            if row.left_by != Some(*number) || stamp > last {
                let found = format!("volume {:?} has the identity that a rollback was to give", row.name);
                return Err(Error::Contradiction { stamp, found });
            }
        }
        if stamp <= last {
            self.shared.wait_for_release().await?;
            return Ok(false);
        }
        let is_filled =
            self.must_be_filled(self.snapshot_of(volume.into(), snapshot.into())?.0, volume.into())?;
        let left_row = self.left_row(*number, before, left)?;
        let features = (self.begin_fork(is_filled).await?, self.begin_replica(before).await?);
        let no_writes = self.handles.locks_of(*number).close().await;
        let fork = self.fork_at(volume.into(), snapshot.into())?;
        let (branch, row) = self.branch_from(&fork, *number, is_filled);
        let is_replica = self.shared.state.borrow().catalogue.is_replica(before);
        let stamp = self.shared.state.borrow_mut().take_stamp(before.branch, stamp)?;
        let row = BranchRow { is_replica, stamp_max: stamp, ..row };
        let next = self.shared.state.borrow().catalogue.volume_next();
        let volume_row = VolumeRow { branch, sectors: fork.row.sectors, ..before.clone() };
        // The branch comes first: a point without a use is not kept.
        let rows = [
            (RowKey::of_branch(branch), row.encode()),
            (RowKey::of_point(fork.branch, fork.stamp), fork.row.encode()),
            (RowKey::of_volume(*number), volume_row.encode()),
            (RowKey::of_volume(next), left_row.encode()),
            self.rollback_point((*number, before), left, stamp),
        ];
        let parts = rows.into_iter().map(|(row, bytes)| LogItem::Put { row, bytes }).collect();
        self.answer((one_at_a_time, no_writes, features), self.log.append_together(parts)).await?;
        if is_filled {
            self.begin_filling();
        }
        Ok(true)
    }

    /// Deletes a volume with its snapshots with a given stamp, if it is there. Returns false if it is not.
    ///
    /// # Errors
    ///
    /// The stamp is not above those of the volume, which is there; it is in a consistency group, or one of its points
    /// is read; or the pool cannot write.
    pub async fn ensure_volume_deleted(&self, volume: VolumeId, stamp: Stamp) -> Result<bool> {
        let one_at_a_time = self.shared.lock_changes().await;
        let Some((number, row)) = self.followed(&[volume], 1)?.pop() else {
            self.shared.wait_for_release().await?;
            return Ok(false);
        };
        self.check_deletable((number, &row), true)?;
        let stamp = self.shared.state.borrow_mut().take_stamp(row.branch, stamp)?;
        let parts = self.parts_of_deletion((number, row), stamp);
        self.answer(one_at_a_time, self.log.append_together(parts)).await?;
        Ok(true)
    }

    /// Those of the volumes that are there, by number.
    ///
    /// # Errors
    ///
    /// A rollback left one, so no command is for it; or they are more than `at_most`.
    pub(super) fn followed(
        &self,
        volumes: &[VolumeId],
        at_most: usize,
    ) -> Result<Vec<(VolumeNumber, VolumeRow)>> {
        if volumes.len() > at_most {
            return Err(Error::TooManyAtOnce { volumes: volumes.len(), at_most });
        }
        let mut numbers: Vec<VolumeNumber> =
            volumes.iter().filter_map(|&volume| self.number_of(volume.into()).ok()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let rows = numbers.into_iter().map(|number| (number, self.volume_row(number)));
        let rows: Vec<_> = rows.collect();
        rows.iter().try_for_each(|(_, row)| self.check_not_left(row))?;
        Ok(rows)
    }

    /// The row of a branch with a stamp, if the branch does not have it.
    fn stamp_if_new(&self, branch: BranchNumber, stamp: Stamp) -> Result<Option<LogItem>> {
        let is_new = stamp > self.shared.state.borrow().last_stamp_of(branch);
        if !is_new {
            return Ok(None);
        }
        self.shared.state.borrow_mut().take_stamp(branch, stamp)?;
        Ok(Some(self.stamped_branch(branch, stamp)))
    }

    /// The feature of a new branch of a volume, if that is a replica.
    pub(super) async fn begin_replica(&self, row: &VolumeRow) -> Result<crate::engine::FeatureUse> {
        let is_replica = self.shared.state.borrow().catalogue.is_replica(row);
        self.shared.begin_rows(if is_replica { INCOMPATIBLE_REPLICAS } else { 0 }).await
    }
}

/// The block in which a volume will end, zeroed behind its end; none at the end of a block.
pub(super) type EndBlock = Option<(BlockIndex, Arc<Buffer>)>;
