//! Difference of two points of a volume, or of volumes that were cloned from one another, or of a point and now:
//! what a copy of the earlier state lacks.
//!
//! The walk holds both points by their use *reader*, so it sees one state however long it takes; now becomes
//! a point that only the walk has. Between its steps nothing else is held: segments are reused, and
//! checkpoints go on. A step reads the trees as they are then, from where the last one ended; versions that a
//! point keeps may move from head to history meanwhile, but are in one of both. No branch on the way between
//! the points leaves its parent meanwhile, so the points of forks between them stay, too.

mod born_since;
mod change_map;
mod point_holds;
mod route;
mod size_change;

pub use change_map::{ChangeExtent, ChangeMap};
pub(super) use point_holds::{PointHold, PointHolds, row_of_deleted};

use super::{Pool, SnapshotKey, VolumeKey};
use crate::{
    engine::{Checkpoints, MapReader},
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, BranchNumber, SECTOR_BYTES, Stamp, sectors_to_blocks},
    tree::BlockChange,
    volume::{HostPath, SnapshotDevice},
};
use point_holds::RouteHold;
use route::{Route, RouteChange};
use size_change::SizeChange;
use std::{ops::Range, rc::Rc};
use world::BoxedFuture;

/// Ranges of one step, at most.
const RANGES_AT_ONCE: usize = 4096;
/// Nodes that a step visits, at most: 4 MiB.
const NODES_AT_ONCE: u64 = 1024;
/// The same two of small steps.
const SMALL_STEP: (usize, u64) = (512, 64);
/// Blocks that are looked up at once.
const BLOCKS_AT_ONCE: u64 = 4096;

/// State of changed bytes at the later point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeChange {
    /// They were written. They may be what they were before.
    Data,
    /// They read as zeroes and have a version that says so: discarded in a volume that has a parent. Or they
    /// were written, and the later point, which is on another branch, has nothing there.
    Zeroes,
    /// They were discarded, and read as zeroes.
    Discarded,
    /// They lie beyond the smaller of both sizes. In a larger volume they read as zeroes; data written there
    /// is [`RangeChange::Data`].
    BeyondSize,
}

/// Bytes of a volume that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DifferenceRange {
    pub at_bytes: u64,
    /// At least one.
    pub length_bytes: u64,
    pub change: RangeChange,
}

impl DifferenceRange {
    fn of(bytes: Range<u64>, change: RangeChange) -> Self {
        Self { at_bytes: bytes.start, length_bytes: bytes.end - bytes.start, change }
    }

    /// The first byte behind it.
    pub fn end_bytes(&self) -> u64 {
        self.at_bytes + self.length_bytes
    }
}

/// A walk over the ranges of a volume that differ at two points.
pub struct Difference {
    map: MapReader,
    host: Rc<HostPath>,
    route: RouteHold,
    /// The first block that was not compared; none at the end.
    next_block: Option<u64>,
    sizes: SizeChange,
    /// The last range, which the next one may continue.
    held_back: Option<DifferenceRange>,
    nodes_visited: u64,
    /// Most ranges and nodes of a step.
    step: (usize, u64),
    /// None if it begins at a stamp that is no point.
    earlier: Option<PointHold>,
    later: PointHold,
}

