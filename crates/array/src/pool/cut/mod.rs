//! Cuts over several pools: a snapshot of volumes in each of them, at one moment for the hosts of all.
//!
//! 1. Each pool *prepares*: names are checked, the catalogue is locked.
//! 2. Each *holds* the answers to its hosts, until all have placed their rows.
//! 3. Each *places* its rows in the log's queue: a cut row, which says *pending*, and a point for each volume.
//!    A write that is not in one pool's part was not answered before all parts were placed; so nothing that a
//!    host did because of that answer is in any part.
//! 4. Once the rows of all are durable, each pool logs that the cut is *whole*.
//! 5. Once all have, each removes the cut row: the snapshot is one like any other.
//!
//! If this ends early, pools keep their cut row, and the cut is settled when all its pools are seen together
//! ([`settlement`]). A pending snapshot is listed, and nothing else can be done with it.

mod rendezvous;
mod settlement;

pub use rendezvous::CutMember;
pub(super) use rendezvous::CutStep;
pub use settlement::{CutSettlement, UnsettledCut, UnsettledId, UnsettledState, settle_cuts, settlements};

use super::{GroupKey, NewSnapshot, Pool, VolumeKey, snapshots::new_features};
use crate::{
    error::{Error, Result},
    format::{
        GroupNumber, PoolId, RowKey, VolumeNumber,
        features::{INCOMPATIBLE_CUTS, INCOMPATIBLE_GROUPS},
        record::ENTRIES_MAX,
        row::{CutRow, CutState, PointRow},
    },
    log::LogItem,
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
        thread_delays,
    },
};
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};
use world::LocalFuture;

/// The cut fails if hosts would have to wait longer than this for their answers.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// The cuts, and the operations over several pools, that a pool takes part in just now.
pub(super) type CutsUnderWay = Rc<RefCell<BTreeSet<UnsettledId>>>;

/// A cut or an operation that is under way in this process: nobody else settles it.
pub(super) struct CutUnderWay {
    all: CutsUnderWay,
    id: UnsettledId,
}

impl CutUnderWay {
    pub(super) fn begin(all: &CutsUnderWay, id: UnsettledId) -> Self {
        let is_new = all.borrow_mut().insert(id);
        assert!(is_new, "each has an identity of its own");
        Self { all: Rc::clone(all), id }
    }
}

impl Drop for CutUnderWay {
    fn drop(&mut self) {
        self.all.borrow_mut().remove(&self.id);
    }
}

impl Pool {
    /// UUID of the pool.
    pub fn id(&self) -> PoolId {
        self.shared.pool
    }

