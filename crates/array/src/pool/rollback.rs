//! Rollback: a volume goes on from an earlier state, and the state of before stays as a volume of its own.
//!
//! The volume gets a new branch that begins at the snapshot; name, identity and size limits stay with it. Its
//! old branch becomes the head of a volume `V~1`, `V~2` …, which is never written: so its content, and the
//! snapshots on it, are those of before. The branch still belongs to the volume that left it, which therefore
//! bears the room it takes.
//!
//! A rollback to such a volume begins no branch: the two change places. So going back and forth does not make
//! branches deeper. Any other volume, such as a clone that was repaired, takes the place of the volume in the same
//! way; its branch belongs to the volume from then on.

use super::{Pool, SnapshotKey, VolumeKey};
use crate::{
    engine::{NewVolumeLabel, left_name, left_row},
    error::{Error, Result},
    format::{
        BranchNumber, RowKey, VolumeId, VolumeNumber,
        row::{BranchRow, VolumeRow, VolumeState, WithheldClient},
    },
    log::LogItem,
    simulation::canary::{self, Canary},
};

/// The state that a volume is rolled back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackGoal<'k> {
    /// One of its snapshots, on any of its branches.
    Snapshot(SnapshotKey<'k>),
    /// A volume that an earlier rollback left. It is no volume any more afterwards.
    Left(VolumeKey<'k>),
    /// Any other volume without snapshots, as it is now. It is no volume any more afterwards.
    Volume(VolumeKey<'k>),
}

impl<'k> RollbackGoal<'k> {
    /// The volume that ends.
    fn ended(self) -> Option<VolumeKey<'k>> {
        match self {
            Self::Snapshot(_) => None,
            Self::Left(key) | Self::Volume(key) => Some(key),
        }
    }
}

/// The stamp of a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RollbackStamp {
    /// The next one of the pool.
    Next,
    /// No stamp at all: it is no command, but gives up all that came after the goal.
    Without,
}

