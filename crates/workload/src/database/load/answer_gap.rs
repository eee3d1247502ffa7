//! The gap that a freeze leaves in the answers to commits, as the load sees it.

use std::{cell::Cell, time::Duration};
use world::Moment;

#[derive(Default)]
pub struct AnswerGap {
    last: Cell<Option<Moment>>,
    /// The last answer before the gap that is being watched.
    before: Cell<Option<Moment>>,
    /// The first answer after it.
    after: Cell<Option<Moment>>,
}

impl AnswerGap {
    /// A commit was answered.
    pub fn note(&self, now: Moment) {
        self.last.set(Some(now));
        if self.before.get().is_some() && self.after.get().is_none() {
            self.after.set(Some(now));
        }
    }

    /// Nothing is answered from now on: the gap began with the last answer.
    pub fn begin(&self) {
        self.before.set(self.last.get());
        self.after.set(None);
    }

    /// The length of the gap; `None` while it lasts.
    pub fn length(&self) -> Option<Duration> {
        Some(self.after.get()?.since(self.before.get()?))
    }
}