impl Pool {
    /// The difference of a volume from a snapshot to a later one, or to now, as
    /// [`Pool::difference_between`].
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn difference<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        from: SnapshotKey<'k>,
        to: Option<SnapshotKey<'k>>,
    ) -> Result<Difference> {
        let volume = volume.into();
        self.difference_between((volume, from), (volume, to)).await
    }

    /// The difference from a snapshot of a volume to another one, or to now; the other may be of a volume that
    /// has a snapshot in common with it, such as its clone. Commands that run meanwhile may or may not count.
    /// Makes a checkpoint if changes are not in the trees yet. End it with [`Difference::end`].
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; both are on one branch, and `to` is older than `from`; they have nothing in
    /// common; or the pool cannot write.
    pub async fn difference_between<'k>(
        &self,
        from: (VolumeKey<'k>, SnapshotKey<'k>),
        to: (VolumeKey<'k>, Option<SnapshotKey<'k>>),
    ) -> Result<Difference> {
        self.route_between(from, to)?;
        let earlier = self.holds.hold_snapshot(self, from.0, from.1).await?;
        let later = match to.1 {
            Some(point) => self.holds.hold_snapshot(self, to.0, point).await,
            None => self.holds.hold_now(self, to.0).await,
        };
        let later = match later {
            Ok(later) => later,
            Err(error) => {
                earlier.release().await?;
                return Err(error);
            }
        };
        let route = match self.hold_route(&earlier, &later, (from, to)).await {
            Ok(route) => route,
            Err(error) => {
                drop(later);
                earlier.release().await?;
                return Err(error);
            }
        };
        let merged = merge_all_of(&self.map, &self.checkpoints, &route).await;
        let difference = Difference {
            map: self.map.clone(),
            host: Rc::clone(&self.host),
            next_block: Some(0),
            sizes: SizeChange::of(earlier.sectors * SECTOR_BYTES, later.sectors * SECTOR_BYTES),
            route,
            held_back: None,
            nodes_visited: 0,
            step: (RANGES_AT_ONCE, NODES_AT_ONCE),
            earlier: Some(earlier),
            later,
        };
        if let Err(error) = merged {
            difference.end().await?;
            return Err(error);
        }
        Ok(difference)
    }

    /// The way between two points that are held. No branch leaves its parent between its choice and its hold.
    async fn hold_route(
        &self,
        earlier: &PointHold,
        later: &PointHold,
        (from, to): (PointOfVolume<'_, SnapshotKey<'_>>, PointOfVolume<'_, Option<SnapshotKey<'_>>>),
    ) -> Result<RouteHold> {
        let one_at_a_time = self.shared.lock_changes().await;
        let points = ((earlier.branch, earlier.stamp), (later.branch, Some(later.stamp)));
        let route = self.route_of(points, (from, to))?;
        let hold = self.holds.hold_route(route);
        drop(one_at_a_time);
        Ok(hold)
    }

    /// The way between two points. Checks that both exist, and that they are in their order on one branch.
    fn route_between(
        &self,
        from: PointOfVolume<'_, SnapshotKey<'_>>,
        to: PointOfVolume<'_, Option<SnapshotKey<'_>>>,
    ) -> Result<Route> {
        let (branch, earlier, _) = self.snapshot_of(from.0, from.1)?;
        self.route_of(((branch, earlier), self.later_point(to)?), (from, to))
    }

    /// A snapshot of a volume, or its present.
    fn later_point(
        &self,
        (volume, to): PointOfVolume<'_, Option<SnapshotKey<'_>>>,
    ) -> Result<(BranchNumber, Option<Stamp>)> {
        let Some(to) = to else { return Ok((self.branch_of(volume)?.1, None)) };
        let (branch, stamp, _) = self.snapshot_of(volume, to)?;
        Ok((branch, Some(stamp)))
    }

    fn route_of(
        &self,
        (earlier, later): ((BranchNumber, Stamp), (BranchNumber, Option<Stamp>)),
        (from, to): (PointOfVolume<'_, SnapshotKey<'_>>, PointOfVolume<'_, Option<SnapshotKey<'_>>>),
    ) -> Result<Route> {
        let state = self.shared.state.borrow();
        let Some(route) = Route::between(state.catalogue.branches(), earlier, later) else {
            let earlier = format!("{}@{}", from.0, from.1);
            let later = to.1.map_or_else(|| to.0.to_string(), |point| format!("{}@{point}", to.0));
            return Err(Error::NothingInCommon { earlier, later });
        };
        match to.1 {
            Some(later) if route.is_backwards() => {
                Err(Error::WrongOrder { earlier: from.1.to_string(), later: later.to_string() })
            }
            _ => Ok(route),
        }
    }
}

/// A point of a volume, as the caller names it.
type PointOfVolume<'k, P> = (VolumeKey<'k>, P);

impl Difference {
    /// The same in small steps, for a thread that has hosts: a step reads 64 nodes at most.
    pub fn in_small_steps(self) -> Self {
        Self { step: SMALL_STEP, ..self }
    }

    /// Size of the volume at both points, in bytes.
    pub fn sizes_bytes(&self) -> [u64; 2] {
        self.sizes.bytes()
    }

    /// True if the points are on different branches: a clone or a rollback lies between them.
    pub fn is_across_branches(&self) -> bool {
        self.earlier.as_ref().is_some_and(|earlier| earlier.branch != self.later.branch)
    }

    /// The later state, to copy data from. It can be read until the difference is ended.
    pub fn later(&self) -> SnapshotDevice {
        let point = (self.later.branch, self.later.stamp);
        SnapshotDevice::new(Rc::clone(&self.host), point, self.later.sectors)
    }

    /// The earlier state, as [`Difference::later`].
    ///
    /// # Panics
    ///
    /// If the difference begins at a stamp that is no point.
    pub fn earlier(&self) -> SnapshotDevice {
        let earlier = self.earlier.as_ref().expect("the difference begins at a point");
        SnapshotDevice::new(Rc::clone(&self.host), (earlier.branch, earlier.stamp), earlier.sectors)
    }

    /// Nodes of the trees that were visited so far, cached or not. A node counts once a step.
    pub fn nodes_visited(&self) -> u64 {
        self.nodes_visited
    }

    /// The next ranges, ascending, without overlap; those of one state are not adjacent. They may be none;
    /// `None` at the end. Needs memory for one step, whatever the size of the volume.
    ///
    /// # Errors
    ///
    /// A part of the map cannot be read, or the pool has stopped.
    pub async fn next(&mut self) -> Result<Option<Vec<DifferenceRange>>> {
        self.boxed_next().await
    }

