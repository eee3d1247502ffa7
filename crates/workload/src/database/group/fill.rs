//! Filling the cache: the load runs unmeasured until the group does what it will do from then on.
//!
//! With an empty cache a run would read too much; with one full of clean pages it would write far too
//! little: pages are written back when the cache is short of clean ones, or when the log behind them is as
//! long as the checkpoint depth. So it takes four things to begin: a full cache, writes at their usual level,
//! a few seconds of load, in which pacing learns what an operation costs, and of a held rate that it is
//! there: where little was asked for, nothing moves, and that is no level.

use super::{super::progress::Phase, FillOutcome, Group, Running, TICK};
use maildb::{Instance, Statistics};
use std::time::Duration;
use world::ByteCount;

/// Share of the cache that must be in use before measuring begins, in percent (AMI 2008, test log:
/// "Database Cache Size … lower bound: 241591900" of 256 MB).
const CACHE_FULL_PERCENT: u64 = 90;
/// The load runs at least this long.
const LEAST: Duration = Duration::from_secs(5);
/// But no longer than this share of a short run.
const LEAST_SHARE: u32 = 4;
/// Ticks whose average is compared with that of as many before.
const LEVEL_TICKS: usize = 5;
/// Dirty pages have levelled off when they grew by no more than this from one span to the next.
const LEVEL_PERCENT: u64 = 2;

/// What the group has come to since the load began.
struct Settling {
    log_bytes_before: u64,
    /// Dirty pages at each tick.
    dirty_pages: Vec<u64>,
}

impl Settling {
    fn new(statistics: &Statistics) -> Self {
        Self { log_bytes_before: statistics.log_bytes, dirty_pages: Vec::new() }
    }

    fn tick(&mut self, statistics: &Statistics) {
        self.dirty_pages.push(statistics.dirty_pages);
    }

    /// Log written since, as a share of the checkpoint depth.
    fn share_of_depth(&self, statistics: &Statistics, depth: ByteCount) -> f64 {
        (statistics.log_bytes - self.log_bytes_before) as f64 / depth.0.max(1) as f64
    }

    fn has_levelled_off(&self) -> bool {
        let Some(from) = self.dirty_pages.len().checked_sub(2 * LEVEL_TICKS) else { return false };
        let (earlier, later) = self.dirty_pages[from..].split_at(LEVEL_TICKS);
        let (earlier, later) = (earlier.iter().sum::<u64>(), later.iter().sum::<u64>());
        later * 100 <= earlier * (100 + LEVEL_PERCENT)
    }
}

impl Group {
    /// Runs the load unmeasured until it is typical, or for as long as the plan allows.
    pub(super) async fn fill_cache(&self, instance: &Instance, running: &mut Running) {
        let began = self.world.now();
        let page_bytes = self.plan.profile.page_size().bytes() as u64;
        let depth = self.plan.profile.checkpoint_depth();
        let least = LEAST.min(self.plan.duration() / LEAST_SHARE);
        let longest = Duration::from_secs(self.plan.fill_s_max);
        let mut sampler = self.sampler(instance, running);
        let mut settling = Settling::new(&instance.statistics());
        loop {
            let statistics = instance.statistics();
            let room = statistics.cache_pages_max.min(statistics.database_pages).max(1);
            let reached = statistics.cache_pages * 100 >= room * CACHE_FULL_PERCENT;
            let written = settling.share_of_depth(&statistics, depth);
            let level = written >= 1.0 || settling.has_levelled_off();
            let settled = level && running.load.pacer.is_at_rate();
            let took = self.world.now().since(began);
            running.tally.fill = FillOutcome {
                seconds: took.as_secs_f64(),
                cache_bytes: statistics.cache_pages * page_bytes,
                reached,
                settled,
            };
            let filled = statistics.cache_pages as f64 * 100.0 / (room * CACHE_FULL_PERCENT) as f64;
            let lasted = took.as_secs_f64() / longest.as_secs_f64().max(1e-9);
            self.shared.board(self.number, |board| {
                board.phase = Phase::Fill;
                board.fraction = filled.min(written).max(lasted).min(1.0);
                board.bytes = None;
            });
            let typical = reached && settled && took >= least;
            if typical || took >= longest || self.ended(running) {
                break;
            }
            self.world.sleep(TICK.min(longest - took)).await;
            let sample = self.tick(instance, running, &mut sampler);
            self.observe(running, &sample);
            settling.tick(&instance.statistics());
        }
        let FillOutcome { seconds, cache_bytes, reached, settled } = running.tally.fill;
        let (full, cache) = (if reached { "full" } else { "not yet full" }, ByteCount(cache_bytes));
        let level = if settled { "" } else { "; database writes have not yet come to their level" };
        self.record_filled(running.tally.fill);
        self.say(format!("the cache is {full}: {cache} after {seconds:.0} s of load{level}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settling(dirty_pages: &[u64]) -> Settling {
        Settling { log_bytes_before: 1000, dirty_pages: dirty_pages.to_vec() }
    }

    #[test]
    fn dirty_pages_level_off_when_ten_seconds_say_so() {
        assert!(!settling(&[]).has_levelled_off());
        assert!(!settling(&[100; 9]).has_levelled_off(), "nine ticks are too few");
        assert!(settling(&[100; 10]).has_levelled_off());
        assert!(settling(&[0; 10]).has_levelled_off(), "a load that only reads is level at once");
        let rising: Vec<u64> = (0..30).map(|tick| tick * 50).collect();
        assert!(!settling(&rising).has_levelled_off());
        assert!(settling(&[900, 100, 105, 98, 101, 99, 103, 100, 97, 102, 104]).has_levelled_off());
    }

    #[test]
    fn only_log_of_the_load_counts_towards_the_checkpoint_depth() {
        let statistics = Statistics { log_bytes: 1000 + (10 << 20), ..Statistics::default() };
        assert_eq!(settling(&[]).share_of_depth(&statistics, ByteCount(20 << 20)), 0.5);
    }
}
