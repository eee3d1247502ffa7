//! The pool's side of the log: allocates segments for it, applies its durable records, and handles its failed
//! drives.

use super::{
    Checkpoints, Phase, Purpose,
    events::BackgroundTask,
    shared::{Shared, State},
};
use crate::{
    drive::WriteFailures,
    error::{Error, Result},
    format::{
        BlockCount, BlockKey, BranchNumber, CatalogueTable, DecodeError, Interval, LogEntry, LogRecord,
        LogStart, MirroredSegment, RedundancyClass, RowKey, SegmentBlock, SegmentKind, SegmentNumber, Stamp,
        row::SegmentRow,
    },
    log::{LogSink, Need, PlacedRecord, RecordDraft},
    map::{DeadVersion, Points},
    simulation::canary::{self, Canary},
};
use std::{
    cell::{Cell, RefCell},
    rc::{Rc, Weak},
};
use world::LocalFuture;

/// The log sink of a pool.
pub(crate) struct PoolLog {
    shared: Rc<Shared>,
    /// Empty until the pool is open. Weak, since checkpoints use the log.
    checkpoints: RefCell<Weak<Checkpoints>>,
    /// Entries of the table and blocks of log that make a checkpoint due.
    thresholds: Cell<(usize, u64)>,
}

impl PoolLog {
    pub fn new(shared: &Rc<Shared>) -> Rc<Self> {
        let thresholds = Cell::new((usize::MAX, u64::MAX));
        Rc::new(Self { shared: Rc::clone(shared), checkpoints: RefCell::default(), thresholds })
    }

    /// Lets the log request checkpoints. Called once, before the log writer runs.
    pub fn attach(&self, checkpoints: &Rc<Checkpoints>) {
        self.thresholds.set(checkpoints.thresholds());
        *self.checkpoints.borrow_mut() = Rc::downgrade(checkpoints);
    }

    fn is_opening(&self) -> bool {
        self.shared.phase.get() == Phase::Opening
    }

    fn checkpoint(&self) -> LocalFuture<Result<()>> {
        let checkpoints = self.checkpoints.borrow().upgrade();
        Box::pin(async move {
            match checkpoints {
                Some(checkpoints) => checkpoints.make().await,
                None => Err(Error::Stopped("it was closed".to_owned())),
            }
        })
    }
}

impl LogSink for PoolLog {
    fn allocate(&self, need: Need) -> Option<MirroredSegment> {
        let purpose = match need {
            Need::Later => Purpose::Comfort,
            Need::Now if self.is_opening() => Purpose::Checkpoint,
            Need::Now => Purpose::Upkeep,
        };
        self.shared.take_segment(purpose, SegmentKind::Log, RedundancyClass::Raid1)
    }

    fn make_room(self: Rc<Self>) -> LocalFuture<Result<()>> {
        if self.is_opening() {
            return Box::pin(async { Ok(()) });
        }
        // After a checkpoint the log before this segment is not needed.
        self.checkpoint()
    }

    fn offer(&self, placed: &PlacedRecord, draft: &RecordDraft) {
        self.shared.offer(placed, draft);
    }

    fn take(&self, placed: &PlacedRecord, draft: &RecordDraft) {
        let record = &placed.record;
        let rows = draft.rows().map(|(row, bytes)| (row, bytes.to_vec())).collect();
        {
            let mut state = self.shared.state.borrow_mut();
            let is_first = state.log_blocks == 0;
            state.take(record, rows).expect("rows that were encoded here decode");
            let (table_entries, log_blocks) = self.thresholds.get();
            if is_first || state.table.len() >= table_entries || state.log_blocks >= log_blocks {
                self.shared.wakes.wake(BackgroundTask::Checkpoint);
            }
            let segment = state.segments.mirrored(record.segment).expect("the log is in a segment");
            assert_eq!(segment.segment_use, record.segment_use, "nobody else has a segment the log is in");
            state.log_taken = LogStart {
                previous: LogRecord::link_of(&placed.header),
                segment,
                block: SegmentBlock(record.block.0 + record.blocks()),
            };
        }
        self.shared.note_taken_for_pins(record);
        self.shared.deliver(placed, draft);
    }

    fn entered(&self, segment: SegmentNumber) {
        if self.is_opening() || !canary::is(Canary::PassedSegmentGivenBack) {
            self.shared.state.borrow_mut().note_log_segment(segment);
        }
    }

    fn publish_start(self: Rc<Self>, start: LogStart) -> LocalFuture<Result<()>> {
        if self.is_opening() {
            // During an opening; its first checkpoint names the position of the log.
            return Box::pin(async { Ok(()) });
        }
        self.shared.state.borrow_mut().log_taken = start;
        self.checkpoint()
    }

    fn stop(&self, error: &Error) {
        self.shared.stop(error);
    }

