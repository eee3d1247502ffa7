//! What lies on the drives of a pool, as pure functions of bytes. `docs/format.md` has every table.
//!
//! Nothing here reads or writes a device, and nothing decodes by a length it has not looked at. What is decoded is
//! whole: it is what it says, sealed, with every field in its range; else it is a [`Refusal`] that names the
//! structure, the byte and the fault. There is one way to encode a value, so what was accepted
//! encodes to the very same bytes.
//!
//! Everything multi-byte is little-endian.

pub mod units;

mod refusal;

pub mod checksum;

pub mod superblock;

pub mod features;

pub mod member;

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
pub use entry::{Entry, Interval, Move, PayloadGrain, Put, Write};
pub use features::{Access, Features};
pub use location::{Compression, Encoding, InlineBytes, Location, SharedBlock, Stored};
pub use member::{Member, MemberState};
pub use node::{Node, NodeKey, Run, Tree};
pub use pointer::NodePointer;
pub use record::{Link, Record};
pub use refusal::{Fault, Refusal, Structure};
pub use row::{RowKey, Table};
pub use segment::{MirroredSegment, RedundancyClass, SegmentKind, SlotAddress, SlotHeader};
pub use shape::{SegmentShape, SlotBlock};
pub use summary::{SummaryBlock, SummaryEntry};
pub use superblock::{PoolGeometry, Superblock};
pub use units::*;
