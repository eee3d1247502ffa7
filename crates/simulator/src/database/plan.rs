//! The decisions of a seed before the run.
//!
//! Settings are drawn widely (the smallest cache, the shortest log, continuous checkpoints), because bugs
//! hide where settings meet that no one would combine.

use super::canary::Canary;
use maildb::{InstanceConfig, LogRetention, PageSize, PageStampMode};
use std::time::Duration;
use world::{
    ByteCount, Random,
    sim::{DriveOptions, FaultPlan, ServiceTime},
};

/// The severity of drive faults in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupFaultGrade {
    /// Only faults that storage is allowed: nothing may be lost.
    #[default]
    Within,
    /// Also detectable faults: bit rot, unreadable sectors, misdirected reads, failing writes; and, for
    /// groups with page stamps, lost and misdirected writes, stale reads, flushes that fail or lie.
    ///
    /// The engine may return an error at any time. Rows it returns must be right: within one incarnation
    /// those written there; after an opening the state after some prefix of all commits ever begun, in order.
    /// That prefix includes all durable commits, unless the log's drive had a fault that may lose the end of
    /// a log ([`FaultPlan`]'s lost and misdirected writes, stale reads, lying and failing flushes): lost
    /// writes are undetectable there. Never a mixture of two states, never a row that was not written.
    Beyond,
}

/// Options of runs, independent of the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct GroupRunOptions {
    /// A power cut may tear a page of a database. The log is torn in any case.
    pub torn_page_writes: bool,
    pub grade: GroupFaultGrade,
    /// The trace covers contents, not only addresses.
    pub trace_contents: bool,
    pub canary: Option<Canary>,
}

/// The decisions of a seed.
#[derive(Clone, Debug)]
pub struct GroupRunPlan {
    pub config: InstanceConfig,
    /// Number of databases in the group.
    pub databases: usize,
    /// Concurrent sessions.
    pub sessions: usize,
    /// Transactions of a session in one incarnation.
    pub transactions: u64,
    /// Bulk loads in one incarnation.
    pub loads: u64,
    /// Largest body of a row, in bytes.
    pub body_bytes_max: u64,
    /// Messages per mailbox: few cause many replacements and deletions.
    pub messages: u64,
    /// Mean pause between transactions.
    pub pause: Duration,
    pub database_drive: DriveOptions,
    /// The drive of the log; `None` if it shares that of the databases.
    pub log_drive: Option<DriveOptions>,
    /// Incarnations that may crash, before the last one, which does not.
    pub cycles: u64,
    /// Faults of both drives, except in the last incarnation.
    pub faults: FaultPlan,
    /// The separate log drive has no faults beyond the guarantees of storage.
    pub spares_log: bool,
    /// Free space of the database drive beyond its initial need; `None` for plenty.
    pub space: Option<ByteCount>,
    /// Share of transactions that stay open for some seconds after their changes, in percent.
    pub held_percent: f64,
    pub canary: Option<Canary>,
}

impl GroupRunPlan {
    pub fn draw(random: &mut Random, options: GroupRunOptions) -> Self {
        let page_size = match random.below(10) {
            0..=5 => PageSize::Kib4,
            6..=7 => PageSize::Kib8,
            _ => PageSize::Kib32,
        };
        let page_bytes = page_size.bytes() as u64;
        let config = draw_config(random, page_size);
        let sector = if random.percent(75.0) { 512 } else { 4096 };
        let drive = |random: &mut Random| DriveOptions {
            sector,
            atomic_unit: ByteCount(u64::from(sector)),
            queue_depth: [1, 2, 8, 32][random.below(4) as usize],
            read: draw_time(random),
            write: draw_time(random),
            flush: draw_time(random),
            trace_contents: options.trace_contents,
            ..DriveOptions::new(ByteCount::mib(512))
        };
        let mut database_drive = drive(random);
        if !options.torn_page_writes {
            database_drive.atomic_unit = ByteCount(page_bytes);
        }
        let log_drive = random.percent(70.0).then(|| drive(random));
        let bodies = [100, 400, 900, page_bytes / 5];
        let mut plan = Self {
            databases: 1 + random.below(2) as usize,
            sessions: 1 + random.below(4) as usize,
            transactions: 1 + random.below(40),
            body_bytes_max: bodies[random.below(4) as usize],
            messages: [8, 60, 1 << 20][random.below(3) as usize],
            pause: Duration::from_micros([10, 300, 5_000, 100_000][random.below(4) as usize]),
            database_drive,
            log_drive,
            cycles: 2 + random.below(3),
            faults: match options.grade {
                GroupFaultGrade::Within => draw_faults_within(random),
                GroupFaultGrade::Beyond => draw_faults_beyond(random),
            },
            space: (options.grade == GroupFaultGrade::Within && random.percent(10.0))
                .then(|| ByteCount::kib(16 + random.below(2000))),
            spares_log: false,
            held_percent: 0.0,
            canary: options.canary,
            config,
            loads: 0,
        };
        plan.config.page_stamps = match random.below(10) {
            0..4 => PageStampMode::Off,
            4 => PageStampMode::WhileOpen,
            _ => PageStampMode::Durable,
        };
        let believes_pages = options.canary == Some(Canary::BelieveThePages);
        if options.grade == GroupFaultGrade::Beyond
            && (plan.config.page_stamps == PageStampMode::Durable || believes_pages)
        {
            draw_faults_beyond_checksums(&mut plan.faults, random);
            plan.spares_log = random.percent(60.0);
        }
        if believes_pages {
            plan.config.page_stamps = PageStampMode::Off;
            // The bug shows where a page reads as an older one. A fault that is noticed ends a run with a reason before.
            plan.spares_log = true;
            plan.faults.misdirected_write_percent = 0.0;
            plan.faults.lying_flush_percent = 0.0;
            plan.faults.failed_flush_percent = 0.0;
            plan.faults.stale_read_percent = plan.faults.stale_read_percent.max(2.0);
        }
        if random.percent(50.0) {
            plan.loads = 1 + random.below(3);
        }
        plan
    }

