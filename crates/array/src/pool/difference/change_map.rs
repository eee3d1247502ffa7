//! Changes of a volume since a snapshot, range by range: for readers that ask again and again,
//! such as clients of NBD.
//!
//! Unlike a [`Difference`](super::Difference) it holds nothing between two questions: if the snapshot is
//! deleted, or the volume was filled and became independent of it, the next question fails. Of a volume, each
//! answer is about the moment at which it was asked.

use super::{RangeChange, Route, RouteChange, SizeChange, merge_all_of};
use crate::{
    engine::{Checkpoints, MapReader},
    error::{Error, Result},
    format::{BLOCK_BYTES, BranchNumber, SECTOR_BYTES, SnapshotId, Stamp, VolumeNumber},
    pool::{Pool, SnapshotKey, VolumeKey},
    tree::BlockChange,
    volume::{check_range, io_error},
};
use std::{cell::Cell, ops::Range, rc::Rc};
use world::{ByteCount, ByteOffset, IoError, IoErrorKind, IoResult};

/// Extents of one answer, at most.
const EXTENTS_MAX: usize = 4096;
/// Nodes that an answer visits, at most.
const NODES_MAX: u64 = 1024;

/// Adjacent bytes that all changed, or did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeExtent {
    pub length: ByteCount,
    pub is_changed: bool,
}

/// The changes of a volume from a snapshot to a later one, or to now.
pub struct ChangeMap {
    map: MapReader,
    checkpoints: Rc<Checkpoints>,
    volume: VolumeNumber,
    earlier: (BranchNumber, Stamp),
    later: (BranchNumber, Option<Stamp>),
    /// Size at the earlier point, and at the later one unless that is now.
    earlier_bytes: u64,
    later_bytes: Option<u64>,
    /// The trees have everything up to the later point.
    is_merged: Cell<bool>,
}

impl Pool {
    /// The changes of a volume from a snapshot to another one, or to now. Both may be on different branches of
    /// the volume, since a rollback lies between them.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; or as [`Pool::difference_between`].
    pub fn changes_since<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        from: SnapshotKey<'_>,
        to: Option<SnapshotKey<'_>>,
    ) -> Result<ChangeMap> {
        let volume = volume.into();
        self.route_between((volume, from), (volume, to))?;
        let (branch, earlier, row) = self.snapshot_of(volume, from)?;
        let later_row = to.map(|to| self.snapshot_of(volume, to)).transpose()?.map(|(_, _, row)| row);
        Ok(ChangeMap {
            map: self.map.clone(),
            checkpoints: Rc::clone(&self.checkpoints),
            volume: self.number_of(volume)?,
            earlier: (branch, earlier),
            later: self.later_point((volume, to))?,
            earlier_bytes: row.sectors * SECTOR_BYTES,
            later_bytes: later_row.map(|row| row.sectors * SECTOR_BYTES),
            is_merged: Cell::new(false),
        })
    }

    /// Snapshots from which changes of a volume can be asked for, up to a snapshot or to now, oldest first:
    /// those before it, and those of the volume's other branches, which rollbacks left.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot.
    pub fn earlier_snapshots<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        to: Option<SnapshotKey<'_>>,
    ) -> Result<Vec<(String, SnapshotId)>> {
        let volume = volume.into();
        let later = self.later_point((volume, to))?;
        let number = self.number_of(volume)?;
        let state = self.shared.state.borrow();
        let branches = state.catalogue.branches();
        let is_earlier = |point: (BranchNumber, Stamp)| {
            let is_itself = (point.0, Some(point.1)) == later;
            !is_itself && Route::between(branches, point, later).is_some_and(|route| !route.is_backwards())
        };
        let offered = state
            .catalogue
            .snapshots_of(number)
            .filter(|(_, _, row)| !state.catalogue.is_pending(row.snapshot));
        let earlier = offered.filter(|&(branch, stamp, _)| is_earlier((branch, stamp)));
        Ok(earlier.map(|(_, _, row)| (row.name.clone(), row.snapshot)).collect())
    }
}

