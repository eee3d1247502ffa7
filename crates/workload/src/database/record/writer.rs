//! Encodes run events as lines of a record.

use crate::database::{plan::RunPlan, results::HostFacts};
use crate::{
    database::record::{
        LatencyReadings, MeasurementUpdate, RecordEntry, RecordHeader, RunEvent, entry::Differences,
    },
    record::{FORMAT, VERSION, buckets, line},
};
use std::collections::BTreeMap;

/// Encoder of one record. Remembers the last recorded state of each histogram.
#[derive(Default)]
pub struct RecordWriter {
    line: u64,
    at_s: f64,
    /// The last recorded bucket counts of each histogram of each group.
    told: BTreeMap<u32, Vec<Vec<u64>>>,
}

impl RecordHeader {
    /// The header of a run that starts now.
    pub fn new(
        plan: RunPlan,
        generator: String,
        command: String,
        host: HostFacts,
        began_unix_s: i64,
    ) -> Self {
        Self { format: FORMAT.to_owned(), version: VERSION, generator, command, host, began_unix_s, plan }
    }
}

impl RecordWriter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes `news`, written `at_s` seconds after the record began.
    pub fn line(&mut self, at_s: f64, news: RunEvent) -> Vec<u8> {
        // Milliseconds suffice and keep lines short; time must not decrease.
        self.at_s = self.at_s.max((at_s * 1e3).round() / 1e3);
        let entry = self.entry(news);
        let bytes = line::encode(self.line, self.at_s, &entry);
        self.line += 1;
        bytes
    }

    fn entry(&mut self, news: RunEvent) -> RecordEntry<Differences> {
        match news {
            RecordEntry::Header(header) => RecordEntry::Header(header),
            RecordEntry::Phase(phase) => RecordEntry::Phase(phase),
            RecordEntry::Line(line) => RecordEntry::Line(line),
            RecordEntry::Host(sample) => RecordEntry::Host(sample),
            RecordEntry::Creating(creating) => RecordEntry::Creating(creating),
            RecordEntry::Made(made) => RecordEntry::Made(made),
            RecordEntry::Filled { group, fill } => RecordEntry::Filled { group, fill },
            RecordEntry::Trial(trial) => RecordEntry::Trial(trial),
            RecordEntry::Holding { level } => RecordEntry::Holding { level },
            RecordEntry::Kernel(kernel) => RecordEntry::Kernel(kernel),
            RecordEntry::Measuring(measuring) => {
                self.told.remove(&measuring.group);
                RecordEntry::Measuring(measuring)
            }
            RecordEntry::Measured(measured) => RecordEntry::Measured(Box::new(self.measured(*measured))),
            RecordEntry::Verified { group, file } => RecordEntry::Verified { group, file },
            RecordEntry::Failed(text) => RecordEntry::Failed(text),
            RecordEntry::Ended(ended) => RecordEntry::Ended(ended),
        }
    }

    fn measured(&mut self, measured: MeasurementUpdate<LatencyReadings>) -> MeasurementUpdate<Differences> {
        let told = self.told.entry(measured.group).or_default();
        let latencies = measured.latencies.map(|readings| {
            let now: Vec<Vec<u64>> = readings.0.iter().map(buckets::counts).collect();
            told.resize(now.len(), Vec::new());
            let differences =
                now.iter().zip(told.iter()).map(|(now, before)| buckets::difference(before, now)).collect();
            *told = now;
            differences
        });
        MeasurementUpdate {
            latencies,
            group: measured.group,
            measured_s: measured.measured_s,
            load_s: measured.load_s,
            first_sample: measured.first_sample,
            samples: measured.samples,
            pending: measured.pending,
            meters: measured.meters,
            transactions: measured.transactions,
            engine: measured.engine,
            thread_cpu_s: measured.thread_cpu_s,
            pacing: measured.pacing,
            scan: measured.scan,
            late: measured.late,
            slow: measured.slow,
            spikes: measured.spikes,
            bytes_now: measured.bytes_now,
            failures: measured.failures,
            failure_counts: measured.failure_counts,
        }
    }
}
