//! Measurement: the load is sampled for the planned time, and part of it is judged.

use crate::measure::windows::TimedSample;
use crate::{
    database::{
        load::scan::BackgroundScan,
        measure::sample::{Sample, Sampler, sample_interval},
        record::interval_s,
        results::test_log::Phase,
        run::{
            group::{GroupRun, JudgingState, RunningLoad, SessionShortage, TICK},
            progress::LiveFigures,
        },
    },
    meter::{IoTallies, VolumeRole},
};
use maildb::Instance;

impl GroupRun {
    pub(super) fn sampler(&self, instance: &Instance, running: &RunningLoad) -> Sampler {
        let operations = &running.load.meter;
        Sampler::new(self.meters.clone(), operations, self.world.now(), instance.statistics())
    }

    pub(super) fn ended(&self, running: &RunningLoad) -> bool {
        self.shared.ending() || running.load.pacer.is_stopped()
    }

    pub(super) fn tick(&self, instance: &Instance, running: &RunningLoad, sampler: &mut Sampler) -> Sample {
        sampler.tick(self.world.now(), instance.statistics(), &running.load.meter, &running.load.pacer)
    }

    /// Reports a sample to the pacer and the progress display, and notices full databases.
    pub(super) fn observe(&self, running: &RunningLoad, sample: &Sample) {
        let (mut database, mut log) = (IoTallies::default(), IoTallies::default());
        for (meter, tallies) in self.meters.iter().zip(&sample.volumes) {
            match meter.role() {
                VolumeRole::Database => database.merge(tallies),
                VolumeRole::Log => log.merge(tallies),
            }
        }
        let io = database.read.count + database.write.count;
        running.load.pacer.observe(io, sample.operations.count, running.load.meter.outstanding());
        let recent = running.recent.get();
        running.recent.set(recent.followed_by(io, sample.operations.count, sample.span_s));
        let SessionShortage { all, without_sessions } = running.seconds.get();
        let lacking = u32::from(running.load.pacer.lacks_sessions());
        running.seconds.set(SessionShortage { all: all + 1, without_sessions: without_sessions + lacking });
        let span_s = sample.span_s.max(1e-9);
        let live = LiveFigures {
            database_iops: io as f64 / span_s,
            database_read_ms: database.read.average_ms(),
            database_write_ms: database.write.average_ms(),
            log_write_ms: log.write.average_ms(),
            operations_per_second: sample.operations.count as f64 / span_s,
            backlog: sample.backlog,
        };
        self.shared.update(self.number, |progress| progress.live = Some(live));
        for store in running.load.stores.iter().filter(|store| store.became_full()) {
            let (name, size) = (store.mail.database.name(), store.mail.database.size());
            self.say(format!(
                "{name} is full with {size}: from now on as many records are deleted as inserted"
            ));
        }
    }

    /// Samples the load for the planned time; counters cover the judged part, samples all of it. Returns the
    /// sampler, for the I/O that is still outstanding.
    pub(super) async fn measure(&self, instance: &Instance, running: &mut RunningLoad) -> Sampler {
        self.say("measuring begins");
        self.shared.update(self.number, |progress| {
            progress.phase = Phase::Measure;
            progress.fraction = 0.0;
        });
        let part = self.plan.judged_part();
        for meter in &self.meters {
            meter.restart();
        }
        if part.from_s == 0 {
            self.begin_judged(instance, running);
        }
        let sizes = running.load.stores.iter().map(|store| store.mail.database.size().0);
        running.tally.bytes_before = sizes.collect();
        let mut sampler = self.sampler(instance, running);
        self.record_measuring(running);
        let (began, duration) = (self.world.now(), self.plan.duration());
        let keep_every = sample_interval(duration);
        let mut pending: Option<Sample> = None;
        let mut ticks = 0;
        loop {
            ticks += 1;
            self.world.sleep_until(began + (TICK * ticks).min(duration)).await;
            let sample = self.tick(instance, running, &mut sampler);
            self.observe(running, &sample);
            let measured = self.world.now().since(began);
            let cut = self.plan.load.probe().is_some() && self.shared.trials.is_cut();
            let at_end = measured >= duration || cut || self.ended(running);
            let kept = match pending.take() {
                Some(earlier) => earlier.followed_by(&sample),
                None => sample,
            };
            let second = u64::from(ticks);
            let (begins, ends) = (second == part.from_s, second == part.to_s);
            if at_end || begins || ends || second.is_multiple_of(keep_every.as_secs()) {
                if self.plan.load.probe().is_some() {
                    self.shared.trials.push(self.number, kept.clone());
                }
                running.tally.samples.push(kept);
            } else {
                pending = Some(kept);
            }
            let fraction = measured.as_secs_f64() / duration.as_secs_f64();
            self.shared.update(self.number, |progress| {
                progress.phase = Phase::Measure;
                progress.fraction = fraction.min(1.0);
            });
            running.tally.load_s = measured.as_secs_f64();
            if at_end {
                break;
            }
            if begins {
                self.say(format!("the judged part begins: {}", self.plan.judged));
                self.begin_judged(instance, running);
            }
            if ends {
                self.end_judged(instance, running);
            }
            if second.is_multiple_of(interval_s(duration)) {
                self.take_readings(instance, running);
                self.record_measured(running, pending.as_ref());
            }
        }
        self.take_readings(instance, running);
        self.say(format!("measuring ends after {:.0} s", running.tally.load_s));
        sampler
    }

    /// Resets all counters: the judged part begins.
    fn begin_judged(&self, instance: &Instance, running: &mut RunningLoad) {
        for meter in &self.meters {
            meter.restart_judged();
        }
        running.load.meter.restart();
        running.load.pacer.restart();
        if let Some(scan) = &running.scan {
            scan.restart();
        }
        running.tally.judging = JudgingState::Since(self.world.now());
        let statistics = instance.statistics();
        running.tally.statistics = (statistics, statistics);
        running.tally.thread_cpu.0 = self.world.thread_cpu();
        running.tally.pools.0 = self.pool_facts();
    }

    /// Ends the judged part: operations that start from now on count in samples only.
    fn end_judged(&self, instance: &Instance, running: &mut RunningLoad) {
        self.take_readings(instance, running);
        running.tally.judging = JudgingState::Over;
        for meter in &self.meters {
            meter.end_judged();
        }
        running.load.meter.end_judged(self.world.now());
        self.say(format!("the judged part ends after {:.0} s", running.tally.measured_s));
    }

    /// Updates all judged counters except the meters.
    fn take_readings(&self, instance: &Instance, running: &mut RunningLoad) {
        let JudgingState::Since(since) = running.tally.judging else { return };
        running.tally.measured_s = self.world.now().since(since).as_secs_f64();
        running.tally.statistics.1 = instance.statistics();
        running.tally.thread_cpu.1 = self.world.thread_cpu();
        running.tally.pools.1 = self.pool_facts();
        running.tally.pacing = running.load.pacer.state();
        running.tally.scan = running.scan.as_ref().map(BackgroundScan::totals).unwrap_or_default();
    }
}
