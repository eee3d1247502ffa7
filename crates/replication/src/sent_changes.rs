//! Changes of one part, from the records of its pool's log to those that are sent.

use crate::{
    frame::SentChange,
    planted::{self, ReplicationBug},
};
use array::{
    format::{BlockIndex, Stamp, VolumeId},
    pool::{DeliveredChange, DeliveredRecord},
};
use std::collections::BTreeSet;

/// The changes of a record that are of the content of some volumes, in order, with their stamps.
pub(crate) fn changes_of(record: &DeliveredRecord, volumes: &BTreeSet<VolumeId>) -> Vec<(Stamp, SentChange)> {
    let of_part = record
        .changes
        .iter()
        .filter(|change| change.volume().is_some_and(|volume| volumes.contains(&volume)));
    let sent = of_part.filter_map(|change| match change {
        DeliveredChange::Write { volume, key, data } => {
            let change = SentChange::Write { volume: *volume, block: key.block, data: data.clone() };
            Some((key.stamp, change))
        }
        DeliveredChange::Zeroes { volume, interval } => {
            let (first, count) = (interval.first, interval.count);
            Some((interval.stamp, SentChange::Zeroes { volume: *volume, first, count }))
        }
        DeliveredChange::Discard { volume, interval } => {
            let (first, count) = (interval.first, interval.count);
            Some((interval.stamp, SentChange::Discard { volume: *volume, first, count }))
        }
        DeliveredChange::Put { .. } | DeliveredChange::Remove(_) => None,
    });
    sent.collect()
}

/// True if the last command of the part in a record may have more changes in the next one.
pub(crate) fn goes_on(record: &DeliveredRecord, volumes: &BTreeSet<VolumeId>) -> bool {
    let last = record.changes.last().and_then(DeliveredChange::volume);
    record.goes_on && last.is_some_and(|volume| volumes.contains(&volume))
}

/// Lets each change pass once, although records come twice: from the log after they were offered, and offered again
/// after a batch had failed.
///
/// Invariants:
///
/// 1. What passes ascends in stamps.
/// 2. Changes that come for the first time come in the order of stamps; those of one stamp are of one command, and have
///    blocks of their own.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    last: Stamp,
    /// Blocks that passed with the last stamp.
    of_last: BTreeSet<(VolumeId, BlockIndex)>,
    /// Nothing of the last stamp passes any more.
    is_closed: bool,
}

impl StreamOrder {
    /// Lets pass what is above a complete stamp.
    pub fn above(complete: Stamp) -> Self {
        Self { last: complete, of_last: BTreeSet::new(), is_closed: true }
    }

    /// True if this is the first time that the change comes.
    pub fn admit(&mut self, stamp: Stamp, change: &SentChange) -> bool {
        if planted::is(ReplicationBug::SentTwice) {
            return true;
        }
        if stamp < self.last || stamp == self.last && self.is_closed {
            return false;
        }
        if stamp > self.last {
            (self.last, self.is_closed) = (stamp, false);
            self.of_last.clear();
        }
        self.of_last.insert(place_of(change))
    }
}

fn place_of(change: &SentChange) -> (VolumeId, BlockIndex) {
    match change {
        SentChange::Write { volume, block, .. } => (*volume, *block),
        SentChange::Zeroes { volume, first, .. } | SentChange::Discard { volume, first, .. } => {
            (*volume, *first)
        }
        SentChange::Resize { volume, .. }
        | SentChange::RollBack { volume, .. }
        | SentChange::VolumeDeleted { volume } => (*volume, BlockIndex(u64::MAX)),
        SentChange::Snapshot(_) | SentChange::SnapshotDeleted(_) => (VolumeId::NONE, BlockIndex(u64::MAX)),
    }
}

/// Bytes of a change on the line, about.
pub(crate) fn bytes_of(change: &SentChange) -> u64 {
    match change {
        SentChange::Write { .. } => array::format::BLOCK_BYTES as u64,
        _ => 64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use array::format::BlockCount;

    fn zeroes(first: u64) -> SentChange {
        let (volume, first, count) = (VolumeId([1; 16]), BlockIndex(first), BlockCount(1));
        SentChange::Zeroes { volume, first, count }
    }

    #[test]
    fn each_change_passes_once_also_of_commands_in_several_records() {
        let mut order = StreamOrder::above(Stamp(10));
        let mut pass = |stamp, first| order.admit(Stamp(stamp), &zeroes(first));
        assert!(!pass(9, 0) && !pass(10, 0), "it was there");
        assert!(pass(12, 0) && pass(12, 1), "one command in two records");
        assert!(!pass(12, 1) && pass(12, 2), "its last record was offered twice, then it goes on");
        assert!(pass(13, 0) && !pass(12, 3), "a lower stamp never follows");
    }
}
