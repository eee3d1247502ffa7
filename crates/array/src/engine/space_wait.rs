//! Time limit for host commands while the pool waits for space on its drives.
//!
//! The pool itself waits until there is space: a record once begun is written, or the pool stops. A host gets
//! an error after a while. As with any failed command, its effect may still happen: it keeps its place in the
//! order of commands, and its blocks stay locked until it is done.

use std::{cell::Cell, time::Duration};
use tokio::sync::Notify;
use world::Moment;

/// Commands are answered with an error after so long: well within the 30 s timeout of initiators.
const ANSWER_AFTER: Duration = Duration::from_secs(10);

/// Two waits no farther apart count as one: drives find a little space now and then, and lose it again.
const GAP_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct SpaceWait {
    /// First and last moment of the current wait, gaps included.
    span: Cell<Option<(Moment, Moment)>>,
    too_long: Notify,
}

impl SpaceWait {
    /// Records that something waits for space now.
    pub fn note(&self, now: Moment) {
        let goes_on = self.span.get().filter(|(_, last)| now.since(*last) <= GAP_MAX);
        let (since, _) = goes_on.unwrap_or((now, now));
        self.span.set(Some((since, now)));
        if now.since(since) >= ANSWER_AFTER {
            self.too_long.notify_waiters();
        }
    }

    /// Returns when something has waited for too long, and still does.
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
