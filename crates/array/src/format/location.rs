//! Where a version of a block lies, and how it is stored there. 16 bytes where the layout is fixed.

use super::{
    refusal::{Refusal, Structure},
    units::{BLOCK_BYTES, BLOCK_GRAINS, SegmentGrain, SegmentNumber},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// How much of a shortened block fits into a location itself.
pub const INLINE_BYTES_MAX: usize = 12;

/// Where a version of a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// In a segment.
    Direct {
        /// Which.
        segment: SegmentNumber,
        /// Where in its data.
        at: SegmentGrain,
        /// How much lies there, and as what.
        stored: Stored,
    },
    /// In a place that several keys share: a row of the table of shared blocks.
    Indirect(SharedBlock),
    /// Here.
    Inline(InlineBytes),
    /// All zero, or discarded: a tombstone, for it hides what a parent branch has there.
    Zero,
}

/// Row of the table of shared blocks (deduplication).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedBlock(pub u64);

/// How a block is stored. Invariant: uncompressed exactly if the length is that of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    length: u16,
    encoding: Encoding,
}

/// What was done to a block before it was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// Done first.
    pub compression: Compression,
    /// Done second, under the key of the volume.
    pub encrypted: bool,
}

/// How a block was shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not.
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// A zstd frame.
    Zstd = 2,
    /// A pattern that is repeated to the block's length; its own is a power of two.
    Fill = 3,
}

const ENCRYPTED: u8 = 0x80;

impl Encoding {
    /// As the host wrote it.
    pub const PLAIN: Self = Self { compression: Compression::None, encrypted: false };

    /// One byte.
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

    /// A block of which `length` bytes are stored; none if the two cannot go together.
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

    /// Bytes that are stored, 1 to 4096.
    #[inline]
    pub fn length(self) -> usize {
        usize::from(self.length)
    }

    /// Grains these take.
    #[inline]
    pub fn grains(self) -> u32 {
        self.length().div_ceil(super::units::GRAIN_BYTES) as u32
    }

    /// What was done to the block.
    #[inline]
    pub fn encoding(self) -> Encoding {
        self.encoding
    }

    /// Whether the block may begin at `at` grains: whole ones begin where a block does, for
    /// drives are read in blocks; no shortened one lies in two.
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
    ) -> Result<Self, Refusal> {
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
    /// `bytes` as the whole of a block; none if they are too many or cannot be a block.
    pub fn new(bytes: &[u8], encoding: Encoding) -> Option<Self> {
        let mut held = [0; INLINE_BYTES_MAX];
        held.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Self { stored: Stored::new(bytes.len(), encoding)?, bytes: held })
    }

    /// What is stored.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.stored.length()]
    }

    /// How.
    pub fn stored(&self) -> Stored {
        self.stored
    }
}

/// A location where the layout is fixed.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct RawLocation {
    kind: u8,
    encoding: u8,
    stored_length: le::U16,
    rest: [u8; INLINE_BYTES_MAX],
}

const _: () = assert!(size_of::<RawLocation>() == Location::BYTES);

pub(super) mod kind {
    pub const DIRECT: u8 = 1;
    pub const INDIRECT: u8 = 2;
    pub const INLINE: u8 = 3;
    pub const ZERO: u8 = 4;
}

impl Location {
    /// Bytes of a location.
    pub const BYTES: usize = 16;

    /// A whole plain block in a segment.
    #[inline]
    pub fn plain(segment: SegmentNumber, at: SegmentGrain) -> Self {
        let location = Self::Direct { segment, at, stored: Stored::PLAIN };
        assert!(Stored::PLAIN.may_lie_at(at.0), "whole blocks begin where blocks do");
        location
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        zerocopy::transmute!(self.to_raw())
    }

    /// A location from its bytes.
    ///
    /// # Errors
    ///
    /// Bytes that no location has.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let raw = Structure::Location.view::<RawLocation>(bytes, 0)?;
        raw.decode(Structure::Location, 0)
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
    pub(super) fn decode(&self, structure: Structure, at: usize) -> Result<Location, Refusal> {
        let word = |from: usize| u32::from_le_bytes(std::array::from_fn(|index| self.rest[from + index]));
        let stored = || Stored::decode(structure, self.stored_length.get(), self.encoding, [at + 2, at + 1]);
        let nothing_stored = || structure.zero(&self.as_bytes()[1..4], at + 1);
        match self.kind {
            kind::DIRECT => {
                let stored = stored()?;
                let grain = word(4);
                structure.value(stored.may_lie_at(grain), at + 8, "offset", grain, IN_ONE_BLOCK)?;
                structure.zero(&self.rest[8..], at + 12)?;
                Ok(Location::Direct { segment: SegmentNumber(word(0)), at: SegmentGrain(grain), stored })
            }
            kind::INDIRECT => {
                nothing_stored()?;
                structure.zero(&self.rest[..4], at + 4)?;
                Ok(Location::Indirect(SharedBlock(u64::from(word(4)) | u64::from(word(8)) << 32)))
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
                Ok(Location::Inline(InlineBytes { stored, bytes: self.rest }))
            }
            kind::ZERO => {
                nothing_stored()?;
                structure.zero(&self.rest, at + 4)?;
                Ok(Location::Zero)
            }
            other => {
                structure.value(false, at, "location kind", other, "1 to 4")?;
                unreachable!("refused above")
            }
        }
    }
}

pub(super) const IN_ONE_BLOCK: &str = "a stored block lies within one block of its segment";
