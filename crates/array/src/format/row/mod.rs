//! Rows of the catalogue: volumes, branches, points and the other tables of a pool. This module has the keys;
//! a file each has the rows of a table.
//!
//! A row has no seal: its node has one, and in the log its entry carries the checksum. It begins with the
//! version of its table. Numbers of volumes, branches and groups begin at 1; 0 is none.

mod branch;
mod cut;
mod discard;
mod group;
mod import;
mod intent;
mod point;
mod pools;
mod replication;
mod scrub;
mod segment;
mod site;
mod volume;
mod withholding;

pub use branch::{BRANCH_DEPTH_MAX, BranchRow};
pub use cut::{CutRow, CutState};
pub use discard::DiscardRow;
pub use group::{EpochRow, GroupRow};
pub use import::{IMPORT_SOURCE_BYTES_MAX, ImportRow};
pub use intent::{GroupOperation, IdSeed, IntentRow, SharedDecision};
pub use point::{NOTE_BYTES_MAX, PointRow, PointUses};
pub use pools::CUT_POOLS_MAX;
pub use replication::{
    REPLICATION_BYTES_MAX, REPLICATION_HEAD_BYTES_MAX, REPLICATION_PART_BYTES_MAX, ReplicationHeadRow,
    ReplicationPartRow, ReplicationRecord,
};
pub use scrub::{ScrubCounts, ScrubPlace, ScrubRow};
pub use segment::{SegmentRow, SegmentState};
pub use site::{
    SITE_BYTES_MAX, SITE_GENERATION_MAX, SITE_PART_BYTES_MAX, SiteDocument, SiteHeadRow, SitePartRow,
};
pub use volume::{VOLUME_SECTORS_MAX, VolumeRow, VolumeState, WriteCache};
pub use withholding::{PORT_NAME_BYTES_MAX, WithheldClient, WithholdingRow};

use super::{
    decode_error::{DecodeError, DecodeFault, Structure},
    units::{BranchNumber, GroupNumber, SegmentNumber, SnapshotId, Stamp, VolumeNumber},
};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of a row.
pub const ROW_BYTES_MAX: usize = 1024;

/// The tables of the catalogue. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CatalogueTable {
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
    /// Epochs of a lineage: id: group number; sub: index of the epoch.
    Epoch = 6,
    /// Discards not yet in the map: id: branch number; sub: stamp.
    Discard = 7,
    /// Progress of a scrub: id: 0; sub: 0.
    Scrub = 8,
    /// Operations on groups that are not complete: id: group number; sub: 0.
    Intent = 9,
    /// Cuts over several pools that are not settled: id, sub: the halves of the snapshot's UUID.
    Cut = 10,
    /// Clients from which volumes are withheld: id: volume number; sub: a number.
    Withholding = 11,
    /// The site that serves the pool: id: 0 of the head, or the number of a set of parts; sub: index of the part.
    Site = 12,
    /// Records of DR groups: id: number of the record; sub: index of the part.
    Replication = 13,
    /// Volumes that are being imported: id: volume number; sub: 0.
    Import = 14,
}

impl CatalogueTable {
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, DecodeError> {
        Ok(match byte {
            1 => Self::Segment,
            2 => Self::Volume,
            3 => Self::Branch,
            4 => Self::Point,
            5 => Self::Group,
            6 => Self::Epoch,
            7 => Self::Discard,
            8 => Self::Scrub,
            9 => Self::Intent,
            10 => Self::Cut,
            11 => Self::Withholding,
            12 => Self::Site,
            13 => Self::Replication,
            14 => Self::Import,
            _ => {
                structure.value(false, at, "table", byte, "1 to 14")?;
                unreachable!("refused above")
            }
        })
    }
}

/// Key of a row of the catalogue. Rows are ordered by table, then id, then sub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowKey {
    pub table: CatalogueTable,
    /// Meaning depends on the table.
    pub id: u64,
    /// Meaning depends on the table.
    pub sub: u64,
}

impl RowKey {
    /// Key of the progress of a scrub.
    pub const SCRUB: Self = Self { table: CatalogueTable::Scrub, id: 0, sub: 0 };

    pub fn of_segment(segment: SegmentNumber) -> Self {
        Self { table: CatalogueTable::Segment, id: segment.0.into(), sub: 0 }
    }

    pub fn of_volume(volume: VolumeNumber) -> Self {
        Self { table: CatalogueTable::Volume, id: volume.0.into(), sub: 0 }
    }

