//! Operations under way at one moment.

use std::time::Duration;
use world::Moment;

/// Operations under way at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// How many.
    pub count: u64,
    /// When the oldest of them began.
    pub oldest: Option<Moment>,
}

impl Backlog {
    /// This backlog and `other` as one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let oldest = [self.oldest, other.oldest].into_iter().flatten().min();
        Self { count: self.count + other.count, oldest }
    }

    /// How long the oldest has taken until `now`; nothing if there is none.
    pub fn age(&self, now: Moment) -> Duration {
        self.oldest.map(|oldest| now.since(oldest)).unwrap_or_default()
    }
}
