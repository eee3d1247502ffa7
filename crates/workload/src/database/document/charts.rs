//! Charts of a report: rates and latencies over time, and latency distributions.

use crate::{
    database::{
        document::anomalies::with_marks,
        measure::sample::Sample,
        results::{HostSample, LatencyBucket, LatencySummary, RunResults},
    },
    meter::{IoTallies, IoTally, SampleHistogram, SampleLatencies, VolumeRole},
    verdict::limits::{LimitSet, Measure},
};
use report::{Axis, Bucket, Distribution, DistributionView, Histogram, LineChart, TimeSeries, Unit};
use std::collections::BTreeMap;

/// Operations of all volumes in `role`, in one sample.
fn in_role(results: &RunResults, sample: &Sample, role: VolumeRole) -> IoTallies {
    let mut sum = IoTallies::default();
    for (volume, tallies) in results.volumes.iter().zip(&sample.volumes) {
        if volume.role == role {
            sum.merge(tallies);
        }
    }
    sum
}

fn series(results: &RunResults, name: &str, of: impl Fn(&Sample) -> Option<f64>) -> TimeSeries {
    let points = results.samples.iter().map(|sample| (sample.at_s, of(sample).unwrap_or(f64::NAN)));
    TimeSeries::new(name, points)
}

/// The limit of `measure` in the profile's limit set, for the class of this run.
pub(super) fn limit(results: &RunResults, measure: Measure) -> Option<f64> {
    let set = LimitSet::load(&results.plan.profile.limits).ok()?;
    set.limits.iter().find(|limit| limit.measure == measure).map(|limit| limit.value(results.class()))
}

fn with_limit(chart: LineChart, label: &str, at: Option<f64>) -> LineChart {
    match at {
        Some(at) => chart.limit(label, at),
        None => chart,
    }
}

/// Database reads, writes and operations a second.
pub fn rates(results: &RunResults) -> LineChart {
    let rate = |count: u64, sample: &Sample| Some(count as f64 / sample.span_s);
    let database = |sample: &Sample| in_role(results, sample, VolumeRole::Database);
    let chart = LineChart::new("Database IOPS", Axis::new("rate", Unit::IoPerSecond))
        .series(series(results, "reads", |sample| rate(database(sample).read.count, sample)))
        .series(series(results, "writes", |sample| rate(database(sample).write.count, sample)))
        .series(series(results, "both", |sample| {
            rate(database(sample).read.count + database(sample).write.count, sample)
        }));
    with_limit(chart, "target", results.target_iops())
}

/// Average latency of database reads and writes.
pub fn latencies(results: &RunResults) -> LineChart {
    let database = |sample: &Sample| in_role(results, sample, VolumeRole::Database);
    let chart = LineChart::new("Database latency", Axis::new("average of each point", Unit::Milliseconds))
        .series(series(results, "reads", |sample| database(sample).read.average_ms()))
        .series(series(results, "writes", |sample| database(sample).write.average_ms()));
    let chart =
        with_limit(chart, "limit of the average read", limit(results, Measure::DatabaseReadAverageMs));
    with_marks(chart, results, VolumeRole::Database)
}

/// Average latency of log writes.
pub fn log(results: &RunResults) -> LineChart {
    let chart = LineChart::new("Log write latency", Axis::new("average of each point", Unit::Milliseconds))
        .series(series(results, "log writes", |sample| {
            in_role(results, sample, VolumeRole::Log).write.average_ms()
        }));
    let chart = with_limit(chart, "limit of the average", limit(results, Measure::LogWriteAverageMs));
    with_marks(chart, results, VolumeRole::Log)
}

/// 99th percentile of latency over time.
pub fn p99(results: &RunResults) -> LineChart {
    let of = |pick: fn(&SampleLatencies) -> &SampleHistogram| {
        move |sample: &Sample| pick(&sample.latencies).quantile_ms(0.99)
    };
    LineChart::new("Latency that 99 % kept, over time", Axis::new("p99 of each point", Unit::Milliseconds))
        .series(series(results, "database reads", of(|latencies| &latencies.database_read)))
        .series(series(results, "database writes", of(|latencies| &latencies.database_write)))
        .series(series(results, "log writes", of(|latencies| &latencies.log_write)))
}

