//! The handshake: greetings, what a client may ask for, what a server answers.

use super::{TEXT_BYTES_MAX, Taking, put_text};

/// First eight bytes of a server.
pub const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// The next eight; and before each thing a client asks for.
pub const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Before each answer to that.
pub const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Bytes of data of anything asked for at most: a name, and some queries.
pub const OPTION_BYTES_MAX: u32 = 4 * TEXT_BYTES_MAX as u32;

/// Flags of both greetings.
pub mod greeting {
    /// Fixed newstyle: what is not known is answered, not fatal.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes behind an export's facts.
    pub const NO_ZEROES: u16 = 2;
}

/// What a client may ask for.
pub mod option {
    /// An export, at once and without an answer that says no.
    pub const EXPORT_NAME: u32 = 1;
    /// To end.
    pub const ABORT: u32 = 2;
    /// Which exports there are.
    pub const LIST: u32 = 3;
    /// To go on encrypted.
    pub const STARTTLS: u32 = 5;
    /// An export's facts.
    pub const INFO: u32 = 6;
    /// An export's facts, and to begin with it.
    pub const GO: u32 = 7;
    /// Structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Which metadata contexts there are.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// To have some of them.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// What a server answers.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// An export there is.
    pub const SERVER: u32 = 2;
    /// A fact of an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// All errors have this bit.
    pub const IS_ERROR: u32 = 1 << 31;
    /// Not known.
    pub const UNSUPPORTED: u32 = IS_ERROR + 1;
    /// Not allowed.
    pub const POLICY: u32 = IS_ERROR + 2;
    /// Not well formed.
    pub const INVALID: u32 = IS_ERROR + 3;
    /// Only after STARTTLS.
    pub const TLS_REQUIRED: u32 = IS_ERROR + 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = IS_ERROR + 6;
    /// More than a server takes.
    pub const TOO_BIG: u32 = IS_ERROR + 9;
}

/// Kinds of facts.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Its name as the server has it.
    pub const NAME: u16 = 1;
    /// What it is, for people.
    pub const DESCRIPTION: u16 = 2;
    /// Least, best and largest request.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What can be done with an export.
pub mod can {
    /// These flags mean something.
    pub const HAS_FLAGS: u16 = 1;
    /// Only be read.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush.
    pub const FLUSH: u16 = 1 << 2;
    /// Forced unit access.
    pub const FUA: u16 = 1 << 3;
    /// Trim.
    pub const TRIM: u16 = 1 << 5;
    /// Write zeroes.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// Reads that are not to be cut into pieces.
    pub const DF: u16 = 1 << 7;
    /// Several connections at once: a flush on one holds for all.
    pub const MULTI_CONN: u16 = 1 << 8;
    /// Read into a cache.
    pub const CACHE: u16 = 1 << 10;
    /// Say whether zeroes can be had quickly.
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// What a client asks for, behind [`OPTION_MAGIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHead {
    /// One of [`option`].
    pub option: u32,
    /// Bytes of data behind it.
    pub length: u32,
}

impl OptionHead {
    /// Bytes of it.
    pub const BYTES: usize = 16;

    /// From the wire; none if it does not begin as it must.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut taking = Taking(bytes);
        let is_option = taking.u64()? == OPTION_MAGIC;
        let head = Self { option: taking.u32()?, length: taking.u32()? };
        is_option.then_some(head)
    }

    /// Something to ask for, with its data.
    pub fn write(option: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }
}

/// An answer, behind [`REPLY_MAGIC`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// To what.
    pub option: u32,
    /// One of [`reply`].
    pub reply: u32,
    /// Bytes of data behind it.
    pub length: u32,
}

impl ReplyHead {
    /// Bytes of it.
    pub const BYTES: usize = 20;

    /// From the wire; none if it does not begin as it must.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let mut taking = Taking(bytes);
        let is_reply = taking.u64()? == REPLY_MAGIC;
        let head = Self { option: taking.u32()?, reply: taking.u32()?, length: taking.u32()? };
        is_reply.then_some(head)
    }

    /// An answer with its data.
    pub fn write(into: &mut Vec<u8>, option: u32, reply: u32, data: &[u8]) {
        into.extend(REPLY_MAGIC.to_be_bytes());
        into.extend(option.to_be_bytes());
        into.extend(reply.to_be_bytes());
        into.extend((data.len() as u32).to_be_bytes());
        into.extend(data);
    }
}

/// What INFO and GO come with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InfoRequest {
    /// Of the export.
    pub name: String,
    /// Facts that are wanted beside [`info::EXPORT`].
    pub wanted: Vec<u16>,
}

