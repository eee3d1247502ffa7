//! Messages of the transmission phase.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, big_endian as be};

pub const REQUEST_MAGIC: u32 = 0x2560_9513;
pub const SIMPLE_MAGIC: u32 = 0x6744_6698;
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Flag of the last chunk of a reply.
pub const CHUNK_DONE: u16 = 1;

/// Command flags.
pub mod command_flag {
    /// The write is durable before it is answered.
    pub const FUA: u16 = 1;
    /// WRITE_ZEROES must not make a hole.
    pub const NO_HOLE: u16 = 2;
    /// Don't fragment: answer with one chunk.
    pub const DF: u16 = 4;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 8;
    /// Fail instead of writing zeroes slowly.
    pub const FAST_ZERO: u16 = 16;
    pub const ALL: u16 = FUA | NO_HOLE | DF | REQ_ONE | FAST_ZERO;
}

/// Structured reply chunk types.
pub mod chunk {
    pub const NONE: u16 = 0;
    /// An offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// An offset and a length of zeroes.
    pub const OFFSET_HOLE: u16 = 2;
    /// A context id and extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in all error types.
    pub const IS_ERROR: u16 = 1 << 15;
    /// An error and its message.
    pub const ERROR: u16 = IS_ERROR + 1;
}

/// Flags of an extent of `base:allocation`.
pub mod allocation_flag {
    /// Not allocated.
    pub const HOLE: u32 = 1;
    /// Reads as zeroes.
    pub const ZERO: u32 = 2;
}

/// Flags of an extent of `qemu:dirty-bitmap:NAME`.
pub mod dirty_flag {
    /// May differ from the earlier state.
    pub const DIRTY: u32 = 1;
}

/// Request types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestType {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    Cache,
    WriteZeroes,
    BlockStatus,
    /// An unknown type.
    Other(u16),
}

impl RequestType {
    pub fn number(self) -> u16 {
        match self {
            Self::Read => 0,
            Self::Write => 1,
            Self::Disconnect => 2,
            Self::Flush => 3,
            Self::Trim => 4,
            Self::Cache => 5,
            Self::WriteZeroes => 6,
            Self::BlockStatus => 7,
            Self::Other(number) => number,
        }
    }

    pub fn of(number: u16) -> Self {
        let known = [Self::Read, Self::Write, Self::Disconnect, Self::Flush, Self::Trim].into_iter().chain([
            Self::Cache,
            Self::WriteZeroes,
            Self::BlockStatus,
        ]);
        known.into_iter().find(|command| command.number() == number).unwrap_or(Self::Other(number))
    }
}

/// Error values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// EPERM: the export is read-only.
    Permission,
    /// EIO.
    Io,
    /// ENOMEM.
    Memory,
    /// EINVAL: malformed or out of range.
    Invalid,
    /// ENOSPC.
    NoSpace,
    /// EOVERFLOW.
    Overflow,
    /// ENOTSUP.
    Unsupported,
    /// ESHUTDOWN.
    Shutdown,
    /// An unknown value.
    Other(u32),
}

impl ErrorCode {
    const ALL: [(Self, u32); 8] = [
        (Self::Permission, 1),
        (Self::Io, 5),
        (Self::Memory, 12),
        (Self::Invalid, 22),
        (Self::NoSpace, 28),
        (Self::Overflow, 75),
        (Self::Unsupported, 95),
        (Self::Shutdown, 108),
    ];

    /// The error number on the wire, that of Linux.
    pub fn number(self) -> u32 {
        if let Self::Other(number) = self {
            return number;
        }
        let known = Self::ALL.iter().find(|(code, _)| *code == self);
        known.expect("all others have a number").1
    }

    pub fn of(number: u32) -> Self {
        let known = Self::ALL.iter().find(|(_, known)| *known == number);
        known.map_or(Self::Other(number), |(code, _)| *code)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRequest {
    magic: be::U32,
    flags: be::U16,
    command: be::U16,
    cookie: be::U64,
    offset: be::U64,
    length: be::U32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`command_flag`]s.
    pub flags: u16,
    pub command: RequestType,
    /// Identifies the reply.
    pub cookie: u64,
    /// In bytes.
    pub offset: u64,
    /// In bytes.
    pub length: u32,
}

impl Request {
    pub const BYTES: usize = size_of::<RawRequest>();

    /// `None` if the magic number is wrong.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let raw = RawRequest::ref_from_bytes(bytes).ok()?;
        let request = Self {
            flags: raw.flags.get(),
            command: RequestType::of(raw.command.get()),
            cookie: raw.cookie.get(),
            offset: raw.offset.get(),
            length: raw.length.get(),
        };
        (raw.magic.get() == REQUEST_MAGIC).then_some(request)
    }

