//! The copies of a log, and the choice of a copy of each generation.

use super::{LogFolder, LogJoinError};
use crate::{
    format::header::{LogPosition, Signature},
    log::{
        LogError, LogFiles, LogReader,
        buffer::first_position,
        generation::{Generation, last_with_records},
        segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES},
    },
    planted::{self, LogBug},
};
use std::collections::{BTreeMap, BTreeSet};

/// One folder's log, as its headers say.
pub(super) struct LogCopy {
    pub folder: LogFolder,
    pub files: LogFiles,
    /// The newest generation, which was still being written.
    pub open: u32,
    /// End of the records in it.
    pub open_end: LogPosition,
}

impl LogCopy {
    pub(super) async fn read(folder: LogFolder, base_name: &str) -> Result<Self, LogJoinError> {
        let problem = |error: LogError| LogJoinError::Log { folder: folder.name.clone(), error };
        let files = LogFiles::scan(&folder.directory, base_name).await.map_err(problem)?;
        let Some(open) = files.newest() else { return Err(LogJoinError::NoLog { folder: folder.name }) };
        let mut reader = LogReader::new(files.clone(), first_position(open));
        while reader.next().await.map_err(problem)?.is_some() {}
        let open_end = reader.into_tail().position;
        Ok(Self { folder, files, open, open_end })
    }

    pub(super) fn signature(&self) -> Signature {
        self.files.files.values().next().map(|file| file.header.signature).unwrap_or_default()
    }

    pub(super) fn problem(&self, error: LogError) -> LogJoinError {
        LogJoinError::Log { folder: self.folder.name.clone(), error }
    }

    fn other_line(&self, generation: u32) -> LogJoinError {
        LogJoinError::OtherLine { folder: self.folder.name.clone(), generation }
    }

    fn has(&self, generation: u32) -> bool {
        self.files.files.contains_key(&generation)
    }

    /// True if the generation was complete when the folder was copied.
    fn has_whole(&self, generation: u32) -> bool {
        self.has(generation) && self.has(generation + 1)
    }

    /// Refuses a copy whose newest generation does not begin `whole`, the same generation in another folder.
    async fn check_begins(&self, whole: &Self) -> Result<(), LogJoinError> {
        let generation = self.open;
        let mine = Generation::load(&self.files, generation, 1).await.map_err(|error| self.problem(error))?;
        let other =
            Generation::load(&whole.files, generation, 1).await.map_err(|error| whole.problem(error))?;
        let end = self.open_end;
        let last = last_with_records(end);
        if last > other.last || other.recorded_end.is_some_and(|recorded| recorded < end) {
            return Err(self.other_line(generation));
        }
        let is_same = (1..=last).all(|index| {
            let until = if index == end.segment { usize::from(end.offset) } else { SEGMENT_BYTES };
            let records = SEGMENT_HEADER_BYTES..until;
            mine.segment(index)[records.clone()] == other.segment(index)[records]
        });
        if is_same || planted::is_log(LogBug::OtherLineAccepted) {
            Ok(())
        } else {
            Err(self.other_line(generation))
        }
    }
}

/// Chooses a copy of each generation from `first` to `last`, by its place in `copies`; proves that all copies are
/// of one line.
pub(super) async fn choose(
    copies: &[LogCopy],
    first: u32,
    last: u32,
) -> Result<BTreeMap<u32, usize>, LogJoinError> {
    let mut chosen = BTreeMap::new();
    for generation in first..=last {
        let candidates = || copies.iter().enumerate().filter(move |(_, copy)| copy.has(generation));
        let whole = candidates().find(|(_, copy)| copy.has_whole(generation));
        let Some((index, copy)) = whole.or_else(|| candidates().max_by_key(|(_, copy)| copy.open_end)) else {
            if planted::is_log(LogBug::GapAccepted) {
                break;
            }
            return Err(missing(copies, generation, last));
        };
        let header = copy.files.files[&generation].header;
        let differs = |(_, other): &(usize, &LogCopy)| other.files.files[&generation].header != header;
        if let Some((_, other)) = candidates().find(differs)
            && !planted::is_log(LogBug::OtherLineAccepted)
        {
            // The folder that was named later is the one that does not fit.
            let copy =
                if copies[index..].iter().any(|later| std::ptr::eq(later, other)) { other } else { copy };
            return Err(copy.other_line(generation));
        }
        chosen.insert(generation, index);
    }
    for (index, copy) in copies.iter().enumerate() {
        if let Some(&other) = chosen.get(&copy.open)
            && other != index
        {
            copy.check_begins(&copies[other]).await?;
        }
    }
    check_borders(copies, &chosen)?;
    Ok(chosen)
}

/// The error for a generation that no folder has.
fn missing(copies: &[LogCopy], generation: u32, last: u32) -> LogJoinError {
    let damaged = copies.iter().find(|copy| copy.files.damaged.contains_key(&generation));
    if let Some((copy, error)) = damaged.and_then(|copy| Some((copy, copy.files.get(generation).err()?))) {
        return copy.problem(error);
    }
    let known: BTreeSet<u32> = copies.iter().flat_map(|copy| copy.files.files.keys().copied()).collect();
    let next = known.range(generation..=last).next();
    LogJoinError::Gap { first: generation, last: next.map_or(last, |next| next - 1) }
}

/// At each change of folder: what the one holds of a generation must reach to where the other begins the next.
fn check_borders(copies: &[LogCopy], chosen: &BTreeMap<u32, usize>) -> Result<(), LogJoinError> {
    for (&generation, &index) in chosen {
        let Some(&next_index) = chosen.get(&(generation + 1)) else { continue };
        let (copy, next) = (&copies[index], &copies[next_index]);
        if next_index == index || copy.open != generation {
            continue;
        }
        let header = next.files.files[&(generation + 1)].header;
        let mine = copy.files.files[&generation].header;
        let end = header.previous_end.filter(|end| end.generation == generation);
        match end {
            Some(end) if header.previous_created == mine.created && end > copy.open_end => {
                return Err(LogJoinError::Gap { first: generation, last: generation });
            }
            Some(end) if header.previous_created == mine.created && end == copy.open_end => {}
            _ if planted::is_log(LogBug::OtherLineAccepted) => {}
            _ => return Err(next.other_line(generation + 1)),
        }
    }
    Ok(())
}
