//! Messages between a site and the witness.
//!
//! Each message has a header of 24 bytes, little-endian, a body, and, in a session with a secret, a code
//! behind it:
//!
//! | Offset | Size | Field |
//! |---|---|---|
//! | 0 | 4 | magic `SPDW` |
//! | 4 | 2 | kind: 1 hello, 2 request, 3 answer, 4 list, 5 refusal |
//! | 6 | 2 | version, 1; of a hello: the highest that its sender knows |
//! | 8 | 8 | sequence: a hello has 0, then counted up from 1 in each direction |
//! | 16 | 4 | bytes of the body |
//! | 20 | 4 | CRC-32C of the 20 bytes before and of the body |
//! | 24 | | body |
//! | | 32 | HMAC-SHA-256 of header and body, by the key of the direction |
//!
//! A *hello* has 32 random bytes, and a byte that says whether its sender has a secret. A *request* names a
//! group, a site, a fence, a revision and an action, or is empty and asks for the *list* of all groups. An
//! *answer* repeats the refusal, if it is one, and has the group. A *refusal* has a text for a person and
//! ends the session.
//!
//! A length is checked before a byte behind it is read: a hello has 33 bytes, a request at most 128, a
//! refusal at most 256; only a client accepts more, of a list.

use super::{
    codec::{ByteReader, WitnessCodecError, write_group},
    group::{WitnessAction, WitnessRefusal, WitnessRequest},
    lease::LeaseFence,
    ledger::{GROUPS_MAX, WitnessAnswer, WitnessView},
};
use array::format::{EpochId, GroupId, SiteId};
use world::crc32c::crc32c;

const MAGIC: &[u8; 4] = b"SPDW";
/// The version that this program knows.
pub const MESSAGE_VERSION: u16 = 1;
/// Bytes before a body.
pub const MESSAGE_HEADER_BYTES: usize = 24;
/// Random bytes of a hello.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a body that a witness reads.
pub const REQUEST_BYTES_MAX: u32 = 128;
/// Bytes of a body that a client reads: a list of 1024 groups.
pub const ANSWER_BYTES_MAX: u32 = 640 * 1024;
const TEXT_BYTES_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum MessageKind {
    Hello = 1,
    Request = 2,
    Answer = 3,
    List = 4,
    Refusal = 5,
}

/// A decoded header whose length is within its reader's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    pub kind: MessageKind,
    pub version: u16,
    pub sequence: u64,
    pub body_bytes: u32,
    checksum: u32,
}

/// A message that breaks a rule; the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageFault {
    #[error("this is no message of a witness")]
    Magic,
    #[error("a message of kind {0} is not expected here")]
    Kind(u16),
    #[error("a message is too long")]
    Length,
    #[error("the checksum of a message does not match")]
    Checksum,
    #[error("a message is out of sequence")]
    Sequence,
    #[error("the peer speaks version {0}, this program 1")]
    Version(u16),
    #[error("the peer's code does not match: the two sides have different secrets")]
    Code,
    #[error("one side has a secret and the other one has none")]
    Secret,
    #[error(transparent)]
    Body(#[from] WitnessCodecError),
}

impl MessageHeader {
    /// Decodes a header.
    ///
    /// # Errors
    ///
    /// It is none, of an unknown kind, or announces more than `bytes_max` bytes of body.
    pub fn decode(bytes: &[u8; MESSAGE_HEADER_BYTES], bytes_max: u32) -> Result<Self, MessageFault> {
        if &bytes[..4] != MAGIC {
            return Err(MessageFault::Magic);
        }
        let u16_at = |at: usize| u16::from_le_bytes(*bytes[at..].first_chunk().expect("within the header"));
        let u32_at = |at: usize| u32::from_le_bytes(*bytes[at..].first_chunk().expect("within the header"));
        let kind = match u16_at(4) {
            1 => MessageKind::Hello,
            2 => MessageKind::Request,
            3 => MessageKind::Answer,
            4 => MessageKind::List,
            5 => MessageKind::Refusal,
            other => return Err(MessageFault::Kind(other)),
        };
        let sequence = u64::from_le_bytes(*bytes[8..].first_chunk().expect("within the header"));
        let (body_bytes, checksum) = (u32_at(16), u32_at(20));
        if body_bytes > bytes_max {
            return Err(MessageFault::Length);
        }
        Ok(Self { kind, version: u16_at(6), sequence, body_bytes, checksum })
    }

    /// Checks a body, behind the bytes of this header.
    ///
    /// # Errors
    ///
    /// The checksum does not match.
    pub fn check(&self, bytes: &[u8; MESSAGE_HEADER_BYTES], body: &[u8]) -> Result<(), MessageFault> {
        let is_whole = crc32c(&[&bytes[..20], body]) == self.checksum;
        if is_whole { Ok(()) } else { Err(MessageFault::Checksum) }
    }
}