    pub fn of_branch(branch: BranchNumber) -> Self {
        Self { table: CatalogueTable::Branch, id: branch.0.into(), sub: 0 }
    }

    pub fn of_point(branch: BranchNumber, stamp: Stamp) -> Self {
        Self { table: CatalogueTable::Point, id: branch.0.into(), sub: stamp.0 }
    }

    pub fn of_group(group: GroupNumber) -> Self {
        Self { table: CatalogueTable::Group, id: group.0.into(), sub: 0 }
    }

    /// Key of the operation on a group that is not complete.
    pub fn of_intent(group: GroupNumber) -> Self {
        Self { table: CatalogueTable::Intent, id: group.0.into(), sub: 0 }
    }

    /// Key of a cut over several pools that is not settled.
    pub fn of_cut(snapshot: SnapshotId) -> Self {
        let value = u128::from_le_bytes(snapshot.0);
        Self { table: CatalogueTable::Cut, id: value as u64, sub: (value >> 64) as u64 }
    }

    /// The snapshot of the key of a cut.
    pub fn snapshot_of_cut(self) -> SnapshotId {
        assert_eq!(self.table, CatalogueTable::Cut, "only keys of cuts are made of a snapshot");
        SnapshotId((u128::from(self.id) | u128::from(self.sub) << 64).to_le_bytes())
    }

    /// Key of a client from which a volume is withheld.
    pub fn of_withholding(volume: VolumeNumber, number: u64) -> Self {
        Self { table: CatalogueTable::Withholding, id: volume.0.into(), sub: number }
    }

    /// Key of the source of a volume that is being imported.
    pub fn of_import(volume: VolumeNumber) -> Self {
        Self { table: CatalogueTable::Import, id: volume.0.into(), sub: 0 }
    }

    /// Key of the head of the site's document.
    pub const SITE_HEAD: Self = Self { table: CatalogueTable::Site, id: 0, sub: 0 };

    /// Key of a part of the site's document; sets are numbered from 1.
    pub fn of_site_part(set: u64, index: u64) -> Self {
        Self { table: CatalogueTable::Site, id: set, sub: index }
    }

    /// Key of an epoch of a group's lineage, counted from 0, oldest first.
    pub fn of_epoch(group: GroupNumber, index: u64) -> Self {
        Self { table: CatalogueTable::Epoch, id: group.0.into(), sub: index }
    }

    /// Key of a discard that is not merged into the map yet.
    pub fn of_discard(branch: BranchNumber, stamp: Stamp) -> Self {
        Self { table: CatalogueTable::Discard, id: branch.0.into(), sub: stamp.0 }
    }
}

/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 128;

const THIS: Structure = Structure::Row;
const VERSION: u16 = 1;
/// Of rows of groups, and of operations on them, in several pools.
const VERSION_POOLS: u16 = 2;

/// Splits a row into its fixed part, if its version is known, and the rest.
fn open<T>(bytes: &[u8]) -> Result<(&T, &[u8]), DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let (_, raw, rest) = open_as(bytes, &[VERSION])?;
    Ok((raw, rest))
}

/// Splits a row of one of these versions, which have the same fixed part, into its version, that part and the rest.
fn open_as<'b, T>(bytes: &'b [u8], versions: &[u16]) -> Result<(u16, &'b T, &'b [u8]), DecodeError>
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    let version: &le::U16 = THIS.view(bytes, 0)?;
    let version = version.get();
    if !versions.contains(&version) {
        return Err(THIS.refuse(0, DecodeFault::Version(version)));
    }
    Ok((version, THIS.view(bytes, 0)?, &bytes[size_of::<T>()..]))
}

/// The rest of a row, as a name.
fn name(rest: &[u8], length: u8, length_at: usize, at: usize) -> Result<String, DecodeError> {
    let is_all = usize::from(length) == rest.len() && rest.len() <= NAME_BYTES_MAX;
    THIS.value(is_all, length_at, "name length", length, "at most 128, up to the end of the row")?;
    let name = std::str::from_utf8(rest).ok().filter(|name| is_name(name));
    THIS.agree(name.is_some(), at, "a name is UTF-8 without control characters")?;
    Ok(name.expect("looked at above").to_owned())
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
}

/// Fails if a row has more bytes than it should.
fn nothing_behind<T>(rest: &[u8]) -> Result<(), DecodeError> {
    THIS.agree(rest.is_empty(), size_of::<T>(), "the row goes on behind its last field")
}
