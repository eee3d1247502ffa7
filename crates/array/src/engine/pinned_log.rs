//! Reading of pinned log: the records that a subscriber got, and could not send at once.
//!
//! Records are read from the drives, since nothing keeps them in memory. Each comes once, in the order of positions:
//! a batch that was written twice left records that were never taken at the end of a segment, and their positions
//! are above that of the segment's last record.

use super::{
    log_pins::{LogPin, TakenSegment},
    log_subscribers::{DeliveredChange, DeliveredRecord},
    shared::Shared,
};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, LogEntry, Position, SegmentBlock, Stamp, Stored, Write},
    log::{CompleteRecord, SegmentReader},
};
use std::{rc::Rc, sync::Arc};
use world::Buffer;

impl LogPin {
    /// Reads records from `from` on, in order: all that are left in the segment of the first one. Empty if no such
    /// record was taken yet. Changes of volumes that were deleted since are omitted; a record of a branch that was
    /// filled since may have copies from its parent, with the stamp of its fork.
    /// Of the last record it is not known here whether its command goes on: it says that it does.
    ///
    /// # Errors
    ///
    /// [`Error::LogPinLost`]: the pin is lost. [`Error::LogUnreadable`]: no copy of a record can be read. The pool
    /// was closed.
    ///
    /// # Panics
    ///
    /// If `from` is before the pinned position.
    pub async fn read(&self, from: Position) -> Result<Vec<Rc<DeliveredRecord>>> {
        let shared = self.shared.upgrade().ok_or_else(|| Error::Stopped("it was closed".to_owned()))?;
        let pinned = self.position().ok_or(Error::LogPinLost)?;
        assert!(from >= pinned, "records before a pin may be gone");
        let Some(taken) = self.pins.segment_from(from) else { return Ok(Vec::new()) };
        // Keeps the segment from being reused if the pin is lost meanwhile.
        let _reading = shared.begin_reading();
        let segment = shared.state.borrow().segments.mirrored(taken.number);
        let segment = segment.filter(|segment| segment.segment_use == taken.segment_use);
        let segment = segment.ok_or(Error::LogPinLost)?;
        let reader = SegmentReader::open(&shared.drives, (shared.pool, shared.seed), &segment).await;
        shared.records_of(&reader, taken, from)
    }
}

impl Shared {
    fn records_of(
        &self,
        reader: &SegmentReader,
        taken: TakenSegment,
        from: Position,
    ) -> Result<Vec<Rc<DeliveredRecord>>> {
        let (mut block, mut position) = (taken.block, taken.first);
        let mut records: Vec<DeliveredRecord> = Vec::new();
        while position <= taken.last {
            let found = reader.record_at(block, |record| record.position == position);
            let found = found.ok_or(Error::LogUnreadable(position))?;
            block = SegmentBlock(block.0 + found.record.blocks());
            if position >= from {
                let record = self.delivered(found)?;
                let first = record.changes.iter().find_map(DeliveredChange::stamp);
                if let Some(before) = records.last_mut() {
                    note_what_follows(before, first);
                }
                records.push(record);
            }
            position = Position(position.0 + 1);
        }
        Ok(records.into_iter().map(Rc::new).collect())
    }

    fn delivered(&self, found: CompleteRecord) -> Result<DeliveredRecord> {
        let CompleteRecord { record, bytes } = found;
        let bytes = Arc::new(bytes);
        let rows = record.entries.iter().filter_map(|entry| match entry {
            LogEntry::Put(put) => {
                let part = entry.payload().expect("a row has bytes");
                Some((put.row, bytes[BLOCK_BYTES + part.start..BLOCK_BYTES + part.end].to_vec()))
            }
            _ => None,
        });
        let is_plain =
            |entry: &LogEntry| !matches!(entry, LogEntry::Write(write) if write.stored != Stored::PLAIN);
        if !record.entries.iter().all(is_plain) {
            return Err(Error::NotYet("a compressed or encrypted block in the log"));
        }
        let data_of = |write: &Write| {
            let start = BLOCK_BYTES + write.at.byte();
            Arc::new(Buffer::part_of(&bytes, start..start + BLOCK_BYTES))
        };
        let changes = self.state.borrow().delivered_changes(&record.entries, rows, data_of);
        // Only the next record shows it.
        Ok(DeliveredRecord { position: record.position, changes, goes_on: true })
    }
}

/// A command goes on if the record behind begins with its stamp. The last record of a segment keeps its doubt.
fn note_what_follows(record: &mut DeliveredRecord, next: Option<Stamp>) {
    let last = record.changes.iter().rev().find_map(DeliveredChange::stamp);
    record.goes_on = last.is_some() && last == next;
}
