//! Frames that begin a session, keep it alive and end it.

use super::{BodyCodec, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks};
use crate::cut::PARTS_MAX;
use array::format::{GroupId, SiteId};
use std::{fmt, sync::Arc};
use world::Buffer;

/// Bytes of a program's name, and of a text for a person.
const NAME_BYTES_MAX: usize = 128;
const TEXT_BYTES_MAX: usize = 1024;
/// Connections of a session at most.
pub const CONNECTIONS_MAX: u16 = 16;
/// In the place of the index of a part: the group itself.
const PART_NONE: u8 = u8::MAX;

/// Versions of the protocol that a side knows. Invariant: the lowest is from 1 on, and not above the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRange {
    lowest: u16,
    highest: u16,
}

impl VersionRange {
    /// The versions that this program knows. Before version 4 a pass brought neither sizes nor snapshots, and a deletion
    /// of a snapshot did not say of which volumes. Since version 5 blocks may be packed, and a secondary names what an
    /// unfinished pass brought. Since version 6 groups may have volumes in several pools. Since
    /// version 7 sites tell each other what their catalogues of backups have. Since version 8 the
    /// site that follows a set verifies its backups. Since version 9 a secondary hears of changed modes and of marks. Since version
    /// 10 it names the blocks that unfinished passes brought.
    pub const OURS: Self = Self { lowest: 5, highest: 10 };

    pub fn highest(self) -> u16 {
        self.highest
    }

    /// None if this is no range.
    pub fn new(lowest: u16, highest: u16) -> Option<Self> {
        (1 <= lowest && lowest <= highest).then_some(Self { lowest, highest })
    }

    /// True if the version is not above the highest one.
    pub fn reaches(self, version: u16) -> bool {
        version <= self.highest
    }

    /// The highest version that both sides know.
    pub fn common(self, other: Self) -> Option<u16> {
        let (lowest, highest) = (self.lowest.max(other.lowest), self.highest.min(other.highest));
        (lowest <= highest).then_some(highest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lowest == self.highest {
            true => write!(f, "version {}", self.lowest),
            false => write!(f, "versions {} to {}", self.lowest, self.highest),
        }
    }
}

/// The first frame of each side on each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloFrame {
    pub versions: VersionRange,
    pub site: SiteId,
    /// Number of the session, drawn by the side that connects: connections with the same one belong together.
    pub session: u64,
    /// Index of this connection among those of the session.
    pub connection: u16,
    /// From 1 to 16.
    pub connections: u16,
    /// The session exists. Otherwise this connection begins it.
    pub is_joining: bool,
    /// Name and version of the program, for people.
    pub program: String,
}

impl BodyCodec for HelloFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u16(self.versions.lowest).u16(self.versions.highest).bytes(&self.site.0).u64(self.session);
        writer.u16(self.connection).u16(self.connections).u8(self.is_joining.into()).text(&self.program);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let versions = VersionRange::new(reader.u16()?, reader.u16()?);
        let versions = versions.ok_or_else(|| reader.fault(FrameFault::Value("the range of versions")))?;
        let site = SiteId(reader.array()?);
        if site == SiteId::NONE {
            return Err(reader.fault(FrameFault::Value("the site's UUID")));
        }
        let session = reader.u64()?;
        let (connection, connections) = (reader.u16()?, reader.u16()?);
        if connections > CONNECTIONS_MAX || connection >= connections {
            return Err(reader.fault(FrameFault::Value("the index of the connection")));
        }
        let is_joining = reader.flag()?;
        let program = reader.text(NAME_BYTES_MAX)?;
        Ok(Self { versions, site, session, connection, connections, is_joining, program })
    }
}

/// Reason of a refusal, for the program of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum RefusalCode {
    /// No common version.
    Version = 1,
    /// The site is not paired with this one.
    NotPaired = 2,
    UnknownGroup = 3,
    /// A frame that breaks a rule of the protocol.
    Frame = 4,
    /// A fence below one that this side knows.
    Fence = 5,
    /// The sides computed different outcomes.
    Agreement = 6,
    Unrelated = 7,
    /// No space left at the target.
    Full = 8,
    Suspended = 9,
    /// The side stops, or its owner has closed the channel.
    Closing = 10,
    /// The channel has ended: the answer to a refusal.
    Ended = 11,
    /// As many sessions, connections or attempts as are allowed.
    Busy = 12,
    /// A connection would join a session that does not exist, or begin one that does.
    UnknownSession = 13,
    /// The pairing token is wrong, used or expired.
    Token = 14,
}

