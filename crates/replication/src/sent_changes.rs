//! Changes of one part, from the records of its pool's log to those that are sent.

use crate::{
    frame::{SentChange, SentSnapshot},
    planted::{self, ReplicationBug},
};
use array::{
    format::{BlockIndex, Stamp, VolumeId},
    pool::{DeliveredChange, DeliveredRecord, RowCommand},
};
use std::collections::BTreeSet;

/// The changes of a record that are of some volumes, in the order of their stamps, which is that of the log.
///
/// A row of a snapshot may be written again, with its old stamp: of such a change the stamp is not above the last one.
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
    let mut sent: Vec<(Stamp, SentChange)> = sent.collect();
    let rows = record.row_commands();
    if rows.is_empty() {
        return sent;
    }
    for (stamp, command) in rows.into_iter().filter(|(_, command)| volumes.contains(&command.volume())) {
        if matches!(command, RowCommand::Resize { .. }) {
            if planted::is(ReplicationBug::ResizeNotSent) {
                continue;
            }
            // The receiver does what belongs to it.
            sent.retain(|(other, _)| *other != stamp);
        }
        add_command(&mut sent, stamp, command);
    }
    sent.sort_by_key(|(stamp, _)| *stamp);
    sent
}

/// Adds a command that changes rows; one of several volumes is one change.
fn add_command(sent: &mut Vec<(Stamp, SentChange)>, stamp: Stamp, command: RowCommand) {
    let mut of_stamp = sent.iter_mut().filter(|(other, _)| *other == stamp);
    let change = match command {
        RowCommand::Resize { volume, sectors } => SentChange::Resize { volume, sectors },
        RowCommand::RollBack { volume, snapshot, left } => SentChange::RollBack { volume, snapshot, left },
        RowCommand::Snapshot { volume, snapshot, name, created_at, note } => {
            let same = of_stamp.find_map(|(_, change)| match change {
                SentChange::Snapshot(taken) if taken.snapshot == snapshot => Some(&mut taken.volumes),
                _ => None,
            });
            if let Some(volumes) = same {
                return volumes.push(volume);
            }
            SentChange::Snapshot(SentSnapshot { snapshot, created_at, name, note, volumes: vec![volume] })
        }
        RowCommand::SnapshotDeleted { volume, snapshot } => {
            let same = of_stamp.find_map(|(_, change)| match change {
                SentChange::SnapshotDeleted { snapshot: other, volumes } if *other == snapshot => {
                    Some(volumes)
                }
                _ => None,
            });
            if let Some(volumes) = same {
                return volumes.push(volume);
            }
            SentChange::SnapshotDeleted { snapshot, volumes: vec![volume] }
        }
    };
    sent.push((stamp, change));
}

/// True of a change of rows: it is a whole command.
pub(crate) fn is_of_rows(change: &SentChange) -> bool {
    match change {
        SentChange::Write { .. } | SentChange::Zeroes { .. } | SentChange::Discard { .. } => false,
        SentChange::Resize { .. }
        | SentChange::Snapshot(_)
        | SentChange::SnapshotDeleted { .. }
        | SentChange::RollBack { .. }
        | SentChange::VolumeDeleted { .. } => true,
    }
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
        SentChange::Snapshot(SentSnapshot { snapshot, .. })
        | SentChange::SnapshotDeleted { snapshot, .. } => (VolumeId(snapshot.0), BlockIndex(u64::MAX)),
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
