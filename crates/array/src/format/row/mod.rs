//! Rows of the catalogue: volumes, branches, points and all else a pool keeps a table of. Their keys are here; what
//! is in them is beside each kind of row.
//!
//! A row has no seal: its node has one, and in the log its entry carries the checksum. It begins with the version of
//! its table. Numbers of volumes, branches and groups begin at 1; 0 is none.

mod branch;
mod discard;
mod group;
mod scrub;
mod segment;
mod volume;

pub use branch::{BRANCH_DEPTH_MAX, BranchRow, PointRow, PointUses};
pub use discard::DiscardRow;
pub use group::{EpochRow, GroupRow};
pub use scrub::{ScrubCounts, ScrubPlace, ScrubRow};
pub use segment::{SegmentRow, SegmentState};
pub use volume::{VOLUME_SECTORS_MAX, VolumeRow, VolumeState, WriteCache};

use super::{
    refusal::{Fault, Refusal, Structure},
    units::{BranchNumber, GroupNumber, SegmentNumber, Stamp, VolumeNumber},
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian as le};

/// Bytes of a row at most.
pub const ROW_BYTES_MAX: usize = 1024;

/// The tables of the catalogue. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// id: segment number; sub: 0.
    Segment = 1,
    /// id: volume number; sub: 0.
    Volume = 2,
    /// id: branch number; sub: 0.
    Branch = 3,
    /// id: branch number; sub: stamp.
    Point = 4,
    /// id: group number; sub: 0.
    Group = 5,
    /// Of a lineage: id: group number; sub: index of the epoch.
    Epoch = 6,
    /// Discards not yet in the map: id: branch number; sub: stamp.
    Discard = 7,
    /// How far a scrub is: id: 0; sub: 0.
    Scrub = 8,
}

impl Table {
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, Refusal> {
        Ok(match byte {
            1 => Self::Segment,
            2 => Self::Volume,
            3 => Self::Branch,
            4 => Self::Point,
            5 => Self::Group,
            6 => Self::Epoch,
            7 => Self::Discard,
            8 => Self::Scrub,
            _ => {
                structure.value(false, at, "table", byte, "1 to 8")?;
                unreachable!("refused above")
            }
        })
    }
}

/// Which row of the catalogue. Rows are ordered by table, then id, then sub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    /// Of which table.
    pub table: Table,
    /// As the table says.
    pub id: u64,
    /// As the table says.
    pub sub: u64,
}

impl RowKey {
    /// How far a scrub is.
    pub const SCRUB: Self = Self { table: Table::Scrub, id: 0, sub: 0 };

    /// Of a segment.
    pub fn of_segment(segment: SegmentNumber) -> Self {
        Self { table: Table::Segment, id: segment.0.into(), sub: 0 }
    }

    /// Of a volume.
    pub fn of_volume(volume: VolumeNumber) -> Self {
        Self { table: Table::Volume, id: volume.0.into(), sub: 0 }
    }

    /// Of a branch.
    pub fn of_branch(branch: BranchNumber) -> Self {
        Self { table: Table::Branch, id: branch.0.into(), sub: 0 }
    }

    /// Of a point of a branch.
    pub fn of_point(branch: BranchNumber, stamp: Stamp) -> Self {
        Self { table: Table::Point, id: branch.0.into(), sub: stamp.0 }
    }

    /// Of a consistency group.
    pub fn of_group(group: GroupNumber) -> Self {
        Self { table: Table::Group, id: group.0.into(), sub: 0 }
    }

    /// Of an epoch of a group's lineage, counted from 0, oldest first.
    pub fn of_epoch(group: GroupNumber, index: u64) -> Self {
        Self { table: Table::Epoch, id: group.0.into(), sub: index }
    }

    /// Of a discard that is not yet in the map.
    pub fn of_discard(branch: BranchNumber, stamp: Stamp) -> Self {
        Self { table: Table::Discard, id: branch.0.into(), sub: stamp.0 }
    }
}

/// Bytes of a name at most.
pub const NAME_BYTES_MAX: usize = 128;

const THIS: Structure = Structure::Row;
const VERSION: u16 = 1;

/// A row's fixed part, if it is of the version this program knows, and what follows.
fn open<T>(bytes: &[u8]) -> Result<(&T, &[u8]), Refusal>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let version: &le::U16 = THIS.view(bytes, 0)?;
    if version.get() != VERSION {
        return Err(THIS.refuse(0, Fault::Version(version.get())));
    }
    let raw = THIS.view(bytes, 0)?;
    Ok((raw, &bytes[size_of::<T>()..]))
}

/// The rest of a row, which is a name and nothing else.
fn name(rest: &[u8], length: u8, length_at: usize, at: usize) -> Result<String, Refusal> {
    let is_all = usize::from(length) == rest.len() && rest.len() <= NAME_BYTES_MAX;
    THIS.value(is_all, length_at, "name length", length, "at most 128, up to the end of the row")?;
    let name = std::str::from_utf8(rest).ok().filter(|name| is_name(name));
    THIS.agree(name.is_some(), at, "a name is UTF-8 without control characters")?;
    Ok(name.expect("looked at above").to_owned())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// Refuses a row with more bytes than it has.
fn nothing_behind<T>(rest: &[u8]) -> Result<(), Refusal> {
    THIS.agree(rest.is_empty(), size_of::<T>(), "the row goes on behind its last field")
}
