//! Commands that change rows, as a subscriber of the log finds them in a record.
//!
//! Such a command is one record, and its stamp is in it: that of the point for a snapshot, otherwise the highest stamp in
//! the row of a branch. What is found depends on the record alone, so it is the same when the record is offered, taken, and
//! read from the log later.
//!
//! | Rows, in this order | Command |
//! |---|---|
//! | a point with no use but that of a snapshot | snapshot |
//! | points that lost this use, a branch with a stamp | deletion of a snapshot |
//! | a branch, its volume | resize |
//! | a branch, the point at which it begins, its volume, the volume that is left | rollback |
//!
//! The row of a point may be written again, with an old stamp: stamps of commands ascend, so a subscriber knows it.

use super::log_subscribers::{DeliveredChange, DeliveredRecord};
use crate::format::{
    BranchNumber, CatalogueTable, RowKey, SnapshotId, Stamp, VolumeId, WallNanoseconds,
    row::{BranchRow, PointRow, PointUses, VolumeRow, VolumeState},
};

/// A command that changes rows of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowCommand {
    /// Its discard, and the block in which the volume ends, are changes of the same stamp.
    Resize {
        volume: VolumeId,
        sectors: u64,
    },
    /// One of a snapshot of several volumes has one command for each, with one stamp.
    Snapshot {
        volume: VolumeId,
        snapshot: SnapshotId,
        name: String,
        created_at: WallNanoseconds,
        note: Vec<u8>,
    },
    SnapshotDeleted {
        volume: VolumeId,
        snapshot: SnapshotId,
    },
    /// The state of before goes on as the volume `left`.
    RollBack {
        volume: VolumeId,
        snapshot: SnapshotId,
        left: VolumeId,
    },
}

impl RowCommand {
    pub fn volume(&self) -> VolumeId {
        match self {
            Self::Resize { volume, .. }
            | Self::Snapshot { volume, .. }
            | Self::SnapshotDeleted { volume, .. }
            | Self::RollBack { volume, .. } => *volume,
        }
    }
}

/// Beginning of the names of points that are no snapshots of people.
pub(crate) const OWN_POINT_BEGIN: char = '~';

/// A row that was put, with the volume that it is of.
enum PutRow {
    Branch(BranchNumber, BranchRow),
    Point(Stamp, PointRow),
    Volume(VolumeRow),
}

impl PutRow {
    fn of(row: RowKey, bytes: &[u8]) -> Option<Self> {
        match row.table {
            CatalogueTable::Branch => {
                let number = BranchNumber(u32::try_from(row.id).ok()?);
                BranchRow::decode(bytes).ok().map(|row| Self::Branch(number, row))
            }
            CatalogueTable::Point => {
                PointRow::decode(bytes).ok().map(|point| Self::Point(Stamp(row.sub), point))
            }
            CatalogueTable::Volume => VolumeRow::decode(bytes).ok().map(Self::Volume),
            _ => None,
        }
    }
}

/// Finds commands in the rows of a record, one after the other.
#[derive(Default)]
struct CommandFinder {
    found: Vec<(Stamp, RowCommand)>,
    /// Points without a snapshot, of which a stamp may follow.
    deleted: Vec<(VolumeId, SnapshotId)>,
    /// Their deletions, unless the row behind says that the branch is of another command.
    undecided: Vec<(Stamp, RowCommand)>,
    /// The last row, if it is that of a branch with a head.
    branch: Option<(BranchNumber, BranchRow)>,
    /// The snapshot at which this branch begins, if its row followed.
    fork: Option<SnapshotId>,
    /// The volume of that branch, if its row followed.
    rolled_back: Option<(Stamp, VolumeId, SnapshotId)>,
}

impl CommandFinder {
    fn take(&mut self, row: PutRow, volume: Option<VolumeId>) {
        if self.is_of_branch(&row) {
            self.undecided.clear();
        } else {
            self.found.append(&mut self.undecided);
        }
        match row {
            PutRow::Branch(number, row) => {
                let stamp = row.stamp_max;
                let deleted = self.deleted.drain(..).filter(|_| stamp.0 > 0);
                let deleted = deleted
                    .map(|(volume, snapshot)| (stamp, RowCommand::SnapshotDeleted { volume, snapshot }));
                self.undecided.extend(deleted);
                (self.branch, self.fork, self.rolled_back) = (Some((number, row)), None, None);
            }
            PutRow::Point(stamp, row) => self.take_point((stamp, row), volume),
            PutRow::Volume(row) => self.take_volume(row),
        }
    }

    /// True if the row follows that of its branch, as in a resize or a rollback.
    fn is_of_branch(&self, row: &PutRow) -> bool {
        let Some((number, branch)) = &self.branch else { return false };
        match row {
            PutRow::Branch(..) => false,
            PutRow::Point(stamp, _) => branch.parent.is_some_and(|(_, fork)| fork == *stamp),
            PutRow::Volume(row) => row.branch == *number,
        }
    }

    fn take_point(&mut self, (stamp, row): (Stamp, PointRow), volume: Option<VolumeId>) {
        let begins_here =
            |(_, branch): &(BranchNumber, BranchRow)| branch.parent.is_some_and(|(_, fork)| fork == stamp);
        if self.branch.as_ref().is_some_and(begins_here) {
            self.fork = Some(row.snapshot);
            return;
        }
        self.branch = None;
        let Some(volume) = volume.filter(|_| !row.name.starts_with(OWN_POINT_BEGIN)) else { return };
        let is_new = PointUses { snapshot: true, ..PointUses::default() };
        if row.state == VolumeState::Live && row.uses == is_new {
            let PointRow { snapshot, name, created_at, note, .. } = row;
            self.found.push((stamp, RowCommand::Snapshot { volume, snapshot, name, created_at, note }));
        } else if row.state != VolumeState::Live || !row.uses.snapshot {
            self.deleted.push((volume, row.snapshot));
        }
    }

    fn take_volume(&mut self, row: VolumeRow) {
        if let Some((stamp, volume, snapshot)) = self.rolled_back.take()
            && row.left_by.is_some()
        {
            let left = row.volume;
            self.found.push((stamp, RowCommand::RollBack { volume, snapshot, left }));
            return;
        }
        let Some((number, branch)) = self.branch.take() else { return };
        let is_its_head = row.branch == number && row.state == VolumeState::Live && row.left_by.is_none();
        if !is_its_head || branch.stamp_max.0 == 0 {
            return;
        }
        let (stamp, volume) = (branch.stamp_max, row.volume);
        match self.fork.take() {
            Some(snapshot) => self.rolled_back = Some((stamp, volume, snapshot)),
            None => self.found.push((stamp, RowCommand::Resize { volume, sectors: row.sectors })),
        }
    }
}

impl DeliveredRecord {
    /// The commands that change rows in this record, with their stamps, in order. Not those that make or delete volumes.
    pub fn row_commands(&self) -> Vec<(Stamp, RowCommand)> {
        let mut finder = CommandFinder::default();
        for change in &self.changes {
            if let DeliveredChange::Put { row, bytes, volume } = change
                && let Some(row) = PutRow::of(*row, bytes)
            {
                finder.take(row, *volume);
            }
        }
        finder.found.append(&mut finder.undecided);
        finder.found
    }
}
