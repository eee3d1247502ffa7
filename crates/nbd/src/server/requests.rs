//! Execution of one request.

use super::{contexts::MetadataContext, haggling::NegotiatedExport};
use crate::{
    export::Export,
    wire::{
        PAYLOAD_BYTES_MAX,
        transmission::{ErrorCode, Request, RequestType, allocation_flag, command_flag, dirty_flag},
    },
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, Extent, IoError, IoErrorKind, Stability};

/// Bytes of one write of a WRITE_ZEROES that the device cannot do without data.
const ZEROES_BYTES: usize = 1 << 20;
/// Most extents in one reply, those of all its contexts together.
const EXTENTS_MAX: usize = 8192;

/// Payload of a reply.
pub enum ReplyData {
    Nothing,
    /// Offset and data of a read.
    Data(u64, Buffer),
    /// Payloads of block status chunks, one a context.
    Status(Vec<Vec<u8>>),
}

/// An error reply.
pub struct RequestError {
    pub code: ErrorCode,
    /// For people.
    pub message: String,
    /// The data are elsewhere by now: the client is not answered, and is to connect again.
    pub is_moved: bool,
}

impl RequestError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_moved: false }
    }
}

fn refuse<T>(code: ErrorCode, message: &str) -> Result<T, RequestError> {
    Err(RequestError::new(code, message))
}

impl From<IoError> for RequestError {
    fn from(error: IoError) -> Self {
        let code = match error.kind() {
            IoErrorKind::NoSpace => ErrorCode::NoSpace,
            IoErrorKind::ReadOnly | IoErrorKind::PermissionDenied => ErrorCode::Permission,
            IoErrorKind::Unaligned | IoErrorKind::OutOfRange => ErrorCode::Invalid,
            IoErrorKind::Unsupported => ErrorCode::Unsupported,
            _ => ErrorCode::Io,
        };
        let is_moved = error.kind() == IoErrorKind::Moved;
        Self { code, message: error.to_string(), is_moved }
    }
}

/// Executes `request`; `data` is the payload of a write.
///
/// # Errors
///
/// The device failed, or the request is invalid. A failed write may have been executed in part.
pub async fn perform(
    negotiated: &NegotiatedExport,
    request: Request,
    data: Option<Buffer>,
) -> Result<ReplyData, RequestError> {
    let export = &negotiated.export;
    check(negotiated, &request)?;
    let (at, length) = (ByteOffset(request.offset), ByteCount(request.length.into()));
    let stability = export.stability(request.flags & command_flag::FUA != 0);
    match request.command {
        RequestType::Read => {
            let into = vec![Buffer::zeroed(request.length as usize)];
            let mut read = export.device.read(at, into).await?;
            Ok(ReplyData::Data(request.offset, read.pop().expect("the buffer comes back")))
        }
        RequestType::Write => {
            let data = Arc::new(data.expect("a write comes with its data"));
            export.device.write(at, vec![data], stability).await?;
            Ok(ReplyData::Nothing)
        }
        RequestType::Flush => {
            export.device.flush().await?;
            Ok(ReplyData::Nothing)
        }
        RequestType::Trim => {
            export.device.discard(at, length).await?;
            if stability == Stability::Stable {
                export.device.flush().await?;
            }
            Ok(ReplyData::Nothing)
        }
        // Advisory.
        RequestType::Cache => Ok(ReplyData::Nothing),
        RequestType::WriteZeroes => {
            write_zeroes(export, &request, stability).await?;
            Ok(ReplyData::Nothing)
        }
        RequestType::BlockStatus => Ok(ReplyData::Status(status(negotiated, &request).await?)),
        RequestType::Disconnect | RequestType::Other(_) => refuse(ErrorCode::Invalid, "unknown command"),
    }
}