/// Header and body of a message.
pub fn encode_message(kind: MessageKind, sequence: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MESSAGE_HEADER_BYTES + body.len());
    bytes.extend(MAGIC);
    bytes.extend((kind as u16).to_le_bytes());
    bytes.extend(MESSAGE_VERSION.to_le_bytes());
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(u32::try_from(body.len()).expect("bodies are short").to_le_bytes());
    let checksum = crc32c(&[&bytes, body]);
    bytes.extend(checksum.to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Body of a hello.
pub fn encode_hello(nonce: &[u8; NONCE_BYTES], has_secret: bool) -> Vec<u8> {
    let mut body = nonce.to_vec();
    body.push(has_secret.into());
    body
}

/// Decodes the body of a hello: whether its sender has a secret.
///
/// # Errors
///
/// It is no hello.
pub fn decode_hello(body: &[u8]) -> Result<bool, MessageFault> {
    let mut reader = ByteReader::new(body);
    reader.array::<NONCE_BYTES>("the nonce")?;
    let has_secret = match reader.u8("the flag")? {
        0 => false,
        1 => true,
        _ => return Err(reader.fault("the flag").into()),
    };
    reader.end()?;
    Ok(has_secret)
}

/// Body of a request; none asks for the list.
pub fn encode_request(request: Option<&WitnessRequest>) -> Vec<u8> {
    let mut body = Vec::new();
    let Some(request) = request else { return body };
    body.extend(request.group.0);
    body.extend(request.site.0);
    body.extend(request.fence.0.to_le_bytes());
    body.extend(request.revision.to_le_bytes());
    match request.action {
        WitnessAction::Acquire { span, head, by_person } => {
            body.push(1);
            body.extend(span.ms().to_le_bytes());
            body.extend(head.0);
            body.push(by_person.into());
        }
        WitnessAction::Renew { head } => {
            body.push(2);
            body.extend(head.0);
        }
        WitnessAction::RecordAlone => body.push(3),
        WitnessAction::RecordSync => body.push(4),
        WitnessAction::Release { to } => {
            body.push(5);
            body.extend(to.0);
        }
        WitnessAction::Look => body.push(6),
    }
    body
}

/// Decodes the body of a request; none asks for the list.
///
/// # Errors
///
/// The first field that breaks a rule.
pub fn decode_request(body: &[u8]) -> Result<Option<WitnessRequest>, MessageFault> {
    if body.is_empty() {
        return Ok(None);
    }
    let mut reader = ByteReader::new(body);
    let (group, site) = (GroupId(reader.uuid("the group")?), SiteId(reader.uuid("the site")?));
    let fence = LeaseFence(reader.u64("the fence")?);
    let revision = reader.u64("the revision")?;
    let action = match reader.u8("the action")? {
        1 => {
            let (span, head) = (reader.span()?, EpochId(reader.uuid("the epoch")?));
            let by_person = match reader.u8("the flag")? {
                0 => false,
                1 => true,
                _ => return Err(reader.fault("the flag").into()),
            };
            WitnessAction::Acquire { span, head, by_person }
        }
        2 => WitnessAction::Renew { head: EpochId(reader.uuid("the epoch")?) },
        3 => WitnessAction::RecordAlone,
        4 => WitnessAction::RecordSync,
        5 => WitnessAction::Release { to: SiteId(reader.uuid("the other site")?) },
        6 => WitnessAction::Look,
        _ => return Err(reader.fault("the action").into()),
    };
    reader.end()?;
    Ok(Some(WitnessRequest { group, site, fence, revision, action }))
}

const REFUSALS: [WitnessRefusal; 8] = [
    WitnessRefusal::Held,
    WitnessRefusal::NotHolder,
    WitnessRefusal::Changed,
    WitnessRefusal::Alone,
    WitnessRefusal::OtherHistory,
    WitnessRefusal::Unknown,
    WitnessRefusal::Fence,
    WitnessRefusal::Full,
];

/// Body of an answer.
pub fn encode_answer(answer: &WitnessAnswer) -> Vec<u8> {
    let number = |refusal| REFUSALS.iter().position(|known| *known == refusal).expect("all are listed") + 1;
    let mut body = vec![answer.result.err().map_or(0, number) as u8];
    write_views(&mut body, answer.view.as_slice());
    body
}

/// Decodes the body of an answer.
///
/// # Errors
///
/// The first field that breaks a rule.
pub fn decode_answer(body: &[u8]) -> Result<WitnessAnswer, MessageFault> {
    let mut reader = ByteReader::new(body);
    let result = match usize::from(reader.u8("the refusal")?) {
        0 => Ok(()),
        number => Err(*REFUSALS.get(number - 1).ok_or_else(|| reader.fault("the refusal"))?),
    };
    let mut views = read_views(reader, 1)?;
    Ok(WitnessAnswer { result, view: views.pop() })
}

/// Body of a list.
pub fn encode_list(views: &[WitnessView]) -> Vec<u8> {
    let mut body = Vec::new();
    write_views(&mut body, views);
    body
}

/// Decodes the body of a list.
///
/// # Errors
///
/// The first field that breaks a rule.
pub fn decode_list(body: &[u8]) -> Result<Vec<WitnessView>, MessageFault> {
    read_views(ByteReader::new(body), GROUPS_MAX)
}

fn write_views(body: &mut Vec<u8>, views: &[WitnessView]) {
    body.extend((views.len() as u32).to_le_bytes());
    for view in views {
        body.extend(view.left_ms.to_le_bytes());
        write_group(body, view.group, &view.state);
    }
}

fn read_views(mut reader: ByteReader<'_>, count_max: usize) -> Result<Vec<WitnessView>, MessageFault> {
    let count = reader.u32("the number of groups")? as usize;
    if count > count_max {
        return Err(reader.fault("the number of groups").into());
    }
    let mut views: Vec<WitnessView> = Vec::new();
    for _ in 0..count {
        let left_ms = reader.u32("the lease that is left")?;
        let (group, state) = reader.group()?;
        if views.last().is_some_and(|last| last.group >= group) {
            return Err(reader.fault("the order of groups").into());
        }
        views.push(WitnessView { group, state, left_ms });
    }
    reader.end()?;
    Ok(views)
}

/// A text of a refusal for a person, without control characters.
pub fn refusal_text(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(TEXT_BYTES_MAX)]);
    text.chars().filter(|character| !character.is_control()).collect()
}
