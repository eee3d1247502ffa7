//! The task that writes the log.
//!
//! Invariants:
//!
//! 1. One write in flight; each is `Stable` and complete before the next starts.
//! 2. `shadowed == Some(s)`: segment s is partial, and s+1 holds its byte-identical copy.
//! 3. A segment with a shadow is rewritten alone; the shadow's place is overwritten only afterwards.
//! 4. A generation is written only once its file's name and header are stable.

use super::{
    LogError, RecoveredTail,
    buffer::{Batch, BatchSegment},
    file_header::LogFileHeader,
    files::LogFileRole,
    handle::Shared,
    names::LogFileName,
    next_file::NextFile,
    segment::{SEGMENT_BYTES, seal_segment},
};
use crate::format::header::{LogPosition, LogTime, Signature};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, File, IoError, IoErrorKind, Stability, World};

pub(super) struct Writer {
    shared: Rc<Shared>,
    /// The current generation.
    file: Rc<dyn File>,
    header: LogFileHeader,
    /// `None` only during a roll.
    next_file: Option<NextFile>,
    shadowed: Option<u16>,
    /// XOR of the checksums of the sealed segments of this generation.
    accumulated: u64,
    /// End of the records written so far.
    written_end: LogPosition,
}

impl Writer {
    /// Creates generation 1 of a new log.
    pub(super) async fn begin_log(shared: Rc<Shared>, signature: Signature) -> Result<Self, LogError> {
        refuse_existing(&shared).await?;
        let header = LogFileHeader {
            generation: 1,
            segments: shared.config.segments_per_file(),
            database_page_size: shared.config.database_page_size,
            created: log_time(&shared.world),
            previous_created: LogTime::default(),
            signature,
            circular: shared.config.circular,
            previous_accumulated: 0,
            previous_end: Some(LogPosition::default()),
        };
        let file = NextFile::start(&shared).finish().await?;
        install(&shared, &file, &header, None).await?;
        Ok(Self::new(shared, file, header))
    }

    /// Creates the generation after a recovered log.
    pub(super) async fn continue_after(shared: Rc<Shared>, tail: RecoveredTail) -> Result<Self, LogError> {
        // If only the process died, the contents and names that recovery read may not be stable yet.
        let last = shared.directory.open(&tail.role.name(&shared.names, tail.header.generation)).await?;
        last.flush().await?;
        shared.directory.sync().await?;
        let mut current = tail.current;
        if tail.role == LogFileRole::Temporary {
            // The crash came between the renames of a roll: finish it.
            rename_to_current(&shared, current).await?;
            current = Some(tail.header.generation);
        }

        let file = NextFile::start(&shared).finish().await?;
        let header = successor(&shared, &tail.header, tail.position, tail.accumulated);
        install(&shared, &file, &header, current).await?;
        Ok(Self::new(shared, file, header))
    }

    fn new(shared: Rc<Shared>, file: Rc<dyn File>, header: LogFileHeader) -> Self {
        let written_end = super::buffer::first_position(header.generation);
        let next_file = Some(NextFile::start(&shared));
        Self { shared, file, header, next_file, shadowed: None, accumulated: 0, written_end }
    }

    /// Writes on request until the log is closed or a write fails.
    pub(super) async fn run(mut self) {
        loop {
            match self.next_batch() {
                Work::Write(batch) => match self.write_batch(batch).await {
                    Ok(()) => self.shared.advance(self.written_end),
                    Err(failure) => {
                        self.shared.fail(failure);
                        break;
                    }
                },
                Work::Roll => match self.roll().await {
                    Ok(()) => self.shared.advance(self.written_end),
                    Err(failure) => {
                        self.shared.fail(failure);
                        break;
                    }
                },
                Work::Wait => self.shared.work.notified().await,
                Work::Stop => break,
            }
        }
        if let Some(next_file) = self.next_file.take() {
            next_file.stop().await;
        }
    }

    fn next_batch(&self) -> Work {
        let mut state = self.shared.state.borrow_mut();
        let (stable, requested, held) = (state.stable, state.requested, state.held);
        if requested > stable {
            if let Some(batch) = state.buffer.take_batch(stable, requested, held) {
                return Work::Write(batch);
            }
            let generation = held.map_or(requested.generation, |held| held.min(requested.generation));
            if generation > self.header.generation {
                return Work::Roll;
            }
        }
        if state.closing { Work::Stop } else { Work::Wait }
    }

    async fn write_batch(&mut self, batch: Batch) -> Result<(), LogError> {
        if batch.generation != self.header.generation {
            assert_eq!(batch.generation, self.header.generation + 1, "a generation was skipped");
            self.roll().await?;
        }
        let mut segments = batch.segments;
        if let Some(shadowed) = self.shadowed {
            let first = segments.remove(0);
            assert_eq!(first.segment, shadowed, "a partial segment must be written before what follows it");
            let sealed = first.sealed;
            let rewritten = self.write_segments(vec![first]).await?;
            if sealed {
                self.shadowed = None;
            } else {
                assert!(segments.is_empty());
                self.write_shadow(shadowed, rewritten).await?;
            }
        }
        let partial = segments.pop_if(|last| !last.sealed);
        if !segments.is_empty() {
            self.write_segments(segments).await?;
        }
        if let Some(partial) = partial {
            self.write_with_shadow(partial).await?;
        }
        let fill =
            u64::from(self.written_end.segment) * SEGMENT_BYTES as u64 + u64::from(self.written_end.offset);
        self.next_file.as_ref().expect("no roll is in progress").set_fill(ByteCount(fill));
        Ok(())
    }

    /// Writes consecutive segments in one operation; returns their buffers.
    async fn write_segments(&mut self, segments: Vec<BatchSegment>) -> Result<Vec<Arc<Buffer>>, LogError> {
        let first = segments[0].segment;
        let sealed = self.seal(segments);
        self.write(first, sealed.clone()).await?;
        Ok(sealed)
    }

