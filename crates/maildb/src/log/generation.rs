//! One generation in memory, and its valid segments.
//!
//! A generation with a successor must be whole up to the end recorded there. The newest one ends at the first
//! segment that neither verifies nor can be repaired from its shadow. If a later segment belongs to a write
//! that began behind that place, the bad segment had been acknowledged, and the log is damaged.

use super::{
    Damage, LogError, LogFiles,
    file_header::LogFileHeader,
    files::LogFileRole,
    segment::{
        LogSegmentState, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, inspect_segment, stored_checksum, written_at,
    },
};
use crate::format::header::{LogPosition, LogTime};
use std::rc::Rc;
use world::{Buffer, ByteOffset, File, IoError, IoErrorKind};

/// Size of one read.
const READ_BYTES: usize = 512 * 1024;
const READ_SEGMENTS: usize = READ_BYTES / SEGMENT_BYTES;

/// A generation in memory; at most one at a time.
pub(super) struct Generation {
    pub header: LogFileHeader,
    pub role: LogFileRole,
    pub file_name: String,
    /// Segments 0..header.segments.
    bytes: SegmentBytes,
    /// The last valid segment; 0 if none.
    pub last: u16,
    /// Segment `last` is bad and was replaced by its shadow.
    repaired: bool,
    /// End of the records, if a successor's header stores it.
    pub recorded_end: Option<LogPosition>,
}

impl Generation {
    /// Reads a generation and finds its end. Segments below `first_needed` are not checked.
    pub(super) async fn load(files: &LogFiles, generation: u32, first_needed: u16) -> Result<Self, LogError> {
        let entry = *files.get(generation)?;
        let file_name = entry.role.name(&files.names, generation);
        let file = files.directory_of(generation).open(&file_name).await?;
        let bytes = SegmentBytes::read(&file, entry.header.segments).await?;
        let mut loaded = Self {
            header: entry.header,
            role: entry.role,
            file_name,
            bytes,
            last: 0,
            repaired: false,
            recorded_end: None,
        };
        // Checked again with the segments: a misdirected read must not look like the end of the log.
        if LogFileHeader::decode(loaded.bytes.get(0)) != Some(loaded.header) {
            return Err(loaded.damaged(0, Damage::FileHeader));
        }
        loaded.find_last(first_needed);
        if files.newest().is_some_and(|newest| newest > generation) {
            loaded.check_successor(&files.get(generation + 1)?.header, first_needed)?;
        } else {
            loaded.check_nothing_follows()?;
        }
        Ok(loaded)
    }

    /// The bytes of a valid segment.
    pub(super) fn segment(&self, index: u16) -> &[u8] {
        assert!((1..=self.last).contains(&index));
        self.bytes.get(if index == self.last && self.repaired { index + 1 } else { index })
    }

    /// XOR of the checksums of the segments that hold records below `end`.
    pub(super) fn accumulated(&self, end: LogPosition) -> u64 {
        (1..=last_with_records(end))
            .fold(0, |accumulated, index| accumulated ^ stored_checksum(self.segment(index)))
    }

    /// Ends the generation behind a valid segment, whatever follows.
    pub(super) fn end_behind(&mut self, segment: u16) {
        if segment < self.last {
            (self.last, self.repaired) = (segment, false);
        }
        self.recorded_end = None;
    }

    /// Time at which a valid segment was written.
    pub(super) fn time_of(&self, index: u16) -> LogTime {
        written_at(self.segment(index))
    }

    pub(super) fn damaged(&self, segment: u16, damage: Damage) -> LogError {
        LogError::Damaged { file: self.file_name.clone(), segment, damage }
    }

    fn inspect(&self, index: u16) -> LogSegmentState {
        match inspect_segment(self.bytes.get(index), self.header.generation, index) {
            // Not stamped, in a file of ours: written by another program.
            LogSegmentState::Good { write_first: None } | LogSegmentState::Shadow { write_first: None } => {
                LogSegmentState::Bad
            }
            state => state,
        }
    }

