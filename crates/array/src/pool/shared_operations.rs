//! Clones and rollbacks of snapshots of groups that have volumes in several pools: they happen in all pools, or in none.
//!
//! 1. Each pool *prepares*: all that could be refused is checked, the catalogue is locked. Before a rollback the writes
//!    of hosts are kept out, so that the states of before are those of one moment.
//! 2. Each puts its intent, *pending*: nothing has happened yet.
//! 3. Once the intents of all are durable, the operation is decided. Each pool puts its intent again, *whole*, and the
//!    records for its volumes.
//! 4. Once all have, each removes its intent.
//!
//! If this ends early, pools keep their intents, which are settled when all pools are seen together, by the rules of
//! cuts. While a pool has such an intent, nothing makes, renames or deletes volumes: what the operation needs stays.
//! The volumes of a rollback that is pending are not opened: another pool may have rolled back its own.

use super::{
    GroupKey, Pool, SnapshotKey,
    cut::{CutMember, CutSettlement, CutStep, CutUnderWay, UnsettledId},
    group_operations::{GroupMemberChange, NewGroupClone},
};
use crate::{
    engine::ChangeLock,
    error::{Error, Result},
    format::{
        GroupNumber, PoolId, RowKey, SnapshotId, VolumeNumber,
        row::{CutState, GroupOperation, IdSeed, IntentRow, SharedDecision, VolumeRow},
    },
    log::LogItem,
    simulation::{
        canary::{self, Canary},
        thread_delays,
    },
};
use world::LocalFuture;

