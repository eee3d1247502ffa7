//! Clones and rollbacks of group snapshots. They happen to all volumes of the group, or to none.
//!
//! 1. All that could be refused is checked for all volumes, under the lock `changing`.
//! 2. One record puts the *intent*. From here on the operation has happened.
//! 3. A record for each volume makes its clone, or rolls it back; the last one removes the intent.
//!
//! An opening completes an intent that it finds, before it serves anything: the rows of steps that are missing
//! follow from the intent and from the rows there are (`Catalogue::completion`). Groups of several pools:
//! `shared_operations`.

use super::{
    Pool, SnapshotKey,
    groups::GroupKey,
    volumes::{VOLUMES_MAX, check_name},
};
use crate::{
    engine::FeatureUse,
    error::{Error, Result},
    format::{
        GroupNumber, RowKey, SnapshotId, VolumeNumber,
        features::{
            INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING, INCOMPATIBLE_GROUPS, INCOMPATIBLE_SHARED_GROUPS,
        },
        row::{GroupOperation, IdSeed, IntentRow, VolumeRow},
    },
    log::LogItem,
    simulation::sometimes::{self, Sometimes, UnderWay},
    volume::BlockLock,
};

/// Clones of all volumes of a group.
#[derive(Clone, Debug)]
pub struct NewGroupClone {
    /// Follows the name of each volume, to make the clone's; not empty.
    pub suffix: String,
    /// Random: the clones' identities come from it ([`IdSeed::volume_of`]).
    pub seed: IdSeed,
    /// They are filled in the background, and then share nothing with their sources.
    pub is_independent: bool,
}

/// A volume of a group, and what an operation made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberChange {
    pub volume: String,
    /// Its clone, or the volume with its state of before.
    pub made: String,
}

/// A volume of a group as it is before an operation.
struct GroupVolume {
    number: VolumeNumber,
    row: VolumeRow,
    /// Its new branch would have 16 above it.
    is_deep: bool,
}

