//! Log records and their encoding.
//!
//! Framing is ESE's: one type byte, then the body, everything packed and little-endian. Type numbers are
//! ESE's own where it has the record (Begin 8, Commit 9, Insert 29, ...), and the 44-byte header of a node
//! operation has ESE's layout ([`NodeOperation`]).
//!
//! The bodies behind it are ours (whole keys, before-images of deletes, restructures as lists of physical
//! page operations), so ESE could not replay this log.
//!
//! Decoding is total: any bytes give a record or a [`LogRecordError`], never a panic, and allocate at most a
//! constant times the length of the input.

use super::{
    fields::{Fields, length_u16, length_u32},
    node_operation::NodeOperation,
    page_change::{PageChange, decode_changes, encode_changes},
    page_stamp::{PageStamp, decode_stamps, encode_stamps},
};
use crate::format::{
    header::{LogTime, Signature},
    page_size::DbTime,
};

/// Type bytes. Those up to 91 are ESE's.
mod kind {
    pub const ROLLBACK: u8 = 7;
    pub const BEGIN: u8 = 8;
    pub const COMMIT: u8 = 9;
    pub const CREATE_DATABASE: u8 = 14;
    pub const ATTACH_DATABASE: u8 = 15;
    pub const DETACH_DATABASE: u8 = 16;
    pub const CREATE_TREE: u8 = 24;
    pub const INSERT: u8 = 29;
    pub const REPLACE: u8 = 33;
    pub const DELETE: u8 = 35;
    pub const INIT: u8 = 49;
    pub const TERM: u8 = 50;
    pub const BACKUP: u8 = 60;
    pub const SPLIT: u8 = 62;
    pub const MERGE: u8 = 63;
    pub const EXTEND_DATABASE: u8 = 68;
    /// Not an ESE type: changes of space trees, which ESE logs as node operations.
    pub const SPACE: u8 = 200;
    /// Not an ESE type: stamps of pages that are about to be written.
    pub const PAGE_STAMPS: u8 = 201;
}

/// Instance parameters in ESE's Init record; zero in ours.
const DBMS_PARAM_BYTES: usize = 567;
/// Zeros behind the time of a Term record, to ESE's length of 26.
const TERM_PAD_BYTES: usize = 17;
/// Zeros between the type byte and the text length of a Backup record, to ESE's offset 33.
const BACKUP_PAD_BYTES: usize = 32;
/// ESE's transaction level byte in Begin, Commit and Rollback; always 0, as transactions here do not nest.
const LEVEL: u8 = 0;

/// Reasons why bytes do not decode as a log record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogRecordError {
    /// The bytes end before the record does.
    #[error("the log record is truncated")]
    Truncated,
    /// A type byte that this engine does not write.
    #[error("log record type {0} is unknown")]
    UnknownType(u8),
    /// The body contradicts itself.
    #[error("log record of type {record_type} has an impossible {field}")]
    Malformed { record_type: u8, field: &'static str },
}

/// Reason for a change of several pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestructureKind {
    /// A page split.
    Split,
    /// A page merge, or an empty page was removed from its tree.
    Merge,
    /// A new tree.
    CreateTree,
    /// Space moved between trees.
    Space,
}

/// One record of the transaction log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogRecord {
    /// The group was opened.
    Init { time: LogTime },
    /// The group was shut down cleanly; nothing before needs replay.
    Term { time: LogTime },
    /// A database was created.
    CreateDatabase {
        /// Number of the database in the group.
        dbid: u8,
        name: String,
        signature: Signature,
    },
    /// A database was attached to the running group.
    AttachDatabase {
        /// Number of the database in the group.
        dbid: u8,
        name: String,
        signature: Signature,
    },
    /// A database was detached in a clean state.
    DetachDatabase {
        /// Number of the database in the group.
        dbid: u8,
    },
    /// A database file grew.
    ExtendDatabase {
        /// Number of the database in the group.
        dbid: u8,
        /// New size of the database in pages.
        pages: u32,
    },
    /// A transaction began.
    Begin { transaction: u32, procid: u16 },
    /// A transaction committed.
    Commit { transaction: u32, procid: u16 },
    /// A transaction was rolled back; its undo operations come before this record.
    Rollback { transaction: u32, procid: u16 },
    /// A node was inserted.
    Insert {
        operation: NodeOperation,
        /// Full key.
        key: Vec<u8>,
        data: Vec<u8>,
    },
    /// A node's data was replaced.
    Replace {
        operation: NodeOperation,
        /// Full key.
        key: Vec<u8>,
        old_data: Vec<u8>,
        new_data: Vec<u8>,
    },
    /// A node was removed.
    Delete {
        operation: NodeOperation,
        /// Full key.
        key: Vec<u8>,
        old_data: Vec<u8>,
    },
    /// Several pages changed in one step.
    Restructure {
        kind: RestructureKind,
        dbid: u8,
        /// Time of change of every changed page, after the change.
        dbtime: DbTime,
        procid: u16,
        /// Transaction number; 0 = none.
        transaction: u32,
        changes: Vec<PageChange>,
    },
    /// A backup began or ended.
    Backup { text: String },
    /// Pages are about to be written in place: this record must be stable before the write begins.
    PageStamps {
        dbid: u8,
        /// Stamps of the images to be written.
        stamps: Vec<PageStamp>,
    },
}

