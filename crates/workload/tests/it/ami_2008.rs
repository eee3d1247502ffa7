//! The performance run of AMI 2008's report as results: what verdicts and documents are tried on.

use workload::{
    database::{
        load::{
            create::MESSAGES_PER_MAILBOX,
            operation::{FailureCounts, Operation, TransactionResults},
        },
        measure::{sample::Sample, verify::VerifiedFile},
        plan::{LoadPlan, RunPlan, VolumeFacts, profile::ServerProfile},
        results::{
            DatabaseResults, EngineCounters, FillResults, HostFacts, HostSample, LateResults, LatencyBucket,
            LatencySummary, OperationResults, PacingResults, RunResults, VolumeResults,
            test_log::TestLogLine,
        },
    },
    meter::{IoTallies, IoTally, SlowTally, Spikes, VolumeRole},
    verdict::judged_part::JudgedPart,
};

/// A tally of `per_second` operations of `bytes` over `seconds`, of `average_ms` each.
pub fn tally(per_second: f64, seconds: f64, bytes: u64, average_ms: f64) -> IoTally {
    let count = (per_second * seconds) as u64;
    IoTally {
        count,
        bytes: count * bytes,
        total_ns: (count as f64 * average_ms * 1e6) as u64,
        max_ns: (average_ms * 8e6) as u64,
    }
}

fn latency(average_ms: f64) -> LatencySummary {
    LatencySummary {
        average_ms: Some(average_ms),
        p50_ms: Some(average_ms * 0.8),
        p95_ms: Some(average_ms * 2.0),
        p99_ms: Some(average_ms * 3.0),
        p99_9_ms: Some(average_ms * 5.0),
        max_ms: Some(average_ms * 8.0),
    }
}

/// A volume that did what `tallies` say.
pub fn volume(name: &str, role: VolumeRole, tallies: IoTallies) -> VolumeResults {
    let buckets = |tally: &IoTally| match tally.average_ms() {
        Some(ms) => vec![
            LatencyBucket { from_ms: ms / 2.0, to_ms: ms, count: tally.count * 9 / 10 },
            LatencyBucket { from_ms: ms, to_ms: ms * 8.0, count: tally.count / 10 },
        ],
        None => Vec::new(),
    };
    let summary = |tally: &IoTally| tally.average_ms().map(latency).unwrap_or_default();
    VolumeResults {
        volume: name.to_owned(),
        role,
        tallies,
        read: summary(&tallies.read),
        write: summary(&tallies.write),
        read_mean_of_windows_ms: tallies.read.average_ms(),
        write_mean_of_windows_ms: tallies.write.average_ms(),
        read_worst_window_ms: tallies.read.average_ms().map(|ms| ms * 2.0),
        write_worst_window_ms: tallies.write.average_ms().map(|ms| ms * 2.0),
        read_buckets: buckets(&tallies.read),
        write_buckets: buckets(&tallies.write),
        spikes: Spikes::default(),
    }
}

