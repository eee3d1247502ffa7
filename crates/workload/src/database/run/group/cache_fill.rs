//! Cache fill: the load runs unmeasured until it is in its usual state.
//!
//! With an empty cache a run would read too much. With one full of clean pages it would write too little:
//! pages are written back when the cache lacks clean ones, or when the log behind them reaches the checkpoint
//! depth. So measurement starts after four conditions: a full cache; writes at their usual level; a few
//! seconds of load, in which pacing learns the cost of an operation; and, under a held rate, the rate itself,
//! since without load nothing changes, and that is no level.

use super::{TICK, load::RunningLoad};
use crate::database::{
    record::RunEvent,
    results::{outcome::FillOutcome, test_log::Phase},
};
use maildb::{Instance, Statistics};
use std::time::Duration;
use world::ByteCount;

/// Minimum share of the cache in use before measurement, in percent (AMI 2008, test log: "Database Cache Size
/// … lower bound: 241591900" of 256 MB).
const CACHE_FULL_PERCENT: u64 = 90;
/// Minimum duration of the fill.
const LEAST: Duration = Duration::from_secs(5);
/// Divisor of a short run's duration that bounds [`LEAST`].
const LEAST_SHARE: u32 = 4;
/// Number of ticks whose average is compared with that of as many before.
const LEVEL_TICKS: usize = 5;
/// Maximum growth of dirty pages between two such averages that counts as level, in percent.
const LEVEL_PERCENT: u64 = 2;
/// Total of the phase's work, which is counted in millionths.
const WHOLE: u64 = 1_000_000;

/// Progress since the load began.
struct FillProgress {
    log_bytes_before: u64,
    /// At each tick.
    dirty_pages: Vec<u64>,
}

impl FillProgress {
    fn new(statistics: &Statistics) -> Self {
        Self { log_bytes_before: statistics.log_bytes, dirty_pages: Vec::new() }
    }

    fn tick(&mut self, statistics: &Statistics) {
        self.dirty_pages.push(statistics.dirty_pages);
    }

    /// Log written by the load, as a share of the checkpoint depth.
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

/// Runs the load unmeasured until all conditions hold, or for the plan's maximum.
pub(super) async fn fill_cache(load: &mut RunningLoad, instance: &Instance) {
    let context = load.context.clone();
    let began = context.world.now();
    let page_bytes = context.plan.profile.page_size().bytes() as u64;
    let depth = context.plan.profile.checkpoint_depth();
    let least = LEAST.min(context.plan.duration() / LEAST_SHARE);
    let longest = Duration::from_secs(context.plan.fill_s_max);
    let mut sampler = load.sampler(instance);
    let mut state = FillProgress::new(&instance.statistics());
    loop {
        let statistics = instance.statistics();
        let room = statistics.cache_pages_max.min(statistics.database_pages).max(1);
        let reached = statistics.cache_pages * 100 >= room * CACHE_FULL_PERCENT;
        let written = state.share_of_depth(&statistics, depth);
        let level = written >= 1.0 || state.has_levelled_off();
        let settled = level && load.group.pacer.is_at_rate();
        let took = context.world.now().since(began);
        load.tally.fill = FillOutcome {
            seconds: took.as_secs_f64(),
            cache_bytes: statistics.cache_pages * page_bytes,
            reached,
            settled,
        };
        let filled = statistics.cache_pages as f64 * 100.0 / (room * CACHE_FULL_PERCENT) as f64;
        let lasted = took.as_secs_f64() / longest.as_secs_f64().max(1e-9);
        let fraction = filled.min(written).max(lasted).min(1.0);
        context.reach(Phase::Fill, (fraction * WHOLE as f64) as u64, WHOLE);
        let typical = reached && settled && took >= least;
        if typical || took >= longest || load.is_ended() {
            break;
        }
        context.world.sleep(TICK.min(longest - took)).await;
        let sample = load.tick(instance, &mut sampler);
        load.observe(&sample);
        state.tick(&instance.statistics());
    }
    let FillOutcome { seconds, cache_bytes, reached, settled } = load.tally.fill;
    let (full, cache) = (if reached { "full" } else { "not yet full" }, ByteCount(cache_bytes));
    let level = if settled { "" } else { "; database writes have not reached their usual level" };
    let (group, fill) = (context.number, load.tally.fill);
    context.record(|| RunEvent::Filled { group, fill });
    context.say(format!("the cache is {full}: {cache} after {seconds:.0} s of load{level}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(dirty_pages: &[u64]) -> FillProgress {
        FillProgress { log_bytes_before: 1000, dirty_pages: dirty_pages.to_vec() }
    }

    #[test]
    fn dirty_pages_level_off_when_ten_seconds_say_so() {
        assert!(!state(&[]).has_levelled_off());
        assert!(!state(&[100; 9]).has_levelled_off(), "nine ticks are too few");
        assert!(state(&[100; 10]).has_levelled_off());
        assert!(state(&[0; 10]).has_levelled_off(), "a load that only reads is level at once");
        let rising: Vec<u64> = (0..30).map(|tick| tick * 50).collect();
        assert!(!state(&rising).has_levelled_off());
        assert!(state(&[900, 100, 105, 98, 101, 99, 103, 100, 97, 102, 104]).has_levelled_off());
    }

    #[test]
    fn only_log_of_the_load_counts_towards_the_checkpoint_depth() {
        let statistics = Statistics { log_bytes: 1000 + (10 << 20), ..Statistics::default() };
        assert_eq!(state(&[]).share_of_depth(&statistics, ByteCount(20 << 20)), 0.5);
    }
}
