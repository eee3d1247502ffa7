//! Answers of one part that wait for the peer, in the order of the log, outside the log's own batch: the next batch
//! does not wait for them.
//!
//! Invariants:
//!
//! 1. Held records ascend in stamps. A record is released with all that were held before it.
//! 2. What is released was answerable when it was released; it is not held again.

use array::{
    format::{Stamp, VolumeId},
    pool::{AnswerHold, DeliveredChange, DeliveredRecord},
};
use std::collections::{BTreeSet, VecDeque};

/// Held answers of the volumes of one part.
#[derive(Debug)]
pub struct HeldAnswers {
    volumes: BTreeSet<VolumeId>,
    held: VecDeque<(Stamp, AnswerHold)>,
}

impl HeldAnswers {
    /// Of these volumes. The subscription's holds are to be limited to them.
    pub fn new(volumes: impl IntoIterator<Item = VolumeId>) -> Self {
        Self { volumes: volumes.into_iter().collect(), held: VecDeque::new() }
    }

    /// The highest stamp of the part among the content that a record changes; none if it changes no content of it.
    /// Rows do not count: whose they are is not in their keys, and that of a deleted snapshot has an old stamp.
    pub fn stamp_of(&self, record: &DeliveredRecord) -> Option<Stamp> {
        let is_of_part =
            |change: &&DeliveredChange| change.volume().is_some_and(|volume| self.volumes.contains(&volume));
        record.changes.iter().filter(is_of_part).filter_map(DeliveredChange::stamp).max()
    }

    /// Holds the answer of a record that the tables have taken, until its stamp is released.
    ///
    /// # Panics
    ///
    /// If the stamp is below the last one that was held.
    pub fn hold(&mut self, stamp: Stamp, hold: AnswerHold) {
        assert!(self.held.back().is_none_or(|(last, _)| *last <= stamp), "stamps of a part ascend");
        self.held.push_back((stamp, hold));
    }

    /// Releases all answers up to a stamp. Returns their number.
    pub fn release(&mut self, until: Stamp) -> usize {
        let count = self.held.partition_point(|(stamp, _)| *stamp <= until);
        self.held.drain(..count).count()
    }

    /// Records whose answers wait.
    pub fn count(&self) -> usize {
        self.held.len()
    }
}
