//! Messages of the handshake phase.

use super::{ByteReader, TEXT_BYTES_MAX, write_string};

/// `NBDMAGIC`: the first eight bytes a server sends.
pub const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// `IHAVEOPT`: the next eight bytes, and the start of each option.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Start of each option reply.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Longest option data accepted: a name and some queries.
pub const OPTION_BYTES_MAX: u32 = 4 * TEXT_BYTES_MAX as u32;

/// Metadata context of what is allocated.
pub const ALLOCATION: &str = "base:allocation";

/// Handshake flags and client flags.
pub mod handshake_flag {
    /// Fixed newstyle: unknown options get an error reply.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// EXPORT_NAME replies have no 124 bytes of padding.
    pub const NO_ZEROES: u16 = 2;
}

/// Options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    /// Export information, then the transmission phase.
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Option reply types.
pub mod reply {
    pub const ACK: u32 = 1;
    /// One export of LIST.
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in all error replies.
    pub const IS_ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = IS_ERROR + 1;
    pub const POLICY: u32 = IS_ERROR + 2;
    pub const INVALID: u32 = IS_ERROR + 3;
    pub const TLS_REQUIRED: u32 = IS_ERROR + 5;
    /// Unknown export.
    pub const UNKNOWN: u32 = IS_ERROR + 6;
    pub const TOO_BIG: u32 = IS_ERROR + 9;
}

/// Information types of INFO replies.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags of an export.
pub mod transmission_flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// Don't fragment: structured reads can be answered in one chunk.
    pub const DF: u16 = 1 << 7;
    /// A flush on one connection covers writes on all of the client's connections.
    pub const MULTI_CONN: u16 = 1 << 8;
    pub const CACHE: u16 = 1 << 10;
    /// WRITE_ZEROES with FAST_ZERO fails rather than writing slowly.
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// Start of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    pub option: u32,
    /// Bytes of option data that follow.
    pub length: u32,
}

impl OptionHead {
    pub const BYTES: usize = 16;

    /// `None` if the magic number is wrong.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let is_option = reader.u64()? == OPTION_MAGIC;
        let head = Self { option: reader.u32()?, length: reader.u32()? };
        is_option.then_some(head)
    }

    /// Encodes an option and its data.
    pub fn write(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }
}

/// Start of an option reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHead {
    /// The option answered.
    pub option: u32,
    pub reply: u32,
    /// Bytes of reply data that follow.
    pub length: u32,
}

impl OptionReplyHead {
    pub const BYTES: usize = 20;

    /// `None` if the magic number is wrong.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut reader = ByteReader(bytes);
        let is_reply = reader.u64()? == REPLY_MAGIC;
        let head = Self { option: reader.u32()?, reply: reader.u32()?, length: reader.u32()? };
        is_reply.then_some(head)
    }

    /// Appends an option reply with its data.
    pub fn write(into: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
        into.extend(REPLY_MAGIC.to_be_bytes());
        into.extend(option.to_be_bytes());
        into.extend(reply.to_be_bytes());
        into.extend((data.len() as u32).to_be_bytes());
        into.extend(data);
    }
}

/// Data of INFO and GO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    pub name: String,
    /// Information requests beside [`info::EXPORT`].
    pub wanted: Vec<u16>,
}

impl InfoRequest {
    /// `None` if the data are malformed.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut reader = ByteReader(data);
        let name = reader.string()?.to_owned();
        let count = reader.u16()?;
        let wanted = (0..count).map(|_| reader.u16()).collect::<Option<_>>()?;
        reader.is_empty().then_some(Self { name, wanted })
    }

    pub fn write(&self) -> Vec<u8> {
        let mut data = Vec::new();
        write_string(&mut data, &self.name);
        data.extend((self.wanted.len() as u16).to_be_bytes());
        data.extend(self.wanted.iter().flat_map(|wanted| wanted.to_be_bytes()));
        data
    }
}

/// Data of LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRequest {
    pub name: String,
    pub queries: Vec<String>,
}

impl ContextRequest {
    /// `None` if the data are malformed.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut reader = ByteReader(data);
        let name = reader.string()?.to_owned();
        let count = reader.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(reader.string()?.to_owned());
        }
        reader.is_empty().then_some(Self { name, queries })
    }

    pub fn write(&self) -> Vec<u8> {
        let mut data = Vec::new();
        write_string(&mut data, &self.name);
        data.extend((self.queries.len() as u32).to_be_bytes());
        self.queries.iter().for_each(|query| write_string(&mut data, query));
        data
    }
}

/// The export that an option names; `None` if it names none, or its data are malformed.
pub fn named_export(asked: u32, data: &[u8]) -> Option<String> {
    match asked {
        option::EXPORT_NAME => ByteReader(data).rest_as_string().map(str::to_owned),
        option::INFO | option::GO => InfoRequest::read(data).map(|request| request.name),
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            ContextRequest::read(data).map(|request| request.name)
        }
        _ => None,
    }
}