    fn lose(self: Rc<Self>, failures: WriteFailures) -> LocalFuture<Result<()>> {
        Box::pin(async move { self.shared.lose(failures).await })
    }

    fn wait_for_space(self: Rc<Self>) -> LocalFuture<Result<()>> {
        Box::pin(async move { self.shared.wait_for_space().await })
    }
}

impl State {
    /// Applies a stable record. Records must come in the order of the log. The second time a record comes
    /// (its batch was written again), only the locations of its blocks change.
    ///
    /// # Errors
    ///
    /// A row is invalid.
    pub fn take(
        &mut self,
        record: &LogRecord,
        rows: Vec<(RowKey, Vec<u8>)>,
    ) -> std::result::Result<(), DecodeError> {
        let mut rows = rows.into_iter();
        // Versions that die in the table before they reach a tree.
        let mut dead = Vec::new();
        let payload = SegmentBlock(record.block.0 + 1);
        for entry in &record.entries {
            let points = Rc::clone(self.catalogue.points());
            match entry {
                LogEntry::Write(write) => {
                    let location = write.location(record.segment, payload);
                    if self.is_too_late(write.key) {
                        dead.push(DeadVersion { key: write.key, location });
                        continue;
                    }
                    self.inherit_overwrite(write.key, &points, &mut dead);
                    self.table.write(write.key, location, Some(write.checksum), &points, &mut dead);
                    if self.catalogue.class_of(write.key.branch) == RedundancyClass::Raid0 {
                        self.backlog.add(record.segment);
                    }
                    self.note_stamp(write.key.branch, write.key.stamp);
                }
                LogEntry::Zeroes(interval) | LogEntry::Discard(interval) => {
                    self.table.discard(*interval, &points, &mut dead);
                    self.deletions_taken += 1;
                    self.note_stamp(interval.branch, interval.stamp);
                }
                LogEntry::Move(moved) => self.table.moved(moved, &mut dead),
                LogEntry::Put(put) => {
                    let (row, bytes) = rows.next().expect("every put has its row");
                    assert_eq!(row, put.row, "rows come in the order of entries");
                    drop(points);
                    self.put(row, &bytes)?;
                }
                LogEntry::Remove(row) => {
                    drop(points);
                    self.catalogue.remove(*row);
                }
            }
        }
        self.note_log_segment(record.segment);
        self.log_blocks += u64::from(record.blocks());
        self.reverse_map.add(record);
        dead.into_iter().for_each(|dead| self.reverse_map.remove(dead.location));
        Ok(())
    }

    /// Notes that the log is in `segment` now.
    fn note_log_segment(&mut self, segment: SegmentNumber) {
        if self.log_segments.back() != Some(&segment) {
            self.log_segments.push_back(segment);
        }
    }

    /// True for a write that was under way when its volume was deleted: nobody can read it, even if the branch
    /// stays for its points. Also for a copy that was under way when the filling of its branch ended: the
    /// branch still has its parent then.
    fn is_too_late(&self, key: BlockKey) -> bool {
        let catalogue = &self.catalogue;
        if catalogue.branches().is_copy(key.branch, key.stamp) {
            return !catalogue.branches().is_filling(key.branch);
        }
        !catalogue.branches().has_head(key.branch)
            && catalogue.points().at_or_after(key.branch, key.stamp).is_none()
    }

    /// Of a planted bug: the parent's version of an overwritten block ends.
    fn inherit_overwrite(&mut self, key: BlockKey, points: &Points, dead: &mut Vec<DeadVersion>) {
        if canary::is(Canary::ChildKillsItsParentsVersion)
            && let Some((branch, _)) = self.catalogue.branches().parent(key.branch, key.block)
        {
            let interval = Interval { branch, first: key.block, count: BlockCount(1), stamp: key.stamp };
            self.table.discard(interval, points, dead);
        }
    }

    fn put(&mut self, row: RowKey, bytes: &[u8]) -> std::result::Result<(), DecodeError> {
        match row.table {
            CatalogueTable::Segment => {
                let (number, segment) = (SegmentNumber(row.id as u32), SegmentRow::decode(bytes)?);
                // The row of a data segment from the mover. It is unknown only to a replay.
                let known = self.segments.row(number).map(|known| known.segment_use);
                if known != Some(segment.segment_use) {
                    self.announced.push((number, segment));
                }
                return Ok(());
            }
            CatalogueTable::Point => self.note_stamp(BranchNumber(row.id as u32), Stamp(row.sub)),
            _ => {}
        }
        self.catalogue.put(row, bytes)?;
        for (branch, point) in self.catalogue.take_due() {
            self.reclaim.point_deleted(branch, point);
            self.deletions_taken += 1;
        }
        Ok(())
    }
}
