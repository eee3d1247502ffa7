//! How far a copy of a source is stable: a comparison that goes along follows it.
//!
//! Invariant: the mark moves up alone, and no further once the copy is over.

use std::cell::Cell;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct FilledMark {
    /// Number of the first block that is not.
    below: Cell<u64>,
    is_over: Cell<bool>,
    moved: Notify,
}

impl FilledMark {
    pub fn at(below: u64) -> Self {
        Self { below: Cell::new(below), is_over: Cell::new(false), moved: Notify::new() }
    }

    pub fn move_to(&self, below: u64) {
        assert!(below >= self.below.get() && !self.is_over.get(), "it moves up, while the copy goes on");
        self.below.set(below);
        self.moved.notify_waiters();
    }

    /// The copy has ended, or has failed.
    pub fn end(&self) {
        self.is_over.set(true);
        self.moved.notify_waiters();
    }

    /// Waits until all blocks below `end` are copied; false if they will not be.
    pub async fn has_reached(&self, end: u64) -> bool {
        loop {
            let moved = self.moved.notified();
            if self.below.get() >= end || self.is_over.get() {
                return self.below.get() >= end;
            }
            moved.await;
        }
    }
}
