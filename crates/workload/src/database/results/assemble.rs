//! Assembles the outcomes of all groups into the results of a run.

use crate::{
    database::{
        load::{
            operation::{FailureCounts, Operation, OperationReading, TransactionResults},
            scan::ScanTotals,
        },
        measure::sample::{Sample, judged_samples},
        plan::RunPlan,
        results::{
            DatabaseResults, EngineCounters, FillResults, LateResults, LatencyBucket, LatencySummary,
            OperationResults, PacingResults, RunFrame, RunResults, VolumeResults,
            outcome::{DatabaseOutcome, FillOutcome, GroupOutcome},
        },
    },
    measure::windows::{WINDOW, mean_of_windows_ms, windows, worst_window_ms},
    meter::{IoTallies, Latencies, SlowTally, Spikes, VolumeRole},
};
use hdrhistogram::Histogram;

/// Latency buckets for each factor of ten: each is 10 % wide.
const BUCKETS_PER_DECADE: f64 = 24.0;

impl RunResults {
    /// Combines the outcomes of all groups.
    pub fn assemble(frame: RunFrame, outcomes: &[GroupOutcome]) -> Self {
        assert!(!outcomes.is_empty(), "a run has at least one group");
        let (volumes, samples) = merge_volumes(&frame.plan, outcomes, frame.cut_off.is_none());
        let mut operations = OperationReading::default();
        let mut failure_counts = FailureCounts::default();
        let mut scan = ScanTotals::default();
        let mut pacing = PacingResults::default();
        let mut late = LateResults::default();
        let mut slow = SlowTally::default();
        let mut engine = EngineCounters::default();
        for outcome in outcomes {
            operations.merge(&outcome.operations);
            failure_counts.merge(&outcome.failures.1);
            scan.merge(&outcome.scan);
            late.merge(&outcome.late);
            slow.merge(&outcome.slow);
            engine.merge(&outcome.engine);
            pacing.backlog_max += outcome.pacing.backlog_max;
            pacing.shed += outcome.pacing.shed;
            pacing.operations_per_second += outcome.pacing.operations_per_second.unwrap_or(0.0);
        }
        let databases = outcomes.iter().flat_map(|outcome| {
            outcome.databases.iter().map(|database| database_results(outcome.group, database))
        });
        let inserted: u64 = outcomes
            .iter()
            .flat_map(|outcome| &outcome.databases)
            .map(|database| database.created.inserted)
            .sum();
        Self {
            measured_s: outcomes.iter().map(|outcome| outcome.measured_s).fold(f64::INFINITY, f64::min),
            load_s: outcomes.iter().map(|outcome| outcome.load_s).fold(f64::INFINITY, f64::min),
            interrupted: outcomes.iter().any(|outcome| outcome.interrupted),
            create_s: outcomes.iter().map(|outcome| outcome.create_s).fold(0.0, f64::max),
            created_bytes: inserted * frame.plan.profile.record_bytes() as u64,
            fill: merge_fills(outcomes.iter().map(|outcome| outcome.fill)),
            databases: databases.collect(),
            volumes,
            operations: Operation::ALL.map(|operation| operation_results(operation, &operations)).to_vec(),
            all_operations: LatencySummary::of(&operations.all()),
            unfinished_operations: operations.unfinished.len(),
            late,
            slow,
            transactions: TransactionResults {
                commits_durable: operations.commits_durable,
                commits_lazy: operations.commits_lazy,
                conflicts: operations.conflicts,
                records_checked: operations.records_checked,
            },
            engine,
            pacing: frame.plan.load.is_open().then_some(pacing),
            search: frame.search,
            scan: frame.plan.profile.scan().map(|_| scan),
            failure_counts,
            failures: outcomes.iter().flat_map(|outcome| outcome.failures.0.clone()).collect(),
            verified: outcomes.iter().flat_map(|outcome| outcome.verified.clone()).collect(),
            pools: outcomes.iter().flat_map(|outcome| outcome.pools.clone()).collect(),
            backups: outcomes.iter().flat_map(|outcome| outcome.backups.clone()).collect(),
            baseline: None,
            samples,
            host_samples: frame.host_samples,
            kernel: frame.kernel,
            log: frame.log,
            thread_cpu_s: outcomes.iter().map(|outcome| outcome.thread_cpu_s).collect(),
            cut_off: frame.cut_off,
            generator: frame.generator,
            host: frame.host,
            began_unix_s: frame.unix_s.0,
            ended_unix_s: frame.unix_s.1,
            plan: frame.plan,
        }
    }
}

fn buckets(histogram: &Histogram<u64>) -> Vec<LatencyBucket> {
    let edge = |index: i64| 10_f64.powf(index as f64 / BUCKETS_PER_DECADE);
    let mut found: Vec<(i64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let ns = value.value_iterated_to().max(1) as f64;
        let index = (ns.log10() * BUCKETS_PER_DECADE).ceil() as i64;
        match found.last_mut() {
            Some((last, count)) if *last == index => *count += value.count_at_value(),
            _ => found.push((index, value.count_at_value())),
        }
    }
    let bucket =
        |(index, count)| LatencyBucket { from_ms: edge(index - 1) / 1e6, to_ms: edge(index) / 1e6, count };
    found.into_iter().map(bucket).collect()
}

