//! Subscribers of the log: sinks beside the tables, such as the sender of a replica.
//!
//! A subscriber gets each record right after the tables have taken it, and before any of its callers gets an
//! answer. So a subscriber has every write that was acknowledged to a host. With a volume's write cache on,
//! that moment comes before the record is stable: after a power cut a subscriber may be ahead of the drives,
//! by writes that no flush covered. Lineage compares the two sides by stamps and finds that out.
//!
//! A record is *offered* before, when its batch goes to the drives, so that a sender can work at the same time
//! as they do. An offered record may never be taken, if the pool ends before; and one whose batch is written again
//! is offered again, with the same changes under another position.
//!
//! Invariants:
//!
//! 1. A subscriber gets all records since its registration, once each, in the order of positions. Positions
//!    may have gaps: a batch that is written again gets new ones. It was offered each, unless it registered
//!    meanwhile.
//! 2. The pool's state is not borrowed while a subscriber has control, and no record is taken meanwhile.

use super::{
    answer_holds::{AnswerHold, AnswerHolds},
    ended_hosts::EndedHosts,
    log_pins::LogPins,
    read_gates::{ReadGate, ReadGates},
    shared::{Shared, State},
};
use crate::{
    format::{
        BlockKey, CatalogueTable, Interval, LogEntry, Position, RowKey, Stamp, VolumeId, Write,
        row::{BranchRow, PointRow, VolumeRow},
    },
    log::{PlacedRecord, RecordDraft},
    simulation::canary::{self, Canary},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::{Rc, Weak},
    sync::Arc,
};
use world::Buffer;

/// A sink of records beside the tables.
pub trait LogSubscriber {
    /// Takes a record. To be quick: the log writes its next batch after this returns. Hosts get no answer to
    /// this record, nor to later ones, while `hold` is kept; the log does not wait for it.
    fn take(&self, record: &Rc<DeliveredRecord>, hold: AnswerHold);

    /// Sees a record whose batch is on its way to the drives. As quick as [`Self::take`].
    fn offer(&self, _record: &Rc<DeliveredRecord>) {}
}

/// A record as subscribers get it.
#[derive(Clone, Debug)]
pub struct DeliveredRecord {
    /// Number of the record in the log. Ascends.
    pub position: Position,
    /// Changes of content and catalogue, in the order of the log. Empty if the record only says where blocks
    /// lie on the drives of this pool.
    pub changes: Vec<DeliveredChange>,
    /// The command of the last change may have more changes, in the next record. Its stamp is complete only then.
    pub goes_on: bool,
}

/// A change of a record. Keys and intervals contain branch and stamp. Changes of volumes of which nothing is
/// left are omitted.
#[derive(Clone, Debug)]
pub enum DeliveredChange {
    /// A block was written.
    Write { volume: VolumeId, key: BlockKey, data: Arc<Buffer> },
    /// Blocks were written with zeroes.
    Zeroes { volume: VolumeId, interval: Interval },
    /// Blocks were discarded.
    Discard { volume: VolumeId, interval: Interval },
    /// A row of the catalogue was inserted or replaced: a volume, a branch, a point. `volume`: the volume that it is of,
    /// if it is of one.
    Put { row: RowKey, bytes: Vec<u8>, volume: Option<VolumeId> },
    /// A row of the catalogue was deleted.
    Remove(RowKey),
}

/// Identifies a subscriber among those of its pool.
pub(super) type SubscriberNumber = u64;

/// The subscribers of a pool's log.
#[derive(Default)]
pub(crate) struct LogSubscribers {
    list: RefCell<Vec<(SubscriberNumber, Rc<dyn LogSubscriber>)>>,
    number_next: Cell<SubscriberNumber>,
    pub(super) holds: Rc<AnswerHolds>,
    pub ended_hosts: EndedHosts,
    pub(super) read_gates: ReadGates,
    pub pins: Rc<LogPins>,
}

/// A registered subscriber. Once this is dropped it gets no more records, and holds no answers.
pub struct LogSubscription {
    /// Weak, since a subscriber may own its subscription.
    pub(super) shared: Weak<Shared>,
    pub(super) pins: Rc<LogPins>,
    number: SubscriberNumber,
}

impl Drop for LogSubscription {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.subscribers.list.borrow_mut().retain(|(number, _)| *number != self.number);
            let refused = shared.subscribers.holds.end(self.number);
            shared.subscribers.ended_hosts.end(refused);
            shared.subscribers.read_gates.end(self.number);
        }
    }
}

impl Shared {
    /// Registers a subscriber. The first record it gets is the next one that the tables take.
    pub fn subscribe(self: &Rc<Self>, subscriber: Rc<dyn LogSubscriber>) -> LogSubscription {
        let subscribers = &self.subscribers;
        let number = subscribers.number_next.replace(subscribers.number_next.get() + 1);
        subscribers.list.borrow_mut().push((number, subscriber));
        LogSubscription { shared: Rc::downgrade(self), pins: Rc::clone(&subscribers.pins), number }
    }

    /// Shows a record that the tables have taken to all subscribers.
    pub(super) fn deliver(&self, placed: &PlacedRecord, draft: &RecordDraft) {
        self.show(placed, draft, |record, number, subscriber| {
            subscriber.take(record, self.subscribers.holds.begin(record.position, number));
        });
    }

    /// Shows a record whose batch is about to be written to all subscribers.
    pub(super) fn offer(&self, placed: &PlacedRecord, draft: &RecordDraft) {
        self.show(placed, draft, |record, _, subscriber| subscriber.offer(record));
    }

