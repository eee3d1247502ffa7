//! The checkpoint file: the log position at which recovery starts.
//!
//! ```text
//! two copies of 4096 B, written one after the other, the older one first, so that one is always whole:
//!   0 u32 OLD checksum   4 LGPOS full backup, zero   12 LGPOS checkpoint   20 SIGNATURE of the log
//!  48 parameters, zero  647 u8 version 1   648 LGPOS database consistency   667 u32 file type 4
//! 3984 10 x u64 numbers of the page stamps relied on, 0 for none *
//! 4072 u16 databases of the group *   4080 u64 number of the write *   4088 u64 stamp *
//! ```
//!
//! Fields marked * are this engine's own, in bytes the format does not use.

use super::{LogNames, stamp::stamp};
use crate::{
    config::DATABASES_MAX,
    format::{
        checksum::old_xor,
        header::{LogPosition, Signature},
    },
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, Directory, File, IoError, IoErrorKind, IoResult, Stability};

const COPY_BYTES: usize = 4096;
const COPIES: u64 = 2;
const FILE_TYPE_CHECKPOINT: u32 = 4;
const VERSION: u8 = 1;
const STAMPS_AT: usize = 3984;

const _: () = assert!(STAMPS_AT + DATABASES_MAX * 8 <= 4072);

/// Contents of the checkpoint file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogCheckpoint {
    /// Recovery starts here: every change logged before is stable in the databases.
    pub position: LogPosition,
    /// All databases were consistent up to here when the checkpoint was taken; zero if not tracked.
    pub consistent: LogPosition,
    /// Number of databases of the group. One of them that is missing later has been lost, and is not created
    /// again.
    pub databases: u16,
    /// Signature of the log.
    pub signature: Signature,
    /// By database: number of the page stamp flush that was stable before this checkpoint; 0 for none. A
    /// sidecar with a lower number is from an older state of the database.
    pub stamps: [u64; DATABASES_MAX],
}

/// The open checkpoint file. One write at a time.
pub struct CheckpointFile {
    file: Rc<dyn File>,
    writes: Cell<u64>,
    /// The copy to write next: never the only good one.
    next_copy: Cell<u64>,
}

impl CheckpointFile {
    /// Opens or creates the file. Also returns its newest checkpoint: `None` if there never was one, or if
    /// neither copy can be read; recovery then starts with the oldest log.
    pub async fn open(
        directory: &Rc<dyn Directory>,
        base_name: &str,
    ) -> IoResult<(Self, Option<LogCheckpoint>)> {
        let name = LogNames::new(base_name).checkpoint();
        let file = match directory.open(&name).await {
            Ok(file) => file,
            Err(error) if error.kind() == IoErrorKind::NotFound => {
                let file = directory.create(&name, ByteCount(COPIES * COPY_BYTES as u64)).await?;
                directory.sync().await?;
                file
            }
            Err(error) => return Err(error),
        };
        let newest = Self::newest_in(&file, directory, &name).await?;
        let writes = Cell::new(newest.map_or(0, |(number, ..)| number));
        let next_copy = Cell::new(newest.map_or(0, |(_, copy, _)| other(copy)));
        Ok((Self { file, writes, next_copy }, newest.map(|(.., checkpoint)| checkpoint)))
    }

    /// The newest checkpoint, read without changing anything; `None` as for [`Self::open`], and if there is
    /// no file.
    pub async fn read(directory: &Rc<dyn Directory>, base_name: &str) -> IoResult<Option<LogCheckpoint>> {
        let name = LogNames::new(base_name).checkpoint();
        let file = match directory.open(&name).await {
            Ok(file) => file,
            Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let newest = Self::newest_in(&file, directory, &name).await?;
        Ok(newest.map(|(.., checkpoint)| checkpoint))
    }

    /// The newest checkpoint in a file, with its write number and its copy.
    async fn newest_in(
        file: &Rc<dyn File>,
        directory: &Rc<dyn Directory>,
        name: &str,
    ) -> IoResult<Option<(u64, u64, LogCheckpoint)>> {
        if file.geometry().size.0 < COPIES * COPY_BYTES as u64 {
            // Spindle creates the file in its full size: a shorter one is not ours, or was truncated.
            let context = format!("{name} in {} is truncated", directory.describe());
            return Err(IoError::new(IoErrorKind::Damaged, context));
        }
        let mut newest: Option<(u64, u64, LogCheckpoint)> = None;
        for copy in 0..COPIES {
            let read =
                file.read(ByteOffset(copy * COPY_BYTES as u64), vec![Buffer::zeroed(COPY_BYTES)]).await;
            let bytes = match read {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == IoErrorKind::Medium => continue,
                Err(error) => return Err(error),
            };
            if let Some((number, checkpoint)) = decode(&bytes[0])
                && newest.is_none_or(|(other, ..)| other < number)
            {
                newest = Some((number, copy, checkpoint));
            }
        }
        Ok(newest)
    }

    /// Writes a checkpoint, stable on return. After an error or a crash the file holds this checkpoint or the
    /// one before.
    pub async fn write(&self, checkpoint: &LogCheckpoint) -> IoResult<()> {
        let number = self.writes.get() + 1;
        self.writes.set(number);
        let bytes = Arc::new(Buffer::copy_of(&encode(number, checkpoint)));
        for _ in 0..COPIES {
            let copy = self.next_copy.get();
            let at = ByteOffset(copy * COPY_BYTES as u64);
            self.file.write(at, vec![Arc::clone(&bytes)], Stability::Stable).await?;
            self.next_copy.set(other(copy));
        }
        Ok(())
    }
}

fn other(copy: u64) -> u64 {
    COPIES - 1 - copy
}

fn encode(number: u64, checkpoint: &LogCheckpoint) -> [u8; COPY_BYTES] {
    let mut bytes = [0; COPY_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(12, &checkpoint.position.encode());
    put(20, &checkpoint.signature.encode());
    put(647, &[VERSION]);
    put(648, &checkpoint.consistent.encode());
    put(667, &FILE_TYPE_CHECKPOINT.to_le_bytes());
    for (index, number) in checkpoint.stamps.iter().enumerate() {
        put(STAMPS_AT + index * 8, &number.to_le_bytes());
    }
    put(4072, &checkpoint.databases.to_le_bytes());
    put(4080, &number.to_le_bytes());
    let own = stamp(number, &[&bytes[8..4088]]);
    bytes[4088..].copy_from_slice(&own.to_le_bytes());
    let checksum = old_xor(&bytes);
    bytes[0..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<(u64, LogCheckpoint)> {
    let bytes: &[u8; COPY_BYTES] = bytes.try_into().ok()?;
    let number = u64::from_le_bytes(*field(bytes, 4080));
    let verifies = u32::from_le_bytes(*field(bytes, 0)) == old_xor(bytes)
        && u32::from_le_bytes(*field(bytes, 667)) == FILE_TYPE_CHECKPOINT
        && u64::from_le_bytes(*field(bytes, 4088)) == stamp(number, &[&bytes[8..4088]]);
    verifies.then(|| {
        let checkpoint = LogCheckpoint {
            position: LogPosition::decode(field(bytes, 12)),
            consistent: LogPosition::decode(field(bytes, 648)),
            databases: u16::from_le_bytes(*field(bytes, 4072)),
            signature: Signature::decode(field(bytes, 20)),
            stamps: std::array::from_fn(|index| u64::from_le_bytes(*field(bytes, STAMPS_AT + index * 8))),
        };
        (number, checkpoint)
    })
}

fn field<const N: usize>(bytes: &[u8; COPY_BYTES], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("the field is in the copy")
}
