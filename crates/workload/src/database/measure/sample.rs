//! Samples of a database run.
//!
//! At every tick the sampler takes the running tallies of all meters and the difference of the engine's
//! counters. Latencies are kept as sums and counts, so samples of all groups add up, and folding them into
//! windows is exact.

use crate::measure::windows::{TimedSample, WINDOW};
use crate::{
    database::{load::operation::OperationMeter, plan::RunPlan},
    meter::{IoTallies, IoTally, Meter, SampleLatencies},
    pacing::Pacer,
};
use maildb::Statistics;
use serde::{Deserialize, Serialize};
use std::{rc::Rc, time::Duration};
use world::Moment;

/// Runs up to this long are sampled every second, for the sake of their charts.
const FINE_RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// Sampling interval of a run of `duration`; divides the window.
pub fn sample_interval(duration: Duration) -> Duration {
    if duration <= FINE_RUN_MAX { Duration::from_secs(1) } else { WINDOW }
}

/// Counts between two ticks, of one group or of all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// End of the sample, in seconds from the start of measurement.
    pub at_s: f64,
    /// Length, in seconds.
    pub span_s: f64,
    /// Device operations of each metered volume, in the order of the results' volumes.
    pub volumes: Vec<IoTallies>,
    /// Latency histograms of the device operations; empty in older records.
    #[serde(default, skip_serializing_if = "SampleLatencies::is_empty")]
    pub latencies: SampleLatencies,
    /// Operations of the sessions; their bytes are not counted.
    pub operations: IoTally,
    /// Page faults that found no free cache page.
    pub page_fault_stalls: u64,
    /// Log appends that found no room in the log buffer.
    pub log_record_stalls: u64,
    /// At the end of the sample.
    pub dirty_pages: u64,
    /// Operations that have arrived and not started, at the end of the sample.
    pub backlog: u64,
}

impl Sample {
    /// Adds the sample of another group over the same span.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.volumes.len(), other.volumes.len(), "samples of one run have the same volumes");
        for (mine, theirs) in self.volumes.iter_mut().zip(&other.volumes) {
            mine.merge(theirs);
        }
        self.latencies.merge(&other.latencies);
        self.at_s = self.at_s.max(other.at_s);
        self.span_s = self.span_s.max(other.span_s);
        self.operations.merge(&other.operations);
        self.page_fault_stalls += other.page_fault_stalls;
        self.log_record_stalls += other.log_record_stalls;
        self.dirty_pages += other.dirty_pages;
        self.backlog += other.backlog;
    }
}

impl TimedSample for Sample {
    fn end_s(&self) -> f64 {
        self.at_s
    }

    fn span_s(&self) -> f64 {
        self.span_s
    }

    fn followed_by(mut self, next: &Self) -> Self {
        let span_s = self.span_s + next.span_s;
        self.merge(next);
        Self { span_s, at_s: next.at_s, dirty_pages: next.dirty_pages, backlog: next.backlog, ..self }
    }
}

/// Takes the samples of one group.
pub struct Sampler {
    meters: Vec<Rc<Meter>>,
    began: Moment,
    last: Moment,
    statistics: Statistics,
}

impl Sampler {
    /// A sampler whose first sample starts now: discards the counts of `meters` and `operations` so far, such
    /// as those of creation.
    pub fn new(
        meters: Vec<Rc<Meter>>,
        operations: &OperationMeter,
        now: Moment,
        statistics: Statistics,
    ) -> Self {
        for meter in &meters {
            meter.take_sample();
            meter.take_sample_latencies(&mut SampleLatencies::default());
        }
        operations.take_sample();
        Self { meters, began: now, last: now, statistics }
    }

    /// The sample since the last tick.
    pub fn tick(
        &mut self,
        now: Moment,
        statistics: Statistics,
        operations: &OperationMeter,
        pacer: &Pacer,
    ) -> Sample {
        let sample = Sample {
            at_s: now.since(self.began).as_secs_f64(),
            span_s: now.since(self.last).as_secs_f64(),
            volumes: self.meters.iter().map(|meter| meter.take_sample()).collect(),
            latencies: self.take_latencies(),
            operations: operations.take_sample(),
            page_fault_stalls: statistics.page_fault_stalls - self.statistics.page_fault_stalls,
            log_record_stalls: statistics.log_record_stalls - self.statistics.log_record_stalls,
            dirty_pages: statistics.dirty_pages,
            backlog: pacer.state().backlog,
        };
        self.last = now;
        self.statistics = statistics;
        sample
    }

    fn take_latencies(&self) -> SampleLatencies {
        let mut latencies = SampleLatencies::default();
        self.meters.iter().for_each(|meter| meter.take_sample_latencies(&mut latencies));
        latencies
    }

    /// The counts since the last tick, as a sample of zero length; for I/O that finishes after the end.
    pub fn late(&self, operations: &OperationMeter, pacer: &Pacer) -> Sample {
        Sample {
            at_s: self.last.since(self.began).as_secs_f64(),
            volumes: self.meters.iter().map(|meter| meter.take_sample()).collect(),
            latencies: self.take_latencies(),
            operations: operations.take_sample(),
            dirty_pages: self.statistics.dirty_pages,
            backlog: pacer.state().backlog,
            ..Sample::default()
        }
    }
}