impl Pool {
    /// Clones a snapshot of a group: a clone of each volume, as [`Pool::clone_volume`] makes it. After a crash
    /// there are all clones, or none. The clones are in no group.
    ///
    /// # Errors
    ///
    /// No such group or snapshot; a clone's name is taken or invalid; there would be too many volumes; a
    /// snapshot is on a branch with 16 above it; or the pool cannot write. If it stops meanwhile, the next
    /// opening may complete the clones.
    pub async fn clone_group<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
        new: &NewGroupClone,
    ) -> Result<Vec<GroupMemberChange>> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let goal = self.group_snapshot_of(group.into(), snapshot.into())?;
        self.check_in_one_pool(goal.0)?;
        let (made, fills) = self.check_clones(goal, new)?;
        let features = self.begin_operation(fills, false).await?;
        let is_independent = new.is_independent;
        let operation = GroupOperation::Clone { suffix: new.suffix.clone(), is_independent };
        drop(self.decide_and_complete((one_at_a_time, features), goal, (operation, new.seed)).await?);
        self.shared.wait_for_release().await?;
        Ok(made)
    }

    /// The clones that a group would get, and whether a branch is filled. The catalogue must be locked for changes.
    pub(super) fn check_clones(
        &self,
        (group, snapshot): (GroupNumber, SnapshotId),
        new: &NewGroupClone,
    ) -> Result<(Vec<GroupMemberChange>, bool)> {
        let members = self.members_to_change(group, snapshot)?;
        check_name(&new.suffix)?;
        let made = members.iter().map(|member| {
            let made = format!("{}{}", member.row.name, new.suffix);
            check_name(&made)?;
            self.check_new_volume(&made)?;
            Ok(GroupMemberChange { volume: member.row.name.clone(), made })
        });
        let made: Vec<GroupMemberChange> = made.collect::<Result<_>>()?;
        Ok((made, new.is_independent || is_any_deep(&members)))
    }

    /// Rolls all volumes of a group back to one of its snapshots, as [`Pool::roll_back`]. After a crash all are
    /// rolled back, or none. Returns each volume with the one that has its state of before; their identities
    /// come from `seed` ([`IdSeed::volume_of`]).
    ///
    /// # Errors
    ///
    /// No such group or snapshot; somebody has one of the volumes open, and `is_forced` is false; there would
    /// be too many volumes; a snapshot is on a branch with 16 above it; or the pool cannot write. If it stops
    /// meanwhile, the next opening may complete the rollback.
    pub async fn roll_back_group<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
        seed: IdSeed,
        is_forced: bool,
    ) -> Result<Vec<GroupMemberChange>> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let goal = self.group_snapshot_of(group.into(), snapshot.into())?;
        self.check_in_one_pool(goal.0)?;
        let (members, fills) = self.check_rollback(goal, is_forced)?;
        let features = self.begin_operation(fills, false).await?;
        let no_writes = self.close_all(&members).await;
        let locks = (one_at_a_time, features, no_writes);
        let locks = self.decide_and_complete(locks, goal, (GroupOperation::RollBack, seed)).await?;
        let made = self.left_by(seed, members);
        drop(locks);
        self.shared.wait_for_release().await?;
        Ok(made)
    }

    /// The volumes that would be rolled back, and whether a branch is filled. The catalogue must be locked for changes.
    pub(super) fn check_rollback(
        &self,
        (group, snapshot): (GroupNumber, SnapshotId),
        is_forced: bool,
    ) -> Result<(Vec<(VolumeNumber, VolumeRow)>, bool)> {
        let members = self.members_to_change(group, snapshot)?;
        for member in &members {
            self.check_changeable(&member.row)?;
            self.check_not_replicated(&member.row)?;
            self.check_unused(member.number, is_forced)?;
        }
        let fills = is_any_deep(&members);
        Ok((members.into_iter().map(|member| (member.number, member.row)).collect(), fills))
    }

    /// Keeps the writes of hosts out of volumes.
    pub(super) async fn close_all(&self, volumes: &[(VolumeNumber, VolumeRow)]) -> Vec<BlockLock> {
        let mut no_writes = Vec::new();
        for (number, _) in volumes {
            no_writes.push(self.handles.locks_of(*number).close().await);
        }
        no_writes
    }

    /// The volumes of a group with those that a rollback with this seed left.
    pub(super) fn left_by(
        &self,
        seed: IdSeed,
        members: Vec<(VolumeNumber, VolumeRow)>,
    ) -> Vec<GroupMemberChange> {
        let state = self.shared.state.borrow();
        let made = members.into_iter().map(|(_, row)| {
            let id = seed.volume_of(row.volume);
            let mut left = state.catalogue.volumes().filter(|(_, left)| left.volume == id);
            let (_, left) = left.next().expect("the operation made it");
            GroupMemberChange { volume: row.name, made: left.name.clone() }
        });
        made.collect()
    }

    /// The volumes of a group, if each can get another branch at the snapshot.
    fn members_to_change(&self, group: GroupNumber, snapshot: SnapshotId) -> Result<Vec<GroupVolume>> {
        self.check_no_operation()?;
        let points: Vec<(VolumeNumber, _)> = {
            let state = self.shared.state.borrow();
            let points = state.catalogue.group_points(group, snapshot);
            points.first().map_or(Ok(()), |point| self.check_offered(point.row))?;
            points.into_iter().map(|point| (point.volume, point.branch)).collect()
        };
        let count = self.shared.state.borrow().catalogue.live_volumes() + points.len();
        if count > VOLUMES_MAX {
            return Err(Error::TooManyVolumes(VOLUMES_MAX));
        }
        let members = points.into_iter().map(|(number, branch)| {
            let row = self.volume_row(number);
            let is_deep = self.must_be_filled(branch, row.name.as_str().into())?;
            Ok(GroupVolume { number, row, is_deep })
        });
        members.collect()
    }

    /// Decides an operation, and does it. The catalogue must be locked for changes, by one of `locks`, which are given
    /// back.
    async fn decide_and_complete<L: Unpin + 'static>(
        &self,
        locks: L,
        (group, snapshot): (GroupNumber, SnapshotId),
        (operation, seed): (GroupOperation, IdSeed),
    ) -> Result<L> {
        let created_at = self.shared.wall_now();
        let intent = IntentRow { operation, snapshot, seed, created_at, shared: None };
        let put = LogItem::Put { row: RowKey::of_intent(group), bytes: intent.encode() };
        let under_way = UnderWay::begin(Sometimes::CutBehindAnIntent);
        let locks = self.log_operation(locks, group, &intent, Some(put)).await?;
        under_way.end();
        Ok(locks)
    }

    /// Sets the features of the records of an operation.
    pub(super) async fn begin_operation(&self, fills: bool, is_shared: bool) -> Result<FeatureUse> {
        let filling = if fills { INCOMPATIBLE_FILLING } else { 0 };
        let shared = if is_shared { INCOMPATIBLE_SHARED_GROUPS } else { 0 };
        self.shared.begin_rows(INCOMPATIBLE_GROUPS | INCOMPATIBLE_BRANCHES | filling | shared).await
    }

    /// Logs what is missing of an operation, after the intent if that is new. The catalogue must be locked for
    /// changes, by one of `locks`, which are given back.
    pub(super) async fn log_operation<L: Unpin + 'static>(
        &self,
        locks: L,
        group: GroupNumber,
        intent: &IntentRow,
        put: Option<LogItem>,
    ) -> Result<L> {
        let (records, fills) = {
            let state = self.shared.state.borrow();
            (state.catalogue.completion(group, intent), state.catalogue.completion_fills(group, intent))
        };
        // All are in the log's queue before anything awaits: so the writer takes several at a time, and a
        // caller that is dropped does not leave an intent without its steps.
        let records = put.into_iter().map(|put| vec![put]).chain(records);
        let logged: Vec<_> = records.map(|record| self.log.append_together(record)).collect();
        let all = async move {
            for logged in logged {
                logged.await?;
            }
            Ok(())
        };
        let locks = self.shared.logged_under(locks, Box::pin(all)).await?;
        if fills {
            self.begin_filling();
        }
        Ok(locks)
    }

    /// Completes the operations that the last process has left; those that other pools may not know of stay pending.
    /// Called by an opening, before it serves anything.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub(super) async fn complete_intents(&self) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let intents: Vec<_> = {
            let state = self.shared.state.borrow();
            let decided = state.catalogue.intents().filter(|(_, intent)| !intent.is_pending());
            decided.map(|(group, intent)| (group, intent.clone())).collect()
        };
        for (group, intent) in intents {
            let fills = self.shared.state.borrow().catalogue.completion_fills(group, &intent);
            let features = self.begin_operation(fills, intent.shared.is_some()).await?;
            drop(self.log_operation(features, group, &intent, None).await?);
            sometimes::reached(Sometimes::IntentCompleted);
        }
        drop(one_at_a_time);
        Ok(())
    }
}

fn is_any_deep(members: &[GroupVolume]) -> bool {
    members.iter().any(|member| member.is_deep)
}
