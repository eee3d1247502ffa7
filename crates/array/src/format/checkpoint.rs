//! The checkpoint: the roots of the trees, the start of replay, and the next of every number.
//!
//! It is part of the superblock image, behind the member table, so that members and roots change in one
//! write.

use super::{
    decode_error::{DecodeError, Head, Structure, seal},
    pointer::{NodePointer, RawNodePointer},
    record::RecordLink,
    segment::{MirroredSegment, RawMirroredSegment},
    units::{
        BLOCK_BYTES, CheckpointNumber, Fence, Incarnation, PoolId, Position, SegmentBlock, SegmentUse, Stamp,
        WallNanoseconds,
    },
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most segments of the catalogue a checkpoint can name.
pub const CATALOGUE_SEGMENTS_MAX: usize = 800;

/// Distance by which positions, stamps and segment uses jump when a pool is opened, from the highest that is
/// found. Numbers that were in use in a crash, and left no trace, must not be assigned again.
pub const OPENING_STEP: u64 = 1 << 32;

const MAGIC: &[u8; 8] = b"SPNDLCHK";
const VERSION: u16 = 1;
const THIS: Structure = Structure::Checkpoint;

/// The state of a pool. Replaying the log from `log` on completes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub pool: PoolId,
    /// Increments from 1.
    pub number: CheckpointNumber,
    /// The opening of the pool that made it. A pool is open for writing once a superblock with its own
    /// incarnation is stable.
    pub incarnation: Incarnation,
    /// Start of replay.
    pub log: LogStart,
    /// Positions below were acknowledged when this was written.
    pub acknowledged_below: Position,
    /// No lower position is free.
    pub position_next: Position,
    /// No lower stamp is free, of branches that this pool writes.
    pub stamp_next: Stamp,
    /// No lower use of a segment is free.
    pub segment_use_next: SegmentUse,
    /// Fencing epoch it was written under.
    pub fence: Fence,
    pub written_at: WallNanoseconds,
    pub roots: Roots,
    /// Segments of the catalogue's nodes; the catalogue lists all others. At most 800, in ascending order of
    /// number.
    pub catalogue_segments: Vec<MirroredSegment>,
}

/// Start of replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogStart {
    /// The last record that is merged into the trees.
    pub previous: RecordLink,
    /// Segment of the next record, if there is one.
    pub segment: MirroredSegment,
    /// Block of that record.
    pub block: SegmentBlock,
}

/// The roots of the trees; none for an empty tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roots {
    /// (branch, block) → the version the branch's head sees.
    pub head: Option<NodePointer>,
    /// (branch, pivot, block) → versions only points see.
    pub history: Option<NodePointer>,
    /// (table, id, sub) → row.
    pub catalogue: Option<NodePointer>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCheckpoint {
    head: Head,
    pool: [u8; 16],
    number: le::U64,
    incarnation: le::U64,
    position_next: le::U64,
    acknowledged_below: le::U64,
    stamp_next: le::U64,
    segment_use_next: le::U64,
    fence: le::U64,
    written_at: le::U64,
    previous_position: le::U64,
    previous_seal: le::U32,
    log_block: le::U32,
    log_segment: RawMirroredSegment,
    roots: [RawNodePointer; 3],
    length: le::U32,
    catalogue_segment_count: le::U16,
    zero: [u8; 26],
}

const HEAD_BYTES: usize = size_of::<RawCheckpoint>();
const NAMED_BYTES: usize = size_of::<RawMirroredSegment>();
const ROOTS_AT: usize = offset_of!(RawCheckpoint, roots);
const LOG_AT: usize = offset_of!(RawCheckpoint, log_segment);
const _: () = assert!(HEAD_BYTES == 256);

impl Checkpoint {
    /// Largest size in bytes.
    pub const BYTES_MAX: usize =
        (HEAD_BYTES + CATALOGUE_SEGMENTS_MAX * NAMED_BYTES).next_multiple_of(BLOCK_BYTES);

    /// Size in bytes: whole blocks.
    pub fn encoded_bytes(&self) -> usize {
        (HEAD_BYTES + self.catalogue_segments.len() * NAMED_BYTES).next_multiple_of(BLOCK_BYTES)
    }

