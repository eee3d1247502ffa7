//! Errors of decoding: the structure, the byte offset in it, and the fault.

use super::checksum;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// The bytes are not a valid instance of a structure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{structure}, byte {at}: {fault}")]
pub struct DecodeError {
    /// The structure that was expected.
    pub structure: Structure,
    /// Offset of the fault from the start of the structure, in bytes.
    pub at: usize,
    pub fault: DecodeFault,
}

/// Kind of fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// The bytes end too early.
    #[error("{given} bytes where {needed} are needed")]
    Short {
        /// Bytes the structure needs.
        needed: usize,
        given: usize,
    },
    /// Wrong magic number.
    #[error("does not begin with its magic number")]
    Magic,
    /// An unknown version.
    #[error("version {0} is not known to this program")]
    Version(u16),
    /// The seal does not match the bytes.
    #[error("checksum {stored:08x} is stored, the bytes give {computed:08x}")]
    Checksum { stored: u32, computed: u32 },
    /// A field has a value out of its range.
    #[error("{field} is {value}; {rule}")]
    Value {
        /// The field's name in `docs/format.md`.
        field: &'static str,
        value: u64,
        rule: &'static str,
    },
    /// A byte that must be zero is not: written by a newer program, or damaged.
    #[error("a byte that must be zero is {0}")]
    NotZero(u8),
    /// Two parts that contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// The structures of the format; each is a section of `docs/format.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Superblock,
    Checkpoint,
    SlotHeader,
    Summary,
    LogRecord,
    BlockLocation,
    TreeNode,
    Row,
}

impl std::fmt::Display for Structure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Checkpoint => "checkpoint",
            Self::SlotHeader => "slot header",
            Self::Summary => "segment summary",
            Self::LogRecord => "log record",
            Self::BlockLocation => "location",
            Self::TreeNode => "tree node",
            Self::Row => "catalogue row",
        })
    }
}

/// Common header of sealed structures.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct Head {
    pub magic: [u8; 8],
    pub version: le::U16,
    /// Two bytes whose meaning the structure defines.
    pub own: [u8; 2],
    pub checksum: le::U32,
}

/// Offset of the checksum of a sealed structure.
pub(super) const SEAL_AT: usize = 12;

impl Head {
    /// A header without its checksum; [`seal`] adds it when all else is in place.
    pub fn unsealed(magic: &[u8; 8], version: u16, own: [u8; 2]) -> Self {
        Self { magic: *magic, version: version.into(), own, checksum: 0.into() }
    }
}

impl Structure {
    #[cold]
    pub(super) fn refuse(self, at: usize, fault: DecodeFault) -> DecodeError {
        DecodeError { structure: self, at, fault }
    }

    /// Fails unless `is_valid`, with the field's name, value and rule.
    #[inline]
    pub(super) fn value(
        self,
        is_valid: bool,
        at: usize,
        field: &'static str,
        value: impl Into<u64>,
        rule: &'static str,
    ) -> Result<(), DecodeError> {
        if is_valid {
            Ok(())
        } else {
            Err(self.refuse(at, DecodeFault::Value { field, value: value.into(), rule }))
        }
    }

    /// Fails with a contradiction unless `agrees`.
    #[inline]
    pub(super) fn agree(self, agrees: bool, at: usize, otherwise: &'static str) -> Result<(), DecodeError> {
        if agrees { Ok(()) } else { Err(self.refuse(at, DecodeFault::Contradiction(otherwise))) }
    }

    /// Fails unless all of `bytes` are zero; the first is byte `at` of the structure.
    pub(super) fn zero(self, bytes: &[u8], at: usize) -> Result<(), DecodeError> {
        match bytes.iter().position(|&byte| byte != 0) {
            None => Ok(()),
            Some(index) => Err(self.refuse(at + index, DecodeFault::NotZero(bytes[index]))),
        }
    }

    /// The first `length` of `bytes`.
    pub(super) fn take(self, bytes: &[u8], length: usize) -> Result<&[u8], DecodeError> {
        bytes
            .get(..length)
            .ok_or_else(|| self.refuse(0, DecodeFault::Short { needed: length, given: bytes.len() }))
    }

    /// `bytes` from `at` on, as a `T`.
    pub(super) fn view<T>(self, bytes: &[u8], at: usize) -> Result<&T, DecodeError>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let needed = at + size_of::<T>();
        let short = || self.refuse(at, DecodeFault::Short { needed, given: bytes.len() });
        bytes.get(at..needed).and_then(|part| T::ref_from_bytes(part).ok()).ok_or_else(short)
    }

    /// Fails unless magic number, version and seal match.
    pub(super) fn sealed(self, bytes: &[u8], magic: &[u8; 8], version: u16) -> Result<(), DecodeError> {
        self.begins(bytes, magic, version)?;
        let stored = self.view::<Head>(bytes, 0)?.checksum.get();
        let computed = checksum::seal_of(bytes, SEAL_AT);
        if stored == computed {
            Ok(())
        } else {
            Err(self.refuse(SEAL_AT, DecodeFault::Checksum { stored, computed }))
        }
    }

    /// Fails unless magic number and version match.
    pub(super) fn begins(self, bytes: &[u8], magic: &[u8; 8], version: u16) -> Result<(), DecodeError> {
        let head: &Head = self.view(bytes, 0)?;
        if head.magic != *magic {
            return Err(self.refuse(0, DecodeFault::Magic));
        }
        if head.version.get() != version {
            return Err(self.refuse(8, DecodeFault::Version(head.version.get())));
        }
        Ok(())
    }
}

/// Stores the checksum of all of `bytes` in its place.
pub(super) fn seal(bytes: &mut [u8]) {
    let checksum = checksum::seal_of(bytes, SEAL_AT);
    bytes[SEAL_AT..SEAL_AT + 4].copy_from_slice(&checksum.to_le_bytes());
}