impl Pool {
    /// Rolls a volume back. The record is small, whatever the size of the volume. Returns the name of the
    /// volume with the state of before, whose identity is `left`; rolling back to it undoes this. Snapshots
    /// that are newer than the goal stay.
    ///
    /// # Errors
    ///
    /// No such volume or goal; somebody has one of the two open, and `is_forced` is false; the snapshot is on a
    /// branch with 16 above it, which is being filled; the other volume is of another class, open, replicated, in a
    /// group, or has snapshots; or the pool cannot write.
    pub async fn roll_back<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        goal: RollbackGoal<'k>,
        left: VolumeId,
        is_forced: bool,
    ) -> Result<String> {
        self.roll_back_from(volume.into(), goal, left, is_forced.then_some(&[])).await
    }

    /// Rolls a volume back, and withholds it from clients: `None` if nobody may have it open.
    pub(super) async fn roll_back_from<'k>(
        &self,
        volume: VolumeKey<'k>,
        goal: RollbackGoal<'k>,
        left: VolumeId,
        clients: Option<&[WithheldClient]>,
    ) -> Result<String> {
        self.roll_back_as(volume, goal, left, (clients, RollbackStamp::Next)).await
    }

    /// As [`Pool::roll_back`], of a volume that nobody has open.
    pub(super) async fn roll_back_as<'k>(
        &self,
        volume: VolumeKey<'k>,
        goal: RollbackGoal<'k>,
        left: VolumeId,
        (clients, stamp): (Option<&[WithheldClient]>, RollbackStamp),
    ) -> Result<String> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let is_forced = clients.is_some();
        let number = self.number_of(volume)?;
        let before = self.volume_row(number);
        match stamp {
            RollbackStamp::Next => {
                self.check_changeable(&before)?;
                if goal.ended().is_some() {
                    // The other site may not have it.
                    self.check_not_replicated(&before)?;
                }
            }
            // Of a replica, too: by those who follow.
            RollbackStamp::Without => self.check_not_left(&before)?,
        }
        let is_replica = self.shared.state.borrow().catalogue.is_replica(&before);
        self.check_unused(number, is_forced)?;
        let left_row = self.left_row(number, &before, left)?;
        let left_name = left_row.name.clone();
        let (mut rows, is_filled) = match goal {
            RollbackGoal::Snapshot(at) => {
                (Vec::new(), self.must_be_filled(self.snapshot_of(volume, at)?.0, volume)?)
            }
            RollbackGoal::Left(key) => (self.end_left((number, &before), key, is_forced)?, false),
            RollbackGoal::Volume(key) => (self.end_volume((number, &before), key)?, false),
        };
        let withheld = self.withholding_rows(number, clients.unwrap_or_default())?;
        let features =
            (self.begin_fork(is_filled).await?, self.begin_withholding(!withheld.is_empty()).await?);
        let mut no_writes = vec![self.handles.locks_of(number).close().await];
        if let Some(key) = goal.ended() {
            // Nobody has it open, but it may be filled.
            no_writes.push(self.handles.locks_of(self.number_of(key)?).close().await);
        }
        let mut undone = None;
        let (branch, sectors) = match goal {
            RollbackGoal::Snapshot(at) => {
                let fork = self.fork_at(volume, at)?;
                let (branch, mut row) = self.branch_from(&fork, number, is_filled);
                row.is_replica = is_replica;
                // The stamp of the rollback: a follower gives it the same.
                if stamp == RollbackStamp::Next {
                    row.stamp_max = self.shared.state.borrow_mut().next_stamp_of([before.branch]);
                    let is_replicated = self.check_not_replicated(&before).is_err();
                    undone =
                        is_replicated.then(|| self.rollback_point((number, &before), left, row.stamp_max));
                }
                rows.push((RowKey::of_branch(branch), row.encode()));
                rows.push((RowKey::of_point(fork.branch, fork.stamp), fork.row.encode()));
                (branch, fork.row.sectors)
            }
            RollbackGoal::Left(key) | RollbackGoal::Volume(key) => {
                let row = self.volume_row(self.number_of(key)?);
                (row.branch, row.sectors)
            }
        };
        let row = VolumeRow { branch, sectors, ..before.clone() };
        rows.push((RowKey::of_volume(number), row.encode()));
        if canary::is(Canary::RollbackDropsTheOldHead) {
            rows.push(self.deleted_branch(before.branch));
        } else {
            let next = self.shared.state.borrow().catalogue.volume_next();
            rows.push((RowKey::of_volume(next), left_row.encode()));
        }
        rows.extend(undone);
        let mut withheld_later = Vec::new();
        if canary::is(Canary::WithholdingBehindItsRollback) {
            withheld_later = withheld;
        } else {
            rows.extend(withheld);
        }
        let put = |(row, bytes)| LogItem::Put { row, bytes };
        let logged = self.log.append_together(rows.into_iter().map(put).collect());
        self.answer((one_at_a_time, no_writes, features), logged).await?;
        self.log.append_together(withheld_later.into_iter().map(put).collect()).await?;
        if is_filled {
            self.begin_filling();
        }
        Ok(left_name)
    }

    /// The row of the volume that keeps the state of before.
    pub(super) fn left_row(
        &self,
        number: VolumeNumber,
        before: &VolumeRow,
        left: VolumeId,
    ) -> Result<VolumeRow> {
        self.check_volume_count()?;
        let state = self.shared.state.borrow();
        let taken = |name: &str| state.catalogue.volume_named(name).is_some();
        let name = left_name(&before.name, taken);
        let label = NewVolumeLabel { volume: left, name, created_at: self.shared.wall_now() };
        Ok(left_row(before.clone(), number, label))
    }

    /// The rows that end a volume which a rollback of `number` left: its branch goes on as that of the other.
    fn end_left(
        &self,
        (number, before): (VolumeNumber, &VolumeRow),
        key: VolumeKey<'_>,
        is_forced: bool,
    ) -> Result<Vec<(RowKey, Vec<u8>)>> {
        let left = self.number_of(key)?;
        let row = self.volume_row(left);
        if row.left_by != Some(number) {
            return Err(Error::NotLeftBy(row.name, before.name.clone()));
        }
        self.check_unused(left, is_forced)?;
        let row = VolumeRow { state: VolumeState::Deleting, ..row };
        Ok(vec![(RowKey::of_volume(left), row.encode())])
    }

    /// The rows that end a volume whose branch becomes that of `number`.
    fn end_volume(
        &self,
        (number, before): (VolumeNumber, &VolumeRow),
        key: VolumeKey<'_>,
    ) -> Result<Vec<(RowKey, Vec<u8>)>> {
        let ended = self.number_of(key)?;
        let row = self.volume_row(ended);
        if ended == number {
            return Err(Error::SameVolume(row.name));
        }
        self.check_changeable(&row)?;
        self.check_not_replicated(&row)?;
        self.check_deletable((ended, &row), false)?;
        self.check_unused(ended, false)?;
        if row.class != before.class {
            // Its data would count to the class of the volume, and has copies of its own.
            return Err(Error::OtherClass(row.name, before.name.clone()));
        }
        let branch = row.branch;
        let state = self.shared.state.borrow();
        let adopted = BranchRow {
            volume: if canary::is(Canary::BranchStaysWithTheEnded) { ended } else { number },
            ..state.catalogue.branch(branch).expect("its head is on it").clone()
        };
        let row = VolumeRow { state: VolumeState::Deleting, ..row };
        Ok(vec![(RowKey::of_volume(ended), row.encode()), (RowKey::of_branch(branch), adopted.encode())])
    }

    fn deleted_branch(&self, branch: BranchNumber) -> (RowKey, Vec<u8>) {
        let state = self.shared.state.borrow();
        let row = state.catalogue.branch(branch).expect("a volume writes it");
        (RowKey::of_branch(branch), BranchRow { state: VolumeState::Deleting, ..row.clone() }.encode())
    }

    /// Fails if somebody has the volume open, unless that does not matter.
    pub(super) fn check_unused(&self, number: VolumeNumber, is_forced: bool) -> Result<()> {
        if self.handles.is_used(number) && !is_forced {
            Err(Error::VolumeInUse(self.volume_row(number).name))
        } else {
            Ok(())
        }
    }

    /// Fails if a rollback left the volume, or it is a replica, or being imported.
    pub(super) fn check_changeable(&self, row: &VolumeRow) -> Result<()> {
        self.check_settable(row)?;
        self.check_not_importing(row)
    }

    /// Fails if a rollback left the volume, or it is a replica.
    pub(super) fn check_settable(&self, row: &VolumeRow) -> Result<()> {
        self.check_not_left(row)?;
        if self.shared.state.borrow().catalogue.is_replica(row) {
            return Err(Error::Replica(row.name.clone()));
        }
        Ok(())
    }

    /// Fails if a rollback left the volume.
    pub(super) fn check_not_left(&self, row: &VolumeRow) -> Result<()> {
        if row.left_by.is_some() { Err(Error::LeftByRollback(row.name.clone())) } else { Ok(()) }
    }
}
