//! Bringing a proven chain into the folder of the base.

use super::{JoinedLog, LogFolder, LogJoinError};
use crate::{
    log::{LogError, LogReader, buffer::first_position, files::LogFile, segment::SEGMENT_BYTES},
    planted::{self, LogBug},
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, Directory, File, IoError, IoErrorKind, Stability};

/// Size of one read and write.
const CHUNK_BYTES: u64 = 512 * 1024;

impl JoinedLog {
    /// Makes the base's folder hold the whole chain, stable on return, and nothing that recovery would replay
    /// behind its end.
    pub async fn join(&self) -> Result<(), LogJoinError> {
        let problem = |error: LogError| LogJoinError::Joining { folder: self.base.name.clone(), error };
        let lacking = self.summary.parts.iter().flat_map(|part| part.first..=part.last);
        for generation in lacking {
            let is_last = generation == self.summary.end.generation;
            if is_last && planted::is_log(LogBug::GenerationLeftOut) {
                continue;
            }
            self.bring(&self.base.directory, generation).await.map_err(problem)?;
        }
        let first = self.summary.base_end.generation;
        self.check_end(&self.base.directory, first).await.map_err(problem)
    }

    /// Makes another folder, which holds the end of the chain, hold all of it, stable on return: the running group's, so that a
    /// database of the base is replayed there.
    ///
    /// # Errors
    ///
    /// The storage failed, or the folder's log ends elsewhere than the chain.
    pub async fn complete(&self, folder: &LogFolder) -> Result<(), LogJoinError> {
        let problem = |error: LogError| LogJoinError::Joining { folder: folder.name.clone(), error };
        let base_name = self.files.names.base();
        let found = super::LogFiles::scan(&folder.directory, base_name).await.map_err(problem)?;
        for &generation in self.files.files.keys().filter(|generation| !found.files.contains_key(generation))
        {
            self.bring(&folder.directory, generation).await.map_err(problem)?;
        }
        let first = self.files.files.keys().next().copied().unwrap_or(self.summary.end.generation);
        self.check_end(&folder.directory, first).await.map_err(problem)
    }

    /// Copies a generation under a foreign name, then gives it the name that it has in the folder.
    async fn bring(&self, directory: &Rc<dyn Directory>, generation: u32) -> Result<(), LogError> {
        let names = &self.files.names;
        let file = *self.files.get(generation)?;
        let temporary = names.joining();
        match directory.remove(&temporary).await {
            Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let from = self.files.directory_of(generation).open(&file.role.name(names, generation)).await?;
        let size = from.geometry().size;
        let into = directory.create(&temporary, size).await?;
        copy(&from, &into, self.bytes_used(&file, size)).await?;
        into.flush().await?;
        directory.sync().await?;
        directory.rename(&temporary, &self.name_in(directory, generation).await?).await?;
        directory.sync().await?;
        Ok(())
    }

    /// Bytes of a file that are part of the chain; zeroes follow.
    fn bytes_used(&self, file: &LogFile, size: ByteCount) -> u64 {
        match self.last_segment {
            Some(last) if file.header.generation == self.summary.end.generation => {
                (u64::from(last) + 1) * SEGMENT_BYTES as u64
            }
            _ => size.0,
        }
    }

    /// The generation that a folder was writing keeps its name; the others are archived.
    async fn name_in(&self, directory: &Rc<dyn Directory>, generation: u32) -> Result<String, LogError> {
        let names = &self.files.names;
        let found = super::LogFiles::scan(directory, names.base()).await?;
        let role = found.files.get(&generation).map(|file| file.role);
        Ok(role.map_or(names.archived(generation), |role| role.name(names, generation)))
    }

    /// Reads what a folder holds now from a generation on, and refuses another end than was proven.
    async fn check_end(&self, directory: &Rc<dyn Directory>, first: u32) -> Result<(), LogError> {
        let found = super::LogFiles::scan(directory, self.files.names.base()).await?;
        let mut reader = LogReader::new(found, first_position(first));
        while reader.next().await?.is_some() {}
        let end = reader.into_tail().position;
        if end == self.summary.end {
            return Ok(());
        }
        let context = format!("the joined log ends in generation {:#X}, not as proven", end.generation);
        Err(IoError::new(IoErrorKind::Damaged, context).into())
    }
}

/// Copies the first `bytes` of a log file over a file of zeroes.
async fn copy(from: &Rc<dyn File>, into: &Rc<dyn File>, bytes: u64) -> Result<(), LogError> {
    for at in (0..bytes).step_by(CHUNK_BYTES as usize) {
        let length = CHUNK_BYTES.min(bytes - at) as usize;
        let mut read = from.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await?;
        let chunk = Arc::new(read.pop().expect("a read returns its buffer"));
        into.write(ByteOffset(at), vec![chunk], Stability::Volatile).await?;
    }
    Ok(())
}
