//! Demand for space: writes that wait for segments, and rounds of cleaning that serve or refuse them.
//!
//! Invariant: a waiting write is served or refused in the end, since each round gains segments, or is the one
//! that refuses.

use std::cell::{Cell, RefCell};
use tokio::sync::Notify;

/// State shared by writes that wait for space, and cleaning.
#[derive(Debug, Default)]
pub(crate) struct SpaceDemand {
    /// Segments wanted, one entry for each waiting write.
    wanted: RefCell<Vec<u64>>,
    /// Rounds of cleaning begun.
    rounds: Cell<u64>,
    /// The last round that gained nothing.
    round_in_vain: Cell<u64>,
    /// Writes refused for lack of space.
    refused: Cell<u64>,
    changed: Notify,
}

impl SpaceDemand {
    /// The largest number of segments that a write waits for.
    pub fn wanted(&self) -> u64 {
        self.wanted.borrow().iter().copied().max().unwrap_or(0)
    }

    /// Returns the number of the new round.
    pub fn begin_round(&self) -> u64 {
        self.rounds.set(self.rounds.get() + 1);
        self.rounds.get()
    }

    /// Records that `round` gained nothing and that none would: writes that waited when it began are refused.
    pub fn end_in_vain(&self, round: u64) {
        assert!(round <= self.rounds.get() && round > self.round_in_vain.get(), "round {round} ends once");
        self.round_in_vain.set(round);
        self.note_change();
    }

    /// Wakes waiting writes. To be called when segments or tables have become free, drives have gained or
    /// lost space, or the pool has stopped.
    pub fn note_change(&self) {
        self.changed.notify_waiters();
    }

    /// Waits for the next change.
    ///
    /// A caller that checks a condition must not await anything between the check and this.
    pub async fn change(&self) {
        self.changed.notified().await;
    }

    pub fn refused(&self) -> u64 {
        self.refused.get()
    }

    pub fn count_refusal(&self) {
        self.refused.set(self.refused.get() + 1);
    }
}

/// A write waiting for segments. It stops waiting on drop.
pub(crate) struct RoomWait<'a> {
    demand: &'a SpaceDemand,
    pub wanted: u64,
    /// Rounds of cleaning that had begun when the write arrived.
    arrival: u64,
    is_listed: Cell<bool>,
}

impl<'a> RoomWait<'a> {
    pub fn new(demand: &'a SpaceDemand, wanted: u64) -> Self {
        Self { demand, wanted, arrival: demand.rounds.get(), is_listed: Cell::new(false) }
    }

    /// True if a round that began after the arrival gained nothing.
    pub fn is_in_vain(&self) -> bool {
        self.demand.round_in_vain.get() > self.arrival
    }

    /// Lets cleaning know of the write.
    pub fn list(&self) {
        if !self.is_listed.replace(true) {
            self.demand.wanted.borrow_mut().push(self.wanted);
        }
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        if self.is_listed.get() {
            let mut wanted = self.demand.wanted.borrow_mut();
            let place = wanted.iter().position(|&wanted| wanted == self.wanted).expect("it was listed");
            wanted.swap_remove(place);
        }
    }
}
