//! Physical page changes, as a restructure record lists them.
//!
//! ```text
//! u16 changes { u32 page   u64 dbtime before   u16 operations { u8 tag   fields of the operation } }
//! ```

use super::{
    fields::{Fields, length_u16, length_u32},
    record::LogRecordError,
};
use crate::format::page_size::{DbTime, PageNumber};

/// Tags of page operations.
mod tag {
    pub const IMAGE: u8 = 1;
    pub const INSERT_NODE: u8 = 2;
    pub const REPLACE_DATA: u8 = 3;
    pub const REMOVE_NODES: u8 = 4;
    pub const SET_EXTERNAL_HEADER: u8 = 5;
    pub const SET_SIBLINGS: u8 = 6;
    pub const SET_FLAGS: u8 = 7;
}

/// Changes of one page. Redo applies them to a page whose time is `dbtime_before`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageChange {
    pub page: PageNumber,
    /// Time of change before.
    pub dbtime_before: DbTime,
    /// Operations in order.
    pub operations: Vec<PageOperation>,
}

/// One operation on one page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageOperation {
    /// The whole page, in the compact form without its free space.
    Image(Vec<u8>),
    /// Inserts a node.
    InsertNode {
        /// Position of the node, from 0.
        slot: u16,
        node_flags: u8,
        /// Full key.
        key: Vec<u8>,
        data: Vec<u8>,
    },
    /// Replaces the data of a node.
    ReplaceData {
        slot: u16,
        data: Vec<u8>,
    },
    /// Removes consecutive nodes.
    RemoveNodes {
        slot: u16,
        count: u16,
    },
    SetExternalHeader(Vec<u8>),
    /// Replaces the sibling links; 0 = none.
    SetSiblings {
        previous: u32,
        next: u32,
    },
    SetFlags(u32),
}

pub(super) fn encode_changes(changes: &[PageChange], into: &mut Vec<u8>) {
    into.extend_from_slice(&count_u16(changes.len()));
    for change in changes {
        into.extend_from_slice(&change.page.0.to_le_bytes());
        into.extend_from_slice(&change.dbtime_before.0.to_le_bytes());
        into.extend_from_slice(&count_u16(change.operations.len()));
        for operation in &change.operations {
            encode_operation(operation, into);
        }
    }
}

fn count_u16(count: usize) -> [u8; 2] {
    u16::try_from(count).expect("a restructure touches few pages").to_le_bytes()
}

fn encode_operation(operation: &PageOperation, into: &mut Vec<u8>) {
    match operation {
        PageOperation::Image(image) => {
            into.push(tag::IMAGE);
            into.extend_from_slice(&length_u32(image));
            into.extend_from_slice(image);
        }
        PageOperation::InsertNode { slot, node_flags, key, data } => {
            into.push(tag::INSERT_NODE);
            into.extend_from_slice(&slot.to_le_bytes());
            into.push(*node_flags);
            encode_bytes(key, into);
            encode_bytes(data, into);
        }
        PageOperation::ReplaceData { slot, data } => {
            into.push(tag::REPLACE_DATA);
            into.extend_from_slice(&slot.to_le_bytes());
            encode_bytes(data, into);
        }
        PageOperation::RemoveNodes { slot, count } => {
            into.push(tag::REMOVE_NODES);
            into.extend_from_slice(&slot.to_le_bytes());
            into.extend_from_slice(&count.to_le_bytes());
        }
        PageOperation::SetExternalHeader(header) => {
            into.push(tag::SET_EXTERNAL_HEADER);
            encode_bytes(header, into);
        }
        PageOperation::SetSiblings { previous, next } => {
            into.push(tag::SET_SIBLINGS);
            into.extend_from_slice(&previous.to_le_bytes());
            into.extend_from_slice(&next.to_le_bytes());
        }
        PageOperation::SetFlags(flags) => {
            into.push(tag::SET_FLAGS);
            into.extend_from_slice(&flags.to_le_bytes());
        }
    }
}

fn encode_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&length_u16(bytes));
    into.extend_from_slice(bytes);
}

pub(super) fn decode_changes(
    record_type: u8,
    fields: &mut Fields<'_>,
) -> Result<Vec<PageChange>, LogRecordError> {
    // Vectors grow with the decoded data, never by a count that may be wrong.
    let mut changes = Vec::new();
    for _ in 0..fields.u16()? {
        let page = PageNumber(fields.u32()?);
        let dbtime_before = DbTime(fields.u64()?);
        let mut operations = Vec::new();
        for _ in 0..fields.u16()? {
            operations.push(decode_operation(record_type, fields)?);
        }
        changes.push(PageChange { page, dbtime_before, operations });
    }
    Ok(changes)
}

fn decode_operation(record_type: u8, fields: &mut Fields<'_>) -> Result<PageOperation, LogRecordError> {
    Ok(match fields.u8()? {
        tag::IMAGE => {
            let length = fields.u32()?;
            PageOperation::Image(fields.take(length as usize)?.to_vec())
        }
        tag::INSERT_NODE => PageOperation::InsertNode {
            slot: fields.u16()?,
            node_flags: fields.u8()?,
            key: decode_bytes(fields)?,
            data: decode_bytes(fields)?,
        },
        tag::REPLACE_DATA => PageOperation::ReplaceData { slot: fields.u16()?, data: decode_bytes(fields)? },
        tag::REMOVE_NODES => PageOperation::RemoveNodes { slot: fields.u16()?, count: fields.u16()? },
        tag::SET_EXTERNAL_HEADER => PageOperation::SetExternalHeader(decode_bytes(fields)?),
        tag::SET_SIBLINGS => PageOperation::SetSiblings { previous: fields.u32()?, next: fields.u32()? },
        tag::SET_FLAGS => PageOperation::SetFlags(fields.u32()?),
        _ => return Err(LogRecordError::Malformed { record_type, field: "page operation" }),
    })
}

fn decode_bytes(fields: &mut Fields<'_>) -> Result<Vec<u8>, LogRecordError> {
    let length = fields.u16()?;
    Ok(fields.take(length.into())?.to_vec())
}