    pub fn encode(&self) -> Vec<u8> {
        let count = self.catalogue_segments.len();
        assert!(count <= CATALOGUE_SEGMENTS_MAX, "{count} segments of the catalogue are too many to name");
        self.check().expect("a checkpoint that is written would be accepted");
        let (used, length) = (HEAD_BYTES + count * NAMED_BYTES, self.encoded_bytes());
        let mut raw = RawCheckpoint::new_zeroed();
        raw.head = Head::unsealed(MAGIC, VERSION, [0; 2]);
        raw.pool = self.pool.0;
        raw.number = self.number.0.into();
        raw.incarnation = self.incarnation.0.into();
        raw.position_next = self.position_next.0.into();
        raw.acknowledged_below = self.acknowledged_below.0.into();
        raw.stamp_next = self.stamp_next.0.into();
        raw.segment_use_next = self.segment_use_next.0.into();
        raw.fence = self.fence.0.into();
        raw.written_at = self.written_at.0.into();
        raw.previous_position = self.log.previous.position.0.into();
        raw.previous_seal = self.log.previous.seal.into();
        raw.log_block = self.log.block.0.into();
        raw.log_segment = self.log.segment.to_raw();
        for (raw, root) in raw.roots.iter_mut().zip(self.roots.all()) {
            *raw = root.map_or_else(RawNodePointer::new_zeroed, NodePointer::to_raw);
        }
        raw.length = (length as u32).into();
        raw.catalogue_segment_count = (count as u16).into();
        let mut bytes = vec![0; length];
        bytes[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
        for (place, segment) in
            bytes[HEAD_BYTES..used].chunks_exact_mut(NAMED_BYTES).zip(&self.catalogue_segments)
        {
            place.copy_from_slice(segment.to_raw().as_bytes());
        }
        seal(&mut bytes);
        bytes
    }

    /// Decodes a checkpoint; ignores bytes behind it.
    ///
    /// # Errors
    ///
    /// Bytes that are no checkpoint of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        THIS.begins(bytes, MAGIC, VERSION)?;
        let raw: &RawCheckpoint = THIS.view(bytes, 0)?;
        let length = raw.length.get() as usize;
        let is_length = length > 0 && length <= Self::BYTES_MAX && length.is_multiple_of(BLOCK_BYTES);
        let length_at = offset_of!(RawCheckpoint, length);
        THIS.value(is_length, length_at, "length", length as u64, "whole blocks, at most 8")?;
        let bytes = THIS.take(bytes, length)?;
        THIS.sealed(bytes, MAGIC, VERSION)?;
        THIS.zero(&raw.head.own, 10)?;
        THIS.zero(&raw.zero, offset_of!(RawCheckpoint, zero))?;
        let checkpoint = Self {
            pool: PoolId(raw.pool),
            number: CheckpointNumber(raw.number.get()),
            incarnation: Incarnation(raw.incarnation.get()),
            log: raw.log_start()?,
            acknowledged_below: Position(raw.acknowledged_below.get()),
            position_next: Position(raw.position_next.get()),
            stamp_next: Stamp(raw.stamp_next.get()),
            segment_use_next: SegmentUse(raw.segment_use_next.get()),
            fence: Fence(raw.fence.get()),
            written_at: WallNanoseconds(raw.written_at.get()),
            roots: raw.roots()?,
            catalogue_segments: raw.catalogue_segments(bytes)?,
        };
        checkpoint.check()?;
        Ok(checkpoint)
    }

    /// Checks the rules that concern more than one field.
    fn check(&self) -> Result<(), DecodeError> {
        let ascend = self.catalogue_segments.is_sorted_by(|one, next| one.number < next.number);
        THIS.agree(ascend, HEAD_BYTES, "segments of the catalogue do not ascend")?;
        let is_beyond = self.log.previous.position < self.position_next;
        let at = offset_of!(RawCheckpoint, position_next);
        THIS.agree(is_beyond, at, "the next position is not beyond the last record in the trees")?;
        let may_be = self.acknowledged_below <= self.position_next;
        let at = offset_of!(RawCheckpoint, acknowledged_below);
        THIS.value(may_be, at, "acknowledged below", self.acknowledged_below.0, "at most the next position")
    }
}

impl RawCheckpoint {
    fn log_start(&self) -> Result<LogStart, DecodeError> {
        Ok(LogStart {
            previous: RecordLink {
                position: Position(self.previous_position.get()),
                seal: self.previous_seal.get(),
            },
            segment: self.log_segment.decode(THIS, LOG_AT)?,
            block: SegmentBlock(self.log_block.get()),
        })
    }

    fn roots(&self) -> Result<Roots, DecodeError> {
        let root = |index: usize| {
            let raw = &self.roots[index];
            let is_none = raw.as_bytes().iter().all(|&byte| byte == 0);
            let at = ROOTS_AT + index * size_of::<RawNodePointer>();
            if is_none { Ok(None) } else { raw.decode(THIS, at).map(Some) }
        };
        Ok(Roots { head: root(0)?, history: root(1)?, catalogue: root(2)? })
    }

    fn catalogue_segments(&self, bytes: &[u8]) -> Result<Vec<MirroredSegment>, DecodeError> {
        let count = usize::from(self.catalogue_segment_count.get());
        let count_at = offset_of!(Self, catalogue_segment_count);
        let used = HEAD_BYTES + count * NAMED_BYTES;
        let fits = count <= CATALOGUE_SEGMENTS_MAX && used.next_multiple_of(BLOCK_BYTES) == bytes.len();
        THIS.value(
            fits,
            count_at,
            "catalogue segment count",
            count as u64,
            "at most 800, filling the length",
        )?;
        THIS.zero(&bytes[used..], used)?;
        let places = (HEAD_BYTES..used).step_by(NAMED_BYTES);
        places.map(|at| THIS.view::<RawMirroredSegment>(bytes, at)?.decode(THIS, at)).collect()
    }
}

impl Roots {
    /// Head, history, catalogue.
    pub fn all(&self) -> [Option<NodePointer>; 3] {
        [self.head, self.history, self.catalogue]
    }
}
