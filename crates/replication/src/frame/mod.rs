//! Frames of a session between two sites: header, kinds, encoding and decoding.
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | magic `SPDR` |
//! | 4 | 2 | kind |
//! | 6 | 2 | blocks of 4096 bytes behind the body; the highest bit: they are packed |
//! | 8 | 4 | channel |
//! | 12 | 8 | sequence |
//! | 20 | 4 | length of the body |
//! | 24 | 4 | CRC-32C of the body |
//! | 28 | 4 | CRC-32C of the 28 bytes before |
//!
//! A receiver reads a header, then as many bytes and blocks as it names, then decodes. Rules:
//!
//! 1. A header is checked before anything behind it is read, so no length is believed that was damaged, or is
//!    above the limits.
//! 2. A frame that decodes encodes to the same bytes.
//! 3. No bytes cause a panic, or an allocation of more than the limits.
//! 4. An ordered kind has a sequence from 1 on, any other has 0. Kinds of the session have channel 0, kinds of a
//!    group another one; a refusal may have either.

pub(crate) mod body;
mod handshake;
mod introduction;
mod joint;
mod link_test;
mod pass;
mod stream;
mod verify;

pub use handshake::{
    AliveFrame, AttachFrame, CONNECTIONS_MAX, HelloFrame, PairingFrame, ReceiptFrame, RefusalCode,
    RefusalFrame, SITE_MESSAGE_BYTES_MAX, SiteMessageFrame, VersionRange,
};
pub use introduction::AgreementFrame;
pub use joint::{
    JOINT_VERSION, JoinBeginFrame, JoinNotedFrame, JoinReadyFrame, JoinedFrame, MARK_VERSION, MarkFrame,
    MarkKeptFrame, MarkNotedFrame, MarkReadyFrame,
};
pub use link_test::{
    LINK_TEST_VERSION, LinkTestFrame, TEST_DATA_BYTES_MAX, TEST_STEP_MAX, TestCountFrame, TestDataFrame,
    TestOrderFrame,
};
pub use pass::{
    BROUGHT_VERSION, BroughtRangesFrame, ChangedRangesFrame, PassBeginFrame, PassBlock, PassBlocksFrame,
    PassEndFrame, PassPointFrame, PassRangesFrame, PassSnapshotFrame, PassSnapshotsFrame, RangeState,
    SentRange,
};
pub use stream::{
    ConfirmationFrame, CutFrame, HandOverFrame, RecordFrame, SentChange, SentSnapshot, TakenOverFrame,
    WordFrame,
};
pub use verify::{
    DIGEST_BLOCKS_MAX, DIGESTS_MAX, RangeDigest, VERIFY_VERSION, VerifyCutFrame, VerifyDigestsFrame,
    VerifyEndFrame, VerifyRangeFrame, VerifyReadyFrame,
};

use crate::{
    connect::{Introduction, IntroductionFault},
    lineage::LineageError,
};
use array::format::BLOCK_BYTES;
use body::{BodyReader, BodyWriter};
use std::sync::Arc;
use world::{Buffer, crc32c::crc32c};

pub const HEADER_BYTES: usize = 32;
/// Bytes of a body at most.
pub const BODY_BYTES_MAX: usize = 1 << 20;
/// Blocks of a frame at most: 1 MiB.
pub const FRAME_BLOCKS_MAX: usize = 256;

const MAGIC: [u8; 4] = *b"SPDR";
/// The mark of packed blocks, in their number.
const PACKED_MARK: u16 = 1 << 15;