impl LogRecord {
    /// Appends the record's bytes. Keys, data and names must be below 64 KiB.
    pub fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Init { time } => {
                into.push(kind::INIT);
                into.extend_from_slice(&[0; DBMS_PARAM_BYTES]);
                into.extend_from_slice(&time.encode());
            }
            Self::Term { time } => {
                into.push(kind::TERM);
                into.extend_from_slice(&time.encode());
                into.extend_from_slice(&[0; TERM_PAD_BYTES]);
            }
            Self::CreateDatabase { dbid, name, signature } => {
                encode_database(kind::CREATE_DATABASE, *dbid, name, signature, into);
            }
            Self::AttachDatabase { dbid, name, signature } => {
                encode_database(kind::ATTACH_DATABASE, *dbid, name, signature, into);
            }
            Self::DetachDatabase { dbid } => into.extend_from_slice(&[kind::DETACH_DATABASE, *dbid]),
            Self::ExtendDatabase { dbid, pages } => {
                into.push(kind::EXTEND_DATABASE);
                into.extend_from_slice(&5_u32.to_le_bytes());
                into.push(*dbid);
                into.extend_from_slice(&pages.to_le_bytes());
            }
            Self::Begin { transaction, procid } => {
                encode_transaction(kind::BEGIN, *transaction, *procid, into);
            }
            Self::Commit { transaction, procid } => {
                encode_transaction(kind::COMMIT, *transaction, *procid, into);
            }
            Self::Rollback { transaction, procid } => {
                encode_transaction(kind::ROLLBACK, *transaction, *procid, into);
            }
            Self::Insert { operation, key, data } => {
                operation.encode(kind::INSERT, into);
                encode_parts(&[key, &[], data], into);
            }
            Self::Replace { operation, key, old_data, new_data } => {
                operation.encode(kind::REPLACE, into);
                encode_parts(&[key, old_data, new_data], into);
            }
            Self::Delete { operation, key, old_data } => {
                operation.encode(kind::DELETE, into);
                encode_parts(&[key, old_data], into);
            }
            Self::Restructure { kind, dbid, dbtime, procid, transaction, changes } => {
                into.push(type_of(*kind));
                let length_at = into.len();
                into.extend_from_slice(&[0; 4]);
                into.extend_from_slice(&procid.to_le_bytes());
                into.push(*dbid);
                into.extend_from_slice(&dbtime.0.to_le_bytes());
                into.extend_from_slice(&transaction.to_le_bytes());
                encode_changes(changes, into);
                let body_length = length_u32(&into[length_at + 4..]);
                into[length_at..length_at + 4].copy_from_slice(&body_length);
            }
            Self::Backup { text } => {
                into.push(kind::BACKUP);
                into.extend_from_slice(&[0; BACKUP_PAD_BYTES]);
                into.extend_from_slice(&length_u16(text.as_bytes()));
                into.extend_from_slice(text.as_bytes());
            }
            Self::PageStamps { dbid, stamps } => {
                into.push(kind::PAGE_STAMPS);
                encode_stamps(*dbid, stamps, into);
            }
        }
    }

    /// Decodes the record at the start of `bytes`; also returns its length. More bytes may follow it.
    pub fn decode(bytes: &[u8]) -> Result<(Self, usize), LogRecordError> {
        let mut fields = Fields::new(bytes);
        let record_type = fields.u8()?;
        let record = decode_body(record_type, &mut fields)?;
        Ok((record, bytes.len() - fields.left()))
    }
}