    fn find_last(&mut self, first_needed: u16) {
        let last_data = self.header.last_data_segment();
        let mut index = first_needed.max(1);
        while index <= last_data && matches!(self.inspect(index), LogSegmentState::Good { .. }) {
            index += 1;
        }
        if index <= last_data && matches!(self.inspect(index + 1), LogSegmentState::Shadow { .. }) {
            self.repaired = true;
            index += 1;
        }
        self.last = index - 1;
    }

    /// The successor's header was written when all of this generation was stable: everything it promises must
    /// be there.
    fn check_successor(&mut self, next: &LogFileHeader, first_needed: u16) -> Result<(), LogError> {
        let belongs = next.signature == self.header.signature
            && next.previous_created == self.header.created
            && next.previous_end.is_some_and(|end| end.generation == self.header.generation);
        let Some(end) = next.previous_end.filter(|_| belongs) else {
            return Err(self.damaged(0, Damage::WrongChain));
        };
        let last = last_with_records(end);
        if last > self.last {
            return Err(self.damaged(self.last + 1, Damage::Segment));
        }
        if first_needed <= 1 && self.accumulated(end) != next.previous_accumulated {
            return Err(self.damaged(last, Damage::Accumulated));
        }
        self.recorded_end = Some(end);
        Ok(())
    }

    /// At the end of the newest generation, nothing after the first bad segment may have been acknowledged. A
    /// segment of a later write proves that the bad one was.
    fn check_nothing_follows(&self) -> Result<(), LogError> {
        let first_bad = if self.repaired { self.last } else { self.last + 1 };
        for index in first_bad + 1..self.header.segments {
            let (LogSegmentState::Good { write_first } | LogSegmentState::Shadow { write_first }) =
                self.inspect(index)
            else {
                continue;
            };
            if write_first.is_some_and(|first| first > first_bad) {
                return Err(self.damaged(first_bad, Damage::Segment));
            }
        }
        Ok(())
    }
}

/// The last segment with records if they end at `end`; 0 if there are none.
pub fn last_with_records(end: LogPosition) -> u16 {
    if usize::from(end.offset) > SEGMENT_HEADER_BYTES { end.segment } else { end.segment.saturating_sub(1) }
}

/// The segments of a file, as read.
struct SegmentBytes {
    chunks: Vec<Buffer>,
}

impl SegmentBytes {
    /// Reads a file from its start. Sectors that the medium cannot read are replaced by `0xFF`, which fails
    /// every check.
    async fn read(file: &Rc<dyn File>, segments: u16) -> Result<Self, IoError> {
        let mut chunks = Vec::new();
        let file_bytes = usize::from(segments) * SEGMENT_BYTES;
        for at in (0..file_bytes).step_by(READ_BYTES) {
            let length = READ_BYTES.min(file_bytes - at);
            let chunk = match read_one(file, at, length).await {
                Err(error) if error.kind() == IoErrorKind::Medium => salvage(file, at, length).await?,
                chunk => chunk?,
            };
            chunks.push(chunk);
        }
        Ok(Self { chunks })
    }

    fn get(&self, index: u16) -> &[u8] {
        let index = usize::from(index);
        let at = index % READ_SEGMENTS * SEGMENT_BYTES;
        &self.chunks[index / READ_SEGMENTS][at..at + SEGMENT_BYTES]
    }
}

async fn read_one(file: &Rc<dyn File>, at: usize, length: usize) -> Result<Buffer, IoError> {
    let mut buffers = file.read(ByteOffset(at as u64), vec![Buffer::zeroed(length)]).await?;
    Ok(buffers.pop().expect("a read returns its buffer"))
}

/// Reads segment by segment, so that an unreadable sector affects only its own segment.
async fn salvage(file: &Rc<dyn File>, at: usize, length: usize) -> Result<Buffer, IoError> {
    let mut whole = Buffer::zeroed(length);
    for offset in (0..length).step_by(SEGMENT_BYTES) {
        let into = &mut whole[offset..offset + SEGMENT_BYTES];
        match read_one(file, at + offset, SEGMENT_BYTES).await {
            Ok(segment) => into.copy_from_slice(&segment),
            Err(error) if error.kind() == IoErrorKind::Medium => into.fill(0xFF),
            Err(error) => return Err(error),
        }
    }
    Ok(whole)
}