/// A frame that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at}: {fault}")]
pub struct FrameError {
    /// In the header, or in the body, as the fault says.
    pub at: usize,
    #[source]
    pub fault: FrameFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameFault {
    #[error("this is no frame")]
    Magic,
    #[error("the header's checksum does not match")]
    HeaderChecksum,
    #[error("the body's checksum does not match")]
    BodyChecksum,
    #[error("the checksum of a block does not match")]
    BlockChecksum,
    #[error("packed blocks are damaged, or come although they were not agreed on")]
    Packed,
    #[error("kind {0} is unknown")]
    UnknownKind(u16),
    #[error("the body, or the blocks behind it, are longer than allowed")]
    TooLong,
    #[error("the channel or the sequence does not go with the kind")]
    Place,
    #[error("the body ends too early")]
    Short,
    #[error("bytes behind the body")]
    Trailing,
    #[error("{0} has a value that is not allowed")]
    Value(&'static str),
    #[error("{0}")]
    Lineage(LineageError),
    #[error("{0}")]
    Introduction(IntroductionFault),
}

macro_rules! frames {
    ($($(#[$doc:meta])* $number:literal $name:ident($body:ty) $place:ident $order:ident;)*) => {
        /// Kinds of frames, with their numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum FrameKind {
            $($name = $number,)*
        }

        impl FrameKind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            fn of(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)*
                    _ => None,
                }
            }

            fn place(self) -> FramePlace {
                match self {
                    $(Self::$name => FramePlace::$place,)*
                }
            }

            /// True if receivers put frames of this kind in the order of their sequence.
            pub fn is_ordered(self) -> bool {
                match self {
                    $(Self::$name => frames!(@order $order),)*
                }
            }
        }

        /// The content of a frame.
        #[derive(Clone, Debug)]
        pub enum FrameBody {
            $($(#[$doc])* $name($body),)*
        }

        impl FrameBody {
            pub fn kind(&self) -> FrameKind {
                match self {
                    $(Self::$name(_) => FrameKind::$name,)*
                }
            }

            fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
                match self {
                    $(Self::$name(body) => body.write(writer),)*
                }
            }

            fn read(
                kind: FrameKind,
                reader: &mut BodyReader<'_>,
                blocks: Vec<Arc<Buffer>>,
            ) -> Result<Self, FrameError> {
                Ok(match kind {
                    $(FrameKind::$name => Self::$name(<$body as BodyCodec>::read(reader, blocks)?),)*
                })
            }
        }
    };
    (@order ordered) => { true };
    (@order unordered) => { false };
}

frames! {
    1 Hello(HelloFrame) Session unordered;
    2 Refusal(RefusalFrame) Either unordered;
    3 Alive(AliveFrame) Session unordered;
    4 Pairing(PairingFrame) Session unordered;
    5 LinkTest(LinkTestFrame) Session unordered;
    6 TestOrder(TestOrderFrame) Session unordered;
    7 TestData(TestDataFrame) Session unordered;
    8 TestCount(TestCountFrame) Session unordered;
    16 Attach(AttachFrame) Group ordered;
    17 Introduction(Box<Introduction>) Group ordered;
    18 Agreement(AgreementFrame) Group ordered;
    19 Receipt(ReceiptFrame) Group unordered;
    20 SiteMessage(SiteMessageFrame) Group ordered;
    32 Record(RecordFrame) Group ordered;
    33 Cut(CutFrame) Group ordered;
    34 Word(WordFrame) Group unordered;
    35 Confirmation(ConfirmationFrame) Group unordered;
    48 PassBegin(PassBeginFrame) Group ordered;
    49 PassBlocks(PassBlocksFrame) Group ordered;
    50 PassRanges(PassRangesFrame) Group ordered;
    51 PassEnd(PassEndFrame) Group ordered;
    52 ChangedRanges(ChangedRangesFrame) Group ordered;
    53 PassSnapshots(PassSnapshotsFrame) Group ordered;
    54 PassPoint(PassPointFrame) Group ordered;
    55 PassSnapshot(PassSnapshotFrame) Group ordered;
    56 BroughtRanges(BroughtRangesFrame) Group ordered;
    64 HandOver(HandOverFrame) Group ordered;
    65 TakenOver(TakenOverFrame) Group ordered;
    66 JoinBegin(JoinBeginFrame) Group ordered;
    67 JoinReady(JoinReadyFrame) Group ordered;
    68 Joined(JoinedFrame) Group ordered;
    69 JoinNoted(JoinNotedFrame) Group ordered;
    70 Mark(MarkFrame) Group ordered;
    71 MarkReady(MarkReadyFrame) Group ordered;
    72 MarkKept(MarkKeptFrame) Group ordered;
    73 MarkNoted(MarkNotedFrame) Group ordered;
    80 VerifyCut(VerifyCutFrame) Group ordered;
    81 VerifyReady(VerifyReadyFrame) Group ordered;
    82 VerifyRange(VerifyRangeFrame) Group ordered;
    83 VerifyDigests(VerifyDigestsFrame) Group ordered;
    84 VerifyEnd(VerifyEndFrame) Group ordered;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FramePlace {
    Session,
    Group,
    Either,
}

/// A body of one kind. Writing gives the blocks that go behind it.
trait BodyCodec: Sized {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>>;

    /// Uses all blocks.
    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError>;
}

/// The head of a frame, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    /// 0: the session; otherwise a group's.
    pub channel: u32,
    /// From 1 for ordered kinds, otherwise 0.
    pub sequence: u64,
    pub body_bytes: usize,
    /// Blocks of 4096 bytes behind the body.
    pub blocks: usize,
    /// The blocks come as the link packs them. Frames know nothing of it.
    pub is_packed: bool,
    body_checksum: u32,
}

impl FrameHeader {
    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let fail = |at, fault| Err(FrameError { at, fault });
        if bytes[..4] != MAGIC {
            return fail(0, FrameFault::Magic);
        }
        if number(28) != crc32c(&[&bytes[..28]]) {
            return fail(28, FrameFault::HeaderChecksum);
        }
        let Some(kind) = FrameKind::of(short(4)) else { return fail(4, FrameFault::UnknownKind(short(4))) };
        let is_packed = short(6) & PACKED_MARK != 0;
        let blocks = usize::from(short(6) & !PACKED_MARK);
        let has_blocks = matches!(kind, FrameKind::Record | FrameKind::PassBlocks);
        if blocks > if has_blocks { FRAME_BLOCKS_MAX } else { 0 } {
            return fail(6, FrameFault::TooLong);
        }
        if is_packed && blocks == 0 {
            return fail(6, FrameFault::Packed);
        }
        let channel = number(8);
        let sequence = u64::from(number(12)) | u64::from(number(16)) << 32;
        let is_placed = match kind.place() {
            FramePlace::Session => channel == 0,
            FramePlace::Group => channel != 0,
            FramePlace::Either => true,
        };
        if !is_placed {
            return fail(8, FrameFault::Place);
        }
        if kind.is_ordered() != (sequence != 0) {
            return fail(12, FrameFault::Place);
        }
        let body_bytes = number(20) as usize;
        if body_bytes > BODY_BYTES_MAX {
            return fail(20, FrameFault::TooLong);
        }
        let body_checksum = number(24);
        Ok(Self { kind, channel, sequence, body_bytes, blocks, is_packed, body_checksum })
    }

