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
pub use settlement::{CutSettlement, UnsettledCut, UnsettledState, settle_cuts, settlements};

use super::{NewSnapshot, Pool, VolumeKey, snapshots::new_features};
use crate::{
    error::{Error, Result},
    format::{
        PoolId, RowKey, SnapshotId, VolumeNumber,
        features::INCOMPATIBLE_CUTS,
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
use rendezvous::CutStep;
use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};
use world::LocalFuture;

/// The cut fails if hosts would have to wait longer than this for their answers.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// The cuts that a pool takes part in just now.
pub(super) type CutsUnderWay = Rc<RefCell<BTreeSet<SnapshotId>>>;

/// A cut that is under way in this process: nobody else settles it.
struct CutUnderWay {
    all: CutsUnderWay,
    snapshot: SnapshotId,
}

impl CutUnderWay {
    fn begin(all: &CutsUnderWay, snapshot: SnapshotId) -> Self {
        let is_new = all.borrow_mut().insert(snapshot);
        assert!(is_new, "each cut has a snapshot of its own");
        Self { all: Rc::clone(all), snapshot }
    }
}

impl Drop for CutUnderWay {
    fn drop(&mut self) {
        self.all.borrow_mut().remove(&self.snapshot);
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
        assert_eq!(part.pool(), self.id(), "a part is for one pool");
        let taken = self.take_part(volumes, new, &part).await;
        taken.inspect_err(|error| part.fail(error))
    }

    async fn take_part<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
        new: &NewSnapshot<'_>,
        part: &CutMember,
    ) -> Result<Duration> {
        let snapshot = new.snapshot;
        part.wait_for_turn().await?;
        new.check()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let numbers = volumes.iter().map(|volume| self.number_of((*volume).into()));
        let numbers: Vec<VolumeNumber> = numbers.collect::<Result<_>>()?;
        // One entry is the cut's row.
        self.check_snapshot(&numbers, new, ENTRIES_MAX - 1)?;
        let under_way = CutUnderWay::begin(&self.cuts_under_way, snapshot);
        let _features = self.shared.begin_rows(new_features(new) | INCOMPATIBLE_CUTS).await?;
        part.reach(CutStep::Prepared).await?;

        let (logged, held_for) = {
            let began = self.shared.world.now();
            let held = (!canary::is(Canary::CutNotHeld)).then(|| self.shared.hold_answers());
            part.reach_within(&self.shared.world, CutStep::Held, HOLD_MAX).await?;
            thread_delays::pass(&self.shared.world).await;
            let logged = self.place(&numbers, new, part.pools());
            let placed = part.reach_within(&self.shared.world, CutStep::Placed, HOLD_MAX).await;
            drop(held);
            if let Err(failed) = placed {
                sometimes::reached(Sometimes::CutAbandoned);
                logged.await?;
                self.log.append_together(self.without_cut(snapshot)).await?;
                return Err(failed);
            }
            (logged, self.shared.world.now().since(began))
        };
        let unsettled = |error: Error| match error {
            Error::CutFailed(reason) => Error::CutUnsettled { snapshot: new.name.to_owned(), reason },
            other => other,
        };
        logged.await?;
        drop(one_at_a_time);
        thread_delays::pass(&self.shared.world).await;
        part.reach(CutStep::Durable).await.map_err(unsettled)?;

        self.settle(snapshot, CutSettlement::Confirm).await?;
        // It is durable in all pools: what fails from here on leaves work to a settlement, and is no error.
        if part.reach(CutStep::Whole).await.is_ok() {
            self.settle(snapshot, CutSettlement::Forget).await?;
        }
        drop(under_way);
        self.shared.wait_for_release().await?;
        Ok(held_for)
    }

    /// Puts the rows of a pending cut into the log's queue.
    fn place(
        &self,
        volumes: &[VolumeNumber],
        new: &NewSnapshot<'_>,
        pools: &[PoolId],
    ) -> LocalFuture<Result<()>> {
        let cut =
            CutRow { state: CutState::Pending, created_at: self.shared.wall_now(), pools: pools.to_vec() };
        let mut parts = self.cut_of(volumes, new, None);
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
