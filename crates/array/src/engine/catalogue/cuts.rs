//! Cuts over several pools, as long as they are not settled. A point is part of a cut by its snapshot.

use super::Catalogue;
use crate::format::{
    BranchNumber, SnapshotId, Stamp, VolumeNumber,
    row::{CutRow, CutState, PointRow, VolumeState},
};

impl Catalogue {
    /// The cuts that are not settled, by snapshot.
    pub fn cuts(&self) -> impl Iterator<Item = (SnapshotId, &CutRow)> {
        self.cuts.iter().map(|(&snapshot, row)| (snapshot, row))
    }

    pub fn cut(&self, snapshot: SnapshotId) -> Option<&CutRow> {
        self.cuts.get(&snapshot)
    }

    /// True if another pool may lack its part of the snapshot.
    pub fn is_pending(&self, snapshot: SnapshotId) -> bool {
        self.cut(snapshot).is_some_and(|row| row.state == CutState::Pending)
    }

    /// The first snapshot of a volume that is part of a cut that is not settled.
    pub fn unsettled_snapshot_of(&self, volume: VolumeNumber) -> Option<&PointRow> {
        if self.cuts.is_empty() {
            return None;
        }
        self.snapshots_of(volume).map(|(_, _, row)| row).find(|row| self.cut(row.snapshot).is_some())
    }

    /// The points of a snapshot, of all volumes.
    pub fn points_of_snapshot(
        &self,
        snapshot: SnapshotId,
    ) -> impl Iterator<Item = (BranchNumber, Stamp, &PointRow)> {
        let points = self.point_rows.iter().map(|(&(branch, stamp), row)| (branch, stamp, row));
        points.filter(move |(_, _, row)| {
            row.snapshot == snapshot && row.uses.snapshot && row.state == VolumeState::Live
        })
    }
}
