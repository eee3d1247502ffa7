//! The client's side of the handshake.

use crate::{
    server::haggling::{ALLOCATION, ALLOCATION_ID},
    tls::{ClientTls, complaint},
    wire::{
        PAYLOAD_BYTES_MAX, Taking,
        handshake::{
            BlockSizes, ContextRequest, Fact, GREETING, InfoRequest, OPTION_MAGIC, OptionHead, ReplyHead,
            can, greeting, info, option, reply,
        },
    },
};
use std::io;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

/// Bytes of one answer at most: any text is shorter.
const ANSWER_BYTES_MAX: u32 = 64 * 1024;
/// Answers to one thing at most.
const ANSWERS_MAX: usize = 64;

/// What a server says an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes it has.
    pub size: u64,
    /// What can be done with it: of [`can`].
    pub flags: u16,
    /// Sizes of requests.
    pub sizes: BlockSizes,
    /// Block status may be asked for.
    pub has_allocation: bool,
}

impl Facts {
    /// Whether it can do that.
    pub fn can(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Why a server could not be agreed with.
#[derive(Debug, Error)]
pub enum Disagreement {
    /// The connection broke.
    #[error(transparent)]
    Broken(io::Error),
    /// One of both does not believe the other, or they know no TLS in common.
    #[error("no TLS: {0}")]
    Tls(String),
    /// It is no NBD server, or an old one.
    #[error("it is no NBD server of today: {0}")]
    Protocol(&'static str),
    /// It said no.
    #[error("the server refused: {0}")]
    Refused(String),
}

impl From<io::Error> for Disagreement {
    /// A server says after its handshake only that it does not believe us: whatever is read next is that.
    fn from(error: io::Error) -> Self {
        complaint(&error).map_or(Self::Broken(error), Self::Tls)
    }
}

/// Agrees with a server on `export`; with the stream to go on with.
pub async fn agree(
    world: &World,
    mut stream: Stream,
    export: &str,
    tls: Option<&ClientTls>,
) -> Result<(Facts, Stream), Disagreement> {
    greet(&mut stream).await?;
    if let Some(tls) = tls {
        ask(&mut stream, option::STARTTLS, &[], |_, _| ()).await?.map_err(Disagreement::Tls)?;
        stream = tls.connect(world, stream).await?;
    }
    let facts = choose(&mut stream, export).await?;
    Ok((facts, stream))
}

async fn greet(stream: &mut Stream) -> Result<(), Disagreement> {
    if stream.read_u64().await? != GREETING || stream.read_u64().await? != OPTION_MAGIC {
        return Err(Disagreement::Protocol("it greets otherwise"));
    }
    let flags = stream.read_u16().await?;
    if flags & greeting::FIXED_NEWSTYLE == 0 {
        return Err(Disagreement::Protocol("it knows no fixed newstyle handshake"));
    }
    let ours = flags & (greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
    Ok(stream.write_all(&u32::from(ours).to_be_bytes()).await?)
}

async fn choose(stream: &mut Stream, export: &str) -> Result<Facts, Disagreement> {
    let mut has_allocation = false;
    if ask(stream, option::STRUCTURED_REPLY, &[], |_, _| ()).await?.is_ok() {
        let contexts = ContextRequest { name: export.to_owned(), queries: vec![ALLOCATION.to_owned()] };
        let found = |answer: u32, data: &[u8]| {
            has_allocation |= answer == reply::META_CONTEXT && Taking(data).u32() == Some(ALLOCATION_ID);
        };
        // Who refuses that has none.
        let _ = ask(stream, option::SET_META_CONTEXT, &contexts.write(), found).await?;
    }
    let mut facts = Facts {
        size: 0,
        flags: 0,
        sizes: BlockSizes { least: 512, best: 4096, most: PAYLOAD_BYTES_MAX },
        has_allocation,
    };
    let request = InfoRequest { name: export.to_owned(), wanted: vec![info::BLOCK_SIZE] };
    let learn = |answer: u32, data: &[u8]| match Fact::read(data) {
        Some(Fact::Export(size, flags)) if answer == reply::INFO => (facts.size, facts.flags) = (size, flags),
        Some(Fact::BlockSizes(sizes)) if answer == reply::INFO => facts.sizes = sizes,
        _ => {}
    };
    ask(stream, option::GO, &request.write(), learn).await?.map_err(Disagreement::Refused)?;
    check(facts)
}

fn check(facts: Facts) -> Result<Facts, Disagreement> {
    let BlockSizes { least, most, .. } = facts.sizes;
    let is_size = least.is_power_of_two() && least <= 4096 && most >= 4096;
    if !facts.can(can::HAS_FLAGS) || !is_size {
        return Err(Disagreement::Protocol("what it says of the export makes no sense"));
    }
    // Everything here is in sectors of 512 or 4096 bytes.
    let sector = if least <= 512 { 512 } else { 4096 };
    let most = (most.min(PAYLOAD_BYTES_MAX) / sector) * sector;
    let size = facts.size / u64::from(sector) * u64::from(sector);
    Ok(Facts { size, sizes: BlockSizes { least: sector, most, ..facts.sizes }, ..facts })
}

/// Asks for something, and shows what is answered before the end of it: done, or why not.
async fn ask(
    stream: &mut Stream,
    asked: u32,
    data: &[u8],
    mut show: impl FnMut(u32, &[u8]),
) -> Result<Result<(), String>, Disagreement> {
    stream.write_all(&OptionHead::write(asked, data)).await?;
    stream.flush().await?;
    for _ in 0..ANSWERS_MAX {
        let mut head = [0; ReplyHead::BYTES];
        stream.read_exact(&mut head).await?;
        let head =
            ReplyHead::read(&head).filter(|head| head.option == asked && head.length <= ANSWER_BYTES_MAX);
        let ReplyHead { reply: answer, length, .. } =
            head.ok_or(Disagreement::Protocol("it answers what was not asked"))?;
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data).await?;
        match answer {
            reply::ACK => return Ok(Ok(())),
            error if error & reply::IS_ERROR != 0 => {
                let story = String::from_utf8_lossy(&data);
                let kind = kind_of(error);
                return Ok(Err(if story.is_empty() { kind.to_owned() } else { format!("{kind}: {story}") }));
            }
            other => show(other, &data),
        }
    }
    Err(Disagreement::Protocol("its answers do not end"))
}

fn kind_of(error: u32) -> &'static str {
    match error {
        reply::UNSUPPORTED => "not supported",
        reply::POLICY => "not allowed",
        reply::TLS_REQUIRED => "only over TLS",
        reply::UNKNOWN => "no such export",
        reply::TOO_BIG => "too big",
        _ => "not accepted",
    }
}
