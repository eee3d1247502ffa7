//! Why bytes are refused: which structure, at which byte of it, and what is wrong there.

use super::checksum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Bytes that are not what they were taken for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}, byte {at}: {fault}")]
pub struct Refusal {
    /// What the bytes were taken for.
    pub structure: Structure,
    /// Where in it, in bytes from its start.
    pub at: usize,
    /// What is wrong there.
    pub fault: Fault,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The bytes end too early.
    #[error("{given} bytes where {needed} are needed")]
    Short {
        /// Bytes the structure has.
        needed: usize,
        /// Bytes there are.
        given: usize,
    },
    /// It does not begin as this structure does.
    #[error("does not begin with its magic number")]
    Magic,
    /// A version this program does not know.
    #[error("version {0} is not known to this program")]
    Version(u16),
    /// The seal does not fit the bytes.
    #[error("checksum {stored:08x} is stored, the bytes give {computed:08x}")]
    Checksum {
        /// What the structure says.
        stored: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A field has a value it may not have.
    #[error("{field} is {value}; {rule}")]
    Value {
        /// The field's name in `docs/format.md`.
        field: &'static str,
        /// What it holds.
        value: u64,
        /// What it may hold.
        rule: &'static str,
    },
    /// A byte that must be zero is not: written by a program that knows more, or damage.
    #[error("a byte that must be zero is {0}")]
    NotZero(u8),
    /// Two parts that do not go together.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// The structures of the format; each is a section of `docs/format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// Who the pool and its drives are.
    Superblock,
    /// Where the state of the pool begins.
    Checkpoint,
    /// Head of one slot of a segment.
    SlotHeader,
    /// Keys of a sealed segment.
    Summary,
    /// A record of the log.
    Record,
    /// Where a version of a block lies.
    Location,
    /// A node of a tree.
    Node,
    /// A row of the catalogue.
    Row,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Checkpoint => "checkpoint",
            Self::SlotHeader => "slot header",
            Self::Summary => "segment summary",
            Self::Record => "log record",
            Self::Location => "location",
            Self::Node => "tree node",
            Self::Row => "catalogue row",
        })
    }
}

/// How every sealed structure begins.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Head {
    pub magic: [u8; 8],
    pub version: le::U16,
    /// The structure's own.
    pub own: [u8; 2],
    pub checksum: le::U32,
}

/// Where the checksum of a sealed structure is.
pub(super) const SEAL_AT: usize = 12;

impl Head {
    /// To be sealed when all else is in place.
    pub fn unsealed(magic: &[u8; 8], version: u16, own: [u8; 2]) -> Self {
        Self { magic: *magic, version: version.into(), own, checksum: 0.into() }
    }
}

impl Structure {
    #[cold]
    pub(super) fn refuse(self, at: usize, fault: Fault) -> Refusal {
        Refusal { structure: self, at, fault }
    }

    /// Refuses `field` at byte `at` unless it keeps its rule.
    #[inline]
    pub(super) fn value(
        self,
        keeps: bool,
        at: usize,
        field: &'static str,
        value: impl Into<u64>,
        rule: &'static str,
    ) -> Result<(), Refusal> {
        if keeps { Ok(()) } else { Err(self.refuse(at, Fault::Value { field, value: value.into(), rule })) }
    }

    /// Refuses what does not go together.
    #[inline]
    pub(super) fn agree(self, agrees: bool, at: usize, otherwise: &'static str) -> Result<(), Refusal> {
        if agrees { Ok(()) } else { Err(self.refuse(at, Fault::Contradiction(otherwise))) }
    }

    /// Refuses bytes, the first being byte `at` of the structure, that are not all zero.
    pub(super) fn zero(self, bytes: &[u8], at: usize) -> Result<(), Refusal> {
        match bytes.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(index) => Err(self.refuse(at + index, Fault::NotZero(bytes[index]))),
        }
    }

    /// The first `length` of `bytes`.
    pub(super) fn take(self, bytes: &[u8], length: usize) -> Result<&[u8], Refusal> {
        bytes.get(..length).ok_or_else(|| self.refuse(0, Fault::Short { needed: length, given: bytes.len() }))
    }

    /// `bytes` from `at` on, as a `T`.
    pub(super) fn view<T>(self, bytes: &[u8], at: usize) -> Result<&T, Refusal>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let needed = at + size_of::<T>();
        let short = || self.refuse(at, Fault::Short { needed, given: bytes.len() });
        bytes.get(at..needed).and_then(|part| T::ref_from_bytes(part).ok()).ok_or_else(short)
    }

    /// Refuses a structure that is not `magic`, of another version, or whose seal does not fit.
    pub(super) fn sealed(self, bytes: &[u8], magic: &[u8; 8], version: u16) -> Result<(), Refusal> {
        self.begins(bytes, magic, version)?;
        let stored = self.view::<Head>(bytes, 0)?.checksum.get();
        let computed = checksum::seal_of(bytes, SEAL_AT);
        if stored == computed {
            Ok(())
        } else {
            Err(self.refuse(SEAL_AT, Fault::Checksum { stored, computed }))
        }
    }

    /// Refuses a structure that is not `magic` or of another version.
    pub(super) fn begins(self, bytes: &[u8], magic: &[u8; 8], version: u16) -> Result<(), Refusal> {
        let head: &Head = self.view(bytes, 0)?;
        if head.magic != *magic {
            return Err(self.refuse(0, Fault::Magic));
        }
        if head.version.get() != version {
            return Err(self.refuse(8, Fault::Version(head.version.get())));
        }
        Ok(())
    }
}

/// Puts the checksum of all of `bytes` into its place.
pub(super) fn seal(bytes: &mut [u8]) {
    let checksum = checksum::seal_of(bytes, SEAL_AT);
    bytes[SEAL_AT..SEAL_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}
