//! Reading the log after a stop: every record behind a checkpoint, in order, and where the log goes on.
//!
//! A record is there or it is not; what says which is in `docs/format.md`, "Positions, and the end of the log". A log
//! that ends before what was acknowledged is damaged, and nothing here mends that.

use super::chain::{Chain, Found};
use crate::{
    drive::{Drives, all_written, first_of},
    error::{Error, Result},
    format::{
        ChecksumSeed, Entry, Incarnation, Link, LogStart, MirroredSegment, PoolId, Position, Record, RowKey,
        SegmentBlock, SegmentNumber, SegmentUse, SlotAddress, checkpoint::OPENING_STEP,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::collections::BTreeSet;

/// A record as replay gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenRecord {
    /// What it says, and where it lies.
    pub record: Record,
    /// The rows it puts, in the order of its entries.
    pub rows: Vec<(RowKey, Vec<u8>)>,
}

/// Where the log goes on, once it was read.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Every segment records were looked for in, in the order of the log. It ends in the last one.
    pub segments: Vec<MirroredSegment>,
    /// Where in it the next record lies.
    pub block: SegmentBlock,
    /// Where it may go on, as that segment's header says; or, if that cannot be read, as the last one before it does.
    pub successors: Vec<MirroredSegment>,
    /// Whether a header of that segment can be read: else the log may go on where nobody knows.
    pub has_header: bool,
    /// The last record that is there.
    pub last: Link,
    /// Beyond every position that was given, by [`OPENING_STEP`].
    pub position_next: Position,
    /// The highest incarnation seen in a record.
    pub incarnation: Incarnation,
    /// The highest use of a segment seen.
    pub segment_use: SegmentUse,
    /// Records there were.
    pub records: u64,
    /// Copies of records that were not whole, and are now.
    pub mended: u64,
    /// Copies of segments that lack a record, for their drives have no space for it: another one has it.
    pub lacking: BTreeSet<(SegmentNumber, SlotAddress)>,
}

/// What replay knows when it begins.
pub struct Start<'a> {
    /// Whose log.
    pub pool: PoolId,
    /// Where it begins.
    pub log: &'a LogStart,
    /// No lower position is free.
    pub position_next: Position,
    /// Everything below was acknowledged as stable, as far as superblocks know.
    pub acknowledged_below: Position,
}