fn database_results(group: u32, database: &DatabaseOutcome) -> DatabaseResults {
    DatabaseResults {
        group: group + 1,
        name: database.name.clone(),
        volume: database.volume.clone(),
        bytes_before: database.bytes_before,
        bytes_after: database.bytes_after,
        records: database.records,
        records_found: database.created.found,
        became_full: database.became_full,
    }
}

fn operation_results(operation: Operation, reading: &OperationReading) -> OperationResults {
    let latencies = &reading.latencies[operation as usize];
    OperationResults { operation, count: latencies.len(), latency: LatencySummary::of(latencies) }
}

fn merge_fills(fills: impl Iterator<Item = FillOutcome>) -> FillResults {
    let none = FillResults { reached: true, settled: true, ..FillResults::default() };
    fills.fold(none, |merged, fill| FillResults {
        seconds: merged.seconds.max(fill.seconds),
        cache_bytes: merged.cache_bytes + fill.cache_bytes,
        reached: merged.reached && fill.reached,
        settled: merged.settled && fill.settled,
    })
}

/// Merges volumes by name and role, and the samples in the same order. For `whole` outcomes counts and
/// histograms must agree.
fn merge_volumes(
    plan: &RunPlan,
    outcomes: &[GroupOutcome],
    whole: bool,
) -> (Vec<VolumeResults>, Vec<Sample>) {
    let mut names: Vec<(VolumeRole, String)> = Vec::new();
    for meter in outcomes.iter().flat_map(|outcome| &outcome.meters) {
        let name = (meter.role, meter.volume.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort();
    let place = |role: VolumeRole, volume: &str| {
        names.iter().position(|name| name.0 == role && name.1 == volume).expect("listed above")
    };
    let mut tallies = vec![IoTallies::default(); names.len()];
    let mut latencies = vec![Latencies::default(); names.len()];
    let mut spikes = vec![Spikes::default(); names.len()];
    let mut overdue = vec![IoTallies::default(); names.len()];
    let longest = outcomes.iter().map(|outcome| outcome.samples.len()).max().unwrap_or(0);
    let mut samples: Vec<Option<Sample>> = vec![None; longest];
    for outcome in outcomes {
        let places: Vec<usize> =
            outcome.meters.iter().map(|meter| place(meter.role, &meter.volume)).collect();
        for (meter, &place) in outcome.meters.iter().zip(&places) {
            tallies[place].merge(&meter.tallies);
            latencies[place].merge(&meter.latencies);
            overdue[place].merge(&meter.overdue);
            spikes[place].merge(&meter.spikes);
        }
        for (sample, merged) in outcome.samples.iter().zip(&mut samples) {
            let mut volumes = vec![IoTallies::default(); names.len()];
            for (one, &place) in sample.volumes.iter().zip(&places) {
                volumes[place].merge(one);
            }
            let sample = Sample { volumes, ..sample.clone() };
            match merged {
                Some(merged) => merged.merge(&sample),
                None => *merged = Some(sample),
            }
        }
    }
    let samples: Vec<Sample> = samples.into_iter().flatten().collect();
    let mut judged = judged_samples(&samples, plan).to_vec();
    let part = plan.judged_part();
    if let Some(last) = judged.last_mut() {
        // I/O that the judged part started and did not finish belongs to its last sample.
        last.volumes.iter_mut().zip(&overdue).for_each(|(volume, overdue)| volume.merge(overdue));
    }
    for sample in &mut judged {
        sample.at_s -= part.from_s as f64;
    }
    let windows = windows(&judged, WINDOW);
    for (tallies, latencies) in tallies.iter().zip(&latencies).filter(|_| whole) {
        assert_eq!(latencies.read.len(), tallies.read.count, "every read is in both");
        assert_eq!(latencies.write.len(), tallies.write.count, "every write is in both");
    }
    let volumes = names.into_iter().enumerate().map(|(place, (role, volume))| VolumeResults {
        volume,
        role,
        tallies: tallies[place],
        read: LatencySummary::of_tally(&latencies[place].read, &tallies[place].read),
        write: LatencySummary::of_tally(&latencies[place].write, &tallies[place].write),
        read_mean_of_windows_ms: mean_of_windows_ms(&windows, |window| window.volumes[place].read),
        write_mean_of_windows_ms: mean_of_windows_ms(&windows, |window| window.volumes[place].write),
        read_worst_window_ms: worst_window_ms(&judged, &windows, |window| window.volumes[place].read),
        write_worst_window_ms: worst_window_ms(&judged, &windows, |window| window.volumes[place].write),
        read_buckets: buckets(&latencies[place].read),
        write_buckets: buckets(&latencies[place].write),
        spikes: std::mem::take(&mut spikes[place]),
    });
    (volumes.collect(), samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::record;

    #[test]
    fn buckets_hold_every_value_once_and_enclose_it() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for ns in [0, 1, 900, 250_000, 251_000, 18_300_000, 18_300_000] {
            record(&mut histogram, ns);
        }
        let buckets = buckets(&histogram);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 7);
        assert!(buckets.windows(2).all(|pair| pair[0].to_ms <= pair[1].from_ms * 1.000_001));
        let slowest = buckets.last().unwrap();
        assert_eq!(slowest.count, 2);
        assert!(slowest.from_ms < 18.3 && 18.3 <= slowest.to_ms * 1.001, "{slowest:?}");
    }
}
