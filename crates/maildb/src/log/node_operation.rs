//! The header of every record that changes one node.
//!
//! 44 bytes, laid out as ESE's:
//!
//! ```text
//!  0 u8 type   1 u16 procid   3 u8 dbid   4 u32 page   8 u64 dbtime   16 u64 dbtime before
//! 24 u32 transaction   28 u8 level   29 u16 slot   31 u8 flags
//! 32 u32 rceid   36 u32 root page of the tree   40 u32 object id
//! ```

use super::{fields::Fields, record::LogRecordError};
use crate::format::page_size::{DbTime, ObjectId, PageNumber};

/// Flag in [`NodeOperation::flags`]: this operation undoes an earlier one and is never undone itself.
pub const COMPENSATES: u8 = 1;

/// Header of a record that changes one node: page, times before and after, author and tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeOperation {
    pub procid: u16,
    pub dbid: u8,
    pub page: PageNumber,
    /// Time of change after the operation.
    pub dbtime: DbTime,
    /// Time of change before the operation.
    pub dbtime_before: DbTime,
    /// Transaction number; 0 = none.
    pub transaction: u32,
    /// Transaction level; always 0, as transactions here do not nest.
    pub level: u8,
    /// Node in the page, from 0.
    pub slot: u16,
    /// Bit 0: [`COMPENSATES`].
    pub flags: u8,
    /// Number of the version that this operation creates.
    pub rceid: u32,
    /// Root page of the tree.
    pub tree_root: PageNumber,
    pub object: ObjectId,
}

impl NodeOperation {
    /// Bytes including the type byte.
    pub const BYTES: usize = 44;

    pub(super) fn encode(&self, record_type: u8, into: &mut Vec<u8>) {
        let start = into.len();
        into.push(record_type);
        into.extend_from_slice(&self.procid.to_le_bytes());
        into.push(self.dbid);
        into.extend_from_slice(&self.page.0.to_le_bytes());
        into.extend_from_slice(&self.dbtime.0.to_le_bytes());
        into.extend_from_slice(&self.dbtime_before.0.to_le_bytes());
        into.extend_from_slice(&self.transaction.to_le_bytes());
        into.push(self.level);
        into.extend_from_slice(&self.slot.to_le_bytes());
        into.push(self.flags);
        into.extend_from_slice(&self.rceid.to_le_bytes());
        into.extend_from_slice(&self.tree_root.0.to_le_bytes());
        into.extend_from_slice(&self.object.0.to_le_bytes());
        assert_eq!(into.len() - start, Self::BYTES);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Self, LogRecordError> {
        Ok(Self {
            procid: fields.u16()?,
            dbid: fields.u8()?,
            page: PageNumber(fields.u32()?),
            dbtime: DbTime(fields.u64()?),
            dbtime_before: DbTime(fields.u64()?),
            transaction: fields.u32()?,
            level: fields.u8()?,
            slot: fields.u16()?,
            flags: fields.u8()?,
            rceid: fields.u32()?,
            tree_root: PageNumber(fields.u32()?),
            object: ObjectId(fields.u32()?),
        })
    }
}
