//! Changes that wait to be sent, in memory.
//!
//! Invariants:
//!
//! 1. Changes are in the order in which their records were offered, without a gap since the outbox was opened. One that
//!    had no room left ends that: the outbox is empty and closed until it is opened again, and what it had is in the
//!    log.

use crate::{frame::SentChange, sent_changes::bytes_of};
use array::format::{Position, Stamp};
use std::collections::VecDeque;

/// Bytes that wait at most. What is behind them is read from the log.
const OUTBOX_BYTES_MAX: u64 = 256 << 20;

/// The changes of a part in one record.
#[derive(Clone, Debug)]
pub(crate) struct WaitingRecord {
    pub position: Position,
    /// At least one.
    pub changes: Vec<(Stamp, SentChange)>,
    /// The command of the last change goes on in the next record.
    pub goes_on: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    records: VecDeque<WaitingRecord>,
    bytes: u64,
    is_open: bool,
}

impl Outbox {
    /// Keeps what is offered from now on.
    pub fn open(&mut self) {
        *self = Self { is_open: true, ..Self::default() };
    }

    /// Forgets everything, and keeps nothing.
    pub fn close(&mut self) {
        *self = Self::default();
    }

    pub fn is_open(&self) -> bool {
        self.is_open
    }

    pub fn push(&mut self, record: WaitingRecord) {
        if !self.is_open {
            return;
        }
        self.bytes += record.changes.iter().map(|(_, change)| bytes_of(change)).sum::<u64>();
        if self.bytes > OUTBOX_BYTES_MAX {
            self.close();
        } else {
            self.records.push_back(record);
        }
    }

    pub fn pop(&mut self) -> Option<WaitingRecord> {
        let record = self.records.pop_front()?;
        self.bytes -= record.changes.iter().map(|(_, change)| bytes_of(change)).sum::<u64>();
        Some(record)
    }

    /// Position of the oldest record that waits.
    pub fn first(&self) -> Option<Position> {
        self.records.front().map(|record| record.position)
    }
}
