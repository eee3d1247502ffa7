//! Steps of a pass for one volume: one to each snapshot that the receiver lacks, in the order of their stamps, and one to
//! the cut. So a snapshot has at the receiver the bytes that it has here. One that is older than what both sides have in
//! common was deleted there in a history that was given up: a step goes back to it, and the next ones forward again.
//!
//! Invariants:
//!
//! 1. What a step sends covers all blocks in which its point differs from whatever the receiver may have: the point of the
//!    step before; or, if a pass was not finished, a mixture of states of this volume since the common cut.
//! 2. The state of the volume goes back only by rollbacks. Each leaves a point that shows what it undid, until the peer has
//!    it. A block that a rollback above the common cut took back is among those that were born on the way to that point,
//!    above where it and the step's point part, or is discarded there.

use super::{BlockRanges, PassGoal, changed_ranges_of};
use crate::{
    frame::SentSnapshot,
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{SnapshotId, Stamp, VolumeId},
    pool::{HistoryPoint, Pool},
};

/// A step of a pass.
#[derive(Clone, Debug)]
pub(super) struct PassStep {
    /// Identity of its point.
    pub point: SnapshotId,
    pub stamp: Stamp,
    /// The snapshot that the receiver takes at its end; `None` of the last step.
    pub snapshot: Option<SentSnapshot>,
    /// The receiver is past it.
    pub goes_back: bool,
}

/// The receiver at the end of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverState {
    /// Its state and that of the next point are one up to this stamp.
    pub since: Stamp,
    /// The point of the step, which may lie on a way that a rollback left; `None` before the first one.
    pub at: Option<(SnapshotId, Stamp)>,
}

/// The way to a point, from all that the receiver may have.
#[derive(Clone, Debug)]
pub(super) struct StepWay {
    /// Blocks that were born since are sent.
    pub since: Stamp,
    /// Blocks that rollbacks took back, as far as that is not younger.
    pub undone: Vec<UndoneBlocks>,
}

/// Blocks that are older in the point of a step than they were before.
#[derive(Clone, Debug)]
pub(super) struct UndoneBlocks {
    /// Stamp of the rollback. A receiver that has a block of a later state has what was left of it.
    pub at: Stamp,
    /// Up to there what was left and the point of the step have one history.
    pub shared: Stamp,
    pub blocks: BlockRanges,
}

/// The steps of a volume to the cut of a pass.
pub(super) fn steps_of(pool: &Pool, volume: VolumeId, goal: &PassGoal) -> Result<Vec<PassStep>, Error> {
    let known = goal.receiver_has.as_ref().and_then(|has| has.get(&volume));
    let lacks = |point: &HistoryPoint| {
        known.map_or(point.stamp > goal.since, |has| !has.contains(&point.snapshot.snapshot))
    };
    let all = pool.snapshots_above(volume, Stamp(0))?.into_iter();
    let all = all.filter(|point| point.stamp < goal.until && lacks(point));
    let step = |point: HistoryPoint| {
        let (stamp, taken) = (point.stamp, point.snapshot);
        let snapshot = SentSnapshot {
            snapshot: taken.snapshot,
            created_at: taken.created_at,
            name: taken.name,
            note: taken.note,
            volumes: vec![volume],
        };
        PassStep { point: taken.snapshot, stamp, snapshot: Some(snapshot), goes_back: stamp <= goal.since }
    };
    let mut steps: Vec<PassStep> = all.map(step).collect();
    if planted::is(ReplicationBug::SnapshotsNotPassed) {
        steps.clear();
    }
    steps.push(PassStep { point: goal.cut, stamp: goal.until, snapshot: None, goes_back: false });
    Ok(steps)
}

/// The snapshots of a volume up to a cut at `until`, ascending.
pub(crate) fn kept_snapshots(pool: &Pool, volume: VolumeId, until: Stamp) -> Result<Vec<SnapshotId>, Error> {
    let all = pool.snapshots_above(volume, Stamp(0))?.into_iter().filter(|point| point.stamp < until);
    let mut kept: Vec<SnapshotId> = all.map(|point| point.snapshot.snapshot).collect();
    kept.sort_unstable();
    Ok(kept)
}

/// The way of a receiver to the point of a step.
pub(super) async fn way_to(
    pool: &Pool,
    (volume, step): (VolumeId, &PassStep),
    (goal, receiver): (&PassGoal, ReceiverState),
) -> Result<StepWay, Error> {
    let mut way = StepWay { since: receiver.since, undone: Vec::new() };
    if planted::is(ReplicationBug::RollbackNotPassed) {
        return Ok(way);
    }
    let at = receiver.at.filter(|_| !planted::is(ReplicationBug::StepForgotten));
    // The point that a step has reached shows the rollbacks before it.
    let above = at.map_or(goal.since, |(_, stamp)| stamp.max(goal.since));
    let rollbacks = pool.rollbacks_above(volume, above)?.into_iter();
    let mut taken_back: Vec<_> = rollbacks.map(|point| (point.snapshot.snapshot, point.stamp)).collect();
    if step.goes_back {
        taken_back.push((goal.cut, goal.until));
    }
    for undone in taken_back {
        take_back(pool, (volume, step, &mut way), undone).await?;
    }
    let Some((point, stamp)) = at else { return Ok(way) };
    let taken_back = match pool.common_stamp(volume, point, step.point) {
        Ok(shared) if shared == stamp => return Ok(way),
        Ok(_) => take_back(pool, (volume, step, &mut way), (point, stamp)).await,
        Err(error) => Err(error),
    };
    match taken_back {
        // People deleted it, and nothing shows any more how it differs.
        Err(_) if !pool.has_snapshot(volume, point) => Ok(StepWay { since: Stamp(0), undone: Vec::new() }),
        taken_back => taken_back.map(|()| way),
    }
}

/// Adds to a way that the receiver may have all that leads to another point, which was left at a stamp.
async fn take_back(
    pool: &Pool,
    (volume, step, way): (VolumeId, &PassStep, &mut StepWay),
    (undone, at): (SnapshotId, Stamp),
) -> Result<(), Error> {
    let shared = pool.common_stamp(volume, undone, step.point)?;
    way.since = way.since.min(shared);
    let blocks = changed_ranges_of(pool, (volume, undone), shared, true).await?;
    way.undone.push(UndoneBlocks { at, shared, blocks });
    Ok(())
}
