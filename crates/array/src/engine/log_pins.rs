//! Pins of the log: a subscriber that is behind keeps the records it has not sent yet.
//!
//! A pin names a position. Segments of the log with records at or behind it are not given back, though no
//! block in them is live. Pinned segments count as taken, so hosts see less free space. Hosts come first:
//! when they run short of segments, the oldest pin is lost, and then the next one, until the next checkpoint
//! will free enough. An event reports each loss. A pin may have a bound: one that would keep more is lost, too. A
//! subscriber that lost its pin has to fall back on the difference of two points.
//!
//! Pins are in memory only. A pool that is opened again keeps nothing for them.
//!
//! Invariants:
//!
//! 1. `segments` has, oldest first, each segment of the log in which a record was taken since the pool was
//!    opened, from the oldest that a pin or a replay needs on, and the positions of these records.
//! 2. A segment in which a pin has records is not condemned. It is no victim of cleaning, which would gain
//!    nothing.
//! 3. A position of a pin never moves back, and a lost pin stays lost.

use super::{
    PoolSpace, Purpose, Urgency, events::EventKind, log_subscribers::LogSubscription, shared::Shared,
};
use crate::format::{LogRecord, Position, SegmentBlock, SegmentNumber, SegmentUse, row::SegmentState};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::{Rc, Weak},
};
use tokio::sync::Notify;

/// Pinned positions, and the segments of the log that they may need.
#[derive(Debug, Default)]
pub(crate) struct LogPins {
    segments: RefCell<VecDeque<TakenSegment>>,
    pinned: RefCell<BTreeMap<u64, Position>>,
    /// Segments that a pin keeps at most, of pins that have a bound.
    bounds: RefCell<BTreeMap<u64, usize>>,
    number_next: Cell<u64>,
    /// Pins that were moved, dropped or lost.
    changes: Cell<u64>,
    lost: Notify,
}

/// A segment of the log, with the records in it that were taken: consecutive positions, one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenSegment {
    pub number: SegmentNumber,
    pub segment_use: SegmentUse,
    pub first: Position,
    /// Where the first one lies.
    pub block: SegmentBlock,
    pub last: Position,
}

/// Keeps the log from a position on, until it is dropped or lost.
pub struct LogPin {
    pub(super) shared: Weak<Shared>,
    pub(super) pins: Rc<LogPins>,
    number: u64,
}

impl LogPins {
    /// Notes that a record was taken. True if it is the first one in this use of its segment.
    pub fn note_taken(
        &self,
        position: Position,
        (number, segment_use): (SegmentNumber, SegmentUse),
        block: SegmentBlock,
    ) -> bool {
        let mut segments = self.segments.borrow_mut();
        let is_it = |back: &&mut TakenSegment| (back.number, back.segment_use) == (number, segment_use);
        if let Some(back) = segments.back_mut().filter(is_it) {
            assert_eq!(back.last.0 + 1, position.0, "records of one segment are consecutive");
            back.last = position;
            return false;
        }
        assert!(segments.back().is_none_or(|back| back.last < position), "records come in order");
        segments.push_back(TakenSegment { number, segment_use, first: position, block, last: position });
        true
    }

    /// The segment with the first record at or behind a position; none if no such record was taken.
    pub(super) fn segment_from(&self, position: Position) -> Option<TakenSegment> {
        let segments = self.segments.borrow();
        segments.get(segments.partition_point(|segment| segment.last < position)).copied()
    }

    /// Forgets segments that neither a pin nor a replay of `log_segments` needs.
    pub fn trim(&self, log_segments: &VecDeque<SegmentNumber>) {
        let oldest = self.oldest();
        let mut segments = self.segments.borrow_mut();
        while let (Some(front), Some(next)) = (segments.front(), segments.get(1)) {
            if oldest.is_some_and(|oldest| oldest < next.first) || log_segments.contains(&front.number) {
                break;
            }
            segments.pop_front();
        }
    }

    /// Segments with records at or behind the oldest pin.
    pub fn segments(&self) -> BTreeSet<SegmentNumber> {
        let Some(oldest) = self.oldest() else { return BTreeSet::new() };
        self.segments_behind(oldest).map(|segment| segment.number).collect()
    }

