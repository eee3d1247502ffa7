//! Pauses of a lane that fails, and the turn of the second channel. Plain state: callers say the time.
//!
//! Invariants:
//!
//! 1. After a failure the next try comes a second later, then after twice as long as before, 5 minutes at most.
//! 2. The second channel is tried when the first one has failed without a success for `fallback_after`, and with each try from
//!    then on; the first one is tried each time, too.
//! 3. A message that its receiver refuses for good is tried for 10 minutes, and then no more.
//! 4. A mail of a lane comes a minute after the last one at the earliest.

use std::time::Duration;
use world::Moment;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A message that is refused for good so often, and for so long, is passed.
const PASSED_AFTER: (u32, Duration) = (5, Duration::from_secs(600));
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
    /// Times that the next message was refused for good, with the first of them.
    refused: Option<(u32, Moment)>,
    /// The next mail comes then at the earliest.
    pub next_mail_at: Moment,
    /// The channel itself is tried again then.
    pub retry_at: Moment,
}

impl LanePace {
    pub fn new() -> Self {
        Self {
            failing_since: None,
            pause: FIRST_PAUSE,
            refused: None,
            next_mail_at: Moment(0),
            retry_at: Moment(0),
        }
    }

    /// A message was accepted by the channel itself.
    pub fn succeeded(&mut self, now: Moment) {
        *self = Self { next_mail_at: now + MAIL_EVERY, ..Self::new() };
    }

    /// A message was accepted by the second channel.
    pub fn fell_back(&mut self, now: Moment, is_mail: bool) {
        self.refused = None;
        if is_mail {
            self.next_mail_at = now + MAIL_EVERY;
        }
    }

    /// The channel refused a message for good. True if that is to be passed.
    pub fn refused_for_good(&mut self, now: Moment) -> bool {
        let (times, since) = self.refused.map_or((1, now), |(times, since)| (times + 1, since));
        self.refused = Some((times, since));
        times >= PASSED_AFTER.0 && now.since(since) >= PASSED_AFTER.1
    }

    /// The message was passed: the next one is tried at once.
    pub fn passed(&mut self, now: Moment) {
        *self = Self { failing_since: self.failing_since, retry_at: now, ..Self::new() };
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
        pace.fell_back(at(700), false);
        assert_eq!(pace.next_mail_at, at(0), "a webhook has the next event at once");
        pace.fell_back(at(700), true);
        assert_eq!(pace.failing_for(at(701)), Duration::from_secs(701), "the channel itself still fails");
        pace.succeeded(at(702));
        assert_eq!((pace.failing_for(at(800)), pace.next_mail_at), (Duration::ZERO, at(762)));
        pace.failed(at(800));
        assert_eq!(pace.retry_at, at(801));
    }

    #[test]
    fn a_message_that_is_refused_for_good_is_passed_after_ten_minutes() {
        let mut pace = LanePace::new();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let tried = [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 811];
        let passed: Vec<u64> =
            tried.into_iter().filter(|&second| pace.refused_for_good(at(second))).collect();
        assert_eq!(passed, [811]);
        pace.passed(at(811));
        assert!(!pace.refused_for_good(at(812)), "the next message has its own time");
    }
}
