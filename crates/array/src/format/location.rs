//! Locations of versions, and their encoding. A location takes 16 bytes in structures of fixed layout.

use super::{
    decode_error::{DecodeError, Structure},
    units::{BLOCK_BYTES, BLOCK_GRAINS, SegmentGrain, SegmentNumber},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most bytes of a shortened block that fit into the location itself.
pub const INLINE_BYTES_MAX: usize = 12;

/// Location of a version of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockLocation {
    /// In a segment.
    Direct { segment: SegmentNumber, at: SegmentGrain, stored: Stored },
    /// In a row of the table of shared blocks, which several keys refer to.
    Indirect(SharedBlock),
    /// In the location itself.
    Inline(InlineBytes),
    /// All zero, or discarded. Acts as a tombstone: it hides versions of a parent branch.
    Zero,
}

/// Row of the table of shared blocks (deduplication).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedBlock(pub u64);

/// Stored form of a block. Invariant: uncompressed exactly if the length is that of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    length: u16,
    encoding: Encoding,
}

/// Transformations applied before storing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// Applied first.
    pub compression: Compression,
    /// Applied second, with the key of the volume.
    pub encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// A zstd frame.
    Zstd = 2,
    /// A pattern repeated to the block's length; its length is a power of two.
    Fill = 3,
}

const ENCRYPTED: u8 = 0x80;

impl Encoding {
    pub const PLAIN: Self = Self { compression: Compression::None, encrypted: false };

    /// The encoding in one byte.
    pub fn to_byte(self) -> u8 {
        self.compression as u8 | if self.encrypted { ENCRYPTED } else { 0 }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        let compression = match byte & !ENCRYPTED {
            0 => Compression::None,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            3 => Compression::Fill,
            _ => return None,
        };
        Some(Self { compression, encrypted: byte & ENCRYPTED != 0 })
    }
}

impl Stored {
    /// A whole block as the host wrote it.
    pub const PLAIN: Self = Self { length: BLOCK_BYTES as u16, encoding: Encoding::PLAIN };

    /// A block stored in `length` bytes; none if length and encoding contradict each other.
    pub fn new(length: usize, encoding: Encoding) -> Option<Self> {
        let is_whole = encoding.compression == Compression::None;
        let keeps = match encoding.compression {
            Compression::None => length == BLOCK_BYTES,
            Compression::Fill => length.is_power_of_two() && length < BLOCK_BYTES,
            Compression::Lz4 | Compression::Zstd => (1..BLOCK_BYTES).contains(&length),
        };
        assert!(!keeps || is_whole == (length == BLOCK_BYTES), "whole and uncompressed are one");
        keeps.then_some(Self { length: length as u16, encoding })
    }

    /// Stored bytes, 1 to 4096.
    #[inline]
    pub fn length(self) -> usize {
        usize::from(self.length)
    }

    /// Grains of the stored bytes.
    #[inline]
    pub fn grains(self) -> u32 {
        self.length().div_ceil(super::units::GRAIN_BYTES) as u32
    }

    #[inline]
    pub fn encoding(self) -> Encoding {
        self.encoding
    }

    /// True if a block stored like this may begin at `at` grains. Whole blocks are aligned, because drives
    /// are read in blocks; no shortened one straddles two.
    #[inline]
    pub fn may_lie_at(self, at: u32) -> bool {
        at as usize % BLOCK_GRAINS + self.grains() as usize <= BLOCK_GRAINS
            && u64::from(at) + u64::from(self.grains()) <= 1 << 32
    }

    /// Length and encoding, at bytes `at` of their structure.
    pub(super) fn decode(
        structure: Structure,
        length: u16,
        encoding: u8,
        at: [usize; 2],
    ) -> Result<Self, DecodeError> {
        let known = Encoding::from_byte(encoding);
        structure.value(known.is_some(), at[1], "encoding", encoding, "0 to 3, plus 128 if encrypted")?;
        let stored = Self::new(usize::from(length), known.expect("looked at above"));
        let rule = "4096 if uncompressed, else below (of a fill: a power of two)";
        structure.value(stored.is_some(), at[0], "stored length", length, rule)?;
        Ok(stored.expect("looked at above"))
    }
}

/// A shortened block that fits into its location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InlineBytes {
    stored: Stored,
    bytes: [u8; INLINE_BYTES_MAX],
}

