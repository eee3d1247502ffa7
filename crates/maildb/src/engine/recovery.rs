//! Recovery: restoring a group to its committed state.
//!
//! 1. *Read* the log from the checkpoint to its end, to check that it is whole.
//! 2. *Restore* torn pages from the flush journal.
//! 3. *Redo* the log: repeat history, losers included.
//! 4. *Truncate* databases to their end: unlinked bulk loads disappear.
//! 5. *Undo* the losers: revert, newest first, the changes of transactions without an end record, with
//!    changes that are logged like any others and marked as compensation, so that a crash during undo is
//!    harmless.

use super::{
    DatabaseIndex, core::SharedGroup, flush_journal::RestoreSummary, page_stamps::LoggedStamps, redo::Redo,
    rows::Author, transaction::undo_change,
};
use crate::{
    config::{InstanceConfig, LogRetention},
    error::{Error, Result},
    format::header::{LogPosition, Signature},
    log::{
        CheckpointFile, LogCheckpoint, LogConfig, LogFiles, LogHandle, LogReader, LogRecord, LoggedRecord,
        RecoveredTail, ReplayRange,
    },
};
use std::rc::Rc;
use world::{Directory, World};

/// Summary of the recovery of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoverySummary {
    /// The group had been shut down cleanly, or is new.
    pub clean: bool,
    /// Log records read.
    pub records_read: u64,
    /// Page changes that had not reached the databases.
    pub pages_changed: u64,
    /// Log generations read.
    pub generations_read: u32,
    /// End of the log that was found.
    pub log_end: LogPosition,
    /// Transactions rolled back.
    pub transactions_undone: u32,
    /// Pages restored from the flush journal: torn, or older than their images there.
    pub pages_restored: u64,
    /// Slots of the flush journal that are not whole. The last few may be: they were being written.
    pub slots_unreadable: u32,
    /// Recovery ran without the flush journal that the settings require: if the crash was a power cut, torn
    /// pages were not restored.
    pub unprotected: bool,
    /// Databases whose files were truncated: unlinked bulk loads were behind their ends.
    pub tails_cut: u32,
    /// Databases whose page stamps started from scratch: a page is unknown until it is written or read.
    pub stamps_begun: u32,
}

/// The settings of the group's log.
fn log_config(config: &InstanceConfig) -> LogConfig {
    LogConfig {
        base_name: config.base_name.clone(),
        file_bytes: config.log_file,
        buffer_bytes: config.log_buffer,
        circular: config.log_retention == LogRetention::Circular,
        database_page_size: config.page_size,
    }
}

/// A log ready for writing, and the part of it to replay.
pub struct RecoveredLog {
    /// The log, positioned behind everything read.
    pub log: LogHandle,
    pub checkpoint: CheckpointFile,
    pub signature: Signature,
    /// Number of databases that the group had.
    pub databases_known: usize,
    /// The checkpoint found.
    pub newest: Option<LogCheckpoint>,
    /// The replay to do; `None` for a new log.
    pub replay: Option<Replay>,
    /// Stamps of page writes that a crash may have interrupted.
    pub stamps: LoggedStamps,
}

/// The part of a log to replay.
pub struct Replay {
    from: Option<LogPosition>,
    pub range: ReplayRange,
}

/// Opens the log of a group: reads an existing one to its end, or creates it.
pub async fn open_log(
    world: &World,
    directory: &Rc<dyn Directory>,
    config: &InstanceConfig,
    new_signature: Signature,
) -> Result<RecoveredLog> {
    let files = LogFiles::scan(directory, &config.base_name).await?;
    if files.is_empty() {
        let log = LogHandle::create(world, Rc::clone(directory), log_config(config), new_signature).await?;
        // Only now: a checkpoint without a log would make the folder look damaged.
        let (checkpoint, _) = CheckpointFile::open(directory, &config.base_name).await?;
        return Ok(RecoveredLog {
            log,
            checkpoint,
            signature: new_signature,
            databases_known: 0,
            newest: None,
            replay: None,
            stamps: LoggedStamps::default(),
        });
    }
    let (checkpoint, newest) = CheckpointFile::open(directory, &config.base_name).await?;
    let databases_known = newest.map_or(0, |newest| usize::from(newest.databases));
    let signature = files.iter().next().map(|file| file.header.signature).unwrap_or_default();
    let from = replay_start(newest, signature)?;
    let mut stamps = LoggedStamps::default();
    let (range, tail) = read_to_end(files, from, &mut |entry| stamps.note(entry.start, entry.record)).await?;
    let log = LogHandle::continue_after(world, Rc::clone(directory), log_config(config), tail).await?;
    let replay = Some(Replay { from, range });
    Ok(RecoveredLog { log, checkpoint, signature, databases_known, newest, replay, stamps })
}

