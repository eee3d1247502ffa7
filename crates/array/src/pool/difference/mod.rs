//! Difference of two points of a volume, or of a point and now: what a copy of the earlier state lacks.
//!
//! The walk holds both points by their use *reader*, so it sees one state however long it takes; now becomes
//! a point that only the walk has. Between its steps nothing else is held: segments are reused, and
//! checkpoints go on. A step reads the trees as they are then, from where the last one ended; versions that a
//! point keeps may move from head to history meanwhile, but are in one of both.

mod change_map;
mod point_holds;
mod size_change;

pub use change_map::{ChangeExtent, ChangeMap};
pub(super) use point_holds::{PointHolds, row_of_deleted};

use super::{Pool, SnapshotKey, VolumeKey};
use crate::{
    engine::{Checkpoints, MapReader},
    error::{Error, Result},
    format::{BLOCK_BYTES, BranchNumber, SECTOR_BYTES, Stamp, sectors_to_blocks},
    tree::{BlockChange, PointPair},
    volume::{HostPath, SnapshotDevice},
};
use point_holds::PointHold;
use size_change::SizeChange;
use std::{ops::Range, rc::Rc};

/// Ranges of one step, at most.
const RANGES_AT_ONCE: usize = 4096;
/// Nodes that a step visits, at most: 4 MiB.
const NODES_AT_ONCE: u64 = 1024;

/// State of changed bytes at the later point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RangeChange {
    /// They were written. They may be what they were before.
    Data,
    /// They read as zeroes and have a version that says so: discarded in a volume that has a parent.
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
    pair: PointPair,
    /// The first block that was not compared; none at the end.
    next_block: Option<u64>,
    sizes: SizeChange,
    /// The last range, which the next one may continue.
    held_back: Option<DifferenceRange>,
    nodes_visited: u64,
    earlier: PointHold,
    later: PointHold,
}

impl Pool {
    /// The difference of a volume from a snapshot to a later one, or to now: commands that run meanwhile may
    /// or may not count. Makes a checkpoint if changes are not in the trees yet. End it with
    /// [`Difference::end`].
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; `to` is older than `from`; or the pool cannot write.
    pub async fn difference<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        from: SnapshotKey<'_>,
        to: Option<SnapshotKey<'_>>,
    ) -> Result<Difference> {
        let volume = volume.into();
        self.order_of(volume, from, to)?;
        let earlier = self.holds.hold_snapshot(self, volume, from).await?;
        let later = match to {
            Some(to) => self.holds.hold_snapshot(self, volume, to).await,
            None => self.holds.hold_now(self, volume).await,
        };
        let later = match later {
            Ok(later) => later,
            Err(error) => {
                earlier.release().await?;
                return Err(error);
            }
        };
        let pair = PointPair { branch: earlier.branch, earlier: earlier.stamp, later: Some(later.stamp) };
        let sizes = SizeChange::of(earlier.sectors * SECTOR_BYTES, later.sectors * SECTOR_BYTES);
        let difference = Difference {
            map: self.map.clone(),
            host: Rc::clone(&self.host),
            pair,
            next_block: (earlier.stamp < later.stamp).then_some(0),
            sizes,
            held_back: None,
            nodes_visited: 0,
            earlier,
            later,
        };
        let done = if difference.later.branch == pair.branch {
            merge_all_of(&self.map, &self.checkpoints, pair.branch).await
        } else {
            Err(Error::NotYet("a difference across branches"))
        };
        match done {
            Ok(()) => Ok(difference),
            Err(error) => {
                difference.end().await?;
                Err(error)
            }
        }
    }

    /// The points of a difference. Checks that both exist and are in their order.
    fn order_of(
        &self,
        volume: VolumeKey<'_>,
        from: SnapshotKey<'_>,
        to: Option<SnapshotKey<'_>>,
    ) -> Result<PointPair> {
        let (branch, earlier, _) = self.snapshot_of(volume, from)?;
        let (other, later) = match to {
            Some(to) => {
                let (other, later, _) = self.snapshot_of(volume, to)?;
                (other, Some(later))
            }
            None => (self.branch_of(volume)?.1, None),
        };
        if other != branch {
            return Err(Error::NotYet("a difference across branches"));
        }
        if later.is_some_and(|later| later < earlier) {
            let to = to.expect("now is later than any point");
            return Err(Error::WrongOrder { earlier: from.to_string(), later: to.to_string() });
        }
        Ok(PointPair { branch, earlier, later })
    }
}

impl Difference {
    /// Size of the volume at both points, in bytes.
    pub fn sizes_bytes(&self) -> [u64; 2] {
        self.sizes.bytes()
    }

    /// The later state, to copy data from. It can be read until the difference is ended.
    pub fn later(&self) -> SnapshotDevice {
        let point = (self.pair.branch, self.later.stamp);
        SnapshotDevice::new(Rc::clone(&self.host), point, self.later.sectors)
    }

    /// The earlier state, as [`Difference::later`].
    pub fn earlier(&self) -> SnapshotDevice {
        let point = (self.pair.branch, self.earlier.stamp);
        SnapshotDevice::new(Rc::clone(&self.host), point, self.earlier.sectors)
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
        let points = [Some(self.pair.earlier), self.pair.later];
        let is_there = |stamp| self.map.is_snapshot(self.pair.branch, stamp);
        assert!(points.into_iter().flatten().all(is_there), "points in use are not deleted");
        let last = sectors_to_blocks(self.earlier.sectors.max(self.later.sectors));
        let trees = Rc::clone(&self.map.trees);
        let mut walk = trees.changed_blocks(roots, self.pair, first..last, NODES_AT_ONCE);
        self.next_block = loop {
            let Some((blocks, change)) = walk.next().await? else { break walk.paused_at() };
            let end = blocks.end;
            for range in self.sizes.apply(blocks, change) {
                self.push(range, &mut ranges);
            }
            if ranges.len() >= RANGES_AT_ONCE {
                break Some(end);
            }
        };
        self.nodes_visited += walk.nodes_visited();
        drop(reading);
        Ok(Some(ranges))
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
        let Self { earlier, later, .. } = self;
        // One record releases all points without a reader.
        drop(later);
        earlier.release().await
    }
}

/// Returns when the trees have all changes that the branch has now. Long discards take several checkpoints.
async fn merge_all_of(map: &MapReader, checkpoints: &Checkpoints, branch: BranchNumber) -> Result<()> {
    let begun = map.shared.state.borrow().stamp_next;
    let has_discards = || {
        let discards = map.shared.state.borrow().catalogue.discards();
        discards.iter().any(|discard| discard.branch == branch && discard.stamp < begun)
    };
    let is_merged = {
        let state = map.shared.state.borrow();
        state.merging.is_none() && state.table.branches().all(|other| other != branch)
    };
    if is_merged && !has_discards() {
        return Ok(());
    }
    loop {
        checkpoints.make_of_now().await?;
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

/// True if a stamp is above another, or there is none: now is later than any point.
fn is_later(stamp: Option<Stamp>, than: Stamp) -> bool {
    stamp.is_none_or(|stamp| than < stamp)
}
