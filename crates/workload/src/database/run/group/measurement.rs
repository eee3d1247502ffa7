//! Measurement: the load is sampled for the planned time, and part of it is judged.

use super::{TICK, counters::JudgingState, load::RunningLoad, watchdog::Watchdog};
use crate::{
    database::{
        load::scan::BackgroundScan,
        measure::sample::{Sample, Sampler, sample_interval},
        record::interval_s,
        results::{LateResults, test_log::Phase},
    },
    measure::windows::TimedSample,
    meter::Meter,
};
use maildb::Instance;
use report::prose::counted;
use std::time::Duration;

/// Interval between checks for outstanding operations.
const ANSWER_POLL: Duration = Duration::from_millis(10);
/// Waits of this length are reported in the test log.
const LINE_AFTER: Duration = Duration::from_secs(1);

/// The measured time of a load.
pub(super) struct Measurement<'g> {
    pub(super) instance: &'g Instance,
    pub(super) load: &'g mut RunningLoad,
}

impl Measurement<'_> {
    /// Samples the load for the planned time; counters cover the judged part, samples all of it. Returns the
    /// sampler, for the I/O that is still outstanding.
    pub(super) async fn run(&mut self) -> Sampler {
        self.load.context.say("measuring begins");
        self.reach(Duration::ZERO);
        let part = self.load.context.plan.judged_part();
        for meter in &self.load.context.meters {
            meter.restart();
        }
        if part.from_s == 0 {
            self.begin_judged();
        }
        let sizes = self.load.group.stores.iter().map(|store| store.mail.database.size().0);
        self.load.tally.bytes_before = sizes.collect();
        let mut sampler = self.load.sampler(self.instance);
        self.load.record_start();
        let (began, duration) = (self.load.context.world.now(), self.load.context.plan.duration());
        let keep_every = sample_interval(duration);
        let mut pending: Option<Sample> = None;
        let mut ticks = 0;
        loop {
            ticks += 1;
            self.load.context.world.sleep_until(began + (TICK * ticks).min(duration)).await;
            let sample = self.load.tick(self.instance, &mut sampler);
            self.load.observe(&sample);
            let measured = self.load.context.world.now().since(began);
            let cut =
                self.load.context.plan.load.probe().is_some() && self.load.context.state.trials.is_cut();
            let at_end = measured >= duration || cut || self.load.is_ended();
            let kept = match pending.take() {
                Some(earlier) => earlier.followed_by(&sample),
                None => sample,
            };
            let second = u64::from(ticks);
            let (begins, ends) = (second == part.from_s, second == part.to_s);
            if at_end || begins || ends || second.is_multiple_of(keep_every.as_secs()) {
                if self.load.context.plan.load.probe().is_some() {
                    self.load.context.state.trials.push(self.load.context.number, kept.clone());
                }
                self.load.tally.samples.push(kept);
            } else {
                pending = Some(kept);
            }
            self.reach(measured);
            self.load.tally.load_s = measured.as_secs_f64();
            if at_end {
                break;
            }
            if begins {
                self.load.context.say(format!("the judged part begins: {}", self.load.context.plan.judged));
                self.begin_judged();
            }
            if ends {
                self.end_judged();
            }
            if second.is_multiple_of(interval_s(duration)) {
                self.take_readings();
                self.load.record_counters(pending.as_ref());
            }
        }
        self.take_readings();
        self.load.context.say(format!("measuring ends after {:.0} s", self.load.tally.load_s));
        sampler
    }

    /// Updates the progress of the phase.
    fn reach(&self, measured: Duration) {
        let duration = self.load.context.plan.duration();
        let nanos = |span: Duration| span.min(duration).as_nanos() as u64;
        self.load.context.reach(Phase::Measure, nanos(measured), nanos(duration));
    }

    /// Resets all counters: the judged part begins.
    fn begin_judged(&mut self) {
        for meter in &self.load.context.meters {
            meter.restart_judged();
        }
        self.load.group.meter.restart();
        self.load.group.pacer.restart();
        if let Some(scan) = &self.load.scan {
            scan.restart();
        }
        self.load.tally.judging = JudgingState::Since(self.load.context.world.now());
        let statistics = self.instance.statistics();
        self.load.tally.statistics = (statistics, statistics);
        self.load.tally.thread_cpu.0 = self.load.context.world.thread_cpu();
        self.load.tally.pools.0 = self.load.context.pool_facts();
    }

    /// Ends the judged part: operations that start from now on count in samples only.
    fn end_judged(&mut self) {
        self.take_readings();
        self.load.tally.judging = JudgingState::Over;
        for meter in &self.load.context.meters {
            meter.end_judged();
        }
        self.load.group.meter.end_judged(self.load.context.world.now());
        self.load.context.say(format!("the judged part ends after {:.0} s", self.load.tally.measured_s));
    }

    /// Updates all judged counters except the meters.
    fn take_readings(&mut self) {
        let JudgingState::Since(since) = self.load.tally.judging else { return };
        self.load.tally.measured_s = self.load.context.world.now().since(since).as_secs_f64();
        self.load.tally.statistics.1 = self.instance.statistics();
        self.load.tally.thread_cpu.1 = self.load.context.world.thread_cpu();
        self.load.tally.pools.1 = self.load.context.pool_facts();
        self.load.tally.pacing = self.load.group.pacer.state();
        self.load.tally.scan = self.load.scan.as_ref().map(BackgroundScan::totals).unwrap_or_default();
    }

    /// Waits for the I/O that is outstanding when measurement ends, and counts it with its latency or, after
    /// the time limit, its age. Counts the sessions' operations likewise.
    pub(super) async fn settle(&mut self, watchdog: &Watchdog, sampler: &mut Sampler) {
        let ended = self.load.context.world.now();
        for meter in &self.load.context.meters {
            meter.close();
        }
        let pacer = &self.load.group.pacer;
        // Queued operations will not start; their age counts as latency.
        let waiting = pacer.waiting();
        pacer.stop();
        let at_end = watchdog.backlog(Meter::unsettled);
        loop {
            let waited = self.load.context.world.now().since(ended);
            let unanswered = watchdog.backlog(Meter::unsettled).count;
            self.load.tally.late = LateResults {
                count: at_end.count,
                oldest_s: at_end.age(ended).as_secs_f64(),
                unanswered,
                waited_s: waited.as_secs_f64(),
            };
            if unanswered == 0
                || watchdog.backlog(Meter::unsettled).age(self.load.context.world.now())
                    > watchdog.time_limit()
            {
                break;
            }
            self.load.context.world.sleep(ANSWER_POLL).await;
        }
        for meter in &self.load.context.meters {
            meter.settle();
        }
        self.load.group.meter.settle(&waiting, self.load.context.world.now());
        // I/O that started in the measured time belongs to its last sample.
        let late = sampler.late(&self.load.group.meter, &self.load.group.pacer);
        if let Some(last) = self.load.tally.samples.pop() {
            self.load.tally.samples.push(last.followed_by(&late));
        }
        // A run that ended before the judged part has no counts of it.
        if self.load.tally.judging != JudgingState::Before {
            self.load.tally.meters = self.load.context.meters.iter().map(|meter| meter.reading()).collect();
            self.load.tally.operations = self.load.group.meter.reading();
        }
        let late = self.load.tally.late;
        if late.longest_s() >= LINE_AFTER.as_secs_f64() {
            self.load.context.say(format!(
                "{} under way when measuring ended, the oldest for {:.1} s; {:.1} s later {} unanswered",
                counted(late.count, "device operation"),
                late.oldest_s,
                late.waited_s,
                late.unanswered
            ));
        }
    }
}
