//! Reading the live blocks of a victim.
//!
//! A log segment is read whole, since each record describes its own payload, unless the reverse map still has
//! the segment and little of it is live. A data segment ends with a summary. In those two cases only the live
//! blocks are read. The map decides which blocks are live.

use super::{Mover, contents::RecordReader};
use crate::{
    engine::{PARALLELISM_MAX, StoredRun, events::BackgroundTask, stored_blocks},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, BlockChecksum, BlockKey, BlockLocation, RedundancyClass, SegmentBlock,
        SegmentKind, SegmentNumber, Stored, SummaryEntry,
        row::{SegmentRow, SegmentState},
    },
    simulation::sometimes::{self, Sometimes},
};
use futures_util::future::try_join_all;
use std::sync::Arc;
use tokio::sync::mpsc;
use world::Buffer;

/// Victims read concurrently.
pub(super) const VICTIMS_AT_ONCE: usize = 4;

/// Pieces that were read and wait to be written, at most.
pub(super) const PIECES_WAITING_MAX: usize = 4;

/// Blocks of one read of a data segment, and of one piece.
const RUN_BLOCKS: usize = 64;

/// The live blocks of a log segment are read one by one if they are at most one in so many: otherwise reading
/// the whole segment is faster.
const READ_ALONE_ONE_IN: u32 = 8;

/// Blocks of one lookup in the map.
const SOUGHT_AT_ONCE: usize = 256;

/// The blocks that leave a victim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    All,
    Raid0,
}

/// A live block of a victim.
pub(super) struct LiveBlock {
    pub key: BlockKey,
    pub victim: SegmentNumber,
    pub at: SegmentBlock,
    pub checksum: BlockChecksum,
}

/// Live blocks and their data.
pub(super) type LiveBlocks = Vec<(LiveBlock, Arc<Buffer>)>;

/// A segment that is being emptied.
struct Victim<'v> {
    mover: &'v Mover,
    number: SegmentNumber,
    row: SegmentRow,
    selection: Selection,
    pieces: &'v mpsc::Sender<LiveBlocks>,
}