    fn segments_behind(&self, position: Position) -> impl Iterator<Item = TakenSegment> {
        let segments = self.segments.borrow();
        let ends = segments.iter().skip(1).map(|next| Some(next.first)).chain([None]);
        let behind = segments.iter().zip(ends).filter(|(_, end)| end.is_none_or(|end| position < end));
        behind.map(|(&segment, _)| segment).collect::<Vec<_>>().into_iter()
    }

    /// Loses the pins that keep more than their bound.
    fn lose_unbounded(&self) -> bool {
        let is_over = |&(&number, &segments_max): &(&u64, &usize)| {
            let pinned = self.pinned.borrow().get(&number).copied();
            pinned.is_some_and(|position| self.segments_behind(position).count() > segments_max)
        };
        let over: Vec<u64> = self.bounds.borrow().iter().filter(is_over).map(|(&number, _)| number).collect();
        over.iter().for_each(|number| {
            self.pinned.borrow_mut().remove(number);
        });
        if !over.is_empty() {
            self.note_change();
            self.lost.notify_waiters();
        }
        !over.is_empty()
    }

    /// Counts changes after which pins may keep fewer segments.
    pub fn changes(&self) -> u64 {
        self.changes.get()
    }

    fn oldest(&self) -> Option<Position> {
        self.pinned.borrow().values().min().copied()
    }

    fn note_change(&self) {
        self.changes.set(self.changes.get() + 1);
    }

    fn lose_oldest(&self) {
        let mut pinned = self.pinned.borrow_mut();
        let oldest = pinned.iter().min_by_key(|&(&number, &position)| (position, number));
        if let Some((&number, _)) = oldest {
            pinned.remove(&number);
        }
        drop(pinned);
        self.note_change();
        self.lost.notify_waiters();
    }
}

impl LogSubscription {
    /// Pins the log from the next record on that the subscriber gets.
    pub fn pin(&self) -> LogPin {
        let (shared, pins) = (self.shared.clone(), Rc::clone(&self.pins));
        let number = pins.number_next.replace(pins.number_next.get() + 1);
        if let Some(shared) = shared.upgrade() {
            let taken = shared.state.borrow().log_taken.previous.position;
            pins.pinned.borrow_mut().insert(number, Position(taken.0 + 1));
        }
        LogPin { shared, pins, number }
    }
}

impl LogPin {
    /// The first position that is kept; `None` once the pin is lost.
    pub fn position(&self) -> Option<Position> {
        self.pins.pinned.borrow().get(&self.number).copied()
    }

    /// Sets a bound: the pin is lost once the log that it keeps would be larger, in bytes of one copy. At least the
    /// segment that is being written is kept.
    pub fn set_bound(&self, bytes_max: u64) {
        let Some(shared) = self.shared.upgrade() else { return };
        let slot_bytes = u64::from(shared.drives.geometry().slot_bytes);
        let segments_max = usize::try_from(bytes_max / slot_bytes).unwrap_or(usize::MAX).max(1);
        self.pins.bounds.borrow_mut().insert(self.number, segments_max);
        shared.give_up_pins_over_bound();
    }

    /// Size of the log that the pin keeps, in bytes of one copy and in whole segments; `None` once it is lost.
    pub fn kept_bytes(&self) -> Option<u64> {
        let (position, shared) = (self.position()?, self.shared.upgrade()?);
        let segments = self.pins.segments_behind(position).count() as u64;
        Some(segments * u64::from(shared.drives.geometry().slot_bytes))
    }

    /// Gives back records before `position`. Does nothing once the pin is lost.
    ///
    /// # Panics
    ///
    /// If it would move back: the records may be gone.
    pub fn move_to(&self, position: Position) {
        if let Some(pinned) = self.pins.pinned.borrow_mut().get_mut(&self.number) {
            assert!(*pinned <= position, "a pin moves on");
            *pinned = position;
        }
        self.note_change();
    }

    /// Returns when the pin is lost.
    pub async fn loss(&self) {
        loop {
            // Created before the check, so that a notification after it is not missed.
            let lost = self.pins.lost.notified();
            if self.position().is_none() {
                return;
            }
            lost.await;
        }
    }

