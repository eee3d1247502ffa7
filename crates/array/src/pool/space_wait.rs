//! How long the pool has waited for space on its drives: commands that are under way are not to wait as long as it does.
//!
//! The pool itself waits until there is space: a record that has begun is written, or the pool stops. A host is told after a
//! while that there is no space. What it asked for may still happen, as with any command that was answered with an error; it goes
//! on, in its place in the order of commands, and keeps its blocks locked until it is over.

use std::{cell::Cell, time::Duration};
use tokio::sync::Notify;
use world::Moment;

/// Commands that found space are answered with an error when the pool has waited for so long: well within the 30 s that
/// initiators wait.
const ANSWER_AFTER: Duration = Duration::from_secs(10);

/// Two waits that are no farther apart are one: drives find a little space now and then, and lose it again.
const GAP_MAX: Duration = Duration::from_secs(5);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct SpaceWait {
    /// From when to when somebody waited, gaps included.
    span: Cell<Option<(Moment, Moment)>>,
    too_long: Notify,
}

impl SpaceWait {
    /// Somebody waits now.
    pub fn note(&self, now: Moment) {
        let goes_on = self.span.get().filter(|(_, last)| now.since(*last) <= GAP_MAX);
        let (since, _) = goes_on.unwrap_or((now, now));
        self.span.set(Some((since, now)));
        if now.since(since) >= ANSWER_AFTER {
            self.too_long.notify_waiters();
        }
    }

    /// Done when somebody waits who has done so for too long.
    pub async fn has_been_too_long(&self) {
        self.too_long.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use world::Moment;

    fn at(ms: u64) -> Moment {
        Moment::default() + Duration::from_millis(ms)
    }

    #[test]
    fn a_wait_with_short_gaps_is_one_and_a_long_gap_begins_another() {
        let wait = SpaceWait::default();
        let is_told_at = |ms: u64| {
            let mut told = Box::pin(wait.has_been_too_long());
            assert!((&mut told).now_or_never().is_none());
            wait.note(at(ms));
            told.now_or_never().is_some()
        };
        let told: Vec<bool> = [0, 4_000, 9_000, 9_999, 10_000, 15_001, 20_000, 25_000].map(is_told_at).into();
        assert_eq!(told, [false, false, false, false, true, false, false, false]);
        assert!(is_told_at(26_000));
    }
}
