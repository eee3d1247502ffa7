//! Reads a log for recovery: every record from a position to the end, across files.
//!
//! The log ends with its last whole record: a long record whose last part did not reach the disk does not
//! count. Each file is read once, in reads of 512 KiB, and only one is in memory at a time.

use super::{
    Damage, LogError, LogFiles,
    buffer::first_position,
    file_header::LogFileHeader,
    files::LogFileRole,
    framing::{Item, item_at},
    generation::{Generation, last_with_records},
    record::LogRecord,
    segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES},
};
use crate::format::header::LogPosition;
use std::collections::BTreeSet;

/// A record and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRecord {
    /// Position of its first byte.
    pub start: LogPosition,
    /// Position behind its last byte.
    pub end: LogPosition,
    pub record: LogRecord,
}

/// The end of a log that was read: input of [`super::LogHandle::continue_after`].
#[derive(Clone, Debug)]
pub struct RecoveredTail {
    /// End of the last whole record.
    pub position: LogPosition,
    /// Header of the newest generation.
    pub header: LogFileHeader,
    /// Number of generations read.
    pub generations: u32,
    pub(super) accumulated: u64,
    pub(super) role: LogFileRole,
    pub(super) current: Option<u32>,
    pub(super) archived: BTreeSet<u32>,
}

/// The part of a log that redo replays.
#[derive(Clone, Copy, Debug)]
pub struct ReplayRange {
    /// Position of the first record to replay.
    pub from: LogPosition,
    /// End of the log when it was opened.
    pub until: LogPosition,
}

/// Yields the records of a log in order.
pub struct LogReader {
    files: LogFiles,
    from: LogPosition,
    /// Last generation to read, and its last segment unless it is read to its end.
    last: Option<(u32, Option<u16>)>,
    loaded: Option<Generation>,
    /// Position of the next item, while a generation is loaded.
    cursor: LogPosition,
    /// End of the last whole record.
    end: LogPosition,
    long: Option<LongRecord>,
    generations: u32,
    tail: Option<RecoveredTail>,
}

/// A record whose fragments are only partly read.
struct LongRecord {
    start: LogPosition,
    total: usize,
    bytes: Vec<u8>,
}

impl LogReader {
    /// Reads from `from`, the start or end of a record. Requires all files from its generation on.
    pub fn new(files: LogFiles, from: LogPosition) -> Self {
        Self {
            files,
            from,
            last: None,
            loaded: None,
            cursor: from,
            end: from,
            long: None,
            generations: 0,
            tail: None,
        }
    }

    /// Reads from the first record of the oldest generation that is connected to the newest. Fails if there
    /// is no log.
    pub fn from_oldest(files: LogFiles) -> Result<Self, LogError> {
        // Without a connected generation this names the newest one, which is then reported as damaged or
        // missing.
        let generation = files.oldest().or(files.newest()).unwrap_or(1);
        files.get(generation)?;
        Ok(Self::new(files, first_position(generation)))
    }

    /// Ends in `generation`, and behind a segment of it if one is given.
    pub(super) fn ending_in(mut self, generation: u32, segment: Option<u16>) -> Self {
        self.last = Some((generation, segment));
        self
    }

    /// The generation that is being read.
    pub(super) fn generation(&self) -> u32 {
        self.cursor.generation
    }

    /// The next record; `None` at the end of the log. The reader must not be used after an error.
    pub async fn next(&mut self) -> Result<Option<LoggedRecord>, LogError> {
        while self.tail.is_none() {
            if self.loaded.is_none() {
                self.load().await?;
            }
            if let Some(entry) = self.next_in_generation()? {
                return Ok(Some(entry));
            }
            self.leave_generation()?;
        }
        Ok(None)
    }

    /// The end of the log. Call it only after `next` returned `None`.
    pub fn into_tail(self) -> RecoveredTail {
        self.tail.expect("a log is read to its end before it is continued")
    }

