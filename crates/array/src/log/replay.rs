//! Replay: reads every record behind a checkpoint, in order, and finds the end of the log.
//!
//! `docs/format.md`, "Positions, and the end of the log", defines which records belong to it. A log that ends
//! before acknowledged data is damaged, and replay does not repair that.

use super::segment_reader::{CompleteRecord, SegmentReader};
use crate::{
    drive::{Drives, all_written, first_of},
    error::{Error, Result},
    format::{
        ChecksumSeed, Incarnation, LogEntry, LogRecord, LogStart, MirroredSegment, PoolId, Position,
        RecordLink, RowKey, SegmentBlock, SegmentNumber, SegmentUse, SlotAddress, checkpoint::OPENING_STEP,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedRecord {
    pub record: LogRecord,
    /// The rows it puts, in the order of its entries.
    pub rows: Vec<(RowKey, Vec<u8>)>,
}

/// The end of the log, and what replay learned on its way.
#[derive(Clone, Debug)]
pub struct ReplayOutcome {
    /// Every segment that was read, in the order of the log; the last one holds the end.
    pub segments: Vec<MirroredSegment>,
    /// Block of the last segment at which the next record goes.
    pub block: SegmentBlock,
    /// Successors named by that segment's header or, if it cannot be read, by the last header before it.
    pub successors: Vec<MirroredSegment>,
    /// False if no header of the last segment can be read: the log may continue in segments no one can name.
    pub has_header: bool,
    pub last: RecordLink,
    /// Above every position ever assigned, by [`OPENING_STEP`].
    pub position_next: Position,
    /// Highest incarnation of any record.
    pub incarnation: Incarnation,
    /// Highest use of any segment.
    pub segment_use: SegmentUse,
    /// Number of records read.
    pub records: u64,
    /// Copies of records that were incomplete and were rewritten.
    pub repaired: u64,
    /// Copies of segments that lack a record because their drives are full; another copy has it.
    pub lacking: BTreeSet<(SegmentNumber, SlotAddress)>,
}

/// Facts of the checkpoint from which replay begins.
pub struct ReplayStart<'a> {
    pub pool: PoolId,
    pub log: &'a LogStart,
    /// No lower position is free.
    pub position_next: Position,
    /// Positions below were acknowledged as stable, according to the superblocks.
    pub acknowledged_below: Position,
}

/// Reads the log from `start` on and hands each record to `take`, in order. Afterwards every record is
/// complete and stable on every copy present, including what a write cache held when its writer was killed.
/// Copies on full drives are the exception: see [`ReplayOutcome::lacking`].
///
/// # Errors
///
/// [`Error::NoLogHeader`]: the last segment's header is unreadable, so the end is unknown.
/// [`Error::LostRecords`]: the log ends before acknowledged data. [`Error::OutOfSpace`]: no copy of a segment
/// has space for the records it lacks. Also if a drive cannot be written or flushed.
pub async fn replay(
    drives: &Drives,
    start: ReplayStart<'_>,
    take: impl FnMut(ReplayedRecord),
) -> Result<ReplayOutcome> {
    let (replayed, acknowledged) = read_log(drives, start, true, take).await?;
    let found = replayed.last.position;
    if !replayed.has_header && !canary::is(Canary::HeaderlessLogTakenForItsEnd) {
        // A header is stable before a superblock or a record leads to its segment: this one was lost.
        sometimes::reached(Sometimes::HeaderlessLogRefused);
        let MirroredSegment { number, slots, .. } = replayed.segment().clone();
        return Err(Error::NoLogHeader { segment: number, slots, last: found.0 });
    }
    if acknowledged.0 > found.0 + 1 && !canary::is(Canary::MidLogRotTakenForTheTail) {
        sometimes::reached(Sometimes::LostRecordsRefused);
        return Err(Error::LostRecords { found: found.0, acknowledged: acknowledged.0 });
    }
    check_whole_copies(drives, &replayed.segments, &replayed.lacking)?;
    make_stable(drives, &replayed.segments).await?;
    Ok(replayed)
}

/// Reads the log as far as it goes and writes nothing. The position returned is the end of what was
/// acknowledged: it may lie beyond the last record found.
pub async fn replay_for_reading(
    drives: &Drives,
    start: ReplayStart<'_>,
    take: impl FnMut(ReplayedRecord),
) -> (ReplayOutcome, Position) {
    read_log(drives, start, false, take).await.expect("only writes fail here")
}

async fn read_log(
    drives: &Drives,
    start: ReplayStart<'_>,
    repairs: bool,
    mut take: impl FnMut(ReplayedRecord),
) -> Result<(ReplayOutcome, Position)> {
    let seed = ChecksumSeed::of(start.pool);
    let mut state = ReplayState::new(&start);
    let mut reader = SegmentReader::open(drives, (start.pool, seed), &start.log.segment).await;
    let mut block = start.log.block;
    let mut segments = vec![reader.segment.clone()];
    let mut successors = successors_of(&reader, Vec::new());
    let (mut records, mut repaired, mut lacking) = (0, 0, BTreeSet::new());
    let beyond = loop {
        let found = match reader.record_at(block, |record| state.is_next(record, block)) {
            Some(found) => found,
            None => match enter_successor(drives, (start.pool, seed), &successors, &state).await {
                Continuation::Entered(next, found) => {
                    sometimes::reached(Sometimes::SuccessorEntered);
                    reader = *next;
                    segments.push(reader.segment.clone());
                    successors = successors_of(&reader, successors);
                    found
                }
                Continuation::End(beyond) => break beyond,
            },
        };
        state.took(&found);
        block = SegmentBlock(found.record.block.0 + found.record.blocks());
        records += 1;
        if repairs && !canary::is(Canary::OneLegTailServed) {
            let (written, unwritten) = reader.repair(drives, &found).await?;
            repaired += u64::from(written);
            lacking.extend(unwritten.into_iter().map(|slot| (reader.segment.number, slot)));
        }
        let rows = rows_of(&found);
        take(ReplayedRecord { record: found.record, rows });
    };
    // Headers behind the end were assigned positions too, and carry what was acknowledged when they were
    // written.
    sometimes::reached_if(reader.headers_at(block).next().is_some(), Sometimes::TornTail);
    sometimes::reached_if(records > 0, Sometimes::LogReplayed);
    sometimes::reached_if(repaired > 0, Sometimes::CopyOfRecordRepaired);
    state.note_headers(&reader, block);
    beyond.iter().for_each(|successor| state.note_headers(successor, SegmentBlock(0)));
    let uses = successors.iter().map(|segment| segment.segment_use);
    let replayed = ReplayOutcome {
        segment_use: uses.chain([reader.segment.segment_use]).max().expect("its own, at least"),
        segments,
        block,
        successors,
        has_header: reader.header.is_some(),
        last: state.last,
        position_next: Position(state.position_seen.0 + OPENING_STEP),
        incarnation: state.incarnation,
        records,
        repaired,
        lacking,
    };
    Ok((replayed, state.acknowledged_below))
}

/// Fails unless one copy of each segment has all of its records.
fn check_whole_copies(
    drives: &Drives,
    segments: &[MirroredSegment],
    lacking: &BTreeSet<(SegmentNumber, SlotAddress)>,
) -> Result<()> {
    let is_whole =
        |number, slot: &SlotAddress| drives.has(slot.member) && !lacking.contains(&(number, *slot));
    let has_lack = |segment: &&MirroredSegment| {
        segment.slots.iter().any(|&slot| lacking.contains(&(segment.number, slot)))
    };
    for segment in segments.iter().filter(has_lack) {
        if !segment.slots.iter().any(|slot| is_whole(segment.number, slot)) {
            return Err(Error::OutOfSpace(drives.out_of_space()));
        }
    }
    Ok(())
}

async fn make_stable(drives: &Drives, segments: &[MirroredSegment]) -> Result<()> {
    if canary::is(Canary::ReplayWithoutFlush) {
        return Ok(());
    }
    let slots = segments.iter().flat_map(|segment| &segment.slots);
    let members: BTreeSet<_> = slots.map(|slot| slot.member).collect();
    all_written(drives.flush_all(members)).await.map_err(first_of)
}

impl ReplayOutcome {
    /// The segment in which the log ends.
    pub fn segment(&self) -> &MirroredSegment {
        self.segments.last().expect("the log begins somewhere")
    }
}

/// Successors of a segment. If its header is unreadable they are those left of the header before, which each
/// header inherits.
fn successors_of(reader: &SegmentReader, mut before: Vec<MirroredSegment>) -> Vec<MirroredSegment> {
    match &reader.header {
        Some(header) => header.successors.clone(),
        None => {
            before.retain(|segment| *segment != reader.segment);
            before
        }
    }
}

/// The search for the segment that follows one read to its end.
enum Continuation {
    /// The log continues in this segment, with this record at its front.
    Entered(Box<SegmentReader>, CompleteRecord),
    /// The log ends: none of these successors continues it.
    End(Vec<SegmentReader>),
}

async fn enter_successor(
    drives: &Drives,
    pool: (PoolId, ChecksumSeed),
    successors: &[MirroredSegment],
    state: &ReplayState,
) -> Continuation {
    let mut others = Vec::new();
    for successor in successors {
        let next = SegmentReader::open(drives, pool, successor).await;
        let front = SegmentBlock(0);
        match next.record_at(front, |record| state.is_next(record, front)) {
            Some(found) => return Continuation::Entered(Box::new(next), found),
            None => others.push(next),
        }
    }
    Continuation::End(others)
}

fn rows_of(found: &CompleteRecord) -> Vec<(RowKey, Vec<u8>)> {
    let puts = found.record.entries.iter().filter_map(|entry| match entry {
        LogEntry::Put(put) => Some((put.row, entry.payload()?)),
        _ => None,
    });
    puts.map(|(row, part)| (row, found.payload()[part].to_vec())).collect()
}

/// Decides, from the records read so far, which record is next.
struct ReplayState {
    last: RecordLink,
    incarnation: Incarnation,
    /// Records of this incarnation, and the one its first record followed: a batch that was written again may
    /// follow any of them.
    joints: BTreeSet<(Position, u32)>,
    position_seen: Position,
    acknowledged_below: Position,
}

impl ReplayState {
    fn new(start: &ReplayStart<'_>) -> Self {
        let last = start.log.previous;
        let before_next = Position(start.position_next.0.saturating_sub(1));
        Self {
            last,
            incarnation: Incarnation(0),
            joints: BTreeSet::from([(last.position, last.seal)]),
            position_seen: last.position.max(before_next),
            acknowledged_below: start.acknowledged_below,
        }
    }

    /// True if a record at `block` directly follows the records read so far.
    fn is_next(&self, record: &LogRecord, block: SegmentBlock) -> bool {
        let joins = record.previous == self.last
            || block == SegmentBlock(0)
                && record.incarnation == self.incarnation
                && self.joints.contains(&(record.previous.position, record.previous.seal));
        joins && record.position > self.last.position && record.incarnation >= self.incarnation
    }

    fn took(&mut self, found: &CompleteRecord) {
        let record = &found.record;
        sometimes::reached_if(record.previous != self.last, Sometimes::BatchReadTwice);
        if record.incarnation > self.incarnation {
            self.incarnation = record.incarnation;
            self.joints = BTreeSet::from([(record.previous.position, record.previous.seal)]);
        }
        self.last = LogRecord::link_of(found.header());
        assert_eq!(self.last.position, record.position, "a link names its record");
        self.joints.insert((self.last.position, self.last.seal));
        self.note(record);
    }

    fn note(&mut self, record: &LogRecord) {
        self.position_seen = self.position_seen.max(record.position);
        self.acknowledged_below = self.acknowledged_below.max(record.acknowledged_below);
    }

    /// Notes every valid header from `from` on, whether or not it is part of the log.
    fn note_headers(&mut self, reader: &SegmentReader, from: SegmentBlock) {
        for block in (from.0..reader.data_blocks()).map(SegmentBlock) {
            reader.headers_at(block).for_each(|(record, _)| self.note(&record));
        }
    }
}
