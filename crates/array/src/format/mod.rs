//! The on-disk format of a pool, as pure functions of bytes. `docs/format.md` has every table.
//!
//! Nothing here reads or writes a device, and every length is checked before it is used. A decoded value is
//! valid: sealed, of the right kind, with every field in its range. Otherwise decoding returns a
//! [`DecodeError`] with structure, offset and fault. A value has exactly one encoding, so decoded bytes
//! encode to the very same bytes.
//!
//! Everything multi-byte is little-endian.

pub mod units;

mod decode_error;

pub mod checksum;

pub mod superblock;

pub mod features;

pub mod level;

pub mod domain;

pub mod failure_set;

pub mod member;

pub mod sparing;

pub mod checkpoint;

pub mod pointer;

pub mod shape;

pub mod segment;

pub mod summary;

pub mod record;

pub mod entry;

pub mod location;

pub mod row;

pub mod pivot;

pub mod node;

pub use checkpoint::{Checkpoint, LogStart, Roots};
pub use checksum::{BlockKey, ChecksumSeed};
pub use decode_error::{DecodeError, DecodeFault, Structure};
pub use domain::DomainName;
pub use entry::{Interval, LogEntry, Move, PayloadGrain, Put, Write};
pub use failure_set::SetNumber;
pub use features::{FeatureAccess, Features};
pub use level::FormatLevel;
pub use location::{BlockLocation, Compression, Encoding, InlineBytes, SharedBlock, Stored};
pub use member::{Member, MemberState};
pub use node::{NodeKey, TreeKind, TreeNode, VersionRun};
pub use pointer::NodePointer;
pub use record::{LogRecord, RecordLink};
pub use row::{CatalogueTable, RowKey};
pub use segment::{MirroredSegment, RedundancyClass, SegmentKind, SlotAddress, SlotHeader};
pub use shape::{SegmentShape, SlotBlock};
pub use sparing::{Sparing, SparingLevel};
pub use summary::{SummaryBlock, SummaryEntry};
pub use superblock::{PoolGeometry, Superblock};
pub use units::*;