    /// Takes this pool's part in a snapshot of volumes of several pools, which is one cut: the others take
    /// theirs at the same time, on the same thread or on others. Returns how long hosts were held.
    ///
    /// Answers to hosts are held until all pools have placed their parts; no I/O happens meanwhile.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::take_snapshot`], with at most 123 volumes; or another pool has failed. If all pools
    /// had placed their parts, the error is [`Error::CutUnsettled`]: the snapshot is listed as pending until
    /// [`settle_cuts`] has seen all pools. Otherwise no pool has it.
    pub async fn take_part_in_cut<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
        new: &NewSnapshot<'_>,
        part: CutMember,
    ) -> Result<Duration> {
        let numbers = || {
            let numbers = volumes.iter().map(|volume| self.number_of((*volume).into()));
            Ok((numbers.collect::<Result<_>>()?, None))
        };
        let taken = self.take_part(numbers, new, &part).await;
        taken.inspect_err(|error| part.fail(error))
    }

    /// As [`Pool::take_part_in_cut`], with the volumes that a group has in this pool. The other pools are those of the
    /// group.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::take_part_in_cut`]; no such group; or the group is one of other pools.
    pub async fn take_part_in_group_cut<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        new: &NewSnapshot<'_>,
        part: CutMember,
    ) -> Result<Duration> {
        let group = group.into();
        let members = || {
            let number = self.group_number(group)?;
            self.check_pools_of(number, part.pools())?;
            let state = self.shared.state.borrow();
            Ok((state.catalogue.members(number).map(|(volume, _)| volume).collect(), Some(number)))
        };
        let taken = self.take_part(members, new, &part).await;
        taken.inspect_err(|error| part.fail(error))
    }

    /// The volumes are looked up when the catalogue is locked.
    async fn take_part(
        &self,
        members: impl FnOnce() -> Result<(Vec<VolumeNumber>, Option<GroupNumber>)>,
        new: &NewSnapshot<'_>,
        part: &CutMember,
    ) -> Result<Duration> {
        assert_eq!(part.pool(), self.id(), "a part is for one pool");
        let snapshot = new.snapshot;
        part.wait_for_turn(&self.shared.world).await?;
        new.check_taken_here()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let (numbers, group) = members()?;
        // One entry is the cut's row.
        self.check_snapshot(&numbers, new, ENTRIES_MAX - 1)?;
        let under_way = CutUnderWay::begin(&self.cuts_under_way, UnsettledId::Snapshot(snapshot));
        let of_group = group.map_or(0, |_| INCOMPATIBLE_GROUPS);
        let features = self.shared.begin_rows(new_features(new) | INCOMPATIBLE_CUTS | of_group).await?;
        part.reach(&self.shared.world, CutStep::Prepared).await?;

        let (logged, held_for) = {
            let began = self.shared.world.now();
            let held = (!canary::is(Canary::CutNotHeld)).then(|| self.shared.hold_answers());
            part.reach_within(&self.shared.world, CutStep::Held, HOLD_MAX).await?;
            thread_delays::pass(&self.shared.world).await;
            let placed = self.place((&numbers, group), new, part.pools());
            let logged = self.shared.logged_under((one_at_a_time, features, under_way), placed);
            let placed = part.reach_within(&self.shared.world, CutStep::Placed, HOLD_MAX).await;
            drop(held);
            if let Err(failed) = placed {
                sometimes::reached(Sometimes::CutAbandoned);
                let locks = logged.await?;
                let removed = self.log.append_together(self.without_cut(snapshot));
                drop(self.shared.logged_under(locks, removed).await?);
                return Err(failed);
            }
            (logged, self.shared.world.now().since(began))
        };
        let unsettled = |error: Error| match error {
            Error::CutFailed(reason) => Error::CutUnsettled { snapshot: new.name.to_owned(), reason },
            other => other,
        };
        let (one_at_a_time, _features, under_way) = logged.await?;
        drop(one_at_a_time);
        thread_delays::pass(&self.shared.world).await;
        part.reach(&self.shared.world, CutStep::Durable).await.map_err(unsettled)?;

        self.settle(snapshot, CutSettlement::Confirm).await?;
        // It is durable in all pools: what fails from here on leaves work to a settlement, and is no error.
        if part.reach(&self.shared.world, CutStep::Whole).await.is_ok() {
            self.settle(snapshot, CutSettlement::Forget).await?;
        }
        drop(under_way);
        self.shared.wait_for_release().await?;
        Ok(held_for)
    }

    /// Puts the rows of a pending cut into the log's queue.
    fn place(
        &self,
        (volumes, group): (&[VolumeNumber], Option<GroupNumber>),
        new: &NewSnapshot<'_>,
        pools: &[PoolId],
    ) -> LocalFuture<Result<()>> {
        let cut =
            CutRow { state: CutState::Pending, created_at: self.shared.wall_now(), pools: pools.to_vec() };
        let mut parts = self.cut_of(volumes, new, group);
        parts.push(LogItem::Put { row: RowKey::of_cut(new.snapshot), bytes: cut.encode() });
        self.log.append_together(parts)
    }

    /// Fails if a snapshot is pending.
    pub(super) fn check_offered(&self, row: &PointRow) -> Result<()> {
        if self.shared.state.borrow().catalogue.is_pending(row.snapshot)
            && !canary::is(Canary::HalfACutServed)
        {
            return Err(Error::CutPending(row.name.clone()));
        }
        Ok(())
    }

    /// Fails if a snapshot is part of a cut that is not settled: other pools would take its deletion for a part
    /// that never was durable.
    pub(super) fn check_no_cut(&self, row: &PointRow) -> Result<()> {
        match self.shared.state.borrow().catalogue.cut(row.snapshot) {
            Some(_) => Err(Error::CutPending(row.name.clone())),
            None => Ok(()),
        }
    }

    /// As [`Self::check_no_cut`], for all snapshots of a volume.
    pub(super) fn check_no_cuts_of(&self, volume: VolumeNumber) -> Result<()> {
        match self.shared.state.borrow().catalogue.unsettled_snapshot_of(volume) {
            Some(row) => Err(Error::CutPending(row.name.clone())),
            None => Ok(()),
        }
    }
}
