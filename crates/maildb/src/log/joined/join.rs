//! Bringing a proven chain into the folder of the base.

use super::{JoinedLog, LogJoinError};
use crate::{
    log::{LogError, LogReader, buffer::first_position, files::LogFile, segment::SEGMENT_BYTES},
    planted::{self, LogBug},
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, File, IoError, IoErrorKind, Stability};

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
            self.bring(generation).await.map_err(problem)?;
        }
        let end = self.end_in_base().await.map_err(problem)?;
        if end == self.summary.end {
            return Ok(());
        }
        let context = format!("the joined log ends in generation {:#X}, not as proven", end.generation);
        Err(problem(IoError::new(IoErrorKind::Damaged, context).into()))
    }

    /// Copies a generation under a foreign name, then gives it the name that it has in the base.
    async fn bring(&self, generation: u32) -> Result<(), LogError> {
        let (directory, names) = (&self.base.directory, &self.files.names);
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
        directory.rename(&temporary, &self.name_in_base(generation).await?).await?;
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

    /// The generation that the base was writing keeps its name; the others are archived.
    async fn name_in_base(&self, generation: u32) -> Result<String, LogError> {
        let names = &self.files.names;
        let found = super::LogFiles::scan(&self.base.directory, names.base()).await?;
        let role = found.files.get(&generation).map(|file| file.role);
        Ok(role.map_or(names.archived(generation), |role| role.name(names, generation)))
    }

    /// Reads what the base's folder holds now, from the base's own end on.
    async fn end_in_base(&self) -> Result<crate::format::header::LogPosition, LogError> {
        let found = super::LogFiles::scan(&self.base.directory, self.files.names.base()).await?;
        let mut reader = LogReader::new(found, first_position(self.summary.base_end.generation));
        while reader.next().await?.is_some() {}
        Ok(reader.into_tail().position)
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