/// Block size constraints, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Minimum: offsets and lengths are multiples of it.
    pub least: u32,
    /// Preferred.
    pub best: u32,
    /// Maximum payload of one request.
    pub most: u32,
}

/// Data of an INFO reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InfoReply {
    /// Size in bytes and [`transmission_flag`]s.
    Export(u64, u16),
    Name(String),
    Description(String),
    BlockSizes(BlockSizes),
    /// An unknown information type.
    Other(u16),
}

impl InfoReply {
    /// `None` if the data are malformed.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut reader = ByteReader(data);
        let fact = match reader.u16()? {
            info::EXPORT => Self::Export(reader.u64()?, reader.u16()?),
            info::NAME => Self::Name(reader.rest_as_string()?.to_owned()),
            info::DESCRIPTION => Self::Description(reader.rest_as_string()?.to_owned()),
            info::BLOCK_SIZE => {
                let (least, best, most) = (reader.u32()?, reader.u32()?, reader.u32()?);
                Self::BlockSizes(BlockSizes { least, best, most })
            }
            other => return Some(Self::Other(other)),
        };
        reader.is_empty().then_some(fact)
    }

    pub fn write(&self) -> Vec<u8> {
        match self {
            Self::Export(size, flags) => {
                [&info::EXPORT.to_be_bytes()[..], &size.to_be_bytes(), &flags.to_be_bytes()].concat()
            }
            Self::Name(name) => [&info::NAME.to_be_bytes()[..], name.as_bytes()].concat(),
            Self::Description(text) => [&info::DESCRIPTION.to_be_bytes()[..], text.as_bytes()].concat(),
            Self::BlockSizes(BlockSizes { least, best, most }) => {
                let sizes = [least, best, most].map(|size| size.to_be_bytes()).concat();
                [&info::BLOCK_SIZE.to_be_bytes()[..], &sizes].concat()
            }
            Self::Other(kind) => kind.to_be_bytes().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_parse_as_written_and_not_if_truncated() {
        let info = InfoRequest { name: "mail".to_owned(), wanted: vec![info::NAME, info::BLOCK_SIZE] };
        let contexts =
            ContextRequest { name: String::new(), queries: vec!["base:".to_owned(), "x:y".to_owned()] };
        assert_eq!(InfoRequest::read(&info.write()), Some(info.clone()));
        assert_eq!(ContextRequest::read(&contexts.write()), Some(contexts.clone()));
        for (bytes, is_read) in [
            (info.write(), (|bytes| InfoRequest::read(bytes).is_some()) as fn(&[u8]) -> bool),
            (contexts.write(), |bytes| ContextRequest::read(bytes).is_some()),
        ] {
            assert!((0..bytes.len()).all(|length| !is_read(&bytes[..length])), "{bytes:?}");
            assert!(!is_read(&[&bytes[..], &[0]].concat()), "there is something behind it");
        }
        for fact in [
            InfoReply::Export(1 << 40, transmission_flag::HAS_FLAGS),
            InfoReply::Name("mail".to_owned()),
            InfoReply::Description("the mail of 600".to_owned()),
            InfoReply::BlockSizes(BlockSizes { least: 512, best: 4096, most: 1 << 25 }),
            InfoReply::Other(99),
        ] {
            assert_eq!(InfoReply::read(&fact.write()), Some(fact));
        }
    }

    #[test]
    fn a_count_beyond_the_data_allocates_nothing() {
        let mut data = Vec::new();
        write_string(&mut data, "");
        data.extend(u32::MAX.to_be_bytes());
        assert_eq!(ContextRequest::read(&data), None);
    }

    #[test]
    fn heads_are_checked_for_their_magic() {
        let asked = OptionHead::write(option::GO, b"ab");
        let head: [u8; OptionHead::BYTES] = asked[..OptionHead::BYTES].try_into().unwrap();
        assert_eq!(OptionHead::read(&head), Some(OptionHead { option: option::GO, length: 2 }));
        let mut answered = Vec::new();
        OptionReplyHead::write(&mut answered, option::GO, reply::ACK, b"");
        let bytes: [u8; OptionReplyHead::BYTES] = answered[..].try_into().unwrap();
        assert_eq!(
            OptionReplyHead::read(&bytes),
            Some(OptionReplyHead { option: option::GO, reply: reply::ACK, length: 0 })
        );
        assert_eq!(OptionHead::read(&[0; OptionHead::BYTES]), None);
        assert_eq!(OptionReplyHead::read(&[0; OptionReplyHead::BYTES]), None);
    }
}
