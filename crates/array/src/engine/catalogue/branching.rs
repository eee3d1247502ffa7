//! Rows of clones and rollbacks, as functions of the rows there are.

use super::Catalogue;
use crate::format::{
    BlockCount, BlockIndex, BranchNumber, Stamp, VolumeId, VolumeNumber, WallNanoseconds,
    row::{BranchRow, NAME_BYTES_MAX, PointRow, PointUses, VolumeRow, VolumeState, WriteCache},
};

/// The point at which a branch begins, and the row that it has then.
pub(crate) struct ForkPoint {
    pub branch: BranchNumber,
    pub stamp: Stamp,
    pub row: PointRow,
}

impl ForkPoint {
    /// A snapshot at which one more branch begins.
    pub fn of_snapshot(branch: BranchNumber, stamp: Stamp, row: PointRow) -> Self {
        let uses = PointUses { fork: true, ..row.uses };
        Self { branch, stamp, row: PointRow { uses, references: row.references + 1, ..row } }
    }
}

impl Catalogue {
    /// A branch that begins at a point and is written by a volume.
    pub fn branch_from(&self, fork: &ForkPoint, volume: VolumeNumber, is_filled: bool) -> BranchRow {
        let parent = self.branch(fork.branch).expect("it has the point");
        BranchRow {
            state: VolumeState::Live,
            volume,
            parent: Some((fork.branch, fork.stamp)),
            depth: parent.depth + 1,
            is_replica: false,
            stamp_max: Stamp(0),
            filled_below: is_filled.then_some(BlockIndex(0)),
        }
    }
}

/// Identity, name and time of a volume that begins as another one.
pub(crate) struct NewVolumeLabel {
    pub volume: VolumeId,
    pub name: String,
    pub created_at: WallNanoseconds,
}

/// The row of a clone of `source`: its class, write cache and rates, and neither limit nor reserve.
pub(crate) fn clone_row(
    source: VolumeRow,
    label: NewVolumeLabel,
    branch: BranchNumber,
    sectors: u64,
) -> VolumeRow {
    let NewVolumeLabel { volume, name, created_at } = label;
    VolumeRow {
        volume,
        name,
        branch,
        group: None,
        sectors,
        reserve: BlockCount(0),
        limit: BlockCount(0),
        created_at,
        left_by: None,
        ..source
    }
}

/// The row of the volume that keeps the state of `before`, the row of a volume that a rollback changes.
pub(crate) fn left_row(before: VolumeRow, number: VolumeNumber, label: NewVolumeLabel) -> VolumeRow {
    let NewVolumeLabel { volume, name, created_at } = label;
    VolumeRow {
        volume,
        name,
        group: None,
        write_cache: WriteCache::Off,
        reserve: BlockCount(0),
        limit: BlockCount(0),
        iops_max: 0,
        kib_per_second_max: 0,
        created_at,
        left_by: Some(number),
        ..before
    }
}

/// The first free name of the form `V~1`, above all that are taken.
pub(crate) fn left_name(volume: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let name = |count: u32| {
        let end = format!("~{count}");
        let mut kept = volume.len().min(NAME_BYTES_MAX - end.len());
        while !volume.is_char_boundary(kept) {
            kept -= 1;
        }
        format!("{}{end}", &volume[..kept])
    };
    let mut count = 1;
    while is_taken(&name(count)) {
        count += 1;
    }
    name(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_what_rollbacks_left_are_counted() {
        assert_eq!(left_name("store", |_| false), "store~1");
        assert_eq!(left_name("store", |name| ["store~1", "store~2"].contains(&name)), "store~3");
        let long = "ö".repeat(64);
        let name = left_name(&long, |_| false);
        assert_eq!((name.len(), name.ends_with("ö~1")), (128, true), "a name has 128 bytes at most");
    }
}
