//! A group's part in a load search: runs the ordered trials one after the other.
//!
//! Between two trials no operation starts, queued operations are dropped, and those under way finish: nothing
//! of an overloaded trial counts in the next.

use super::{
    TICK, counters::SessionShortage, load::RunningLoad, measurement::Measurement, watchdog::Watchdog,
};
use crate::{
    database::{
        measure::sample::Sampler,
        results::test_log::Phase,
        run::trial::{ReadyGroup, Trial, TrialEffort, TrialLoad},
    },
    measure::steady_state::SteadyStateDetector,
    meter::VolumeRole,
};
use maildb::Instance;
use std::{rc::Rc, time::Duration};

/// Interval between checks for an order and for the end of operations.
const POLL: Duration = Duration::from_millis(20);
/// Minimum number of observations while a load settles, even if its maximum is a second: [`SteadyStateDetector`]
/// compares two with the two before.
const LOOKS_MIN: u32 = 4;
/// Maximum wait for operations under way when a trial ends.
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Runs the trials of a search in one group.
pub(super) struct TrialRunner<'g> {
    pub(super) instance: &'g Instance,
    pub(super) load: &'g mut RunningLoad,
}

impl TrialRunner<'_> {
    fn measurement(&mut self) -> Measurement<'_> {
        Measurement { instance: self.instance, load: self.load }
    }

    /// Runs trials until the search is over; the last one is the run itself.
    pub(super) async fn run(&mut self, watchdog: &Watchdog) {
        let volumes =
            self.load.context.meters.iter().map(|meter| (meter.role(), meter.volume().to_owned())).collect();
        let iops = self.load.recent.get().iops();
        self.load.group.pacer.pause();
        self.load.context.state.trials.report_ready(self.load.context.number, ReadyGroup { volumes, iops });
        let mut last = 0;
        let mut measured: Option<Sampler> = None;
        while let Some(trial) = self.next_trial(last).await {
            last = trial.number;
            let mut effort = TrialEffort::default();
            measured = self.attempt(&trial, &mut effort).await;
            self.load.group.pacer.pause();
            if trial.holds {
                self.load.context.meters.iter().for_each(|meter| meter.close());
            }
            if self.load.group.pacer.is_stopped() {
                // The engine has failed, which ends the search for all groups.
                self.load.context.state.trials.end();
            }
            self.load.context.state.trials.done(self.load.context.number, effort);
        }
        if let Some(mut sampler) = measured {
            self.measurement().settle(watchdog, &mut sampler).await;
            self.load.record_end();
        }
    }

    /// The trial after number `last`; None if the search is over or the run ends.
    async fn next_trial(&self, last: u32) -> Option<Trial> {
        loop {
            if self.load.is_ended() || self.load.context.state.trials.are_over() {
                return None;
            }
            if let Some(trial) = self.load.context.state.trials.after(last) {
                return Some(trial);
            }
            self.load.context.world.sleep(POLL).await;
        }
    }

    /// Runs one trial; returns the sampler if it was a hold. Stores its use of the machine in `effort`.
    async fn attempt(&mut self, trial: &Trial, effort: &mut TrialEffort) -> Option<Sampler> {
        // The driver knows how much of the search is done.
        self.load.context.reach(Phase::Search, 0, 0);
        self.drain().await;
        self.load.context.meet(1 + 2 * trial.number).await;
        // A hold closes the meters; pacing would mistake uncounted I/O for none.
        self.load.context.meters.iter().for_each(|meter| meter.restart());
        self.steer(trial.load);
        effort.settled_s = self.let_settle(trial.settle).await;
        // Groups notice steady state at slightly different times.
        self.load.context.meet(2 + 2 * trial.number).await;
        if self.load.is_ended() {
            return None;
        }
        self.load.seconds.set(SessionShortage::default());
        let (began, cpu_before) = (self.load.context.world.now(), self.load.context.world.thread_cpu());
        let measured = if trial.holds {
            self.load.tally.samples.clear();
            Some(self.measurement().run().await)
        } else {
            self.load.group.pacer.restart();
            self.probe(trial.measure).await;
            None
        };
        let span_s = self.load.context.world.now().since(began).as_secs_f64().max(1e-9);
        let cpu = cpu_before.zip(self.load.context.world.thread_cpu());
        effort.processor = cpu.map(|(before, after)| after.saturating_sub(before).as_secs_f64() / span_s);
        let SessionShortage { all, without_sessions } = self.load.seconds.get();
        effort.sessions_full = without_sessions * 2 > all;
        measured
    }

    /// Waits for the operations under way.
    async fn drain(&self) {
        let began = self.load.context.world.now();
        let load = &self.load.group;
        // In a longer transaction, operations stay unfinished until the commit.
        let may_rest = load.operations_per_transaction > 1;
        let mut before = u64::MAX;
        while self.load.context.world.now().since(began) < DRAIN_MAX && !self.load.is_ended() {
            let under_way = load.meter.outstanding();
            if under_way == 0 || (may_rest && under_way == before) {
                break;
            }
            before = under_way;
            self.load.context.world.sleep(if may_rest { TICK } else { POLL }).await;
        }
    }

    /// Switches to the trial's load.
    fn steer(&mut self, load: TrialLoad) {
        let pacer = &self.load.group.pacer;
        match load {
            TrialLoad::Threads(threads) => pacer.let_work(threads),
            TrialLoad::Rate(rate) => {
                let random = self
                    .load
                    .context
                    .world
                    .random(&format!("arrivals of group {}", self.load.context.number));
                let recent = self.load.recent.get();
                pacer.hold(
                    rate / f64::from(self.load.context.plan.groups),
                    (recent.io, recent.operations),
                    random,
                );
                if self.load.arrivals.is_none() {
                    let pacer = Rc::clone(pacer);
                    self.load.arrivals = Some(
                        self.load.context.world.spawn("arrivals", async move { pacer.run_arrivals().await }),
                    );
                }
            }
        }
    }

    /// Runs the load until the throughput of every group is steady, at most `span_max`; returns the seconds
    /// it took, or None.
    async fn let_settle(&self, span_max: Duration) -> Option<f64> {
        let (began, mut sampler, mut settling) =
            (self.load.context.world.now(), self.load.sampler(self.instance), SteadyStateDetector::default());
        let step = TICK.min(span_max / LOOKS_MIN);
        let mut steps = 0;
        while self.load.context.world.now().since(began) < span_max {
            steps += 1;
            self.load.context.world.sleep_until(began + (step * steps).min(span_max)).await;
            let sample = self.load.tick(self.instance, &mut sampler);
            self.load.observe(&sample);
            if self.load.is_ended() || self.load.context.state.trials.is_cut() {
                return None;
            }
            let volumes = self.load.context.meters.iter().zip(&sample.volumes);
            let databases = volumes.filter(|(meter, _)| meter.role() == VolumeRole::Database);
            let io = databases.map(|(_, tallies)| tallies.transactional()).sum();
            settling.observe(io, sample.operations.count);
            if self.load.context.state.trials.settle(self.load.context.number, settling.is_settled()) {
                return Some(self.load.context.world.now().since(began).as_secs_f64());
            }
        }
        None
    }

    /// Runs the load for `span` and passes every sample to the driver.
    async fn probe(&self, span: Duration) {
        let (began, mut sampler) = (self.load.context.world.now(), self.load.sampler(self.instance));
        let mut ticks = 0;
        while self.load.context.world.now().since(began) < span {
            ticks += 1;
            self.load.context.world.sleep_until(began + (TICK * ticks).min(span)).await;
            let sample = self.load.tick(self.instance, &mut sampler);
            self.load.observe(&sample);
            self.load.context.state.trials.push(self.load.context.number, sample);
            if self.load.is_ended() || self.load.context.state.trials.is_cut() {
                return;
            }
        }
    }
}