    pub fn write(&self) -> [u8; Self::BYTES] {
        let raw = RawRequest {
            magic: REQUEST_MAGIC.into(),
            flags: self.flags.into(),
            command: self.command.number().into(),
            cookie: self.cookie.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        };
        zerocopy::transmute!(raw)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSimple {
    magic: be::U32,
    error: be::U32,
    cookie: be::U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawChunk {
    magic: be::U32,
    flags: be::U16,
    kind: be::U16,
    cookie: be::U64,
    length: be::U32,
}

/// Start of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// A simple reply; the data of a successful read follow.
    Simple { cookie: u64, result: Result<(), ErrorCode> },
    /// A chunk of a structured reply.
    Chunk {
        cookie: u64,
        /// The last chunk of the reply.
        is_done: bool,
        kind: u16,
        /// Bytes of chunk data that follow.
        length: u32,
    },
}

impl ReplyHead {
    pub const SIMPLE_BYTES: usize = size_of::<RawSimple>();
    pub const CHUNK_BYTES: usize = size_of::<RawChunk>();

    /// Length of a reply that starts with `magic`; `None` if no reply does.
    pub fn bytes_of(magic: u32) -> Option<usize> {
        match magic {
            SIMPLE_MAGIC => Some(Self::SIMPLE_BYTES),
            CHUNK_MAGIC => Some(Self::CHUNK_BYTES),
            _ => None,
        }
    }

    /// Parses as many bytes as [`ReplyHead::bytes_of`] says.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        if let Ok(raw) = RawSimple::ref_from_bytes(bytes) {
            let result = match raw.error.get() {
                0 => Ok(()),
                number => Err(ErrorCode::of(number)),
            };
            return (raw.magic.get() == SIMPLE_MAGIC)
                .then_some(Self::Simple { cookie: raw.cookie.get(), result });
        }
        let raw = RawChunk::ref_from_bytes(bytes).ok()?;
        let head = Self::Chunk {
            cookie: raw.cookie.get(),
            is_done: raw.flags.get() & CHUNK_DONE != 0,
            kind: raw.kind.get(),
            length: raw.length.get(),
        };
        (raw.magic.get() == CHUNK_MAGIC).then_some(head)
    }

    pub fn write(&self, into: &mut Vec<u8>) {
        match *self {
            Self::Simple { cookie, result } => {
                let error = result.err().map_or(0, ErrorCode::number);
                let raw =
                    RawSimple { magic: SIMPLE_MAGIC.into(), error: error.into(), cookie: cookie.into() };
                into.extend(raw.as_bytes());
            }
            Self::Chunk { cookie, is_done, kind, length } => {
                let flags = if is_done { CHUNK_DONE } else { 0 };
                let raw = RawChunk {
                    magic: CHUNK_MAGIC.into(),
                    flags: flags.into(),
                    kind: kind.into(),
                    cookie: cookie.into(),
                    length: length.into(),
                };
                into.extend(raw.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_parse_as_written() {
        for number in 0..20 {
            let request = Request {
                flags: command_flag::FUA,
                command: RequestType::of(number),
                cookie: 0x0102_0304_0506_0708,
                offset: 1 << 41,
                length: 4096,
            };
            let bytes = request.write();
            assert_eq!(bytes[..8], [0x25, 0x60, 0x95, 0x13, 0, 1, 0, number as u8]);
            assert_eq!(Request::read(&bytes), Some(request));
        }
        let results = (0..120).map(|number| if number == 0 { Ok(()) } else { Err(ErrorCode::of(number)) });
        let simple = results.map(|result| ReplyHead::Simple { cookie: 9, result });
        let chunks = [true, false].map(|is_done| ReplyHead::Chunk {
            cookie: 9,
            is_done,
            kind: chunk::OFFSET_DATA,
            length: 4104,
        });
        for head in simple.chain(chunks) {
            let mut bytes = Vec::new();
            head.write(&mut bytes);
            let magic = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            assert_eq!(ReplyHead::bytes_of(magic), Some(bytes.len()));
            assert_eq!(ReplyHead::read(&bytes), Some(head));
        }
    }

    #[test]
    fn a_wrong_magic_is_refused() {
        assert_eq!(Request::read(&[0; Request::BYTES]), None);
        for length in 0..40 {
            assert_eq!(ReplyHead::read(&vec![0; length]), None);
        }
        assert_eq!(ReplyHead::bytes_of(0), None);
    }
}
