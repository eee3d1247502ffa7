//! The proof that generations of several folders are one log without a gap.

use super::{
    JoinEnd, JoinSummary, JoinedLog, LogFolder, LogJoinError,
    copies::{LogCopy, choose},
    parts_of,
};
use crate::{
    format::header::{LogPosition, LogTime},
    log::{
        CheckpointFile, Damage, LogError, LogFiles, LogReader, LogRecord, LoggedRecord,
        buffer::first_position,
        generation::{Generation, last_with_records},
    },
    planted::{self, LogBug},
};
use std::collections::BTreeMap;

impl JoinedLog {
    /// Finds the generations from the checkpoint in `base` to `end`, and proves that they are one log without a
    /// gap. Changes nothing.
    pub async fn prove(
        base_name: &str,
        base: LogFolder,
        later: Vec<LogFolder>,
        end: JoinEnd,
    ) -> Result<Self, LogJoinError> {
        let mut copies = vec![LogCopy::read(base.clone(), base_name).await?];
        for folder in later {
            copies.push(LogCopy::read(folder, base_name).await?);
        }
        let signature = copies[0].signature();
        if let Some(other) = copies.iter().find(|copy| copy.signature() != signature) {
            return Err(LogJoinError::OtherLog { folder: other.folder.name.clone() });
        }
        let start = start_of(&copies[0], base_name).await?;
        let (base_end, base_time) = own_end(&copies[0], start).await?;
        let newest = copies.iter().map(|copy| copy.open).max().unwrap_or(base_end.generation);
        let is_checked = !planted::is_log(LogBug::EndBeforeBackup);
        let last = match end {
            JoinEnd::Generation(wanted) if wanted > newest => {
                return Err(LogJoinError::BeyondEnd { wanted, newest });
            }
            JoinEnd::Generation(wanted) if is_checked && wanted < base_end.generation => {
                return Err(LogJoinError::BeforeBackup { base_end, time: base_time });
            }
            JoinEnd::Time(wanted) if is_checked && wanted.is_before(base_time) => {
                return Err(LogJoinError::BeforeBackup { base_end, time: base_time });
            }
            JoinEnd::Generation(wanted) => wanted,
            JoinEnd::Newest | JoinEnd::Time(_) => newest,
        };

        let chosen = choose(&copies, start.generation, last).await?;
        let mut files = files_of(&copies, &chosen);
        let proof = JoinProof { copies: &copies, chosen: &chosen, base_end };
        let mut reached = (last, None);
        if let JoinEnd::Time(wanted) = end {
            reached = proof.end_by(&files, wanted).await?;
        }
        // Later generations are not part of the chain, and may be damaged.
        files.files.retain(|&generation, _| generation <= reached.0 + 1);
        let (end, commits) = proof.read(&files, start, reached).await?;
        files.files.retain(|&generation, _| generation <= reached.0);

        let is_joined = end > base_end;
        let time = if is_joined { proof.time_at(&files, end).await? } else { base_time };
        let lacking =
            chosen.range(base_end.generation..=reached.0).filter(|&(_, &index)| index != 0 && is_joined);
        let folders: BTreeMap<u32, String> =
            lacking.map(|(&generation, &index)| (generation, copies[index].folder.name.clone())).collect();
        let summary = JoinSummary {
            base_end,
            end: end.max(base_end),
            time,
            parts: parts_of(&folders),
            commits: if is_joined { commits } else { 0 },
        };
        Ok(Self { base, files, last_segment: reached.1, summary })
    }
}

/// The position at which recovery of the base starts.
async fn start_of(base: &LogCopy, base_name: &str) -> Result<LogPosition, LogJoinError> {
    let checkpoint = CheckpointFile::read(&base.folder.directory, base_name).await;
    match checkpoint.map_err(|error| base.problem(error.into()))? {
        Some(checkpoint) if checkpoint.signature != base.signature() => {
            Err(LogJoinError::OtherLog { folder: format!("the checkpoint in {}", base.folder.name) })
        }
        Some(checkpoint) => Ok(checkpoint.position),
        None => Ok(first_position(base.files.oldest().unwrap_or(base.open))),
    }
}

/// End of the base's own log, and when its last records were written. Its databases may hold changes up to there.
async fn own_end(base: &LogCopy, start: LogPosition) -> Result<(LogPosition, LogTime), LogJoinError> {
    let mut reader = LogReader::new(base.files.clone(), start);
    while reader.next().await.map_err(|error| base.problem(error))?.is_some() {}
    let end = reader.into_tail().position;
    let time = time_in(&base.files, end).await.map_err(|error| base.problem(error))?;
    Ok((end, time))
}