/// Mean number of device operations under way: total latency / elapsed time (Little's law).
pub fn outstanding(results: &RunResults) -> LineChart {
    let under_way = |tally: &IoTally, sample: &Sample| Some(tally.total_ns as f64 / 1e9 / sample.span_s);
    let of = |role| move |sample: &Sample| in_role(results, sample, role);
    let (database, log) = (of(VolumeRole::Database), of(VolumeRole::Log));
    LineChart::new("Outstanding I/O", Axis::new("I/Os under way, on average", Unit::One))
        .series(series(results, "database reads", |sample| under_way(&database(sample).read, sample)))
        .series(series(results, "database writes", |sample| under_way(&database(sample).write, sample)))
        .series(series(results, "log writes", |sample| under_way(&log(sample).write, sample)))
}

/// Processors in use between two host samples.
pub fn processor(results: &RunResults) -> LineChart {
    let used = |name: &str, of: fn(&HostSample) -> f64| {
        let pairs = results.host_samples.windows(2);
        let points = pairs.filter(|pair| pair[1].at_s > pair[0].at_s);
        let share =
            |pair: &[HostSample]| (of(&pair[1]) - of(&pair[0])) / (pair[1].at_s - pair[0].at_s) * 100.0;
        TimeSeries::new(name, points.map(|pair| (pair[1].at_s, share(pair))))
    };
    LineChart::new("Processor time", Axis::new("of one processor", Unit::Percent))
        .series(used("all programs", |sample| sample.system_cpu_s))
        .series(used("Spindle", |sample| sample.process_cpu_s))
}

/// Latencies of database reads, database writes and log writes by percentile.
pub fn distribution(results: &RunResults) -> Distribution {
    let chart = Distribution::new(
        "Latency distribution",
        Axis::new("latency", Unit::Milliseconds),
        DistributionView::Percentiles,
    );
    let of = |name: &str, role: VolumeRole, is_read: bool| {
        let volumes = || results.in_role(role);
        let (buckets, summaries): (Vec<Bucket>, Vec<&LatencySummary>) = if is_read {
            (merged(volumes().map(|v| v.read_buckets.as_slice())), volumes().map(|v| &v.read).collect())
        } else {
            (merged(volumes().map(|v| v.write_buckets.as_slice())), volumes().map(|v| &v.write).collect())
        };
        let histogram = Histogram::new(name, buckets).ok().filter(|histogram| histogram.count() > 0)?;
        Some(histogram.with_known(known(&summaries)))
    };
    let curves = [
        of("database reads", VolumeRole::Database, true),
        of("database writes", VolumeRole::Database, false),
        of("log writes", VolumeRole::Log, false),
    ];
    curves.into_iter().flatten().fold(chart, Distribution::series)
}

/// Known values of a curve: the maximum over its volumes, and the percentiles if it has one volume.
fn known(summaries: &[&LatencySummary]) -> Vec<(f64, f64)> {
    let longest = summaries.iter().filter_map(|summary| summary.max_ms).max_by(f64::total_cmp);
    let mut known = vec![(100.0, longest)];
    if let [LatencySummary { p50_ms, p95_ms, p99_ms, p99_9_ms, .. }] = summaries {
        known.extend([(50.0, *p50_ms), (95.0, *p95_ms), (99.0, *p99_ms), (99.9, *p99_9_ms)]);
    }
    known.into_iter().filter_map(|(percent, value)| Some((percent, value?))).collect()
}

/// Adds up the buckets of several volumes; all have the same edges.
fn merged<'b>(volumes: impl Iterator<Item = &'b [LatencyBucket]>) -> Vec<Bucket> {
    let mut by_edge: BTreeMap<u64, Bucket> = BTreeMap::new();
    for bucket in volumes.flatten() {
        // Edges are positive, and the bits of positive floats sort like their values.
        let sum = by_edge.entry(bucket.to_ms.to_bits()).or_insert(Bucket {
            from: bucket.from_ms,
            to: bucket.to_ms,
            count: 0,
        });
        sum.count += bucket.count;
    }
    by_edge.into_values().collect()
}