    async fn load(&mut self) -> Result<(), LogError> {
        let generation = self.cursor.generation;
        let first_needed = if generation == self.from.generation { self.cursor.segment } else { 1 };
        let mut loaded = Generation::load(&self.files, generation, first_needed).await?;
        if let Some((last, Some(segment))) = self.last
            && last == generation
        {
            loaded.end_behind(segment);
        }
        self.loaded = Some(loaded);
        self.generations += 1;
        Ok(())
    }

    /// The next record of the loaded generation; `None` at its end.
    fn next_in_generation(&mut self) -> Result<Option<LoggedRecord>, LogError> {
        let Some(loaded) = &self.loaded else { return Ok(None) };
        loop {
            if loaded.recorded_end.is_some_and(|end| self.cursor >= end) {
                return Ok(None);
            }
            if usize::from(self.cursor.offset) >= SEGMENT_BYTES {
                self.cursor.segment += 1;
                self.cursor.offset = SEGMENT_HEADER_BYTES as u16;
                continue;
            }
            if self.cursor.segment > loaded.last {
                return Ok(None);
            }
            let here = self.cursor;
            let damaged = |damage| loaded.damaged(here.segment, damage);
            let (item, offset) = item_at(loaded.segment(here.segment), here.offset)
                .map_err(|error| damaged(Damage::Record(error)))?;
            self.cursor.offset = offset;
            match item {
                Item::Fill => {}
                Item::Whole(record) if self.long.is_none() => {
                    self.end = self.cursor;
                    return Ok(Some(LoggedRecord { start: here, end: self.cursor, record }));
                }
                Item::Begin { total, part } if self.long.is_none() => {
                    self.long = Some(LongRecord { start: here, total, bytes: part.to_vec() });
                }
                Item::Continue(part) if usize::from(here.offset) == SEGMENT_HEADER_BYTES => {
                    let long = self.long.as_mut().ok_or_else(|| damaged(Damage::Fragment))?;
                    long.bytes.extend_from_slice(part);
                    if long.bytes.len() >= long.total {
                        let (start, record) = long.decode().map_err(damaged)?;
                        self.long = None;
                        self.end = self.cursor;
                        return Ok(Some(LoggedRecord { start, end: self.cursor, record }));
                    }
                }
                Item::Whole(_) | Item::Begin { .. } | Item::Continue(_) => {
                    return Err(damaged(Damage::Fragment));
                }
            }
        }
    }

    /// At the end of a generation: continues with the next, or ends the log.
    fn leave_generation(&mut self) -> Result<(), LogError> {
        let Some(loaded) = self.loaded.take() else { return Ok(()) };
        let generation = loaded.header.generation;
        if let Some(recorded) = loaded.recorded_end {
            // An empty generation ends where its first record would start.
            if self.end.max(first_position(generation)) != recorded || self.long.is_some() {
                return Err(loaded.damaged(recorded.segment, Damage::WrongEnd));
            }
            if self.last.is_none_or(|(last, _)| last > generation) {
                self.cursor = first_position(generation + 1);
                return Ok(());
            }
        }
        // An unfinished record was never acknowledged.
        self.long = None;
        let position = self.end.max(first_position(generation));
        if last_with_records(position) > loaded.last {
            return Err(loaded.damaged(loaded.last + 1, Damage::EndsBefore(self.from)));
        }
        self.tail = Some(RecoveredTail {
            position,
            header: loaded.header,
            generations: self.generations,
            accumulated: loaded.accumulated(position),
            role: loaded.role,
            current: self.files.current(),
            archived: self.files.archived(),
        });
        Ok(())
    }
}

impl LongRecord {
    fn decode(&self) -> Result<(LogPosition, LogRecord), Damage> {
        if self.bytes.len() != self.total {
            return Err(Damage::Fragment);
        }
        match LogRecord::decode(&self.bytes) {
            Ok((record, consumed)) if consumed == self.total => Ok((self.start, record)),
            Ok(_) => Err(Damage::Fragment),
            Err(error) => Err(Damage::Record(error)),
        }
    }
}