/// Reads a log from `from` to its end, collecting what recovery needs.
async fn read_to_end(
    files: LogFiles,
    from: Option<LogPosition>,
    note: &mut dyn FnMut(LoggedRecord),
) -> Result<(ReplayRange, RecoveredTail)> {
    // Without a checkpoint, everything connected to the newest generation is read, and no page is certain.
    let oldest = files.oldest().or(files.newest()).unwrap_or(1);
    let mut reader = reader_from(files, from)?;
    while let Some(entry) = reader.next().await? {
        note(entry);
    }
    let tail = reader.into_tail();
    let range = ReplayRange {
        from: from.unwrap_or(LogPosition { generation: oldest, segment: 0, offset: 0 }),
        until: tail.position,
    };
    Ok((range, tail))
}

/// The range that recovery would replay with the log in `directory`; changes nothing. `None` if there is no
/// log.
pub async fn replay_range(directory: &Rc<dyn Directory>, base_name: &str) -> Result<Option<ReplayRange>> {
    let files = LogFiles::scan(directory, base_name).await?;
    if files.is_empty() {
        return Ok(None);
    }
    let signature = files.iter().next().map(|file| file.header.signature).unwrap_or_default();
    let newest = CheckpointFile::read(directory, base_name).await?;
    let from = replay_start(newest, signature)?;
    Ok(Some(read_to_end(files, from, &mut |_| {}).await?.0))
}

fn replay_start(checkpoint: Option<LogCheckpoint>, signature: Signature) -> Result<Option<LogPosition>> {
    match checkpoint {
        Some(checkpoint) if checkpoint.signature != signature => Err(Error::Configuration(
            "the checkpoint file belongs to another log; remove it to replay the log from its start"
                .to_owned(),
        )),
        Some(checkpoint) => Ok(Some(checkpoint.position)),
        None => Ok(None),
    }
}

fn reader_from(files: LogFiles, from: Option<LogPosition>) -> Result<LogReader> {
    Ok(match from {
        Some(position) => LogReader::new(files, position),
        None => LogReader::from_oldest(files)?,
    })
}

/// Redo and undo. The databases must be open and the log ready for writing.
pub async fn recover(
    shared: &Rc<SharedGroup>,
    directory: &Rc<dyn Directory>,
    replay: Replay,
    restored: RestoreSummary,
) -> Result<RecoverySummary> {
    // Scanned again: opening the log has renamed its files.
    let files = LogFiles::scan(directory, &shared.config.base_name).await?;
    let mut reader = reader_from(files, replay.from)?;
    let mut redo = Redo::new(restored.torn_page_hint(&shared.config));
    let mut generations = Generations::default();
    while let Some(entry) = reader.next().await? {
        if entry.start >= replay.range.until {
            break;
        }
        generations.note(entry.start.generation);
        redo.apply(shared, &entry).await?;
    }
    redo.check_times(shared)?;
    let databases = shared.core.borrow().databases.len();
    let databases = || (0..databases).map(|index| DatabaseIndex(index as u8));
    for database in databases() {
        // Undo may allocate space, and so needs the sizes of the files.
        shared.load_size(database).await?;
        shared.forget_tail(database);
    }
    shared.read_uncertain_pages().await?;
    let clean = redo.pages_changed == 0 && redo.running.is_empty() && restored.pages == 0;
    let mut summary = RecoverySummary {
        clean,
        records_read: redo.records,
        pages_changed: redo.pages_changed,
        generations_read: generations.count,
        log_end: replay.range.until,
        transactions_undone: redo.running.len() as u32,
        pages_restored: restored.pages,
        slots_unreadable: restored.slots_unreadable,
        unprotected: restored.was_missing && !clean,
        tails_cut: 0,
        stamps_begun: 0,
    };
    {
        let mut core = shared.core.borrow_mut();
        core.transaction_last = redo.transaction_last;
        core.transactions = redo.running.iter().map(|(&number, loser)| (number, loser.begin)).collect();
    }
    for database in databases() {
        summary.tails_cut += u32::from(shared.cut_tail(database).await?);
    }
    undo(shared, redo).await?;
    Ok(summary)
}

#[derive(Default)]
struct Generations {
    count: u32,
    last: Option<u32>,
}

impl Generations {
    fn note(&mut self, generation: u32) {
        self.count += u32::from(self.last.replace(generation) != Some(generation));
    }
}

async fn undo(shared: &Rc<SharedGroup>, redo: Redo) -> Result<()> {
    for (transaction, loser) in redo.running {
        let author = Author { transaction, procid: loser.procid, compensates: true };
        for (tree, inverse) in loser.inverses.iter().rev() {
            undo_change(shared, *tree, inverse, author).await?;
        }
        let procid = loser.procid;
        shared.log().append(&LogRecord::Rollback { transaction, procid });
        shared.core.borrow_mut().transactions.remove(&transaction);
    }
    shared.log().make_stable(shared.log().end()).await?;
    Ok(())
}
