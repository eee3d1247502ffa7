//! A group's events for the run's record: one at each step, and its counters every few seconds.

use crate::{
    database::{
        measure::{sample::Sample, verify::VerifiedFile},
        record::{DatabasesReady, LatencyReadings, MeasurementStart, MeasurementUpdate, RunEvent},
        results::{
            EngineCounters,
            outcome::{DatabaseOutcome, FillOutcome},
        },
        run::group::{GroupRun, JudgingState, RunningLoad},
    },
    meter::{IoTallies, Meter},
};
use std::rc::Rc;

/// Position of the recording in a group's samples.
#[derive(Default)]
pub struct RecordingPosition {
    /// Number of samples already recorded.
    samples: usize,
}

impl GroupRun {
    pub(super) fn record_made(&self, recovered: bool, create_s: f64, databases: Vec<DatabaseOutcome>) {
        let made = DatabasesReady { group: self.number, recovered, create_s, databases };
        self.shared.record(|| RunEvent::Made(made));
    }

    pub(super) fn record_filled(&self, fill: FillOutcome) {
        self.shared.record(|| RunEvent::Filled { group: self.number, fill });
    }

    pub(super) fn record_measuring(&self, running: &mut RunningLoad) {
        running.tally.recording = RecordingPosition::default();
        self.shared.record(|| {
            let meters = self.meters.iter().map(|meter| (meter.role(), meter.volume().to_owned()));
            RunEvent::Measuring(MeasurementStart {
                group: self.number,
                meters: meters.collect(),
                bytes_before: running.tally.bytes_before.clone(),
            })
        });
    }

    /// Records the final state of the measured time.
    pub(super) fn record_last(&self, running: &mut RunningLoad) {
        // Late I/O was added to the last sample, which may have been recorded without it.
        running.tally.recording.samples =
            running.tally.recording.samples.min(running.tally.samples.len().saturating_sub(1));
        self.record_measured(running, None);
    }

    /// Records the current counters, with the sample in progress.
    pub(super) fn record_measured(&self, running: &mut RunningLoad, pending: Option<&Sample>) {
        let (tally, load) = (&running.tally, &running.load);
        // Before the judged part, meters and counters hold values that will be reset.
        let is_judged = tally.judging != JudgingState::Before;
        let tallies = |meter: &Rc<Meter>| match (meter.tallies(), is_judged) {
            (tallies, true) => tallies,
            (IoTallies { errors, .. }, false) => IoTallies { errors, ..IoTallies::default() },
        };
        self.shared.record(|| {
            let (failures, failure_counts) = load.failures.reading();
            RunEvent::Measured(Box::new(MeasurementUpdate {
                group: self.number,
                measured_s: tally.measured_s,
                load_s: tally.load_s,
                first_sample: tally.recording.samples,
                samples: tally.samples[tally.recording.samples..].to_vec(),
                pending: pending.cloned(),
                meters: self.meters.iter().map(tallies).collect(),
                transactions: if is_judged { load.meter.transactions() } else { Default::default() },
                engine: EngineCounters::between(&tally.statistics.0, &tally.statistics.1),
                thread_cpu_s: tally.thread_cpu_s(),
                pacing: tally.pacing,
                scan: tally.scan,
                late: tally.late,
                slow: self.slow(),
                spikes: self.meters.iter().filter(|_| is_judged).map(|meter| meter.spikes()).collect(),
                bytes_now: load.stores.iter().map(|store| store.mail.database.size().0).collect(),
                failures,
                failure_counts,
                latencies: is_judged.then(|| self.latencies(running)),
            }))
        });
        running.tally.recording.samples = running.tally.samples.len();
    }

    fn latencies(&self, running: &RunningLoad) -> LatencyReadings {
        let mut histograms = Vec::with_capacity(LatencyReadings::count_of(self.meters.len()));
        for meter in &self.meters {
            let latencies = meter.reading().latencies;
            histograms.extend([latencies.read, latencies.write]);
        }
        let operations = running.load.meter.reading();
        histograms.extend(operations.latencies);
        histograms.push(operations.unfinished);
        assert_eq!(
            histograms.len(),
            LatencyReadings::count_of(self.meters.len()),
            "as many as a reader expects"
        );
        LatencyReadings(histograms)
    }

    pub(super) fn record_verified(&self, file: &VerifiedFile) {
        self.shared.record(|| RunEvent::Verified { group: self.number, file: file.clone() });
    }
}
