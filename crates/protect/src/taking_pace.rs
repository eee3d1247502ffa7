//! The pace of a schedule by a clock that never jumps.
//!
//! A civil clock that jumps forward and back again and again makes each jump look like intervals that were missed. Two
//! snapshots within an interval are right: one that was made up, and the next one at its time. A third is not.

use std::time::Duration;

/// The last two snapshots of a schedule, by a clock that never jumps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakingPace {
    last: Option<Duration>,
    before: Option<Duration>,
}

impl TakingPace {
    /// True if one more may be taken at `now`. A tenth of the interval is left for clocks that differ in speed.
    pub fn allows(&self, interval_s: i64, now: Duration) -> bool {
        now >= self.allows_from(interval_s)
    }

    /// The moment from which on one more may be taken.
    pub fn allows_from(&self, interval_s: i64) -> Duration {
        let interval = Duration::from_secs(interval_s.unsigned_abs());
        self.before.map_or(Duration::ZERO, |before| before + interval * 9 / 10)
    }

    /// Time since the last one; since the runner's start if it took none.
    pub fn since_last(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last.unwrap_or_default())
    }

    /// Notes that one was taken at `now`.
    pub fn note_taken(&mut self, now: Duration) {
        self.before = self.last.replace(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_snapshot_waits_for_its_interval() {
        let mut pace = TakingPace::default();
        let at = Duration::from_secs;
        for second in [0, 10, 3600] {
            assert!(pace.allows(3600, at(second)), "{second}");
            pace.note_taken(at(second));
        }
        assert!(!pace.allows(3600, at(3610 - 361)));
        assert!(pace.allows(3600, at(3610 - 360)), "of the second one's interval, a tenth is left");
    }
}