impl InlineBytes {
    /// `bytes` as the stored form of a block; none if they are too many or cannot be one.
    pub fn new(bytes: &[u8], encoding: Encoding) -> Option<Self> {
        let mut held = [0; INLINE_BYTES_MAX];
        held.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { stored: Stored::new(bytes.len(), encoding)?, bytes: held })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.stored.length()]
    }

    pub fn stored(&self) -> Stored {
        self.stored
    }
}

/// A location in structures of fixed layout.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RawLocation {
    kind: u8,
    encoding: u8,
    stored_length: le::U16,
    rest: [u8; INLINE_BYTES_MAX],
}

const _: () = assert!(size_of::<RawLocation>() == BlockLocation::BYTES);

pub(super) mod kind {
    pub const DIRECT: u8 = 1;
    pub const INDIRECT: u8 = 2;
    pub const INLINE: u8 = 3;
    pub const ZERO: u8 = 4;
}

impl BlockLocation {
    /// Bytes of a location.
    pub const BYTES: usize = 16;

    /// A whole plain block in a segment.
    #[inline]
    pub fn plain(segment: SegmentNumber, at: SegmentGrain) -> Self {
        let location = Self::Direct { segment, at, stored: Stored::PLAIN };
        assert!(Stored::PLAIN.may_lie_at(at.0), "whole blocks begin where blocks do");
        location
    }

    pub fn encode(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self.to_raw())
    }

    /// Decodes a location.
    ///
    /// # Errors
    ///
    /// Bytes that are no location.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let raw = Structure::BlockLocation.view::<RawLocation>(bytes, 0)?;
        raw.decode(Structure::BlockLocation, 0)
    }

    pub(super) fn to_raw(self) -> RawLocation {
        let raw = |kind, stored: Option<Stored>, rest| RawLocation {
            kind,
            encoding: stored.map_or(0, |stored| stored.encoding.to_byte()),
            stored_length: stored.map_or(0, |stored| stored.length).into(),
            rest,
        };
        let mut rest = [0; INLINE_BYTES_MAX];
        match self {
            Self::Direct { segment, at, stored } => {
                assert!(stored.may_lie_at(at.0), "a block lies in one block of its segment");
                rest[..4].copy_from_slice(&segment.0.to_le_bytes());
                rest[4..8].copy_from_slice(&at.0.to_le_bytes());
                raw(kind::DIRECT, Some(stored), rest)
            }
            Self::Indirect(shared) => {
                rest[4..].copy_from_slice(&shared.0.to_le_bytes());
                raw(kind::INDIRECT, None, rest)
            }
            Self::Inline(inline) => raw(kind::INLINE, Some(inline.stored), inline.bytes),
            Self::Zero => raw(kind::ZERO, None, rest),
        }
    }
}

impl RawLocation {
    /// The location at byte `at` of `structure`.
    pub(super) fn decode(&self, structure: Structure, at: usize) -> Result<BlockLocation, DecodeError> {
        let word = |from: usize| u32::from_le_bytes(std::array::from_fn(|index| self.rest[from + index]));
        let stored = || Stored::decode(structure, self.stored_length.get(), self.encoding, [at + 2, at + 1]);
        let nothing_stored = || structure.zero(&self.as_bytes()[1..4], at + 1);
        match self.kind {
            kind::DIRECT => {
                let stored = stored()?;
                let grain = word(4);
                structure.value(stored.may_lie_at(grain), at + 8, "offset", grain, IN_ONE_BLOCK)?;
                structure.zero(&self.rest[8..], at + 12)?;
                Ok(BlockLocation::Direct { segment: SegmentNumber(word(0)), at: SegmentGrain(grain), stored })
            }
            kind::INDIRECT => {
                nothing_stored()?;
                structure.zero(&self.rest[..4], at + 4)?;
                Ok(BlockLocation::Indirect(SharedBlock(u64::from(word(4)) | u64::from(word(8)) << 32)))
            }
            kind::INLINE => {
                let stored = stored()?;
                let length = stored.length();
                structure.value(
                    length <= INLINE_BYTES_MAX,
                    at + 2,
                    "stored length",
                    length as u64,
                    "at most 12 inline",
                )?;
                structure.zero(&self.rest[length..], at + 4 + length)?;
                Ok(BlockLocation::Inline(InlineBytes { stored, bytes: self.rest }))
            }
            kind::ZERO => {
                nothing_stored()?;
                structure.zero(&self.rest, at + 4)?;
                Ok(BlockLocation::Zero)
            }
            other => {
                structure.value(false, at, "location kind", other, "1 to 4")?;
                unreachable!("refused above")
            }
        }
    }
}

pub(super) const IN_ONE_BLOCK: &str = "a stored block lies within one block of its segment";
