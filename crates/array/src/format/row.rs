//! Rows of the catalogue: volumes, branches, points and all else a pool keeps a table of. Their keys are here; what
//! is in them is beside each kind of row.

use super::refusal::{Refusal, Structure};

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
            _ => {
                structure.value(false, at, "table", byte, "1 to 7")?;
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