/// The samples whose midpoints lie in the judged part.
pub fn judged_samples<'s>(samples: &'s [Sample], plan: &RunPlan) -> &'s [Sample] {
    let part = plan.judged_part();
    let middle_s = |sample: &Sample| sample.at_s - sample.span_s / 2.0;
    let from = samples.partition_point(|sample| middle_s(sample) < part.from_s as f64);
    // The last sample may come late; a part that ends with the run ends with it.
    let to = match part.to_s {
        to_s if to_s >= plan.duration_s => samples.len(),
        to_s => samples.partition_point(|sample| middle_s(sample) < to_s as f64),
    };
    &samples[from..to.max(from)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::windows::{mean_of_windows_ms, windows, worst_window_ms};

    fn sample(second: u64, reads: u64, each_ms: u64) -> Sample {
        let read =
            IoTally { count: reads, bytes: reads * 4096, total_ns: reads * each_ms * 1_000_000, max_ns: 0 };
        Sample {
            at_s: second as f64,
            span_s: 1.0,
            volumes: vec![IoTallies { read, ..IoTallies::default() }],
            ..Sample::default()
        }
    }

    #[test]
    fn a_window_is_weighted_by_operations_not_by_samples() {
        // 14 quiet seconds of 10 reads at 1 ms, and one of 860 at 51 ms.
        let mut samples: Vec<_> = (1..=14).map(|second| sample(second, 10, 1)).collect();
        samples.push(sample(15, 860, 51));
        let windows = windows(&samples, Duration::from_secs(15));
        assert_eq!(windows.len(), 1);
        assert_eq!(worst_window_ms(&samples, &windows, |window| window.volumes[0].read), Some(44.0));
    }

    #[test]
    fn slow_time_counts_by_its_length_not_by_the_operations_it_let_through() {
        // 19 of 20 windows at 25 ms in a closed loop, one at 0.1 ms: 40 reads a second, and 10,000.
        let slow = |second: u64| second <= 19 * 15;
        let samples: Vec<_> = (1..=300)
            .map(|second| {
                let mut sample = sample(second, if slow(second) { 40 } else { 10_000 }, 1);
                let read = &mut sample.volumes[0].read;
                read.total_ns = read.count * if slow(second) { 25_000_000 } else { 100_000 };
                sample
            })
            .collect();
        let windows = windows(&samples, Duration::from_secs(15));
        let mean = mean_of_windows_ms(&windows, |window| window.volumes[0].read).unwrap();
        assert!((mean - (19.0 * 25.0 + 0.1) / 20.0).abs() < 1e-9, "{mean}");
        let mut whole = IoTally::default();
        samples.iter().for_each(|sample| whole.merge(&sample.volumes[0].read));
        assert!(whole.average_ms().unwrap() < 2.0, "the average over operations hides it");
        assert_eq!(mean_of_windows_ms(&windows, |window| window.volumes[0].write), None);
    }

    #[test]
    fn the_last_window_is_whole_and_reaches_to_the_end() {
        let samples: Vec<_> =
            (1..=37).map(|second| sample(second, 1, if second > 30 { 100 } else { 1 })).collect();
        let spans = |samples: &[Sample]| {
            windows(samples, Duration::from_secs(15)).iter().map(|window| window.span_s).collect::<Vec<_>>()
        };
        assert_eq!(spans(&samples), [15.0, 15.0, 15.0], "the third begins in the second");
        assert_eq!(spans(&samples[..30]), [15.0, 15.0]);
        assert_eq!(spans(&samples[..8]), [8.0]);
        let windows = windows(&samples, Duration::from_secs(15));
        let worst = worst_window_ms(&samples, &windows, |window| window.volumes[0].read).unwrap();
        assert!((worst - (7.0 * 100.0 + 8.0) / 15.0).abs() < 1e-9, "{worst}");
    }

    #[test]
    fn no_average_is_longer_than_the_worst_window() {
        // The middle second dilutes both windows that hold it.
        let samples = [sample(1, 1, 10), sample(2, 1, 0), sample(3, 1, 10)];
        let windows = windows(&samples, Duration::from_secs(2));
        let worst = worst_window_ms(&samples, &windows, |window| window.volumes[0].read).unwrap();
        assert!((worst - 20.0 / 3.0).abs() < 1e-9, "{worst}");
    }

    #[test]
    fn ticks_that_come_late_stay_in_their_window() {
        let mut samples: Vec<_> = (1..=30).map(|second| sample(second, 1, 1)).collect();
        for late in &mut samples {
            late.at_s += 0.2;
        }
        assert_eq!(windows(&samples, Duration::from_secs(15)).len(), 2);
    }

    #[test]
    fn a_day_is_sampled_in_windows_and_a_minute_in_seconds() {
        assert_eq!(sample_interval(Duration::from_secs(60)).as_secs(), 1);
        assert_eq!(sample_interval(Duration::from_secs(86_400)).as_secs(), 15);
    }
}
