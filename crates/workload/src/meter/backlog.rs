//! Operations under way at one moment.

use std::time::Duration;
use world::Moment;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub count: u64,
    /// Start of the oldest operation.
    pub oldest: Option<Moment>,
}

impl Backlog {
    /// Combines two backlogs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let oldest = [self.oldest, other.oldest].into_iter().flatten().min();
        Self { count: self.count + other.count, oldest }
    }

    /// Age of the oldest operation at `now`; zero if there is none.
    pub fn age(&self, now: Moment) -> Duration {
        self.oldest.map(|oldest| now.since(oldest)).unwrap_or_default()
    }
}
