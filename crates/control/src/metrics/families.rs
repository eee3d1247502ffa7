//! The table of metrics: name, type, unit, help, and the figure that each sample is of.

use super::dr_families::DR_FAMILIES;
use crate::dr::{PeerView, group_view::DrGroupView};
use serving::figures::{DriveTraffic, JobFigures, PoolFigures, VolumeTraffic};
use world::{DeviceCounts, DeviceOperation, OperationCounts, WallTime};

/// Metrics of one name.
pub struct MetricFamily {
    /// With the unit, without what the type appends.
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Option<MetricUnit>,
    pub help: &'static str,
    pub(super) source: MetricSource,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// A base unit of Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricUnit {
    Bytes,
    Seconds,
    Ratio,
}

impl MetricUnit {
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Seconds => "seconds",
            Self::Ratio => "ratio",
        }
    }
}

/// The value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SampleValue {
    Count(u64),
    Number(f64),
}

/// The side of a pool on which I/O is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolSide {
    Volumes,
    Drives,
}

/// The figures that the samples of a family are of.
pub(super) enum MetricSource {
    Build,
    PoolUp,
    /// No sample if there is no value.
    Pool(fn(&PoolFigures) -> Option<SampleValue>),
    Job(fn(&JobFigures) -> Option<SampleValue>),
    VolumeInfo,
    Volume(fn(&VolumeTraffic) -> SampleValue),
    DriveInfo,
    Drive(fn(&DriveTraffic) -> SampleValue),
    /// Of volumes that were served, or of drives.
    Device(PoolSide, fn(&DeviceCounts) -> SampleValue),
    Operations(PoolSide, &'static [DeviceOperation], fn(&OperationCounts) -> SampleValue),
    Latencies(PoolSide),
    Stages,
    DrGroupInfo,
    DrGroupState,
    /// No sample if there is no value.
    DrGroup(fn(&DrGroupView) -> Option<SampleValue>),
    DrSite(fn(&PeerView) -> Option<SampleValue>),
}

/// Type and unit of a family.
pub(super) type MetricShape = (MetricKind, Option<MetricUnit>);

impl MetricFamily {
    /// Name of its samples in queries; a histogram has `_bucket`, `_sum` and `_count` behind it.
    pub fn sample_name(&self) -> String {
        let end = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Info => "_info",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        format!("{}{end}", self.name)
    }

    pub fn labels(&self) -> &'static [&'static str] {
        use PoolSide::{Drives, Volumes};
        match self.source {
            MetricSource::Build => &["version"],
            MetricSource::PoolUp | MetricSource::Pool(_) => &["pool"],
            MetricSource::Job(_) => &["pool", "job"],
            MetricSource::Stages => &["pool", "stage"],
            MetricSource::DrGroupInfo => &["pool", "group", "uuid", "peer"],
            MetricSource::DrGroupState => &["pool", "group", "state"],
            MetricSource::DrGroup(_) => &["pool", "group"],
            MetricSource::DrSite(_) => &["site"],
            MetricSource::VolumeInfo => &["pool", "volume", "uuid"],
            MetricSource::Volume(_) | MetricSource::Device(Volumes, _) => &["pool", "volume"],
            MetricSource::DriveInfo => &["pool", "drive", "uuid", "model", "bay", "path"],
            MetricSource::Drive(_) | MetricSource::Device(Drives, _) => &["pool", "drive"],
            MetricSource::Operations(Volumes, ..) | MetricSource::Latencies(Volumes) => {
                &["pool", "volume", "op"]
            }
            MetricSource::Operations(Drives, ..) | MetricSource::Latencies(Drives) => {
                &["pool", "drive", "op"]
            }
        }
    }

    pub(super) const fn new(
        name: &'static str,
        (kind, unit): MetricShape,
        help: &'static str,
        source: MetricSource,
    ) -> Self {
        Self { name, kind, unit, help, source }
    }
}