/// Time at which the last records before `end` were written.
async fn time_in(files: &LogFiles, end: LogPosition) -> Result<LogTime, LogError> {
    let generation = Generation::load(files, end.generation, 1).await?;
    let last = last_with_records(end);
    Ok(if last == 0 { generation.header.created } else { generation.time_of(last) })
}

/// One set of files over all folders.
fn files_of(copies: &[LogCopy], chosen: &BTreeMap<u32, usize>) -> LogFiles {
    let mut files = copies[0].files.clone();
    files.damaged.clear();
    files.files.clear();
    let next = chosen.last_key_value().map(|(&last, &index)| (last + 1, index));
    for (generation, index) in chosen.iter().map(|(&generation, &index)| (generation, index)).chain(next) {
        let copy = &copies[index];
        if let Some(&file) = copy.files.files.get(&generation) {
            files.add_elsewhere(file, &copy.folder.directory);
        }
    }
    files
}

struct JoinProof<'a> {
    copies: &'a [LogCopy],
    chosen: &'a BTreeMap<u32, usize>,
    base_end: LogPosition,
}

impl JoinProof<'_> {
    /// The last generation and segment written by `wanted`; no segment if the generation is whole.
    async fn end_by(&self, files: &LogFiles, wanted: LogTime) -> Result<(u32, Option<u16>), LogJoinError> {
        let mut reached = (self.base_end.generation, None);
        for (&generation, _) in self.chosen.range(self.base_end.generation..) {
            let loaded = Generation::load(files, generation, 1).await;
            let loaded = loaded.map_err(|error| self.problem(generation, error))?;
            let last = loaded.recorded_end.map_or(loaded.last, last_with_records);
            if let Some(late) = (1..=last).find(|&segment| wanted.is_before(loaded.time_of(segment))) {
                return Ok(match late {
                    1 if generation > self.base_end.generation => reached,
                    late => (generation, Some(late - 1)),
                });
            }
            reached = (generation, None);
        }
        Ok(reached)
    }

    /// Reads the whole chain; returns its end and the transactions committed behind the base's own.
    async fn read(
        &self,
        files: &LogFiles,
        start: LogPosition,
        (last, last_segment): (u32, Option<u16>),
    ) -> Result<(LogPosition, u64), LogJoinError> {
        let mut reader = LogReader::new(files.clone(), start).ending_in(last, last_segment);
        let mut commits = 0;
        let mut before: Option<LoggedRecord> = None;
        loop {
            let next = reader.next().await.map_err(|error| self.problem(reader.generation(), error))?;
            let Some(entry) = next else { break };
            if entry.start >= self.base_end {
                commits += u64::from(matches!(entry.record, LogRecord::Commit { .. }));
                if is_bulk_link(before.as_ref(), &entry) {
                    return Err(LogJoinError::BulkLoad { generation: entry.start.generation });
                }
            }
            before = Some(entry);
        }
        Ok((reader.into_tail().position, commits))
    }

    async fn time_at(&self, files: &LogFiles, end: LogPosition) -> Result<LogTime, LogJoinError> {
        time_in(files, end).await.map_err(|error| self.problem(end.generation, error))
    }

    /// Between generations of two folders, what looks like damage is a fork.
    fn problem(&self, generation: u32, error: LogError) -> LogJoinError {
        let folder_of = |generation| self.chosen.get(&generation).map_or(0, |&index| index);
        let is_border = folder_of(generation) != folder_of(generation + 1);
        let folder = |generation| self.copies[folder_of(generation)].folder.name.clone();
        let does_not_follow = matches!(
            error,
            LogError::Damaged { damage: Damage::WrongChain | Damage::WrongEnd | Damage::Accumulated, .. }
        );
        let is_seen = !planted::is_log(LogBug::OtherLineAccepted);
        if is_seen && is_border && does_not_follow && self.chosen.contains_key(&(generation + 1)) {
            return LogJoinError::OtherLine { folder: folder(generation + 1), generation: generation + 1 };
        }
        LogJoinError::Log { folder: folder(generation), error }
    }
}

/// A bulk load logs the growth of its file twice: its pages are in no record.
fn is_bulk_link(before: Option<&LoggedRecord>, entry: &LoggedRecord) -> bool {
    matches!(entry.record, LogRecord::ExtendDatabase { .. })
        && before.is_some_and(|before| before.record == entry.record)
}