impl Mover {
    /// Sends the live blocks of a victim to `pieces`. Returns true if the victim was read through; otherwise
    /// it is left as it is.
    pub(super) async fn read_victim(
        &self,
        number: SegmentNumber,
        selection: Selection,
        pieces: &mpsc::Sender<LiveBlocks>,
    ) -> Result<bool> {
        // A block that dies meanwhile must not be overwritten while it is read.
        let _reading = self.shared.begin_reading();
        let row = self.shared.state.borrow().segments.row(number).cloned();
        // The last checkpoint may have freed the segment, and nodes may have been written to it since.
        let holds_blocks =
            |row: &SegmentRow| row.state == SegmentState::Sealed && row.kind != SegmentKind::Nodes;
        let Some(row) = row.filter(holds_blocks) else { return Ok(false) };
        let victim = Victim { mover: self, number, row, selection, pieces };
        match victim.read().await {
            Err(
                error @ (Error::Damaged { .. }
                | Error::Unreadable { .. }
                | Error::Drive { .. }
                | Error::TooFewDrives { .. }),
            ) => {
                sometimes::reached(Sometimes::VictimSetAside);
                self.shared.events.report_failure(BackgroundTask::Cleaning, &error, true);
                // It is not cleaned again until the pool is reopened.
                self.shared.state.borrow_mut().unreadable.insert(number);
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }
}

impl Victim<'_> {
    /// Reads the victim in the cheapest way that is possible.
    async fn read(&self) -> Result<()> {
        let entries = match self.still_known() {
            Some(known) => known,
            None if self.row.kind == SegmentKind::Log => return self.read_logged().await,
            None => self.mover.shared.summary_of(self.number, &self.row).await?,
        };
        self.read_alive(&entries).await
    }

    /// Reads a log segment whole.
    async fn read_logged(&self) -> Result<()> {
        let mut records = RecordReader::of(self.number, &self.row);
        let (mut entries, mut read) = (Vec::new(), Vec::new());
        loop {
            let permit = self.mover.cleaning_permit().await?;
            let Some(record) = records.next(&self.mover.shared).await else { break };
            permit.moves(record.blocks() as usize * BLOCK_BYTES);
            entries.extend(stored_blocks(&record));
            read.extend(entries[read.len()..].iter().map(|entry| records.view(entry.at.block())));
        }
        let is_alive = self.are_alive(&entries).await?;
        let alive = entries.iter().zip(read).zip(is_alive).filter(|(_, is_alive)| *is_alive);
        let mut alive = alive.map(|(stored, _)| stored).peekable();
        while alive.peek().is_some() {
            let mut piece = LiveBlocks::new();
            for (entry, read) in alive.by_ref().take(RUN_BLOCKS) {
                let alive = LiveBlock::of(self.number, entry);
                let read =
                    read.filter(|read| self.mover.shared.seed.checksum(alive.key, read) == alive.checksum);
                let data = match read {
                    Some(read) => read.buffer(),
                    // Another copy may be right; the read then repairs this one.
                    None => self.mover.shared.read_run(&stored(std::slice::from_ref(&alive))).await?,
                };
                piece.push((alive, Arc::new(data)));
            }
            send(piece, self.pieces).await?;
        }
        Ok(())
    }

    /// Contents of a mostly dead log segment, if the reverse map has them.
    fn still_known(&self) -> Option<Vec<SummaryEntry>> {
        let room = self.row.shape.data_blocks() * BLOCK_GRAINS as u32;
        if self.row.live_grains > room / READ_ALONE_ONE_IN {
            return None;
        }
        let known =
            self.mover.shared.state.borrow().reverse_map.contents(self.number, self.row.segment_use)?;
        sometimes::reached(Sometimes::VictimKnown);
        Some(known)
    }

    /// Reads only the live ones of `entries`.
    async fn read_alive(&self, entries: &[SummaryEntry]) -> Result<()> {
        let is_alive = self.are_alive(entries).await?;
        let alive = entries.iter().zip(is_alive).filter(|(_, is_alive)| *is_alive);
        let alive = alive.map(|(entry, _)| LiveBlock::of(self.number, entry)).collect();
        let mut runs = runs(alive).into_iter().peekable();
        while runs.peek().is_some() {
            let reads = runs.by_ref().take(PARALLELISM_MAX).map(async |run| {
                let permit = self.mover.cleaning_permit().await?;
                permit.moves(run.len() * BLOCK_BYTES);
                let data = self.mover.shared.read_run(&stored(&run)).await?;
                Ok::<_, Error>((run, data))
            });
            // Permits are returned before the send: the receiver needs one to write.
            for (run, data) in try_join_all(reads).await? {
                let data = Arc::new(data);
                let blocks = (0..data.len()).step_by(BLOCK_BYTES);
                let blocks = blocks.map(|at| Arc::new(Buffer::part_of(&data, at..at + BLOCK_BYTES)));
                send(run.into_iter().zip(blocks).collect(), self.pieces).await?;
            }
        }
        Ok(())
    }

    /// For each entry: true if the block is to leave, and the map still points to it here.
    async fn are_alive(&self, entries: &[SummaryEntry]) -> Result<Vec<bool>> {
        if entries.iter().any(|entry| entry.stored != Stored::PLAIN) {
            return Err(Error::NotYet("a block that is not stored plain"));
        }
        let leaves = |entry: &SummaryEntry| {
            self.selection == Selection::All
                || self.mover.class_of(entry.key.branch) == RedundancyClass::Raid0
        };
        let mut sought: Vec<usize> = (0..entries.len()).filter(|&index| leaves(&entries[index])).collect();
        sought.sort_unstable_by_key(|&index| entries[index].key);
        let mut is_alive = vec![false; entries.len()];
        for part in sought.chunks(SOUGHT_AT_ONCE) {
            let keys = part.iter().map(|&index| entries[index].key);
            let found = self.mover.map.liveness(keys).await?;
            for (&index, found) in part.iter().zip(found) {
                let here = BlockLocation::plain(self.number, entries[index].at);
                is_alive[index] = found.is_some_and(|version| version.location == here);
            }
            // Lets hosts on this thread run between lookups.
            world::yield_now().await;
        }
        Ok(is_alive)
    }
}

impl LiveBlock {
    fn of(victim: SegmentNumber, entry: &SummaryEntry) -> Self {
        Self { key: entry.key, victim, at: entry.at.block(), checksum: entry.checksum }
    }
}

/// Groups adjacent blocks.
fn runs(alive: Vec<LiveBlock>) -> Vec<Vec<LiveBlock>> {
    let mut runs: Vec<Vec<LiveBlock>> = Vec::new();
    for block in alive {
        match runs.last_mut() {
            Some(run) if run[0].at.0 + run.len() as u32 == block.at.0 && run.len() < RUN_BLOCKS => {
                run.push(block);
            }
            _ => runs.push(vec![block]),
        }
    }
    runs
}

fn stored(run: &[LiveBlock]) -> StoredRun {
    let blocks = run.iter().map(|alive| (alive.key, alive.checksum)).collect();
    StoredRun { segment: run[0].victim, at: run[0].at, blocks }
}

/// Sends a piece to the writer. Fails if the writer has failed, so that reading stops.
async fn send(piece: LiveBlocks, pieces: &mpsc::Sender<LiveBlocks>) -> Result<()> {
    if piece.is_empty() {
        return Ok(());
    }
    let sent = pieces.send(piece).await;
    sent.map_err(|_| Error::Stopped("what was read cannot be written".to_owned()))
}
