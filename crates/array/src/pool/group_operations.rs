//! Clones and rollbacks of group snapshots. They happen to all volumes of the group, or to none.
//!
//! 1. All that could be refused is checked for all volumes, under the lock `changing`.
//! 2. One record puts the *intent*. From here on the operation has happened.
//! 3. A record for each volume makes its clone, or rolls it back; the last one removes the intent.
//!
//! An opening completes an intent that it finds, before it serves anything: the rows of steps that are missing
//! follow from the intent and from the rows there are (`Catalogue::completion`).

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
        features::{INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING, INCOMPATIBLE_GROUPS},
        row::{GroupOperation, IdSeed, IntentRow, VolumeRow},
    },
    log::LogItem,
    simulation::sometimes::{self, Sometimes, UnderWay},
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
        let (group, snapshot) = self.group_snapshot_of(group.into(), snapshot.into())?;
        let members = self.members_to_change(group, snapshot)?;
        check_name(&new.suffix)?;
        let made = members.iter().map(|member| {
            let made = format!("{}{}", member.row.name, new.suffix);
            check_name(&made)?;
            self.check_new_volume(&made)?;
            Ok(GroupMemberChange { volume: member.row.name.clone(), made })
        });
        let made: Vec<GroupMemberChange> = made.collect::<Result<_>>()?;
        let is_independent = new.is_independent;
        let _features = self.begin_operation(is_independent || is_any_deep(&members)).await?;
        let operation = GroupOperation::Clone { suffix: new.suffix.clone(), is_independent };
        self.decide_and_complete((group, snapshot), operation, new.seed).await?;
        drop(one_at_a_time);
        self.shared.wait_for_release().await?;
        Ok(made)
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
        let (group, snapshot) = self.group_snapshot_of(group.into(), snapshot.into())?;
        let members = self.members_to_change(group, snapshot)?;
        for member in &members {
            self.check_changeable(&member.row)?;
            self.check_unused(member.number, is_forced)?;
        }
        let _features = self.begin_operation(is_any_deep(&members)).await?;
        let mut no_writes = Vec::new();
        for member in &members {
            no_writes.push(self.handles.locks_of(member.number).close().await);
        }
        self.decide_and_complete((group, snapshot), GroupOperation::RollBack, seed).await?;
        let made = members.into_iter().map(|GroupVolume { row, .. }| {
            let id = seed.volume_of(row.volume);
            let state = self.shared.state.borrow();
            let mut left = state.catalogue.volumes().filter(|(_, left)| left.volume == id);
            let (_, left) = left.next().expect("the operation made it");
            GroupMemberChange { volume: row.name, made: left.name.clone() }
        });
        let made = made.collect();
        drop((one_at_a_time, no_writes));
        self.shared.wait_for_release().await?;
        Ok(made)
    }

    /// The volumes of a group, if each can get another branch at the snapshot.
    fn members_to_change(&self, group: GroupNumber, snapshot: SnapshotId) -> Result<Vec<GroupVolume>> {
        let points: Vec<(VolumeNumber, _)> = {
            let state = self.shared.state.borrow();
            let points = state.catalogue.group_points(group, snapshot).into_iter();
            points.map(|point| (point.volume, point.branch)).collect()
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

    /// Decides an operation, and does it. The catalogue must be locked for changes.
    async fn decide_and_complete(
        &self,
        (group, snapshot): (GroupNumber, SnapshotId),
        operation: GroupOperation,
        seed: IdSeed,
    ) -> Result<()> {
        let intent = IntentRow { operation, snapshot, seed, created_at: self.shared.wall_now() };
        let put = LogItem::Put { row: RowKey::of_intent(group), bytes: intent.encode() };
        let under_way = UnderWay::begin(Sometimes::CutBehindAnIntent);
        self.log_operation(group, &intent, Some(put)).await?;
        under_way.end();
        Ok(())
    }

    /// Sets the features of the records of an operation.
    async fn begin_operation(&self, fills: bool) -> Result<FeatureUse> {
        let filling = if fills { INCOMPATIBLE_FILLING } else { 0 };
        self.shared.begin_rows(INCOMPATIBLE_GROUPS | INCOMPATIBLE_BRANCHES | filling).await
    }

    /// Logs what is missing of an operation, after the intent if that is new. The catalogue must be locked for
    /// changes.
    async fn log_operation(
        &self,
        group: GroupNumber,
        intent: &IntentRow,
        put: Option<LogItem>,
    ) -> Result<()> {
        let (records, fills) = {
            let state = self.shared.state.borrow();
            (state.catalogue.completion(group, intent), state.catalogue.completion_fills(group, intent))
        };
        // All are in the log's queue before anything awaits: so the writer takes several at a time, and a
        // caller that is dropped does not leave an intent without its steps.
        let records = put.into_iter().map(|put| vec![put]).chain(records);
        let logged: Vec<_> = records.map(|record| self.log.append_together(record)).collect();
        for logged in logged {
            logged.await?;
        }
        if fills {
            self.begin_filling();
        }
        Ok(())
    }

    /// Completes the operations that the last process has left. Called by an opening, before it serves
    /// anything.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub(super) async fn complete_intents(&self) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let intents: Vec<_> = {
            let state = self.shared.state.borrow();
            state.catalogue.intents().map(|(group, intent)| (group, intent.clone())).collect()
        };
        for (group, intent) in intents {
            let fills = self.shared.state.borrow().catalogue.completion_fills(group, &intent);
            let _features = self.begin_operation(fills).await?;
            self.log_operation(group, &intent, None).await?;
            sometimes::reached(Sometimes::IntentCompleted);
        }
        drop(one_at_a_time);
        Ok(())
    }
}

fn is_any_deep(members: &[GroupVolume]) -> bool {
    members.iter().any(|member| member.is_deep)
}