    fn note_change(&self) {
        self.pins.note_change();
        if let Some(shared) = self.shared.upgrade() {
            // A checkpoint gives the segments back, even if nothing is written.
            shared.note_unsaved_rows();
        }
    }
}

impl Drop for LogPin {
    fn drop(&mut self) {
        self.pins.bounds.borrow_mut().remove(&self.number);
        if self.pins.pinned.borrow_mut().remove(&self.number).is_some() {
            self.note_change();
        }
    }
}

impl Shared {
    /// Notes a record that the tables have taken.
    pub(super) fn note_taken_for_pins(&self, record: &LogRecord) {
        let pins = &self.subscribers.pins;
        if pins.note_taken(record.position, (record.segment, record.segment_use), record.block) {
            self.give_up_pins_over_bound();
        }
    }

    fn give_up_pins_over_bound(&self) {
        if self.subscribers.pins.lose_unbounded() {
            self.note_unsaved_rows();
        }
    }

    /// Loses pins, the oldest first, while hosts are short of segments and some are kept for pins alone.
    pub(super) fn give_up_pins_if_short(&self) {
        let pins = &self.subscribers.pins;
        loop {
            let mut kept = pins.segments();
            self.state.borrow().log_segments.iter().for_each(|number| {
                kept.remove(number);
            });
            if kept.is_empty() || !self.are_hosts_short() {
                return;
            }
            pins.lose_oldest();
            self.note_unsaved_rows();
            let bytes = kept.len() as u64 * u64::from(self.drives.geometry().slot_bytes);
            self.events.report(EventKind::LogPinLoss { bytes });
        }
    }

    /// True if hosts are short of segments and the next checkpoint will not help them.
    fn are_hosts_short(&self) -> bool {
        let space = self.space();
        let is_short = |space: PoolSpace| {
            space.cleaning_urgency() == Urgency::Awaited
                || space.free_for(Purpose::Hosts) < self.demand.wanted()
        };
        // Segments are counted only if that may decide.
        is_short(space) && is_short(PoolSpace { free: space.free + self.segments_to_free(), ..space })
    }

    /// Segments that the checkpoint under way, or the next one, frees.
    fn segments_to_free(&self) -> u64 {
        let idle = self.idle_segments().len();
        let state = self.state.borrow();
        (idle + state.segments.with_condemned().count() - state.segments.iter().count()) as u64
    }

    /// Segments without live blocks that no pin keeps.
    pub(super) fn idle_segments(&self) -> Vec<SegmentNumber> {
        let pinned = self.subscribers.pins.segments();
        let state = self.state.borrow();
        let idle = state.segments.iter().filter(|(number, row)| {
            row.state == SegmentState::Sealed && row.live_grains == 0 && !pinned.contains(number)
        });
        idle.map(|(number, _)| number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned(pins: &LogPins) -> Vec<u32> {
        pins.segments().into_iter().map(|number| number.0).collect()
    }

    #[test]
    fn a_pin_keeps_the_segment_of_its_position_and_all_behind_it() {
        let pins = LogPins::default();
        for (position, segment) in [(10, 5), (11, 5), (20, 3), (30, 8)] {
            pins.note_taken(Position(position), (SegmentNumber(segment), SegmentUse(1)), SegmentBlock(0));
        }
        assert!(pinned(&pins).is_empty(), "nothing is pinned");
        for (position, kept) in
            [(10, &[3, 5, 8][..]), (19, &[3, 5, 8]), (20, &[3, 8]), (29, &[3, 8]), (31, &[8])]
        {
            pins.pinned.borrow_mut().insert(0, Position(position));
            assert_eq!(pinned(&pins), kept, "{position}");
        }
        pins.pinned.borrow_mut().insert(1, Position(21));
        pins.trim(&VecDeque::from([SegmentNumber(8)]));
        assert_eq!(pins.segments.borrow().len(), 2, "the oldest pin counts");
        pins.lose_oldest();
        assert_eq!(pins.pinned.borrow().get(&0), Some(&Position(31)), "the other one stays");
        pins.lose_oldest();
        pins.trim(&VecDeque::from([SegmentNumber(8)]));
        let left: Vec<_> =
            pins.segments.borrow().iter().map(|segment| (segment.first, segment.number)).collect();
        assert_eq!(left, [(Position(30), SegmentNumber(8))]);
    }
}