    fn boxed_next(&mut self) -> BoxedFuture<'_, Result<Option<Vec<DifferenceRange>>>> {
        Box::pin(self.next_ranges())
    }

    async fn next_ranges(&mut self) -> Result<Option<Vec<DifferenceRange>>> {
        let mut ranges = Vec::new();
        let Some(first) = self.next_block else {
            if let Some(beyond) = self.sizes.rest() {
                self.push(beyond, &mut ranges);
            }
            ranges.extend(self.held_back.take());
            return Ok(Some(ranges).filter(|ranges| !ranges.is_empty()));
        };
        self.map.shared.check_runs()?;
        let reading = self.map.shared.begin_reading();
        let roots = self.map.shared.state.borrow().roots;
        let is_there = |hold: &PointHold| self.map.is_snapshot(hold.branch, hold.stamp);
        assert!(self.earlier.iter().all(is_there) && is_there(&self.later), "points in use are not deleted");
        let [before, after] = self.sizes.bytes();
        let last = sectors_to_blocks(before.max(after) / SECTOR_BYTES);
        let trees = Rc::clone(&self.map.trees);
        let mut walk = self.route.changed_blocks(&trees, roots, &(first..last), self.step.1);
        self.next_block = loop {
            let Some((blocks, change)) = walk.next().await? else { break walk.paused_at() };
            let end = blocks.end;
            for (blocks, change) in self.resolved(blocks, change).await? {
                for range in self.sizes.apply(blocks, change) {
                    self.push(range, &mut ranges);
                }
            }
            if ranges.len() >= self.step.0 {
                break Some(end);
            }
        };
        self.nodes_visited += walk.nodes_visited();
        drop(reading);
        Ok(Some(ranges))
    }

    /// The states of changed blocks at the later point, in order.
    async fn resolved(
        &self,
        blocks: Range<u64>,
        change: RouteChange,
    ) -> Result<Vec<(Range<u64>, BlockChange)>> {
        let RouteChange::Known(change) = change else { return self.looked_up(blocks).await };
        Ok(vec![(blocks, change)])
    }

    async fn looked_up(&self, blocks: Range<u64>) -> Result<Vec<(Range<u64>, BlockChange)>> {
        let mut states: Vec<(Range<u64>, BlockChange)> = Vec::new();
        let mut first = blocks.start;
        while first < blocks.end {
            let count = BLOCKS_AT_ONCE.min(blocks.end - first);
            let at = Some(self.later.stamp);
            let mapped = self.map.map_of(self.later.branch, BlockIndex(first), count, at).await?;
            for (block, mapped) in (first..).zip(mapped) {
                let state = if mapped.is_some() { BlockChange::Data } else { BlockChange::Zeroes };
                match states.last_mut().filter(|(_, last)| *last == state) {
                    Some((last, _)) => last.end = block + 1,
                    None => states.push((block..block + 1, state)),
                }
            }
            first += count;
        }
        Ok(states)
    }

    fn push(&mut self, range: DifferenceRange, ranges: &mut Vec<DifferenceRange>) {
        match &mut self.held_back {
            Some(last) if last.end_bytes() == range.at_bytes && last.change == range.change => {
                last.length_bytes += range.length_bytes;
            }
            last => ranges.extend(last.replace(range)),
        }
    }

    /// Ends the use of both points. A snapshot that was deleted meanwhile is reclaimed now. Without this, they
    /// stay until the pool is opened again, or another difference ends.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub async fn end(self) -> Result<()> {
        let Self { earlier, later, route, .. } = self;
        drop(route);
        // One record releases all points without a reader.
        let Some(earlier) = earlier else { return later.release().await };
        drop(later);
        earlier.release().await
    }
}

/// Returns when the trees have all changes that the branches of a way have now. Long discards take several
/// checkpoints. They go on if the caller does not wait: a checkpoint is never left half-done.
async fn merge_all_of(map: &MapReader, checkpoints: &Rc<Checkpoints>, route: &Route) -> Result<()> {
    let begun = map.shared.state.borrow().stamp_next;
    let is_on_way = |branch: BranchNumber| route.branches().any(|other| other == branch);
    let has_discards = || {
        let discards = map.shared.state.borrow().catalogue.discards();
        discards.iter().any(|discard| is_on_way(discard.branch) && discard.stamp < begun)
    };
    let is_merged = {
        let state = map.shared.state.borrow();
        state.merging.is_none() && !state.table.branches().any(is_on_way)
    };
    if is_merged && !has_discards() {
        return Ok(());
    }
    loop {
        let own = Rc::clone(checkpoints);
        let making = async move { own.make_of_now().await };
        map.shared.world.spawn("checkpoint for a difference", making).await?;
        if !has_discards() {
            return Ok(());
        }
    }
}

fn bytes_of(blocks: &Range<u64>) -> Range<u64> {
    blocks.start * BLOCK_BYTES as u64..blocks.end * BLOCK_BYTES as u64
}

fn change_of(change: BlockChange) -> RangeChange {
    match change {
        BlockChange::Data => RangeChange::Data,
        BlockChange::Zeroes => RangeChange::Zeroes,
        BlockChange::Discarded => RangeChange::Discarded,
    }
}