const CODES: [RefusalCode; 14] = [
    RefusalCode::Version,
    RefusalCode::NotPaired,
    RefusalCode::UnknownGroup,
    RefusalCode::Frame,
    RefusalCode::Fence,
    RefusalCode::Agreement,
    RefusalCode::Unrelated,
    RefusalCode::Full,
    RefusalCode::Suspended,
    RefusalCode::Closing,
    RefusalCode::Ended,
    RefusalCode::Busy,
    RefusalCode::UnknownSession,
    RefusalCode::Token,
];

/// Ends a channel, or the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusalFrame {
    pub code: RefusalCode,
    /// One line for a person, at most 1024 bytes.
    pub text: String,
}

impl BodyCodec for RefusalFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u16(self.code as u16).text(&self.text);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let number = reader.u16()?;
        let code = CODES.into_iter().find(|code| *code as u16 == number);
        let code = code.ok_or_else(|| reader.fault(FrameFault::Value("the code")))?;
        Ok(Self { code, text: reader.text(TEXT_BYTES_MAX)? })
    }
}

/// Measures the round trip, and shows that the other side lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliveFrame {
    pub number: u64,
    /// The reply to the frame with this number.
    pub is_reply: bool,
}

impl BodyCodec for AliveFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).u8(self.is_reply.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: reader.u64()?, is_reply: reader.flag()? })
    }
}

/// Proves over TLS that a site knows a pairing token: the first frame of a connection that pairs, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingFrame {
    pub site: SiteId,
    /// HMAC-SHA-256, see `docs/replication.md`.
    pub proof: [u8; 32],
}

impl BodyCodec for PairingFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.site.0).bytes(&self.proof);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let site = SiteId(reader.array()?);
        if site == SiteId::NONE {
            return Err(reader.fault(FrameFault::Value("the site's UUID")));
        }
        Ok(Self { site, proof: reader.array()? })
    }
}

/// Gives the channel of this frame to a group, or to a part of it: the first frame of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttachFrame {
    pub group: GroupId,
    /// Index of the part; `None` for the group itself.
    pub part: Option<u8>,
}

impl AttachFrame {
    /// The channel on which the programs of two sites talk about their groups.
    pub fn of_sites() -> Self {
        Self { group: GroupId([0xff; 16]), part: None }
    }
}

impl BodyCodec for AttachFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.group.0).u8(self.part.unwrap_or(PART_NONE));
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let group = GroupId(reader.array()?);
        if group == GroupId::NONE {
            return Err(reader.fault(FrameFault::Value("the group's UUID")));
        }
        let part = Some(reader.u8()?).filter(|part| *part != PART_NONE);
        if part.is_some_and(|part| usize::from(part) >= PARTS_MAX) {
            return Err(reader.fault(FrameFault::Value("the index of the part")));
        }
        Ok(Self { group, part })
    }
}

/// A message of one site's program to the other's, as JSON, on the channel of no group ([`AttachFrame::of_sites`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteMessageFrame {
    /// At most [`SITE_MESSAGE_BYTES_MAX`].
    pub text: String,
}

/// Bytes of a message between two sites.
pub const SITE_MESSAGE_BYTES_MAX: usize = 60_000;

impl BodyCodec for SiteMessageFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        assert!(self.text.len() <= SITE_MESSAGE_BYTES_MAX, "a message is short");
        writer.text(&self.text);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { text: reader.text(SITE_MESSAGE_BYTES_MAX)? })
    }
}

/// The receiver's progress in the ordered frames of a channel. Neither number ever falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiptFrame {
    /// All ordered frames up to this sequence have arrived.
    pub received: u64,
    /// Bytes that the other side may send since the channel was attached, as its window counts them.
    pub window_end: u64,
}

impl BodyCodec for ReceiptFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.received).u64(self.window_end);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { received: reader.u64()?, window_end: reader.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_common_version_is_used() {
        let range = |lowest, highest| VersionRange::new(lowest, highest).expect("a range");
        assert_eq!(range(1, 3).common(range(2, 9)), Some(3));
        assert_eq!(range(2, 9).common(range(1, 3)), Some(3));
        assert_eq!(range(4, 9).common(range(1, 3)), None);
        assert_eq!(range(1, 9).common(VersionRange::OURS), Some(9));
        assert_eq!(range(1, 4).common(VersionRange::OURS), None, "blocks and snapshots would differ");
        assert_eq!(VersionRange::new(0, 1), None);
        assert_eq!(VersionRange::new(2, 1), None);
    }
}