impl Pool {
    /// Takes this pool's part in a clone of a group that has volumes in several pools, as [`Pool::clone_group`]; the
    /// others take theirs at the same time, with the same seed.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::clone_group`]; the group is one of other pools; or another pool has failed. Unless it is
    /// [`Error::CutUnsettled`], no pool has made a clone.
    pub async fn take_part_in_group_clone<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
        new: &NewGroupClone,
        part: CutMember,
    ) -> Result<Vec<GroupMemberChange>> {
        let cloned = self.clone_with_others((group.into(), snapshot.into()), new, &part).await;
        cloned.inspect_err(|error| part.fail(error))
    }

    /// Takes this pool's part in a rollback of a group that has volumes in several pools, as
    /// [`Pool::roll_back_group`]; the others take theirs at the same time, with the same seed.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::roll_back_group`]; the group is one of other pools; or another pool has failed. Unless it is
    /// [`Error::CutUnsettled`], no pool has rolled back.
    pub async fn take_part_in_group_rollback<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
        (seed, is_forced): (IdSeed, bool),
        part: CutMember,
    ) -> Result<Vec<GroupMemberChange>> {
        let goal = (group.into(), snapshot.into());
        let done = self.roll_back_with_others(goal, seed, is_forced, &part).await;
        done.inspect_err(|error| part.fail(error))
    }

    async fn clone_with_others(
        &self,
        goal: (GroupKey<'_>, SnapshotKey<'_>),
        new: &NewGroupClone,
        part: &CutMember,
    ) -> Result<Vec<GroupMemberChange>> {
        let (one_at_a_time, goal) = self.lock_in_turn(goal, part).await?;
        let (made, fills) = self.check_clones(goal, new)?;
        let features = self.begin_operation(fills, true).await?;
        let operation =
            GroupOperation::Clone { suffix: new.suffix.clone(), is_independent: new.is_independent };
        part.reach(&self.shared.world, CutStep::Prepared).await.map_err(not_begun)?;
        drop(self.decide_with_others((one_at_a_time, features), goal, (operation, new.seed), part).await?);
        self.shared.wait_for_release().await?;
        Ok(made)
    }

    async fn roll_back_with_others(
        &self,
        goal: (GroupKey<'_>, SnapshotKey<'_>),
        seed: IdSeed,
        is_forced: bool,
        part: &CutMember,
    ) -> Result<Vec<GroupMemberChange>> {
        let (one_at_a_time, goal) = self.lock_in_turn(goal, part).await?;
        let (members, fills) = self.check_rollback(goal, is_forced)?;
        let features = self.begin_operation(fills, true).await?;
        part.reach(&self.shared.world, CutStep::Prepared).await.map_err(not_begun)?;
        let no_writes = self.close_all(&members).await;
        let locks = (one_at_a_time, features, no_writes);
        let locks = self.decide_with_others(locks, goal, (GroupOperation::RollBack, seed), part).await?;
        let made = self.left_by(seed, members);
        drop(locks);
        self.shared.wait_for_release().await?;
        Ok(made)
    }

    /// Locks the catalogue when it is this pool's turn, and looks the snapshot up.
    async fn lock_in_turn(
        &self,
        (group, snapshot): (GroupKey<'_>, SnapshotKey<'_>),
        part: &CutMember,
    ) -> Result<(ChangeLock, (GroupNumber, SnapshotId))> {
        part.wait_for_turn(&self.shared.world).await.map_err(not_begun)?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let goal = self.group_snapshot_of(group, snapshot)?;
        self.check_pools_of(goal.0, part.pools())?;
        Ok((one_at_a_time, goal))
    }

    /// Decides an operation with the other pools, and does it. The catalogue must be locked for changes, by one of
    /// `locks`, which are given back.
    async fn decide_with_others<L: Unpin + 'static>(
        &self,
        locks: L,
        (group, snapshot): (GroupNumber, SnapshotId),
        (operation, seed): (GroupOperation, IdSeed),
        part: &CutMember,
    ) -> Result<L> {
        let under_way = CutUnderWay::begin(&self.cuts_under_way, UnsettledId::Operation(seed));
        let shared = SharedDecision { state: CutState::Pending, pools: part.pools().to_vec() };
        let created_at = self.shared.wall_now();
        thread_delays::pass(&self.shared.world).await;
        let intent = IntentRow { operation, snapshot, seed, created_at, shared: Some(shared) };
        let pending = self.log.append(vec![put(group, &intent)]);
        let locks = self.shared.logged_under((locks, under_way), pending).await?;
        thread_delays::pass(&self.shared.world).await;
        let decided = if canary::is(Canary::OperationDecidedAlone) {
            Ok(())
        } else {
            part.reach(&self.shared.world, CutStep::Durable).await
        };
        if let Err(failed) = decided {
            // Then no pool goes on, so nobody will find it decided.
            drop(self.shared.logged_under(locks, self.without_intent(group)).await?);
            return Err(not_begun(failed));
        }
        let mut locks = self.confirm(locks, group, intent).await?;
        // It has happened: what fails from here on leaves work to a settlement, and is no error.
        if part.reach(&self.shared.world, CutStep::Whole).await.is_ok() {
            locks = self.shared.logged_under(locks, self.without_intent(group)).await?;
        }
        Ok(locks.0)
    }

    /// Does an operation that is decided. The catalogue must be locked for changes, and hosts kept out of volumes that
    /// are rolled back.
    async fn confirm<L: Unpin + 'static>(
        &self,
        locks: L,
        group: GroupNumber,
        intent: IntentRow,
    ) -> Result<L> {
        let shared = intent.shared.map(|shared| SharedDecision { state: CutState::Whole, ..shared });
        let whole = IntentRow { shared, ..intent };
        let put = put(group, &whole);
        self.log_operation(locks, group, &whole, Some(put)).await
    }

    fn without_intent(&self, group: GroupNumber) -> LocalFuture<Result<()>> {
        self.log.append(vec![LogItem::Remove(RowKey::of_intent(group))])
    }

    /// Logs a step of settling an operation; nothing, if it is done already.
    pub(super) async fn settle_operation(&self, seed: IdSeed, settlement: CutSettlement) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let found = {
            let state = self.shared.state.borrow();
            let mut intents = state.catalogue.shared_intents().filter(|(_, intent)| intent.seed == seed);
            intents.next().map(|(group, intent)| (group, intent.clone()))
        };
        let Some((group, intent)) = found else { return Ok(()) };
        match (settlement, intent.is_pending()) {
            (CutSettlement::Confirm, true) => {
                let fills = self.shared.state.borrow().catalogue.completion_fills(group, &intent);
                let features = self.begin_operation(fills, true).await?;
                let no_writes = self.close_all(&self.members_of(group)).await;
                drop(self.confirm((one_at_a_time, features, no_writes), group, intent).await?);
            }
            (CutSettlement::Forget, false) | (CutSettlement::Remove, true) => {
                drop(self.shared.logged_under(one_at_a_time, self.without_intent(group)).await?);
            }
            (CutSettlement::Confirm, false) => {}
            (CutSettlement::Forget, true) | (CutSettlement::Remove, false) => {
                unreachable!("a pending operation is not forgotten, a whole one is not removed")
            }
        }
        self.shared.wait_for_release().await
    }

    /// Fails if an operation on a group waits for other pools: it needs the volumes, their names and their snapshots as
    /// they are.
    pub(super) fn check_no_operation(&self) -> Result<()> {
        let state = self.shared.state.borrow();
        match state.catalogue.shared_intents().next() {
            Some((group, _)) => {
                let name = state.catalogue.group_name(group).unwrap_or_default();
                Err(Error::OperationPending(name.to_owned()))
            }
            None => Ok(()),
        }
    }

    /// Fails if a volume may have to be rolled back once the other pools of its group are seen.
    pub(super) fn check_awaits_no_rollback(&self, number: VolumeNumber) -> Result<()> {
        let state = self.shared.state.borrow();
        let row = state.catalogue.volume(number).expect("numbers of volumes stay");
        let awaits = state.catalogue.awaits_rollback(row) && !canary::is(Canary::HalfARollbackServed);
        match row.group.and_then(|group| state.catalogue.group_name(group)) {
            Some(group) if awaits => Err(Error::OperationPending(group.to_owned())),
            _ => Ok(()),
        }
    }

    /// Fails unless these are the pools of a group.
    pub(super) fn check_pools_of(&self, group: GroupNumber, pools: &[PoolId]) -> Result<()> {
        let state = self.shared.state.borrow();
        let row = state.catalogue.group(group).expect("it was found");
        if row.pools == pools {
            return Ok(());
        }
        let expected = row.pools.len().max(1);
        Err(Error::OtherPools { group: row.name.clone(), expected, given: pools.len() })
    }

    /// Fails if a group has volumes in other pools.
    pub(super) fn check_in_one_pool(&self, group: GroupNumber) -> Result<()> {
        let state = self.shared.state.borrow();
        let row = state.catalogue.group(group).expect("it was found");
        if row.pools.is_empty() { Ok(()) } else { Err(Error::GroupOfSeveralPools(row.name.clone())) }
    }

    fn members_of(&self, group: GroupNumber) -> Vec<(VolumeNumber, VolumeRow)> {
        let state = self.shared.state.borrow();
        state.catalogue.members(group).map(|(number, row)| (number, row.clone())).collect()
    }
}

fn put(group: GroupNumber, intent: &IntentRow) -> LogItem {
    LogItem::Put { row: RowKey::of_intent(group), bytes: intent.encode() }
}

/// The error of an operation that has happened nowhere.
fn not_begun(error: Error) -> Error {
    match error {
        Error::CutFailed(reason) => Error::OperationFailed(reason),
        other => other,
    }
}