    /// The head of a frame, header and body, with the mark of packed blocks.
    ///
    /// # Panics
    ///
    /// If it is no head of a frame with blocks.
    pub(crate) fn marked_as_packed(head: &[u8]) -> Vec<u8> {
        let (header, body) = head.split_first_chunk().expect("a head has a header");
        let header = Self::decode(header).expect("a frame that is sent would be accepted");
        assert!(header.blocks > 0, "there is something to pack");
        [&Self { is_packed: true, ..header }.encode()[..], body].concat()
    }

    fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&(self.kind as u16).to_le_bytes());
        let mark = if self.is_packed { PACKED_MARK } else { 0 };
        bytes[6..8].copy_from_slice(&(self.blocks as u16 | mark).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.channel.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.body_bytes as u32).to_le_bytes());
        bytes[24..28].copy_from_slice(&self.body_checksum.to_le_bytes());
        let checksum = crc32c(&[&bytes[..28]]);
        bytes[28..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }
}

/// A decoded frame; or one to be sent, with channel and sequence as its kind wants them.
#[derive(Clone, Debug)]
pub struct Frame {
    pub channel: u32,
    pub sequence: u64,
    pub body: FrameBody,
}

/// A frame as it is sent: header and body in one piece, then its blocks, which are not copied.
#[derive(Clone, Debug)]
pub struct EncodedFrame {
    pub head: Vec<u8>,
    pub blocks: Vec<Arc<Buffer>>,
}

impl EncodedFrame {
    /// Bytes on the line.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.blocks.len() * BLOCK_BYTES
    }

    /// All bytes in one piece, for tests.
    pub fn concat(&self) -> Vec<u8> {
        let blocks = self.blocks.iter().map(|block| &block[..]);
        [&self.head[..]].into_iter().chain(blocks).collect::<Vec<_>>().concat()
    }
}

impl Frame {
    /// # Panics
    ///
    /// If channel or sequence do not go with the kind, or the body is above the limits.
    pub fn encode(&self) -> EncodedFrame {
        let mut writer = BodyWriter(vec![0; HEADER_BYTES]);
        let blocks = self.body.write(&mut writer);
        let mut head = writer.0;
        let body = &head[HEADER_BYTES..];
        let header = FrameHeader {
            kind: self.body.kind(),
            channel: self.channel,
            sequence: self.sequence,
            body_bytes: body.len(),
            blocks: blocks.len(),
            is_packed: false,
            body_checksum: crc32c(&[body]),
        };
        let encoded = header.encode();
        assert_eq!(FrameHeader::decode(&encoded), Ok(header), "a frame that is sent would be accepted");
        head[..HEADER_BYTES].copy_from_slice(&encoded);
        EncodedFrame { head, blocks }
    }

    /// Decodes what follows a header: as many bytes and blocks as it names.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    ///
    /// # Panics
    ///
    /// If there are more or fewer bytes or blocks.
    pub fn decode(header: &FrameHeader, body: &[u8], blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        assert_eq!((body.len(), blocks.len()), (header.body_bytes, header.blocks), "as the header says");
        assert!(blocks.iter().all(|block| block.len() == BLOCK_BYTES), "blocks are whole");
        if crc32c(&[body]) != header.body_checksum {
            return Err(FrameError { at: 24, fault: FrameFault::BodyChecksum });
        }
        let mut reader = BodyReader::new(body);
        let body = FrameBody::read(header.kind, &mut reader, blocks)?;
        reader.end()?;
        Ok(Self { channel: header.channel, sequence: header.sequence, body })
    }
}

/// Fails for a body without blocks if it has some; a header with some is refused, so this never happens.
fn without_blocks(blocks: &[Arc<Buffer>]) {
    assert!(blocks.is_empty(), "the header was checked");
}
