//! A group's part in a load search: runs the ordered trials one after the other.
//!
//! Between two trials no operation starts, queued operations are dropped, and those under way finish: nothing
//! of an overloaded trial counts in the next.

use crate::{
    database::{
        measure::sample::Sampler,
        results::test_log::Phase,
        run::{
            group::{GroupRun, RunningLoad, SessionShortage, TICK},
            trial::{ReadyGroup, Trial, TrialEffort, TrialLoad},
        },
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

impl GroupRun {
    /// Runs trials until the search is over; the last one is the run itself.
    pub(super) async fn seek(&self, instance: &Instance, running: &mut RunningLoad) {
        let volumes = self.meters.iter().map(|meter| (meter.role(), meter.volume().to_owned())).collect();
        let iops = running.recent.get().iops();
        running.load.pacer.pause();
        self.shared.trials.report_ready(self.number, ReadyGroup { volumes, iops });
        let mut last = 0;
        let mut measured: Option<Sampler> = None;
        while let Some(trial) = self.next_trial(running, last).await {
            last = trial.number;
            let mut effort = TrialEffort::default();
            measured = self.attempt(instance, running, &trial, &mut effort).await;
            running.load.pacer.pause();
            if trial.holds {
                self.meters.iter().for_each(|meter| meter.close());
            }
            if running.load.pacer.is_stopped() {
                // The engine has failed, which ends the search for all groups.
                self.shared.trials.end();
            }
            self.shared.trials.done(self.number, effort);
        }
        if let Some(mut sampler) = measured {
            self.settle(running, &mut sampler).await;
            self.record_last(running);
        }
    }

    /// The trial after number `last`; None if the search is over or the run ends.
    async fn next_trial(&self, running: &RunningLoad, last: u32) -> Option<Trial> {
        loop {
            if self.ended(running) || self.shared.trials.are_over() {
                return None;
            }
            if let Some(trial) = self.shared.trials.after(last) {
                return Some(trial);
            }
            self.world.sleep(POLL).await;
        }
    }

    /// Runs one trial; returns the sampler if it was a hold. Stores its use of the machine in `effort`.
    async fn attempt(
        &self,
        instance: &Instance,
        running: &mut RunningLoad,
        trial: &Trial,
        effort: &mut TrialEffort,
    ) -> Option<Sampler> {
        self.shared.update(self.number, |progress| {
            progress.phase = Phase::Search;
            progress.fraction = 0.0;
        });
        self.drain(running).await;
        self.shared.meet(&self.world, 1 + 2 * trial.number).await;
        // A hold closes the meters; pacing would mistake uncounted I/O for none.
        self.meters.iter().for_each(|meter| meter.restart());
        self.steer(running, trial.load);
        effort.settled_s = self.let_settle(instance, running, trial.settle).await;
        // Groups notice steady state at slightly different times.
        self.shared.meet(&self.world, 2 + 2 * trial.number).await;
        if self.ended(running) {
            return None;
        }
        running.seconds.set(SessionShortage::default());
        let (began, cpu_before) = (self.world.now(), self.world.thread_cpu());
        let measured = if trial.holds {
            running.tally.samples.clear();
            Some(self.measure(instance, running).await)
        } else {
            running.load.pacer.restart();
            self.probe(instance, running, trial.measure).await;
            None
        };
        let span_s = self.world.now().since(began).as_secs_f64().max(1e-9);
        let cpu = cpu_before.zip(self.world.thread_cpu());
        effort.processor = cpu.map(|(before, after)| after.saturating_sub(before).as_secs_f64() / span_s);
        let SessionShortage { all, without_sessions } = running.seconds.get();
        effort.sessions_full = without_sessions * 2 > all;
        measured
    }

    /// Waits for the operations under way.
    async fn drain(&self, running: &RunningLoad) {
        let began = self.world.now();
        let load = &running.load;
        // In a longer transaction, operations stay unfinished until the commit.
        let may_rest = load.operations_per_transaction > 1;
        let mut before = u64::MAX;
        while self.world.now().since(began) < DRAIN_MAX && !self.ended(running) {
            let under_way = load.meter.outstanding();
            if under_way == 0 || (may_rest && under_way == before) {
                break;
            }
            before = under_way;
            self.world.sleep(if may_rest { TICK } else { POLL }).await;
        }
    }

    /// Switches to the trial's load.
    fn steer(&self, running: &mut RunningLoad, load: TrialLoad) {
        let pacer = &running.load.pacer;
        match load {
            TrialLoad::Threads(threads) => pacer.let_work(threads),
            TrialLoad::Rate(rate) => {
                let random = self.world.random(&format!("arrivals of group {}", self.number));
                let recent = running.recent.get();
                pacer.hold(rate / f64::from(self.plan.groups), (recent.io, recent.operations), random);
                if running.arrivals.is_none() {
                    let pacer = Rc::clone(pacer);
                    running.arrivals =
                        Some(self.world.spawn("arrivals", async move { pacer.run_arrivals().await }));
                }
            }
        }
    }

    /// Runs the load until the throughput of every group is steady, at most `span_max`; returns the seconds
    /// it took, or None.
    async fn let_settle(
        &self,
        instance: &Instance,
        running: &RunningLoad,
        span_max: Duration,
    ) -> Option<f64> {
        let (began, mut sampler, mut settling) =
            (self.world.now(), self.sampler(instance, running), SteadyStateDetector::default());
        let step = TICK.min(span_max / LOOKS_MIN);
        let mut steps = 0;
        while self.world.now().since(began) < span_max {
            steps += 1;
            self.world.sleep_until(began + (step * steps).min(span_max)).await;
            let sample = self.tick(instance, running, &mut sampler);
            self.observe(running, &sample);
            if self.ended(running) || self.shared.trials.is_cut() {
                return None;
            }
            let volumes = self.meters.iter().zip(&sample.volumes);
            let databases = volumes.filter(|(meter, _)| meter.role() == VolumeRole::Database);
            let io = databases.map(|(_, tallies)| tallies.transactional()).sum();
            settling.observe(io, sample.operations.count);
            if self.shared.trials.settle(self.number, settling.is_settled()) {
                return Some(self.world.now().since(began).as_secs_f64());
            }
        }
        None
    }

    /// Runs the load for `span` and passes every sample to the driver.
    async fn probe(&self, instance: &Instance, running: &RunningLoad, span: Duration) {
        let (began, mut sampler) = (self.world.now(), self.sampler(instance, running));
        let mut ticks = 0;
        while self.world.now().since(began) < span {
            ticks += 1;
            self.world.sleep_until(began + (TICK * ticks).min(span)).await;
            let sample = self.tick(instance, running, &mut sampler);
            self.observe(running, &sample);
            self.shared.trials.push(self.number, sample);
            if self.ended(running) || self.shared.trials.is_cut() {
                return;
            }
        }
    }
}