    /// In some runs, transactions stay open over several checkpoints, each of which advances as far as it
    /// can. From a stream of its own, so that older seeds give the same runs.
    pub fn draw_held(&mut self, random: &mut Random) {
        if random.percent(20.0) {
            self.held_percent = 10.0 + 40.0 * random.unit();
            self.config.checkpoint_depth = ByteCount::kib([0, 4, 16][random.below(3) as usize]);
        }
    }
}

fn draw_config(random: &mut Random, page_size: PageSize) -> InstanceConfig {
    let page_bytes = page_size.bytes() as u64;
    // A change of several pages is one record, and a record fits in one generation.
    let log_file_least = 16 * page_bytes;
    let start_flush_percent = 1.0 + random.unit() * 20.0;
    let mut config = InstanceConfig::new(page_size, ByteCount((64 + random.below(200)) * page_bytes));
    config.start_flush_percent = start_flush_percent;
    config.stop_flush_percent = start_flush_percent + 1.0 + random.unit() * 20.0;
    config.checkpoint_depth = ByteCount::kib(16 << random.below(7));
    config.coalesce = ByteCount(page_bytes << random.below(6));
    config.preread_pages = 1 << random.below(6);
    config.log_buffer = ByteCount::kib(16 << random.below(6));
    config.log_file = ByteCount(log_file_least << random.below(3));
    config.log_retention = match random.percent(80.0) {
        true => LogRetention::Circular,
        false => LogRetention::UntilReleased,
    };
    config.extension_pages = 8 << random.below(4);
    config.lazy_commit_delay = Duration::from_millis(1 << random.below(8));
    config.writes_outstanding_max = 1 << random.below(6);
    config
}

/// From a fast flash drive to a busy disk.
fn draw_time(random: &mut Random) -> ServiceTime {
    let scale = [10, 100, 1_000, 5_000][random.below(4) as usize];
    ServiceTime {
        least: Duration::from_micros(scale),
        mean_above: Duration::from_micros(random.below(2 * scale)),
        per_mib: Duration::from_micros(10 * scale),
    }
}

fn draw_faults_within(random: &mut Random) -> FaultPlan {
    let mut faults = FaultPlan::none();
    if random.percent(30.0) {
        faults.slow_percent = random.unit() * 5.0;
        faults.slow_span = Duration::from_millis(1 << random.below(13));
    }
    if random.percent(10.0) {
        faults.stuck_percent = random.unit() * 0.2;
    }
    assert!(faults.is_within_promises());
    faults
}

/// Faults that checksums and error codes detect.
fn draw_faults_beyond(random: &mut Random) -> FaultPlan {
    let mut faults = draw_faults_within(random);
    let mut draw = || if random.percent(40.0) { random.unit() } else { 0.0 };
    faults.bit_rot_percent = draw();
    faults.unreadable_percent = draw();
    faults.misdirected_read_percent = draw();
    faults.failed_write_percent = draw();
    faults
}

/// Faults that only page stamps detect: an outdated page in its place matches every checksum it carries.
///
/// Half the time a single kind and often: among many kinds the run ends with another error before a lost page
/// is ever read again.
fn draw_faults_beyond_checksums(faults: &mut FaultPlan, random: &mut Random) {
    if random.percent(50.0) {
        *faults = draw_faults_within(random);
        match random.below(5) {
            0 => faults.lost_write_percent = 10.0 * random.unit(),
            1 => faults.misdirected_write_percent = 5.0 * random.unit(),
            2 => faults.stale_read_percent = 10.0 * random.unit(),
            3 => faults.lying_flush_percent = 100.0 * random.unit(),
            _ => faults.failed_flush_percent = 20.0 * random.unit(),
        }
        return;
    }
    let mut draw = |percent_max: f64| if random.percent(40.0) { random.unit() * percent_max } else { 0.0 };
    faults.lost_write_percent = draw(1.0);
    faults.misdirected_write_percent = draw(1.0);
    faults.stale_read_percent = draw(3.0);
    faults.lying_flush_percent = draw(50.0);
    faults.failed_flush_percent = draw(10.0);
}