const COUNTER: MetricShape = (MetricKind::Counter, None);
pub(super) const BYTE_COUNTER: MetricShape = (MetricKind::Counter, Some(MetricUnit::Bytes));
const TIME_COUNTER: MetricShape = (MetricKind::Counter, Some(MetricUnit::Seconds));
pub(super) const GAUGE: MetricShape = (MetricKind::Gauge, None);
pub(super) const BYTES: MetricShape = (MetricKind::Gauge, Some(MetricUnit::Bytes));
pub(super) const SECONDS: MetricShape = (MetricKind::Gauge, Some(MetricUnit::Seconds));
const RATIO: MetricShape = (MetricKind::Gauge, Some(MetricUnit::Ratio));
const HISTOGRAM: MetricShape = (MetricKind::Histogram, Some(MetricUnit::Seconds));
pub(super) const INFO: MetricShape = (MetricKind::Info, None);

use DeviceOperation::{Discard, Read, Write, WriteZeroes};
use MetricSource::{Device, Drive, Job, Latencies, Operations, Pool, Volume};
use PoolSide::{Drives, Volumes};
use SampleValue::{Count, Number};

/// Operations that have bytes.
const WITH_BYTES: &[DeviceOperation] = &[Read, Write, Discard, WriteZeroes];

macro_rules! pool {
    ($pool:ident => $count:expr) => {
        Pool(|$pool| Some(Count($count)))
    };
}

/// All metrics, in the order in which they are shown.
pub fn families() -> impl Iterator<Item = &'static MetricFamily> {
    FAMILIES.iter().chain(DR_FAMILIES)
}

