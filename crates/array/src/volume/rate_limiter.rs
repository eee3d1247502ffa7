//! Rate limits of a volume: token buckets for operations and for bytes a second, in the world's time.
//!
//! A bucket is one moment: the time at which it will be full again (the generic cell rate algorithm). A
//! command takes its tokens when it arrives and proceeds when they would have been available. Commands
//! therefore keep their order, and no task has to refill buckets.

use std::{cell::Cell, time::Duration};
use world::{Moment, World};

/// Tokens that an idle volume accumulates, as time.
const BURST: Duration = Duration::from_millis(50);

/// Rate limits; 0 means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    pub iops_max: u32,
    pub kib_per_second_max: u32,
}

/// The token buckets of one volume.
#[derive(Debug, Default)]
pub(crate) struct RateLimiter {
    operations: Bucket,
    bytes: Bucket,
}

#[derive(Debug, Default)]
struct Bucket {
    full_at: Cell<Moment>,
}

impl RateLimiter {
    /// Waits until an operation of `bytes` bytes may begin.
    pub async fn wait(&self, world: &World, rates: Rates, bytes: usize) {
        let until = self.take(world.now(), rates, bytes);
        if until > world.now() {
            world.sleep_until(until).await;
        }
    }

    fn take(&self, now: Moment, rates: Rates, bytes: usize) -> Moment {
        let per_operation = span(1_000_000_000, rates.iops_max.into());
        let for_bytes = span(bytes as u64 * 1_000_000_000, u64::from(rates.kib_per_second_max) << 10);
        self.operations.take(now, per_operation).max(self.bytes.take(now, for_bytes))
    }
}

fn span(of: u64, per_second: u64) -> Duration {
    Duration::from_nanos(of.checked_div(per_second).unwrap_or(0))
}

impl Bucket {
    /// Takes tokens that are refilled within `span`. Returns the moment at which they are available.
    fn take(&self, now: Moment, span: Duration) -> Moment {
        if span.is_zero() {
            return now;
        }
        let full_at = self.full_at.get().max(now);
        self.full_at.set(full_at + span);
        // An idle bucket holds the tokens of `BURST`.
        Moment(full_at.0.saturating_sub(BURST.as_nanos() as u64)).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun_within(rates: Rates, bytes: usize, seconds: u64) -> usize {
        let limiter = RateLimiter::default();
        let begun = (0..100_000).map(|_| limiter.take(Moment(0), rates, bytes));
        begun.take_while(|begun| *begun < Moment(seconds * 1_000_000_000)).count()
    }

    #[test]
    fn the_rate_is_limited_and_a_short_burst_is_allowed() {
        let rates = Rates { iops_max: 100, kib_per_second_max: 0 };
        assert_eq!(begun_within(rates, 8192, 1), 105, "100, and those of a burst of 50 ms");
        let rates = Rates { iops_max: 0, kib_per_second_max: 800 };
        assert_eq!(begun_within(rates, 8192, 1), 105);
        let both = Rates { iops_max: 100, kib_per_second_max: 80 };
        assert_eq!(begun_within(both, 8192, 10), 101, "the stricter one counts");
        assert_eq!(begun_within(Rates::default(), 1 << 20, 1), 100_000);
    }

    #[test]
    fn idle_time_saves_tokens_for_one_burst() {
        let (limiter, rates) = (RateLimiter::default(), Rates { iops_max: 100, kib_per_second_max: 0 });
        let now = Moment(10_000_000_000);
        let begun: Vec<_> = (0..8).map(|_| limiter.take(now, rates, 512).0 - now.0).collect();
        assert_eq!(begun, [0, 0, 0, 0, 0, 0, 10_000_000, 20_000_000]);
    }
}