/// Reads the log from `start` on; `take` is given each record, in order. Then each is whole and stable on every copy
/// there is, also what a write cache had when its writer was killed; but for copies that have no space for it.
///
/// # Errors
///
/// [`Error::NoLogHeader`]: nobody knows whether the log goes on. [`Error::LostRecords`]: it ends before what was
/// acknowledged. [`Error::OutOfSpace`]: no copy of a segment has space for
/// what it lacks. Or a drive cannot be written or flushed.
pub async fn replay(drives: &Drives, start: Start<'_>, take: impl FnMut(TakenRecord)) -> Result<Replayed> {
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

/// Reads the log as far as it goes, and writes nothing. Also gives the position below which everything was acknowledged: it
/// may lie beyond the last record there is.
pub async fn replay_for_reading(
    drives: &Drives,
    start: Start<'_>,
    take: impl FnMut(TakenRecord),
) -> (Replayed, Position) {
    read_log(drives, start, false, take).await.expect("only writes fail here")
}

async fn read_log(
    drives: &Drives,
    start: Start<'_>,
    mends: bool,
    mut take: impl FnMut(TakenRecord),
) -> Result<(Replayed, Position)> {
    let seed = ChecksumSeed::of(start.pool);
    let mut reader = Reader::new(&start);
    let mut chain = Chain::open(drives, (start.pool, seed), &start.log.segment).await;
    let mut block = start.log.block;
    let mut segments = vec![chain.segment.clone()];
    let mut successors = successors_of(&chain, Vec::new());
    let (mut records, mut mended, mut lacking) = (0, 0, BTreeSet::new());
    let beyond = loop {
        let found = match chain.record_at(block, |record| reader.is_next(record, block)) {
            Some(found) => found,
            None => match enter_successor(drives, (start.pool, seed), &successors, &reader).await {
                Next::Entered(next, found) => {
                    sometimes::reached(Sometimes::SuccessorEntered);
                    chain = *next;
                    segments.push(chain.segment.clone());
                    successors = successors_of(&chain, successors);
                    found
                }
                Next::End(beyond) => break beyond,
            },
        };
        reader.took(&found);
        block = SegmentBlock(found.record.block.0 + found.record.blocks());
        records += 1;
        if mends && !canary::is(Canary::OneLegTailServed) {
            let (written, unwritten) = chain.mend(drives, &found).await?;
            mended += u64::from(written);
            lacking.extend(unwritten.into_iter().map(|slot| (chain.segment.number, slot)));
        }
        let rows = rows_of(&found);
        take(TakenRecord { record: found.record, rows });
    };
    // Behind the end: positions that were given, and what they say was acknowledged.
    sometimes::reached_if(chain.headers_at(block).next().is_some(), Sometimes::TornTail);
    sometimes::reached_if(records > 0, Sometimes::LogReplayed);
    sometimes::reached_if(mended > 0, Sometimes::CopyOfRecordMended);
    reader.look_at(&chain, block);
    beyond.iter().for_each(|successor| reader.look_at(successor, SegmentBlock(0)));
    let uses = successors.iter().map(|segment| segment.segment_use);
    let replayed = Replayed {
        segment_use: uses.chain([chain.segment.segment_use]).max().expect("its own, at least"),
        segments,
        block,
        successors,
        has_header: chain.header.is_some(),
        last: reader.last,
        position_next: Position(reader.position_seen.0 + OPENING_STEP),
        incarnation: reader.incarnation,
        records,
        mended,
        lacking,
    };
    Ok((replayed, reader.acknowledged_below))
}

/// Of each segment a copy has all of its records.
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

impl Replayed {
    /// The segment it ends in.
    pub fn segment(&self) -> &MirroredSegment {
        self.segments.last().expect("the log begins somewhere")
    }
}

/// Where the log may go on behind a segment. Without its header: in those that are left of the header before, for each header
/// takes those over.
fn successors_of(chain: &Chain, mut before: Vec<MirroredSegment>) -> Vec<MirroredSegment> {
    match &chain.header {
        Some(header) => header.successors.clone(),
        None => {
            before.retain(|segment| *segment != chain.segment);
            before
        }
    }
}

/// What follows a segment whose records are all read.
enum Next {
    /// The segment in which the log goes on, with the record at its front.
    Entered(Box<Chain>, Found),
    /// Nothing: the log does not go on in any of its successors, which these are.
    End(Vec<Chain>),
}

async fn enter_successor(
    drives: &Drives,
    pool: (PoolId, ChecksumSeed),
    successors: &[MirroredSegment],
    reader: &Reader,
) -> Next {
    let mut others = Vec::new();
    for successor in successors {
        let next = Chain::open(drives, pool, successor).await;
        let front = SegmentBlock(0);
        match next.record_at(front, |record| reader.is_next(record, front)) {
            Some(found) => return Next::Entered(Box::new(next), found),
            None => others.push(next),
        }
    }
    Next::End(others)
}

fn rows_of(found: &Found) -> Vec<(RowKey, Vec<u8>)> {
    let puts = found.record.entries.iter().filter_map(|entry| match entry {
        Entry::Put(put) => Some((put.row, entry.payload()?)),
        _ => None,
    });
    puts.map(|(row, part)| (row, found.payload()[part].to_vec())).collect()
}

/// What was read so far decides what is next.
struct Reader {
    last: Link,
    incarnation: Incarnation,
    /// Records of this incarnation, and what the first of them followed: where a rewritten flight may join.
    joints: BTreeSet<(Position, u32)>,
    position_seen: Position,
    acknowledged_below: Position,
}

impl Reader {
    fn new(start: &Start<'_>) -> Self {
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

    /// Whether a record at `block` is the one that follows what was taken.
    fn is_next(&self, record: &Record, block: SegmentBlock) -> bool {
        let joins = record.previous == self.last
            || block == SegmentBlock(0)
                && record.incarnation == self.incarnation
                && self.joints.contains(&(record.previous.position, record.previous.seal));
        joins && record.position > self.last.position && record.incarnation >= self.incarnation
    }

    fn took(&mut self, found: &Found) {
        let record = &found.record;
        sometimes::reached_if(record.previous != self.last, Sometimes::FlightReadTwice);
        if record.incarnation > self.incarnation {
            self.incarnation = record.incarnation;
            self.joints = BTreeSet::from([(record.previous.position, record.previous.seal)]);
        }
        self.last = Record::link_of(found.header());
        assert_eq!(self.last.position, record.position, "a link names its record");
        self.joints.insert((self.last.position, self.last.seal));
        self.note(record);
    }

    fn note(&mut self, record: &Record) {
        self.position_seen = self.position_seen.max(record.position);
        self.acknowledged_below = self.acknowledged_below.max(record.acknowledged_below);
    }

    /// Notes every valid header from `from` on, of whatever record.
    fn look_at(&mut self, chain: &Chain, from: SegmentBlock) {
        for block in (from.0..chain.data_blocks()).map(SegmentBlock) {
            chain.headers_at(block).for_each(|(record, _)| self.note(&record));
        }
    }
}
