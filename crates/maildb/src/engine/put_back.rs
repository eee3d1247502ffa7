//! One database of a group put back from an earlier copy of the group.
//!
//! The group shares one log, so an older file beside it must be replayed from where its own copy's checkpoint was. Its
//! checkpoint goes back to there; the pages of the other databases are newer than those records, and redo leaves them as
//! they are. The log must reach from that checkpoint to its end without a gap
//! ([`JoinedLog::complete`](crate::log::JoinedLog::complete)); an ordinary recovery then brings the database to the end of the log.
//!
//! Invariant: of the other databases no byte is changed here, and of the log nothing but the checkpoint.

use super::page_stamps;
use crate::{
    config::DatabaseLocation,
    error::{Error, Result},
    log::{CheckpointFile, LogCheckpoint},
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, Directory, IoErrorKind, Stability};

/// Size of one read and write.
const CHUNK_BYTES: u64 = 1024 * 1024;

/// The files of a stopped group as far as one database of it is concerned.
#[derive(Clone)]
pub struct DatabasePlace {
    /// Folder of the group's log.
    pub log: Rc<dyn Directory>,
    pub database: DatabaseLocation,
    /// Place of the database in its group, counted from 0.
    pub index: usize,
}

/// Copies a database with its page stamps from an earlier copy of its group, in place of what is there, and lets recovery begin
/// where that copy's would. Both groups are stopped. Not atomic: one that ended early is to be done again.
///
/// # Errors
///
/// A file cannot be read or written; the earlier copy has no checkpoint, or that of another group; or the group has no
/// checkpoint, which says how far its other databases are.
pub async fn put_back(base_name: &str, from: &DatabasePlace, into: &DatabasePlace) -> Result<()> {
    let earlier = checkpoint_of(&from.log, base_name).await?;
    let present = checkpoint_of(&into.log, base_name).await?;
    if earlier.signature != present.signature {
        let problem = format!("{} belongs to another storage group's log", from.database.file_name);
        return Err(Error::Configuration(problem));
    }
    let mut stamps = present.stamps;
    stamps[from.index] = earlier.stamps[from.index];
    let checkpoint = LogCheckpoint {
        position: earlier.position.min(present.position),
        consistent: earlier.consistent.min(present.consistent),
        stamps,
        ..present
    };
    let (checkpoint_file, _) = CheckpointFile::open(&into.log, base_name).await?;
    checkpoint_file.write(&checkpoint).await?;
    let database = &from.database.file_name;
    copy_file(&from.database.directory, &into.database.directory, database).await?;
    copy_file(&from.database.directory, &into.database.directory, &page_stamps::file_name(database)).await
}

async fn checkpoint_of(log: &Rc<dyn Directory>, base_name: &str) -> Result<LogCheckpoint> {
    CheckpointFile::read(log, base_name).await?.ok_or_else(|| {
        Error::Configuration(format!("{} has no checkpoint of its storage group", log.describe()))
    })
}

/// Makes a file as it is in another folder; stable on return. One that is not there is removed.
async fn copy_file(from: &Rc<dyn Directory>, into: &Rc<dyn Directory>, name: &str) -> Result<()> {
    match into.remove(name).await {
        Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error.into()),
        _ => into.sync().await?,
    }
    let source = match from.open(name).await {
        Ok(source) => source,
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let size = source.geometry().size;
    let target = into.create(name, size).await?;
    for at in (0..size.0).step_by(CHUNK_BYTES as usize) {
        let length = CHUNK_BYTES.min(size.0 - at) as usize;
        let mut read = source.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await?;
        let chunk = Arc::new(read.pop().expect("a read returns its buffer"));
        target.write(ByteOffset(at), vec![chunk], Stability::Volatile).await?;
    }
    target.flush().await?;
    into.sync().await?;
    Ok(())
}