fn decode_body(record_type: u8, fields: &mut Fields<'_>) -> Result<LogRecord, LogRecordError> {
    Ok(match record_type {
        kind::INIT => {
            fields.take(DBMS_PARAM_BYTES)?;
            LogRecord::Init { time: LogTime::decode(fields.array()?) }
        }
        kind::TERM => {
            let time = LogTime::decode(fields.array()?);
            fields.take(TERM_PAD_BYTES)?;
            LogRecord::Term { time }
        }
        kind::CREATE_DATABASE => {
            let (dbid, name, signature) = decode_database(record_type, fields)?;
            LogRecord::CreateDatabase { dbid, name, signature }
        }
        kind::ATTACH_DATABASE => {
            let (dbid, name, signature) = decode_database(record_type, fields)?;
            LogRecord::AttachDatabase { dbid, name, signature }
        }
        kind::DETACH_DATABASE => LogRecord::DetachDatabase { dbid: fields.u8()? },
        kind::EXTEND_DATABASE => {
            if fields.u32()? != 5 {
                return Err(LogRecordError::Malformed { record_type, field: "length" });
            }
            LogRecord::ExtendDatabase { dbid: fields.u8()?, pages: fields.u32()? }
        }
        kind::BEGIN => {
            let (transaction, procid) = decode_transaction(fields)?;
            LogRecord::Begin { transaction, procid }
        }
        kind::COMMIT => {
            let (transaction, procid) = decode_transaction(fields)?;
            LogRecord::Commit { transaction, procid }
        }
        kind::ROLLBACK => {
            let (transaction, procid) = decode_transaction(fields)?;
            LogRecord::Rollback { transaction, procid }
        }
        kind::INSERT => {
            let operation = NodeOperation::decode(fields)?;
            let [key, prefix, data] = decode_parts(fields)?;
            if !prefix.is_empty() {
                return Err(LogRecordError::Malformed { record_type, field: "prefix length" });
            }
            LogRecord::Insert { operation, key, data }
        }
        kind::REPLACE => {
            let operation = NodeOperation::decode(fields)?;
            let [key, old_data, new_data] = decode_parts(fields)?;
            LogRecord::Replace { operation, key, old_data, new_data }
        }
        kind::DELETE => {
            let operation = NodeOperation::decode(fields)?;
            let [key, old_data] = decode_parts(fields)?;
            LogRecord::Delete { operation, key, old_data }
        }
        kind::SPLIT | kind::MERGE | kind::CREATE_TREE | kind::SPACE => {
            decode_restructure(record_type, fields)?
        }
        kind::BACKUP => {
            fields.take(BACKUP_PAD_BYTES)?;
            let length = fields.u16()?;
            LogRecord::Backup { text: decode_text(record_type, fields.take(length.into())?)? }
        }
        kind::PAGE_STAMPS => {
            let (dbid, stamps) = decode_stamps(fields)?;
            LogRecord::PageStamps { dbid, stamps }
        }
        unknown => return Err(LogRecordError::UnknownType(unknown)),
    })
}

fn encode_database(record_type: u8, dbid: u8, name: &str, signature: &Signature, into: &mut Vec<u8>) {
    into.extend_from_slice(&[record_type, dbid]);
    into.extend_from_slice(&signature.encode());
    into.extend_from_slice(&length_u16(name.as_bytes()));
    into.extend_from_slice(name.as_bytes());
}

fn decode_database(
    record_type: u8,
    fields: &mut Fields<'_>,
) -> Result<(u8, String, Signature), LogRecordError> {
    let dbid = fields.u8()?;
    let signature = Signature::decode(fields.array()?);
    let length = fields.u16()?;
    Ok((dbid, decode_text(record_type, fields.take(length.into())?)?, signature))
}

fn decode_text(record_type: u8, bytes: &[u8]) -> Result<String, LogRecordError> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| LogRecordError::Malformed { record_type, field: "text" })
}

fn encode_transaction(record_type: u8, transaction: u32, procid: u16, into: &mut Vec<u8>) {
    into.push(record_type);
    into.extend_from_slice(&procid.to_le_bytes());
    into.push(LEVEL);
    into.extend_from_slice(&transaction.to_le_bytes());
}

fn decode_transaction(fields: &mut Fields<'_>) -> Result<(u32, u16), LogRecordError> {
    let procid = fields.u16()?;
    let _level = fields.u8()?;
    Ok((fields.u32()?, procid))
}

/// Lengths first (u16 each), then the bytes.
fn encode_parts(parts: &[&[u8]], into: &mut Vec<u8>) {
    for part in parts {
        into.extend_from_slice(&length_u16(part));
    }
    for part in parts {
        into.extend_from_slice(part);
    }
}

fn decode_parts<const N: usize>(fields: &mut Fields<'_>) -> Result<[Vec<u8>; N], LogRecordError> {
    let mut lengths = [0_u16; N];
    for length in &mut lengths {
        *length = fields.u16()?;
    }
    let mut parts = [const { Vec::new() }; N];
    for (part, length) in parts.iter_mut().zip(lengths) {
        *part = fields.take(length.into())?.to_vec();
    }
    Ok(parts)
}

fn type_of(kind: RestructureKind) -> u8 {
    match kind {
        RestructureKind::Split => kind::SPLIT,
        RestructureKind::Merge => kind::MERGE,
        RestructureKind::CreateTree => kind::CREATE_TREE,
        RestructureKind::Space => kind::SPACE,
    }
}

fn decode_restructure(record_type: u8, fields: &mut Fields<'_>) -> Result<LogRecord, LogRecordError> {
    let kind = match record_type {
        kind::SPLIT => RestructureKind::Split,
        kind::MERGE => RestructureKind::Merge,
        kind::CREATE_TREE => RestructureKind::CreateTree,
        _ => RestructureKind::Space,
    };
    let length = fields.u32()?;
    let mut body = Fields::new(fields.take(length as usize)?);
    let procid = body.u16()?;
    let dbid = body.u8()?;
    let dbtime = DbTime(body.u64()?);
    let transaction = body.u32()?;
    let changes = decode_changes(record_type, &mut body)?;
    if body.left() != 0 {
        return Err(LogRecordError::Malformed { record_type, field: "length" });
    }
    Ok(LogRecord::Restructure { kind, dbid, dbtime, procid, transaction, changes })
}