/// The performance run of AMI 2008's report, as far as the report tells; the rest is made up.
pub fn ami_2008() -> RunResults {
    let seconds = 7200.0;
    let database = IoTallies {
        read: tally(170.037, seconds, 8192, 18.3),
        write: tally(161.427, seconds, 9000, 2.0),
        ..IoTallies::default()
    };
    let log = IoTallies { write: tally(104.421, seconds, 4272, 0.3), ..IoTallies::default() };
    let per_window = |tallies: &IoTallies| IoTallies {
        read: IoTally {
            count: tallies.read.count / 480,
            total_ns: tallies.read.total_ns / 480,
            ..tallies.read
        },
        write: IoTally {
            count: tallies.write.count / 480,
            total_ns: tallies.write.total_ns / 480,
            ..tallies.write
        },
        ..IoTallies::default()
    };
    let samples = (1..=480).map(|window| Sample {
        at_s: f64::from(window) * 15.0,
        span_s: 15.0,
        volumes: vec![per_window(&database), per_window(&log)],
        ..Sample::default()
    });
    let began = 1_222_253_331;
    RunResults {
        plan: ami_2008_plan(),
        generator: "spindle 0.1.0".to_owned(),
        host: HostFacts {
            name: "HANUMAN".to_owned(),
            operating_system: "Linux".to_owned(),
            processors: "4 processors".to_owned(),
            processor_count: 4,
            memory_bytes: 10 << 30,
        },
        began_unix_s: began,
        ended_unix_s: began + 8280,
        measured_s: seconds,
        load_s: seconds,
        interrupted: false,
        create_s: 1.0,
        created_bytes: 0,
        fill: FillResults { seconds: 329.0, cache_bytes: 242_450_400, reached: true, settled: true },
        databases: vec![DatabaseResults {
            group: 1,
            name: "priv1.edb".to_owned(),
            volume: "/mnt/databases".to_owned(),
            bytes_before: 138_868_178_944,
            bytes_after: 139_755_274_240,
            records: MESSAGES_PER_MAILBOX as u64 * 100_000,
            records_found: MESSAGES_PER_MAILBOX as u64 * 99_000,
            became_full: false,
        }],
        volumes: vec![
            volume("/mnt/databases", VolumeRole::Database, database),
            volume("/mnt/logs", VolumeRole::Log, log),
        ],
        all_operations: latency(12.0),
        unfinished_operations: 0,
        late: LateResults::default(),
        slow: SlowTally::default(),
        operations: Operation::ALL
            .into_iter()
            .zip([40, 5, 30, 25])
            .map(|(operation, percent)| OperationResults {
                operation,
                count: percent * 22_000,
                latency: latency(12.0),
            })
            .collect(),
        transactions: TransactionResults {
            commits_durable: 742_500,
            commits_lazy: 907_500,
            conflicts: 0,
            records_checked: 550_000,
        },
        engine: EngineCounters {
            page_requests: 8_000_000,
            page_reads: 1_224_266,
            pages_written: 1_277_000,
            page_writes: 1_162_274,
            log_bytes: 3_200_000_000,
            log_generations: 3051,
            splits: 140_000,
            checkpoints: 3000,
            ..EngineCounters::default()
        },
        pacing: Some(PacingResults { backlog_max: 31, shed: 0, operations_per_second: 305.6 }),
        search: None,
        scan: None,
        failure_counts: FailureCounts::default(),
        failures: Vec::new(),
        pools: Vec::new(),
        baseline: None,
        backups: Vec::new(),
        verified: vec![VerifiedFile {
            name: "priv1.edb".to_owned(),
            bytes: 139_755_274_240,
            seconds: 732.0,
            good: 17_000_000,
            empty: 59_970,
            blank_unjudged: false,
            damaged: Vec::new(),
        }],
        samples: samples.collect(),
        host_samples: vec![
            HostSample { at_s: 0.0, process_cpu_s: 10.0, available_bytes: 9 << 30, ..HostSample::default() },
            HostSample {
                at_s: 7200.0,
                process_cpu_s: 82.0,
                available_bytes: 9 << 30,
                ..HostSample::default()
            },
        ],
        thread_cpu_s: Vec::new(),
        cut_off: None,
        kernel: None,
        log: vec![
            TestLogLine { unix_s: began, text: "spindle 0.1.0: testing begins".to_owned() },
            TestLogLine { unix_s: began + 8280, text: "testing ends".to_owned() },
        ],
    }
}

fn ami_2008_plan() -> RunPlan {
    let volume = |name: &str, databases, logs| VolumeFacts {
        name: name.to_owned(),
        databases,
        logs,
        io: "io_uring, O_DIRECT".to_owned(),
        direct: true,
        description: "a StorTrends iSCSI volume".to_owned(),
    };
    RunPlan {
        profile: ServerProfile::load("exchange-2007").unwrap(),
        groups: 1,
        databases_per_group: 1,
        database_bytes: 138_868_178_944,
        database_bytes_max: RunPlan::usual_growth(138_868_178_944),
        cache_bytes_per_group: 256 << 20,
        load: LoadPlan::Mailboxes { count: 600, iops_each: 0.45 },
        duration_s: 7200,
        judged: JudgedPart::All,
        fill_s_max: 1800,
        seed: 1,
        volumes: vec![volume("/mnt/databases", true, false), volume("/mnt/logs", false, true)],
        storage_cache_bytes: Some(1 << 30),
        setup: None,
        notes: Vec::new(),
        layout: None,
        protection: None,
    }
}