    fn show(
        &self,
        placed: &PlacedRecord,
        draft: &RecordDraft,
        to: impl Fn(&Rc<DeliveredRecord>, SubscriberNumber, &Rc<dyn LogSubscriber>),
    ) {
        if self.subscribers.list.borrow().is_empty() {
            return;
        }
        let position = placed.record.position;
        let changes = self.state.borrow().delivered_changes_of(draft);
        let record = Rc::new(DeliveredRecord { position, changes, goes_on: draft.goes_on() });
        // A subscriber may come or go while another has the record.
        let list = self.subscribers.list.borrow().clone();
        for (number, subscriber) in list {
            let is_there = self.subscribers.list.borrow().iter().any(|(other, _)| *other == number);
            if is_there {
                to(&record, number, &subscriber);
            }
        }
    }
}

impl LogSubscription {
    /// From now on, holds of this subscriber keep only commands of these volumes waiting, and commands that are of no
    /// single volume, as those of groups are.
    pub fn limit_holds(&self, volumes: impl IntoIterator<Item = VolumeId>) {
        if let Some(shared) = self.shared.upgrade() {
            let volumes: BTreeSet<VolumeId> = volumes.into_iter().collect();
            shared.subscribers.ended_hosts.reopen(&volumes);
            shared.subscribers.holds.limit(self.number, volumes);
        }
    }

    /// From now on, hosts get what they read of these volumes when the gate says so.
    pub fn gate_reads(&self, volumes: impl IntoIterator<Item = VolumeId>, gate: &Rc<dyn ReadGate>) {
        if let Some(shared) = self.shared.upgrade() {
            let set = |volume| shared.subscribers.read_gates.set(volume, (self.number, Rc::clone(gate)));
            volumes.into_iter().for_each(set);
        }
    }

    /// From now on, commands that this subscriber holds get an error: their effect stays here, and hosts learn that it may
    /// be lost. After its end so does each command of a host that began before, and none begins until another
    /// subscriber limits its holds to the volume, or it becomes a replica, or is none any more.
    ///
    /// # Panics
    ///
    /// If its holds are not limited to volumes.
    pub fn refuse_held(&self) {
        if let Some(shared) = self.shared.upgrade() {
            shared.subscribers.holds.refuse(self.number);
        }
    }
}

impl DeliveredChange {
    /// The volume whose content it changes; `None` of a row.
    pub fn volume(&self) -> Option<VolumeId> {
        match self {
            Self::Write { volume, .. } | Self::Zeroes { volume, .. } | Self::Discard { volume, .. } => {
                Some(*volume)
            }
            Self::Put { .. } | Self::Remove(_) => None,
        }
    }

    /// Its stamp; `None` of a row that is not a point. A command that changes rows alone has its stamp in the row of its
    /// branch, as the highest one.
    pub fn stamp(&self) -> Option<Stamp> {
        match self {
            Self::Write { key, .. } => Some(key.stamp),
            Self::Zeroes { interval, .. } | Self::Discard { interval, .. } => Some(interval.stamp),
            Self::Put { row, .. } | Self::Remove(row) => {
                (row.table == CatalogueTable::Point).then_some(Stamp(row.sub))
            }
        }
    }
}

impl State {
    /// The volume that a row is of; `None` if it is of no volume, or of one of which nothing is left.
    fn volume_of_row(&self, row: RowKey, bytes: &[u8]) -> Option<VolumeId> {
        let number = match row.table {
            CatalogueTable::Volume => return VolumeRow::decode(bytes).ok().map(|row| row.volume),
            CatalogueTable::Branch => BranchRow::decode(bytes).ok()?.volume,
            CatalogueTable::Point => PointRow::decode(bytes).ok()?.volume,
            _ => return None,
        };
        self.catalogue.volume(number).map(|row| row.volume)
    }

    fn delivered_changes_of(&self, draft: &RecordDraft) -> Vec<DeliveredChange> {
        let rows = draft.rows().map(|(row, bytes)| (row, bytes.to_vec()));
        self.delivered_changes(draft.entries(), rows, |write| draft.data_of(write))
    }

    /// The changes of a record, from its entries, the rows it puts, and the block of each write.
    pub(super) fn delivered_changes(
        &self,
        entries: &[LogEntry],
        mut rows: impl Iterator<Item = (RowKey, Vec<u8>)>,
        data_of: impl Fn(&Write) -> Arc<Buffer>,
    ) -> Vec<DeliveredChange> {
        let changes = entries.iter().filter_map(|entry| match entry {
            // A copy that fills a branch changes nothing that it reads.
            LogEntry::Write(write)
                if self.catalogue.branches().is_copy(write.key.branch, write.key.stamp) =>
            {
                None
            }
            LogEntry::Write(write) => {
                let volume = self.catalogue.volume_of(write.key.branch)?;
                Some(DeliveredChange::Write { volume, key: write.key, data: data_of(write) })
            }
            LogEntry::Zeroes(interval) => {
                let volume = self.catalogue.volume_of(interval.branch)?;
                Some(DeliveredChange::Zeroes { volume, interval: *interval })
            }
            LogEntry::Discard(interval) => {
                if canary::is(Canary::DiscardNotDelivered) {
                    return None;
                }
                let volume = self.catalogue.volume_of(interval.branch)?;
                Some(DeliveredChange::Discard { volume, interval: *interval })
            }
            // Places on the drives of this pool.
            LogEntry::Move(_) => None,
            LogEntry::Put(_) => {
                let (row, bytes) = rows.next().expect("every put has its row");
                let is_of_drives = row.table == CatalogueTable::Segment;
                let volume = if is_of_drives { None } else { self.volume_of_row(row, &bytes) };
                (!is_of_drives).then_some(DeliveredChange::Put { row, bytes, volume })
            }
            LogEntry::Remove(row) => Some(DeliveredChange::Remove(*row)),
        });
        changes.collect()
    }
}
