//! Pauses of a lane that fails, and the turn of the second channel. Plain state: callers say the time.
//!
//! Invariants:
//!
//! 1. After a failure the next try comes a second later, then after twice as long as before, 5 minutes at most.
//! 2. The second channel is tried when the first one has failed without a success for `fallback_after`, and with each try from
//!    then on; the first one is tried each time, too.
//! 3. A mail of a lane comes a minute after the last one at the earliest.

use std::time::Duration;
use world::Moment;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(300);
/// Time of failing after which that is a condition.
pub(super) const SAID_AFTER: Duration = Duration::from_secs(60);
/// Least time between two mails of a lane.
pub(super) const MAIL_EVERY: Duration = Duration::from_secs(60);

/// Pace of one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LanePace {
    failing_since: Option<Moment>,
    pause: Duration,
    /// The next mail comes then at the earliest.
    pub next_mail_at: Moment,
    /// The channel itself is tried again then.
    pub retry_at: Moment,
}

impl LanePace {
    pub fn new() -> Self {
        Self { failing_since: None, pause: FIRST_PAUSE, next_mail_at: Moment(0), retry_at: Moment(0) }
    }

    /// A message was accepted by the channel itself.
    pub fn succeeded(&mut self, now: Moment) {
        *self = Self { next_mail_at: now + MAIL_EVERY, ..Self::new() };
    }

    /// A message was accepted by the second channel.
    pub fn fell_back(&mut self, now: Moment) {
        self.next_mail_at = now + MAIL_EVERY;
    }

    /// The channel failed.
    pub fn failed(&mut self, now: Moment) {
        self.failing_since.get_or_insert(now);
        self.retry_at = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Time of failing without a success.
    pub fn failing_for(&self, now: Moment) -> Duration {
        self.failing_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_five_minutes_and_a_success_ends_them() {
        let mut pace = LanePace::new();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut failed = |number| {
            pace.failed(at(number));
            pace.retry_at.since(at(number)).as_secs()
        };
        let pauses: Vec<u64> = (0..11).map(&mut failed).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(pace.failing_for(at(700)), Duration::from_secs(700));
        pace.fell_back(at(700));
        assert_eq!(pace.failing_for(at(701)), Duration::from_secs(701), "the channel itself still fails");
        pace.succeeded(at(702));
        assert_eq!((pace.failing_for(at(800)), pace.next_mail_at), (Duration::ZERO, at(762)));
        pace.failed(at(800));
        assert_eq!(pace.retry_at, at(801));
    }
}