    /// Writes a new partial segment and its shadow in one operation.
    async fn write_with_shadow(&mut self, partial: BatchSegment) -> Result<(), LogError> {
        let segment = partial.segment;
        let mut buffers = self.seal(vec![partial]);
        buffers.push(Arc::clone(&buffers[0]));
        self.write(segment, buffers).await?;
        self.shared.state.borrow_mut().statistics.shadow_writes += 1;
        self.shadowed = Some(segment);
        Ok(())
    }

    /// Writes the shadow of a rewritten partial segment.
    async fn write_shadow(&mut self, segment: u16, copy: Vec<Arc<Buffer>>) -> Result<(), LogError> {
        self.write(segment + 1, copy).await?;
        self.shared.state.borrow_mut().statistics.shadow_writes += 1;
        Ok(())
    }

    /// Fills in the headers of the segments of one write.
    fn seal(&mut self, segments: Vec<BatchSegment>) -> Vec<Arc<Buffer>> {
        let time = log_time(&self.shared.world);
        let first = segments[0].segment;
        let mut sealed = Vec::with_capacity(segments.len());
        for (index, mut segment) in segments.into_iter().enumerate() {
            let end = LogPosition {
                generation: self.header.generation,
                segment: segment.segment,
                offset: segment.used,
            };
            assert_eq!(usize::from(segment.segment), usize::from(first) + index, "a gap within a write");
            assert!(segment.segment <= self.header.last_data_segment());
            assert!(self.written_end <= end && end.segment - self.written_end.segment <= 1);
            let checksum =
                seal_segment(&mut segment.bytes, self.header.generation, segment.segment, time, first);
            if segment.sealed {
                self.accumulated ^= checksum;
            }
            self.written_end = end;
            sealed.push(Arc::new(segment.bytes));
        }
        sealed
    }

    async fn write(&self, segment: u16, buffers: Vec<Arc<Buffer>>) -> Result<(), LogError> {
        let length = buffers.len() as u64 * SEGMENT_BYTES as u64;
        let at = ByteOffset(u64::from(segment) * SEGMENT_BYTES as u64);
        self.file.write(at, buffers, Stability::Stable).await?;
        let mut state = self.shared.state.borrow_mut();
        state.statistics.writes += 1;
        state.statistics.bytes += ByteCount(length);
        Ok(())
    }

    /// Continues in the next generation. All of this one must be written, and its last segment sealed.
    async fn roll(&mut self) -> Result<(), LogError> {
        assert!(self.shadowed.is_none(), "the last segment of a generation is sealed before the next begins");
        let next_file = self.next_file.take().expect("one roll at a time");
        let file = next_file.finish().await?;
        let header = successor(&self.shared, &self.header, self.written_end, self.accumulated);
        install(&self.shared, &file, &header, Some(self.header.generation)).await?;
        self.shared.state.borrow_mut().statistics.rolls += 1;
        *self = Self::new(Rc::clone(&self.shared), file, header);
        Ok(())
    }
}

enum Work {
    Write(Batch),
    /// Begin the next generation, although no record of it is to be written.
    Roll,
    Wait,
    Stop,
}

/// The header of the generation after `header`, whose records end at `end`.
fn successor(shared: &Shared, header: &LogFileHeader, end: LogPosition, accumulated: u64) -> LogFileHeader {
    assert_eq!(end.generation, header.generation);
    LogFileHeader {
        generation: header.generation + 1,
        segments: shared.config.segments_per_file(),
        database_page_size: shared.config.database_page_size,
        created: log_time(&shared.world),
        previous_created: header.created,
        signature: header.signature,
        circular: shared.config.circular,
        previous_accumulated: accumulated,
        previous_end: Some(end),
    }
}

/// Makes a prepared file the current one: header first, then the names. `current` is the generation that has
/// the current name now.
async fn install(
    shared: &Shared,
    file: &Rc<dyn File>,
    header: &LogFileHeader,
    current: Option<u32>,
) -> Result<(), LogError> {
    let bytes = Arc::new(Buffer::copy_of(&header.encode()));
    file.write(ByteOffset(0), vec![bytes], Stability::Stable).await?;
    rename_to_current(shared, current).await
}

/// Archives the file of generation `current`, then gives the temporary file the current name. Each step is
/// stable before the next, so no lost rename can drop the archived file.
async fn rename_to_current(shared: &Shared, current: Option<u32>) -> Result<(), LogError> {
    let (directory, names) = (&shared.directory, &shared.names);
    if let Some(generation) = current {
        directory.rename(&names.current(), &names.archived(generation)).await?;
        directory.sync().await?;
        shared.state.borrow_mut().archived.insert(generation);
    }
    directory.rename(&names.temporary(), &names.current()).await?;
    directory.sync().await?;
    Ok(())
}

/// Refuses to create a log over an existing one. Remains of an interrupted creation are ignored.
async fn refuse_existing(shared: &Shared) -> Result<(), LogError> {
    for entry in shared.directory.list().await? {
        if matches!(shared.names.parse(&entry.name), Some(LogFileName::Current | LogFileName::Archived(_))) {
            let context =
                format!("creating a log in {}: {} exists already", shared.directory.describe(), entry.name);
            return Err(IoError::new(IoErrorKind::AlreadyExists, context).into());
        }
    }
    Ok(())
}

/// Civil time now, as headers store it.
fn log_time(world: &World) -> LogTime {
    let wall = world.wall();
    let seconds = u64::try_from(wall.seconds).unwrap_or(0);
    LogTime::from_unix_ms(seconds * 1000 + u64::from(wall.nanos / 1_000_000))
}
