//! A group's events for the run's record: its counters every few seconds.

use super::{counters::JudgingState, load::RunningLoad};
use crate::{
    database::{
        measure::sample::Sample,
        record::{LatencyReadings, MeasurementStart, MeasurementUpdate, RunEvent},
        results::EngineCounters,
    },
    meter::{IoTallies, Meter},
};
use std::rc::Rc;

/// Position of the recording in a group's samples.
#[derive(Default)]
pub(super) struct RecordingPosition {
    /// Number of samples already recorded.
    samples: usize,
}

impl RunningLoad {
    pub(super) fn record_start(&mut self) {
        self.tally.recording = RecordingPosition::default();
        self.context.record(|| {
            let meters = self.context.meters.iter().map(|meter| (meter.role(), meter.volume().to_owned()));
            RunEvent::Measuring(MeasurementStart {
                group: self.context.number,
                meters: meters.collect(),
                bytes_before: self.tally.bytes_before.clone(),
            })
        });
    }

    /// Records the final state of the measured time.
    pub(super) fn record_end(&mut self) {
        // Late I/O was added to the last sample, which may have been recorded without it.
        self.tally.recording.samples =
            self.tally.recording.samples.min(self.tally.samples.len().saturating_sub(1));
        self.record_counters(None);
    }

    /// Records the current counters, with the sample in progress.
    pub(super) fn record_counters(&mut self, pending: Option<&Sample>) {
        let (tally, load) = (&self.tally, &self.group);
        // Before the judged part, meters and counters hold values that will be reset.
        let is_judged = tally.judging != JudgingState::Before;
        let tallies = |meter: &Rc<Meter>| match (meter.tallies(), is_judged) {
            (tallies, true) => tallies,
            (IoTallies { errors, .. }, false) => IoTallies { errors, ..IoTallies::default() },
        };
        self.context.record(|| {
            let (failures, failure_counts) = load.failures.reading();
            RunEvent::Measured(Box::new(MeasurementUpdate {
                group: self.context.number,
                measured_s: tally.measured_s,
                load_s: tally.load_s,
                first_sample: tally.recording.samples,
                samples: tally.samples[tally.recording.samples..].to_vec(),
                pending: pending.cloned(),
                meters: self.context.meters.iter().map(tallies).collect(),
                transactions: if is_judged { load.meter.transactions() } else { Default::default() },
                engine: EngineCounters::between(&tally.statistics.0, &tally.statistics.1),
                thread_cpu_s: tally.thread_cpu_s(),
                pacing: tally.pacing,
                scan: tally.scan,
                late: tally.late,
                slow: self.context.slow(),
                spikes: self
                    .context
                    .meters
                    .iter()
                    .filter(|_| is_judged)
                    .map(|meter| meter.spikes())
                    .collect(),
                bytes_now: load.stores.iter().map(|store| store.mail.database.size().0).collect(),
                failures,
                failure_counts,
                latencies: is_judged.then(|| self.latencies()),
            }))
        });
        self.tally.recording.samples = self.tally.samples.len();
    }

    fn latencies(&self) -> LatencyReadings {
        let mut histograms = Vec::with_capacity(LatencyReadings::count_of(self.context.meters.len()));
        for meter in &self.context.meters {
            let latencies = meter.reading().latencies;
            histograms.extend([latencies.read, latencies.write]);
        }
        let operations = self.group.meter.reading();
        histograms.extend(operations.latencies);
        histograms.push(operations.unfinished);
        assert_eq!(
            histograms.len(),
            LatencyReadings::count_of(self.context.meters.len()),
            "as many as a reader expects"
        );
        LatencyReadings(histograms)
    }
}