impl InfoRequest {
    /// From an option's data.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut taking = Taking(data);
        let name = taking.text()?.to_owned();
        let count = taking.u16()?;
        let wanted = (0..count).map(|_| taking.u16()).collect::<Option<_>>()?;
        taking.is_empty().then_some(Self { name, wanted })
    }

    /// As an option's data.
    pub fn write(&self) -> Vec<u8> {
        let mut data = Vec::new();
        put_text(&mut data, &self.name);
        data.extend((self.wanted.len() as u16).to_be_bytes());
        data.extend(self.wanted.iter().flat_map(|wanted| wanted.to_be_bytes()));
        data
    }
}

/// What LIST_META_CONTEXT and SET_META_CONTEXT come with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextRequest {
    /// Of the export.
    pub name: String,
    /// `base:allocation`, or all that begin with `base:`.
    pub queries: Vec<String>,
}

impl ContextRequest {
    /// From an option's data.
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut taking = Taking(data);
        let name = taking.text()?.to_owned();
        let count = taking.u32()?;
        let mut queries = Vec::new();
        for _ in 0..count {
            queries.push(taking.text()?.to_owned());
        }
        taking.is_empty().then_some(Self { name, queries })
    }

    /// As an option's data.
    pub fn write(&self) -> Vec<u8> {
        let mut data = Vec::new();
        put_text(&mut data, &self.name);
        data.extend((self.queries.len() as u32).to_be_bytes());
        self.queries.iter().for_each(|query| put_text(&mut data, query));
        data
    }
}

/// Sizes of requests an export takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it.
    pub least: u32,
    /// What is done best.
    pub best: u32,
    /// The data of one request at most.
    pub most: u32,
}

/// A fact about an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Bytes it has, and what can be done with it ([`can`]).
    Export(u64, u16),
    /// Its name.
    Name(String),
    /// What it is.
    Description(String),
    /// Sizes of requests.
    BlockSizes(BlockSizes),
    /// One that is not known.
    Other(u16),
}

impl Fact {
    /// From the data of a [`reply::INFO`].
    pub fn read(data: &[u8]) -> Option<Self> {
        let mut taking = Taking(data);
        let fact = match taking.u16()? {
            info::EXPORT => Self::Export(taking.u64()?, taking.u16()?),
            info::NAME => Self::Name(taking.rest_as_text()?.to_owned()),
            info::DESCRIPTION => Self::Description(taking.rest_as_text()?.to_owned()),
            info::BLOCK_SIZE => {
                let (least, best, most) = (taking.u32()?, taking.u32()?, taking.u32()?);
                Self::BlockSizes(BlockSizes { least, best, most })
            }
            other => return Some(Self::Other(other)),
        };
        taking.is_empty().then_some(fact)
    }

    /// As the data of a [`reply::INFO`].
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
    fn requests_and_facts_read_back_as_written_and_not_when_cut() {
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
            Fact::Export(1 << 40, can::HAS_FLAGS),
            Fact::Name("mail".to_owned()),
            Fact::Description("the mail of 600".to_owned()),
            Fact::BlockSizes(BlockSizes { least: 512, best: 4096, most: 1 << 25 }),
            Fact::Other(99),
        ] {
            assert_eq!(Fact::read(&fact.write()), Some(fact));
        }
    }

    #[test]
    fn a_count_that_promises_too_much_takes_no_memory() {
        let mut data = Vec::new();
        put_text(&mut data, "");
        data.extend(u32::MAX.to_be_bytes());
        assert_eq!(ContextRequest::read(&data), None);
    }

    #[test]
    fn heads_begin_as_they_must() {
        let asked = OptionHead::write(option::GO, b"ab");
        let head: [u8; OptionHead::BYTES] = asked[..OptionHead::BYTES].try_into().unwrap();
        assert_eq!(OptionHead::read(&head), Some(OptionHead { option: option::GO, length: 2 }));
        let mut answered = Vec::new();
        ReplyHead::write(&mut answered, option::GO, reply::ACK, b"");
        let bytes: [u8; ReplyHead::BYTES] = answered[..].try_into().unwrap();
        assert_eq!(
            ReplyHead::read(&bytes),
            Some(ReplyHead { option: option::GO, reply: reply::ACK, length: 0 })
        );
        assert_eq!(OptionHead::read(&[0; OptionHead::BYTES]), None);
        assert_eq!(ReplyHead::read(&[0; ReplyHead::BYTES]), None);
    }
}
