//! One request, done.

use super::haggling::{ALLOCATION_ID, Agreed};
use crate::{
    export::Export,
    wire::{
        PAYLOAD_BYTES_MAX,
        transmission::{Command, Refusal, Request, extent, flag},
    },
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, Extent, IoError, IoErrorKind, Stability};

/// Zeroes written at once, where they must be.
const ZEROES_BYTES: usize = 1 << 20;
/// Extents in one answer at most.
const EXTENTS_MAX: usize = 8192;

/// What a request gives.
pub enum Done {
    /// Nothing.
    Nothing,
    /// What was read, from where.
    Data(u64, Buffer),
    /// The data of a chunk of block status.
    Status(Vec<u8>),
}

/// Why it was not done, for the client and for people.
pub struct NotDone {
    /// What the client is told.
    pub refusal: Refusal,
    /// For people.
    pub story: String,
}

fn refuse<T>(refusal: Refusal, story: &str) -> Result<T, NotDone> {
    Err(NotDone { refusal, story: story.to_owned() })
}

impl From<IoError> for NotDone {
    fn from(error: IoError) -> Self {
        let refusal = match error.kind() {
            IoErrorKind::NoSpace => Refusal::NoSpace,
            IoErrorKind::ReadOnly | IoErrorKind::PermissionDenied => Refusal::Permission,
            IoErrorKind::Unaligned | IoErrorKind::OutOfRange => Refusal::Invalid,
            IoErrorKind::Unsupported => Refusal::Unsupported,
            _ => Refusal::Io,
        };
        Self { refusal, story: error.to_string() }
    }
}

/// Does what `request` asks; `data` is what a write came with.
///
/// # Errors
///
/// Nothing was done, or one cannot say what was.
pub async fn perform(agreed: &Agreed, request: Request, data: Option<Buffer>) -> Result<Done, NotDone> {
    let export = &agreed.export;
    check(agreed, &request)?;
    let (at, length) = (ByteOffset(request.offset), ByteCount(request.length.into()));
    let stability = export.stability(request.flags & flag::FUA != 0);
    match request.command {
        Command::Read => {
            let into = vec![Buffer::zeroed(request.length as usize)];
            let mut read = export.device.read(at, into).await?;
            Ok(Done::Data(request.offset, read.pop().expect("the buffer comes back")))
        }
        Command::Write => {
            let data = Arc::new(data.expect("a write comes with its data"));
            export.device.write(at, vec![data], stability).await?;
            Ok(Done::Nothing)
        }
        Command::Flush => {
            export.device.flush().await?;
            Ok(Done::Nothing)
        }
        Command::Trim => {
            export.device.discard(at, length).await?;
            if stability == Stability::Stable {
                export.device.flush().await?;
            }
            Ok(Done::Nothing)
        }
        // A hint: what is read soon is read then.
        Command::Cache => Ok(Done::Nothing),
        Command::WriteZeroes => {
            write_zeroes(export, &request, stability).await?;
            Ok(Done::Nothing)
        }
        Command::BlockStatus => Ok(Done::Status(status(export, &request).await?)),
        Command::Disconnect | Command::Other(_) => refuse(Refusal::Invalid, "this command is not known"),
    }
}

/// What can be said against a request before anything is done.
fn check(agreed: &Agreed, request: &Request) -> Result<(), NotDone> {
    let geometry = agreed.export.device.geometry();
    let changes = matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes);
    if request.flags & !flag::ALL != 0 {
        return refuse(Refusal::Invalid, "it has flags that are not known");
    }
    if changes && agreed.export.is_read_only {
        return refuse(Refusal::Permission, "the export is read-only");
    }
    if matches!(request.command, Command::Flush | Command::Disconnect | Command::Other(_)) {
        return Ok(());
    }
    let sector = u64::from(geometry.sector);
    if request.length == 0 {
        return refuse(Refusal::Invalid, "it concerns no bytes");
    }
    if !request.offset.is_multiple_of(sector) || !u64::from(request.length).is_multiple_of(sector) {
        return refuse(Refusal::Invalid, "it is not in whole sectors");
    }
    let end = request.offset.checked_add(request.length.into());
    if end.is_none_or(|end| end > geometry.size.0) {
        let refusal = if changes { Refusal::NoSpace } else { Refusal::Invalid };
        return refuse(refusal, "it goes beyond the end");
    }
    if request.command == Command::Read && request.length > PAYLOAD_BYTES_MAX {
        return refuse(Refusal::Overflow, "it reads more than 32 MiB");
    }
    if request.command == Command::BlockStatus && !agreed.has_allocation {
        return refuse(Refusal::Invalid, "no metadata context was agreed on");
    }
    Ok(())
}

async fn write_zeroes(export: &Rc<Export>, request: &Request, stability: Stability) -> Result<(), NotDone> {
    let (at, length) = (ByteOffset(request.offset), u64::from(request.length));
    if let Some(sparse) = &export.sparse {
        let keeps_space = request.flags & flag::NO_HOLE != 0;
        match sparse.write_zeroes(at, ByteCount(length), keeps_space, stability).await {
            Err(error) if error.kind() == IoErrorKind::Unsupported => {}
            done => return Ok(done?),
        }
    }
    if request.flags & flag::FAST_ZERO != 0 {
        return refuse(Refusal::Unsupported, "zeroes would have to be written");
    }
    let zeroes = Arc::new(Buffer::zeroed(ZEROES_BYTES.min(length as usize)));
    let mut done = 0;
    while done < length {
        let count = (length - done).min(zeroes.len() as u64);
        let piece = match count == zeroes.len() as u64 {
            true => Arc::clone(&zeroes),
            false => Arc::new(Buffer::zeroed(count as usize)),
        };
        export.device.write(ByteOffset(at.0 + done), vec![piece], stability).await?;
        done += count;
    }
    Ok(())
}

/// The extents of `base:allocation`, as the data of a chunk.
async fn status(export: &Rc<Export>, request: &Request) -> Result<Vec<u8>, NotDone> {
    let (at, length) = (ByteOffset(request.offset), ByteCount(request.length.into()));
    let extents = match &export.sparse {
        Some(sparse) => sparse.extents(at, length).await?,
        None => vec![Extent { length, is_hole: false, is_zero: false }],
    };
    let most = if request.flags & flag::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
    let mut data = ALLOCATION_ID.to_be_bytes().to_vec();
    let mut left = length.0;
    for piece in extents.iter().take(most) {
        let length = piece.length.0.min(left) as u32;
        let hole = if piece.is_hole { extent::HOLE } else { 0 };
        let zero = if piece.is_zero { extent::ZERO } else { 0 };
        data.extend(length.to_be_bytes());
        data.extend((hole | zero).to_be_bytes());
        left -= u64::from(length);
    }
    Ok(data)
}
