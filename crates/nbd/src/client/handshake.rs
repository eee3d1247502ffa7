//! The client's side of the handshake.

use crate::wire::{
    PAYLOAD_BYTES_MAX,
    handshake::{
        ALLOCATION, BlockSizes, ContextRequest, GREETING, InfoReply, InfoRequest, OPTION_MAGIC, OptionHead,
        OptionReplyHead, handshake_flag, info, option, reply, transmission_flag,
    },
};
use std::io;
use thiserror::Error;
use tls::{ClientTls, tls_failure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{Stream, World};

/// Longest option reply.
const ANSWER_BYTES_MAX: u32 = 64 * 1024;
/// Most replies to one option.
const ANSWERS_MAX: usize = 64;

/// Properties of an export, as the server reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    pub size: u64,
    /// [`transmission_flag`]s.
    pub flags: u16,
    pub sizes: BlockSizes,
    /// `base:allocation` was negotiated.
    pub has_allocation: bool,
}

impl ExportInfo {
    pub fn has_flag(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error(transparent)]
    Broken(io::Error),
    /// A certificate was rejected, or there is no common TLS version.
    #[error("no TLS: {0}")]
    Tls(String),
    /// The peer is not an NBD server, or predates the fixed newstyle handshake.
    #[error("unsupported or not an NBD server: {0}")]
    Protocol(&'static str),
    #[error("the server refused: {0}")]
    Refused(String),
}

impl From<io::Error> for HandshakeError {
    /// In TLS 1.3 a server's rejection arrives after the handshake, with the next read.
    fn from(error: io::Error) -> Self {
        tls_failure(&error).map_or(Self::Broken(error), Self::Tls)
    }
}

/// Negotiates `export`; returns the stream to continue with.
pub async fn agree(
    world: &World,
    mut stream: Stream,
    export: &str,
    tls: Option<&ClientTls>,
) -> Result<(ExportInfo, Stream), HandshakeError> {
    greet(&mut stream).await?;
    if let Some(tls) = tls {
        ask(&mut stream, option::STARTTLS, &[], |_, _| ()).await?.map_err(HandshakeError::Tls)?;
        stream = tls.connect(world, stream).await?;
    }
    let info = choose(&mut stream, export).await?;
    Ok((info, stream))
}

async fn greet(stream: &mut Stream) -> Result<(), HandshakeError> {
    if stream.read_u64().await? != GREETING || stream.read_u64().await? != OPTION_MAGIC {
        return Err(HandshakeError::Protocol("wrong greeting"));
    }
    let flags = stream.read_u16().await?;
    if flags & handshake_flag::FIXED_NEWSTYLE == 0 {
        return Err(HandshakeError::Protocol("no fixed newstyle handshake"));
    }
    let ours = flags & (handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES);
    Ok(stream.write_all(&u32::from(ours).to_be_bytes()).await?)
}

async fn choose(stream: &mut Stream, export: &str) -> Result<ExportInfo, HandshakeError> {
    let mut has_allocation = false;
    if ask(stream, option::STRUCTURED_REPLY, &[], |_, _| ()).await?.is_ok() {
        let contexts = ContextRequest { name: export.to_owned(), queries: vec![ALLOCATION.to_owned()] };
        let found = |answer: u32, data: &[u8]| {
            has_allocation |= answer == reply::META_CONTEXT && data.get(4..) == Some(ALLOCATION.as_bytes());
        };
        // Without the context, `has_allocation` stays false.
        let _ = ask(stream, option::SET_META_CONTEXT, &contexts.write(), found).await?;
    }
    let mut info = ExportInfo {
        size: 0,
        flags: 0,
        sizes: BlockSizes { least: 512, best: 4096, most: PAYLOAD_BYTES_MAX },
        has_allocation,
    };
    let request = InfoRequest { name: export.to_owned(), wanted: vec![info::BLOCK_SIZE] };
    let learn = |answer: u32, data: &[u8]| match InfoReply::read(data) {
        Some(InfoReply::Export(size, flags)) if answer == reply::INFO => {
            (info.size, info.flags) = (size, flags)
        }
        Some(InfoReply::BlockSizes(sizes)) if answer == reply::INFO => info.sizes = sizes,
        _ => {}
    };
    ask(stream, option::GO, &request.write(), learn).await?.map_err(HandshakeError::Refused)?;
    check(info)
}

fn check(info: ExportInfo) -> Result<ExportInfo, HandshakeError> {
    let BlockSizes { least, most, .. } = info.sizes;
    let is_size = least.is_power_of_two() && least <= 4096 && most >= 4096;
    if !info.has_flag(transmission_flag::HAS_FLAGS) || !is_size {
        return Err(HandshakeError::Protocol("invalid export information"));
    }
    // Devices have sectors of 512 or 4096 bytes.
    let sector = if least <= 512 { 512 } else { 4096 };
    let most = (most.min(PAYLOAD_BYTES_MAX) / sector) * sector;
    let size = info.size / u64::from(sector) * u64::from(sector);
    Ok(ExportInfo { size, sizes: BlockSizes { least: sector, most, ..info.sizes }, ..info })
}

/// Sends an option and passes its replies to `show` until the final one: ACK, or an error with its message.
async fn ask(
    stream: &mut Stream,
    asked: u32,
    data: &[u8],
    mut show: impl FnMut(u32, &[u8]),
) -> Result<Result<(), String>, HandshakeError> {
    stream.write_all(&OptionHead::write(asked, data)).await?;
    stream.flush().await?;
    for _ in 0..ANSWERS_MAX {
        let mut head = [0; OptionReplyHead::BYTES];
        stream.read_exact(&mut head).await?;
        let head = OptionReplyHead::read(&head)
            .filter(|head| head.option == asked && head.length <= ANSWER_BYTES_MAX);
        let OptionReplyHead { reply: answer, length, .. } =
            head.ok_or(HandshakeError::Protocol("unexpected option reply"))?;
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
    Err(HandshakeError::Protocol("too many option replies"))
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