impl ChangeMap {
    /// Extents from `at` on, adjacent and in order, two neighbours never alike. They cover at least one byte
    /// and at most `length`. All beyond the smaller size counts as changed.
    ///
    /// # Errors
    ///
    /// The range is not within the volume, the snapshot was deleted, or the map cannot be read.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<ChangeExtent>> {
        const DOING: &str = "look for changes";
        let found = match self.later_bytes {
            Some(later) => later,
            None => self.size_now().map_err(|error| io_error(DOING, &error))?,
        };
        check_range(DOING, at, length.0, found)?;
        let route = self.route()?;
        if !self.is_merged.get() {
            let merged = merge_all_of(&self.map, &self.checkpoints, &route).await;
            merged.map_err(|error| io_error(DOING, &error))?;
            self.is_merged.set(self.later_bytes.is_some());
        }
        let looked_up = self.look_up(&route, at.0..at.0 + length.0, found).await;
        let extents = looked_up.map_err(|error| io_error(DOING, &error))?;
        // A deletion takes its part of the map in steps, and so does what a branch leaves with its parent.
        let is_same = self.route()? == route;
        if is_same { Ok(extents) } else { Err(not_found("the volume became independent of the snapshot")) }
    }

    fn size_now(&self) -> Result<u64> {
        let state = self.map.shared.state.borrow();
        let row = state.catalogue.volume(self.volume).filter(|row| row.branch == self.later.0);
        row.map(|row| row.sectors * SECTOR_BYTES)
            .ok_or_else(|| Error::NoVolume(format!("number {}", self.volume)))
    }

    /// The way between both points, which must be there.
    fn route(&self) -> IoResult<Route> {
        let later = self.later.1.map(|stamp| (self.later.0, stamp));
        let mut points = std::iter::once(self.earlier).chain(later);
        if !points.all(|(branch, stamp)| self.map.is_snapshot(branch, stamp)) {
            return Err(not_found("the snapshot was deleted"));
        }
        let state = self.map.shared.state.borrow();
        let route = Route::between(state.catalogue.branches(), self.earlier, self.later);
        route.ok_or_else(|| not_found("the volume became independent of the snapshot"))
    }

    async fn look_up(&self, route: &Route, bytes: Range<u64>, size_bytes: u64) -> Result<Vec<ChangeExtent>> {
        let _reading = self.map.shared.begin_reading();
        let roots = self.map.shared.state.borrow().roots;
        let block = BLOCK_BYTES as u64;
        let blocks = bytes.start / block..bytes.end.div_ceil(block);
        let mut walk = route.changed_blocks(&self.map.trees, roots, &blocks, NODES_MAX);
        let mut sizes = SizeChange::of(self.earlier_bytes, size_bytes);
        let mut list = ExtentDraft { next: bytes.start, end: bytes.end, extents: Vec::new() };
        while let Some((blocks, change)) = walk.next().await? {
            let change = match change {
                RouteChange::Known(change) => change,
                // Beyond the smaller size all counts as changed anyway.
                RouteChange::Undone => BlockChange::Zeroes,
            };
            for range in sizes.apply(blocks, change) {
                list.add_changed(range.at_bytes..range.end_bytes());
            }
            if list.extents.len() >= EXTENTS_MAX {
                return Ok(list.extents);
            }
        }
        let known_below = walk.paused_at().map_or(bytes.end, |paused| paused * block);
        list.end = list.end.min(known_below);
        if let Some(beyond) = sizes.rest() {
            assert_eq!(beyond.change, RangeChange::BeyondSize);
            list.add_changed(beyond.at_bytes..beyond.end_bytes());
        }
        list.reach(list.end);
        Ok(list.extents)
    }
}

fn not_found(why: &str) -> IoError {
    IoError::new(IoErrorKind::NotFound, format!("look for changes: {why}"))
}

/// Extents as they are found.
struct ExtentDraft {
    /// The first byte that no extent covers.
    next: u64,
    end: u64,
    extents: Vec<ChangeExtent>,
}

impl ExtentDraft {
    fn add_changed(&mut self, changed: Range<u64>) {
        self.reach(changed.start);
        self.push(changed.end, true);
    }

    /// Bytes below `end` have not changed, apart from those known to.
    fn reach(&mut self, end: u64) {
        self.push(end, false);
    }

    fn push(&mut self, end: u64, is_changed: bool) {
        let end = end.min(self.end);
        if end <= self.next {
            return;
        }
        let length = end - self.next;
        match self.extents.last_mut().filter(|last| last.is_changed == is_changed) {
            Some(last) => last.length.0 += length,
            None => self.extents.push(ChangeExtent { length: ByteCount(length), is_changed }),
        }
        self.next = end;
    }
}
