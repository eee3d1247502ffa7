//! The charts of a report: rate and latency over time, and latencies by size.

use super::{
    super::{
        limits::{LimitSet, Measure},
        measure::Sample,
        meter::{IoTallies, Role},
        results::{LatencyBucket, RunResults},
    },
    trouble::with_marks,
};
use report::{Axis, Bucket, Distribution, DistributionView, Histogram, LineChart, TimeSeries, Unit};
use std::collections::BTreeMap;

/// Operations of all volumes in `role`, in one sample.
fn in_role(results: &RunResults, sample: &Sample, role: Role) -> IoTallies {
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

/// The limit of `measure` in the profile's set, for the class of this run.
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
    let database = |sample: &Sample| in_role(results, sample, Role::Database);
    let chart = LineChart::new("Database I/O a second", Axis::new("rate", Unit::IoPerSecond))
        .series(series(results, "reads", |sample| rate(database(sample).read.count, sample)))
        .series(series(results, "writes", |sample| rate(database(sample).write.count, sample)))
        .series(series(results, "both", |sample| {
            rate(database(sample).read.count + database(sample).write.count, sample)
        }));
    with_limit(chart, "target", results.target_iops())
}

/// Average latency of database reads and writes.
pub fn latencies(results: &RunResults) -> LineChart {
    let database = |sample: &Sample| in_role(results, sample, Role::Database);
    let chart = LineChart::new("Database latency", Axis::new("average latency", Unit::Milliseconds))
        .series(series(results, "reads", |sample| database(sample).read.average_ms()))
        .series(series(results, "writes", |sample| database(sample).write.average_ms()));
    let chart =
        with_limit(chart, "limit of the average read", limit(results, Measure::DatabaseReadAverageMs));
    with_marks(chart, results, Role::Database)
}

/// Average latency of log writes.
pub fn log(results: &RunResults) -> LineChart {
    let chart = LineChart::new("Log write latency", Axis::new("average latency", Unit::Milliseconds)).series(
        series(results, "log writes", |sample| in_role(results, sample, Role::Log).write.average_ms()),
    );
    let chart = with_limit(chart, "limit of the average", limit(results, Measure::LogWriteAverageMs));
    with_marks(chart, results, Role::Log)
}

/// Latencies of database reads, database writes and log writes by percentile.
pub fn distribution(results: &RunResults) -> Distribution {
    let chart = Distribution::new(
        "Latency distribution",
        Axis::new("latency", Unit::Milliseconds),
        DistributionView::Percentiles,
    );
    let of = |role: Role, buckets: fn(&super::super::results::VolumeResults) -> &[LatencyBucket]| {
        merged(results.in_role(role).map(buckets))
    };
    let curves = [
        ("database reads", of(Role::Database, |volume| &volume.read_buckets)),
        ("database writes", of(Role::Database, |volume| &volume.write_buckets)),
        ("log writes", of(Role::Log, |volume| &volume.write_buckets)),
    ];
    curves
        .into_iter()
        .filter(|(_, buckets)| !buckets.is_empty())
        .filter_map(|(name, buckets)| Histogram::new(name, buckets).ok())
        .fold(chart, Distribution::series)
}

/// Buckets of several volumes as one list. All have the same edges, so they add up.
fn merged<'b>(volumes: impl Iterator<Item = &'b [LatencyBucket]>) -> Vec<Bucket> {
    let mut by_edge: BTreeMap<u64, Bucket> = BTreeMap::new();
    for bucket in volumes.flatten() {
        // Edges are positive, and positive floats sort as their bits do.
        let sum = by_edge.entry(bucket.to_ms.to_bits()).or_insert(Bucket {
            from: bucket.from_ms,
            to: bucket.to_ms,
            count: 0,
        });
        sum.count += bucket.count;
    }
    by_edge.into_values().collect()
}