/// Those of pools.
static FAMILIES: &[MetricFamily] = &[
    MetricFamily::new("spindle_build", INFO, "Version of the program.", MetricSource::Build),
    MetricFamily::new(
        "spindle_pool_up",
        GAUGE,
        "1 if the pool is open and has not stopped by an error.",
        MetricSource::PoolUp,
    ),
    MetricFamily::new(
        "spindle_pool_figures_timestamp_seconds",
        SECONDS,
        "Time of the pool's figures: they are counted once a second, and stay as they were while nothing changes.",
        Pool(|pool| pool.counted_at.map(exact_seconds)),
    ),
    MetricFamily::new(
        "spindle_pool_used_bytes",
        BYTES,
        "Live data of hosts, snapshots included.",
        pool!(pool => pool.space.used_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_usable_bytes",
        BYTES,
        "The most that hosts can store; the pool is full then.",
        pool!(pool => pool.space.usable_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_segments",
        GAUGE,
        "Segments on present drives, without the spare.",
        pool!(pool => pool.space.segments),
    ),
    MetricFamily::new(
        "spindle_pool_free_segments",
        GAUGE,
        "Empty segments, those of the spare included.",
        pool!(pool => pool.space.free_segments),
    ),
    MetricFamily::new(
        "spindle_pool_spare_segments",
        GAUGE,
        "Segments kept for the loss of drives.",
        pool!(pool => pool.space.spare_segments),
    ),
    MetricFamily::new(
        "spindle_pool_reserve_segments",
        GAUGE,
        "Segments that hosts may not use.",
        pool!(pool => pool.space.reserve_segments),
    ),
    MetricFamily::new(
        "spindle_pool_drives_in_use",
        GAUGE,
        "Drives that are present and have not fallen behind.",
        pool!(pool => pool.drives_in_use as u64),
    ),
    MetricFamily::new(
        "spindle_pool_degraded_segments",
        GAUGE,
        "Mirrored segments that lack a copy.",
        pool!(pool => pool.redundancy.degraded_segments),
    ),
    MetricFamily::new(
        "spindle_pool_degraded_bytes",
        BYTES,
        "Size of the mirrored segments that lack a copy, in bytes of one copy.",
        pool!(pool => pool.redundancy.degraded_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_single_copy_bytes",
        BYTES,
        "The part of the degraded bytes with one copy left: another failed drive may lose it.",
        pool!(pool => pool.redundancy.single_copy_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_lost_segments",
        GAUGE,
        "Segments of raid0 volumes on absent drives.",
        pool!(pool => pool.redundancy.lost_segments),
    ),
    MetricFamily::new(
        "spindle_pool_unreadable_blocks",
        GAUGE,
        "Blocks of which the last rebuild could read no copy.",
        pool!(pool => pool.redundancy.unreadable_blocks),
    ),
    MetricFamily::new(
        "spindle_pool_rebuild_done_bytes",
        BYTES,
        "Copies that the rebuild under way, or the last one, has made.",
        pool!(pool => pool.redundancy.rebuild_done_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_rebuild_wanted_bytes",
        BYTES,
        "Copies that the rebuild under way, or the last one, has to make in all.",
        pool!(pool => pool.redundancy.rebuild_total_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_repaired_copies",
        COUNTER,
        "Wrong or unreadable copies that were written again.",
        pool!(pool => pool.repaired),
    ),
    MetricFamily::new(
        "spindle_pool_levelled_bytes",
        BYTE_COUNTER,
        "Data that was moved to fill drives equally.",
        pool!(pool => pool.levelled_bytes),
    ),
    MetricFamily::new(
        "spindle_pool_checkpoints",
        COUNTER,
        "Checkpoints since the pool was made.",
        pool!(pool => pool.checkpoints),
    ),
    MetricFamily::new(
        "spindle_pool_checkpoint_last_success_timestamp_seconds",
        SECONDS,
        "Time of the last checkpoint since the pool was opened.",
        Pool(|pool| pool.checkpoint_at.map(seconds)),
    ),
    MetricFamily::new(
        "spindle_pool_scrubs",
        COUNTER,
        "Scrubs that were completed since the pool was opened.",
        pool!(pool => pool.scrub.rounds),
    ),
    MetricFamily::new(
        "spindle_pool_scrub_last_success_timestamp_seconds",
        SECONDS,
        "Time of the last scrub completed since the pool was opened.",
        Pool(|pool| pool.scrub_at.map(seconds)),
    ),
    MetricFamily::new(
        "spindle_pool_scrub_lost_places",
        GAUGE,
        "Places of which the last scrub found no right copy.",
        pool!(pool => pool.scrub.lost_places),
    ),
    MetricFamily::new(
        "spindle_pool_job_running",
        GAUGE,
        "1 while a job of the pool is under way.",
        Job(|job| Some(Count(u64::from(job.is_running)))),
    ),
    MetricFamily::new(
        "spindle_pool_job_done_ratio",
        RATIO,
        "Share of a job's work that is done; none if the work is not known.",
        Job(|job| job.done.map(Number)),
    ),
    MetricFamily::new(
        "spindle_pool_host_slowdown_ratio",
        RATIO,
        "Latency of host commands as a multiple of their baseline, measured while the mover works.",
        Pool(|pool| Some(Number(pool.host_slowdown))),
    ),
    MetricFamily::new(
        "spindle_pool_mover_parallelism",
        GAUGE,
        "Pieces that the mover may have under way at once; below 1, the share of time that one is.",
        Pool(|pool| Some(Number(pool.mover_parallelism))),
    ),
    MetricFamily::new(
        "spindle_pool_node_cache_hits",
        COUNTER,
        "Nodes of the map that were found in the cache.",
        pool!(pool => pool.node_cache.hits),
    ),
    MetricFamily::new(
        "spindle_pool_node_cache_misses",
        COUNTER,
        "Nodes of the map that had to be read.",
        pool!(pool => pool.node_cache.misses),
    ),
    MetricFamily::new(
        "spindle_pool_node_cache_bytes",
        BYTES,
        "Memory of the map's cache.",
        pool!(pool => pool.node_cache.bytes),
    ),
    MetricFamily::new(
        "spindle_pool_node_cache_limit_bytes",
        BYTES,
        "Most memory of the map's cache.",
        pool!(pool => pool.node_cache.bytes_max),
    ),
    MetricFamily::new(
        "spindle_pool_stage_seconds",
        HISTOGRAM,
        "Latency of hosts' reads and writes by stage, of one of seven commands: queue (limits, locks, room, map), log (writes \
         alone: until their batch is written), device, and reply (from the pool's answer to the socket). The first three add \
         up to the latency of the volumes.",
        MetricSource::Stages,
    ),
    MetricFamily::new(
        "spindle_pool_orders",
        COUNTER,
        "Orders that were done.",
        pool!(pool => pool.orders_done),
    ),
    MetricFamily::new(
        "spindle_pool_nbd_clients",
        GAUGE,
        "NBD clients that use an export.",
        pool!(pool => pool.nbd_clients as u64),
    ),
    MetricFamily::new(
        "spindle_pool_iscsi_sessions",
        GAUGE,
        "iSCSI sessions.",
        pool!(pool => pool.iscsi_sessions as u64),
    ),
    MetricFamily::new("spindle_volume", INFO, "UUID of a volume.", MetricSource::VolumeInfo),
    MetricFamily::new(
        "spindle_volume_size_bytes",
        BYTES,
        "Size of a volume.",
        Volume(|volume| Count(volume.size_bytes)),
    ),
    MetricFamily::new(
        "spindle_volume_operations",
        COUNTER,
        "Operations of hosts that have ended.",
        Operations(Volumes, &DeviceOperation::ALL, |counts| Count(counts.count())),
    ),
    MetricFamily::new(
        "spindle_volume_io_bytes",
        BYTE_COUNTER,
        "Bytes of hosts' operations that did not fail.",
        Operations(Volumes, WITH_BYTES, |counts| Count(counts.bytes)),
    ),
    MetricFamily::new(
        "spindle_volume_io_time_seconds",
        TIME_COUNTER,
        "Sum of the latencies of hosts' reads and writes; over their number it is the mean.",
        Operations(Volumes, &[Read, Write], |counts| Number(total_seconds(counts))),
    ),
    MetricFamily::new(
        "spindle_volume_errors",
        COUNTER,
        "Operations of hosts that failed.",
        Device(Volumes, |counts| Count(errors(counts))),
    ),
    MetricFamily::new(
        "spindle_volume_in_flight",
        GAUGE,
        "Operations of hosts under way.",
        Device(Volumes, |counts| Count(counts.in_flight)),
    ),
    MetricFamily::new(
        "spindle_volume_io_seconds",
        HISTOGRAM,
        "Latency of hosts' operations, from the command to the answer of the pool.",
        Latencies(Volumes),
    ),
    MetricFamily::new(
        "spindle_drive",
        INFO,
        "UUID, model, bay and path of a drive.",
        MetricSource::DriveInfo,
    ),
    MetricFamily::new(
        "spindle_drive_in_use",
        GAUGE,
        "1 if the drive is present and has not fallen behind.",
        Drive(|drive| Count(u64::from(drive.is_in_use))),
    ),
    MetricFamily::new(
        "spindle_drive_used_bytes",
        BYTES,
        "Space of the pool on a drive that is taken.",
        Drive(|drive| Count(drive.used_bytes)),
    ),
    MetricFamily::new(
        "spindle_drive_size_bytes",
        BYTES,
        "Space of the pool on a drive; 0 if the drive is not in use.",
        Drive(|drive| Count(drive.size_bytes)),
    ),
    MetricFamily::new(
        "spindle_drive_operations",
        COUNTER,
        "Operations of the pool on a drive that have ended.",
        Operations(Drives, &DeviceOperation::ALL, |counts| Count(counts.count())),
    ),
    MetricFamily::new(
        "spindle_drive_io_bytes",
        BYTE_COUNTER,
        "Bytes of a drive's operations that did not fail.",
        Operations(Drives, WITH_BYTES, |counts| Count(counts.bytes)),
    ),
    MetricFamily::new(
        "spindle_drive_errors",
        COUNTER,
        "Operations of a drive that failed.",
        Operations(Drives, &DeviceOperation::ALL, |counts| Count(counts.errors)),
    ),
    MetricFamily::new(
        "spindle_drive_in_flight",
        GAUGE,
        "Operations of a drive under way.",
        Device(Drives, |counts| Count(counts.in_flight)),
    ),
    MetricFamily::new(
        "spindle_drive_io_seconds",
        HISTOGRAM,
        "Latency of a drive's operations.",
        Latencies(Drives),
    ),
];

fn seconds(time: WallTime) -> SampleValue {
    Number(time.seconds as f64)
}

/// For rates.
fn exact_seconds(time: WallTime) -> SampleValue {
    Number(time.seconds as f64 + f64::from(time.nanos) / 1e9)
}

fn errors(counts: &DeviceCounts) -> u64 {
    DeviceOperation::ALL.map(|operation| counts.of(operation).errors).iter().sum()
}

fn total_seconds(counts: &OperationCounts) -> f64 {
    counts.latencies().map_or(0.0, |latencies| latencies.total().as_secs_f64())
}
