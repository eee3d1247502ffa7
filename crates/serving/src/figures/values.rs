//! The figures of a pool as values that other threads may have.

use super::meters::DriveLabel;
use array::{
    format::{SnapshotId, VolumeId},
    mover::PoolJob,
    pool::VolumeInfo,
    tree::NodeCacheCounts,
};
use std::sync::Arc;
use world::{DeviceCounts, LatencyCounts, WallTime};

/// The figures of an open pool at one moment. Counts are of the time since it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolFigures {
    /// Volumes, and snapshots that are served; by name.
    pub volumes: Arc<Vec<VolumeTraffic>>,
    /// By name.
    pub drives: Arc<Vec<DriveTraffic>>,
    pub space: SpaceFigures,
    /// Time of these counts: the first ones that are so, for figures without changes stay. Set by who publishes them.
    pub counted_at: Option<WallTime>,
    /// Latencies of sampled commands by stage, by the stage's name.
    pub stages: [(&'static str, LatencyCounts); 4],
    pub drives_in_use: usize,
    /// The pool has stopped by an error.
    pub is_stopped: bool,
    /// Number of the last checkpoint, since the pool was made.
    pub checkpoints: u64,
    /// Time of the last checkpoint since the pool was opened, to a second or so.
    pub checkpoint_at: Option<WallTime>,
    /// Wrong or unreadable copies that were written again.
    pub repaired: u64,
    pub levelled_bytes: u64,
    /// Latency of host commands as a multiple of their baseline, measured while the mover works.
    pub host_slowdown: f64,
    /// Pieces that the mover may have under way at once.
    pub mover_parallelism: f64,
    pub node_cache: NodeCacheCounts,
    pub jobs: Vec<JobFigures>,
    pub redundancy: RedundancyFigures,
    pub scrub: ScrubFigures,
    /// As `checkpoint_at`.
    pub scrub_at: Option<WallTime>,
    pub nbd_clients: usize,
    pub iscsi_sessions: usize,
    /// Orders that were done.
    pub orders_done: u64,
}

/// The I/O of hosts on a volume, or on a snapshot of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeTraffic {
    /// `VOLUME` or `VOLUME@SNAPSHOT`.
    pub name: Arc<str>,
    pub volume: VolumeId,
    pub snapshot: Option<SnapshotId>,
    /// Of the volume.
    pub size_bytes: u64,
    /// `None` if it was not served since the pool was opened.
    pub counts: Option<Arc<DeviceCounts>>,
}

impl VolumeTraffic {
    pub(super) fn of(info: VolumeInfo) -> Self {
        let VolumeInfo { name, volume, size_bytes, .. } = info;
        Self { name: name.into(), volume, snapshot: None, size_bytes, counts: None }
    }
}

/// The I/O of a pool on a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveTraffic {
    pub label: DriveLabel,
    /// It is present and has not fallen behind.
    pub is_in_use: bool,
    /// Bytes of its slots that are used.
    pub used_bytes: u64,
    /// Bytes of all its slots; 0 if it is not in use.
    pub size_bytes: u64,
    pub counts: DeviceCounts,
}

/// The space of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    pub used_bytes: u64,
    pub usable_bytes: u64,
    /// All segments on present drives, without the spare.
    pub segments: u64,
    pub free_segments: u64,
    /// Kept for the loss of drives.
    pub spare_segments: u64,
    /// Segments that hosts may not use.
    pub reserve_segments: u64,
}

/// A job of a pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JobFigures {
    /// In front of people.
    pub name: &'static str,
    pub is_running: bool,
    /// Share of the work that is done, 0 to 1; `None` if the work is not known.
    pub done: Option<f64>,
}

impl JobFigures {
    pub(super) fn of(job: &PoolJob) -> Self {
        let progress = job.progress;
        let done = (progress.total > 0).then(|| progress.done as f64 / progress.total as f64);
        Self { name: job.kind.name(), is_running: progress.is_running, done }
    }
}

/// Copies that a pool lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedundancyFigures {
    pub degraded_segments: u64,
    /// Of one copy.
    pub degraded_bytes: u64,
    /// The part of it with one copy left.
    pub single_copy_bytes: u64,
    /// Segments of raid0 volumes on absent drives.
    pub lost_segments: u64,
    /// Blocks of which a rebuild could read no copy.
    pub unreadable_blocks: u64,
    /// Of the rebuild under way, or of the last one.
    pub rebuild_done_bytes: u64,
    pub rebuild_total_bytes: u64,
}

/// Scrubs of a pool since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubFigures {
    pub rounds: u64,
    /// Locations of which the last round found no right copy.
    pub lost_places: u64,
}