/// Checks a request before its execution.
fn check(negotiated: &NegotiatedExport, request: &Request) -> Result<(), RequestError> {
    let geometry = negotiated.export.device.geometry();
    let changes =
        matches!(request.command, RequestType::Write | RequestType::Trim | RequestType::WriteZeroes);
    if request.flags & !command_flag::ALL != 0 {
        return refuse(ErrorCode::Invalid, "unknown command flags");
    }
    if changes && negotiated.export.is_read_only {
        return refuse(ErrorCode::Permission, "the export is read-only");
    }
    if matches!(request.command, RequestType::Flush | RequestType::Disconnect | RequestType::Other(_)) {
        return Ok(());
    }
    let sector = u64::from(geometry.sector);
    if request.length == 0 {
        return refuse(ErrorCode::Invalid, "length is zero");
    }
    if !request.offset.is_multiple_of(sector) || !u64::from(request.length).is_multiple_of(sector) {
        return refuse(ErrorCode::Invalid, "not aligned to sectors");
    }
    let end = request.offset.checked_add(request.length.into());
    if end.is_none_or(|end| end > geometry.size.0) {
        let code = if changes { ErrorCode::NoSpace } else { ErrorCode::Invalid };
        return refuse(code, "beyond the end of the export");
    }
    if request.command == RequestType::Read && request.length > PAYLOAD_BYTES_MAX {
        return refuse(ErrorCode::Overflow, "read of more than 32 MiB");
    }
    if request.command == RequestType::BlockStatus && negotiated.contexts.is_empty() {
        return refuse(ErrorCode::Invalid, "no metadata context was selected");
    }
    Ok(())
}

async fn write_zeroes(
    export: &Rc<Export>,
    request: &Request,
    stability: Stability,
) -> Result<(), RequestError> {
    let (at, length) = (ByteOffset(request.offset), u64::from(request.length));
    if let Some(sparse) = &export.sparse {
        let keeps_space = request.flags & command_flag::NO_HOLE != 0;
        match sparse.write_zeroes(at, ByteCount(length), keeps_space, stability).await {
            Err(error) if error.kind() == IoErrorKind::Unsupported => {}
            done => return Ok(done?),
        }
    }
    if request.flags & command_flag::FAST_ZERO != 0 {
        return refuse(ErrorCode::Unsupported, "not possible without writing data");
    }
    let zeroes = Arc::new(Buffer::zeroed(ZEROES_BYTES.min(length as usize)));
    let mut done = 0;
    while done < length {
        let count = (length - done).min(zeroes.len() as u64);
        let piece = if count == zeroes.len() as u64 {
            Arc::clone(&zeroes)
        } else {
            Arc::new(Buffer::zeroed(count as usize))
        };
        export.device.write(ByteOffset(at.0 + done), vec![piece], stability).await?;
        done += count;
    }
    Ok(())
}

/// The extents of each selected context, as the payload of its block status chunk.
async fn status(negotiated: &NegotiatedExport, request: &Request) -> Result<Vec<Vec<u8>>, RequestError> {
    let only_one = request.flags & command_flag::REQ_ONE != 0;
    let most = if only_one { 1 } else { EXTENTS_MAX / negotiated.contexts.len() };
    let mut chunks = Vec::new();
    for (id, context) in negotiated.contexts.iter() {
        let extents = extents_of(&negotiated.export, context, request).await?;
        assert!(!extents.is_empty(), "a device covers at least one byte");
        let mut chunk = id.to_be_bytes().to_vec();
        let mut left = u64::from(request.length);
        for (length, flags) in extents.into_iter().take(most) {
            let length = length.0.min(left);
            if length == 0 {
                break;
            }
            chunk.extend((length as u32).to_be_bytes());
            chunk.extend(flags.to_be_bytes());
            left -= length;
        }
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// The extents of a context, each with its flags.
async fn extents_of(
    export: &Export,
    context: &MetadataContext,
    request: &Request,
) -> Result<Vec<(ByteCount, u32)>, RequestError> {
    let (at, length) = (ByteOffset(request.offset), ByteCount(request.length.into()));
    if let MetadataContext::Dirty(bitmap) = context {
        let extents = bitmap.extents(at, length).await?;
        let flags = |is_dirty: bool| if is_dirty { dirty_flag::DIRTY } else { 0 };
        return Ok(extents.iter().map(|extent| (extent.length, flags(extent.is_dirty))).collect());
    }
    let extents = match &export.sparse {
        Some(sparse) => sparse.extents(at, length).await?,
        None => vec![Extent { length, is_hole: false, is_zero: false }],
    };
    let flags = |extent: &Extent| {
        let hole = if extent.is_hole { allocation_flag::HOLE } else { 0 };
        hole | if extent.is_zero { allocation_flag::ZERO } else { 0 }
    };
    Ok(extents.iter().map(|extent| (extent.length, flags(extent))).collect())
}
