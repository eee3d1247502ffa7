//! Encodes run events as lines of a record.

use super::super::{plan::RunPlan, results::HostFacts};
use super::{Entry, FORMAT, Header, Measured, News, Readings, VERSION, buckets, entry::Differences, line};
use std::collections::BTreeMap;

/// Encoder of one record. Remembers the last recorded state of each histogram.
#[derive(Default)]
pub struct Writer {
    line: u64,
    at_s: f64,
    /// The last recorded bucket counts of each histogram of each group.
    told: BTreeMap<u32, Vec<Vec<u64>>>,
}

impl Header {
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

impl Writer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Encodes `news`, written `at_s` seconds after the record began.
    pub fn line(&mut self, at_s: f64, news: News) -> Vec<u8> {
        // Milliseconds suffice and keep lines short; time must not decrease.
        self.at_s = self.at_s.max((at_s * 1e3).round() / 1e3);
        let entry = self.entry(news);
        let bytes = line::encode(self.line, self.at_s, &entry);
        self.line += 1;
        bytes
    }

    fn entry(&mut self, news: News) -> Entry<Differences> {
        match news {
            Entry::Header(header) => Entry::Header(header),
            Entry::Phase(phase) => Entry::Phase(phase),
            Entry::Line(line) => Entry::Line(line),
            Entry::Host(sample) => Entry::Host(sample),
            Entry::Creating(creating) => Entry::Creating(creating),
            Entry::Made(made) => Entry::Made(made),
            Entry::Filled { group, fill } => Entry::Filled { group, fill },
            Entry::Trial(trial) => Entry::Trial(trial),
            Entry::Holding { level } => Entry::Holding { level },
            Entry::Kernel(kernel) => Entry::Kernel(kernel),
            Entry::Measuring(measuring) => {
                self.told.remove(&measuring.group);
                Entry::Measuring(measuring)
            }
            Entry::Measured(measured) => Entry::Measured(Box::new(self.measured(*measured))),
            Entry::Verified { group, file } => Entry::Verified { group, file },
            Entry::Failed(text) => Entry::Failed(text),
            Entry::Ended(ended) => Entry::Ended(ended),
        }
    }

    fn measured(&mut self, measured: Measured<Readings>) -> Measured<Differences> {
        let told = self.told.entry(measured.group).or_default();
        let latencies = measured.latencies.map(|readings| {
            let now: Vec<Vec<u64>> = readings.0.iter().map(buckets::counts).collect();
            told.resize(now.len(), Vec::new());
            let differences =
                now.iter().zip(told.iter()).map(|(now, before)| buckets::difference(before, now)).collect();
            *told = now;
            differences
        });
        Measured {
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
