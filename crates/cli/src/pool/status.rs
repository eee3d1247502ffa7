//! What a pool has, as a document: made by the process that has it open, and published by it in the pool's folder.
//!
//! Invariants:
//!
//! 1. A published status is believed only while somebody holds the folder and the process that wrote it is there.
//!    Whoever takes the folder removes what another left; whoever lets it go removes its own.
//! 2. It is replaced in one step, and never flushed: it says nothing after a power loss.

use super::{
    drive_search::{DriveSearch, PoolDrive},
    events::EventReport,
    folder::OpenPool,
    record::Hardware,
    snapshot_room::ShownSnapshotRoom,
    unused,
    volume_limits::ShownLimits,
};
use crate::{outputs::utc_time, refusal::Refusal};
use array::{
    format::{DriveId, RedundancyClass, row::WriteCache},
    pool::Pool,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::{
    ByteCount, IoErrorKind, WallTime, World,
    real::host_files::{self, PathKind},
};

/// The published status in the folder of a pool.
const STATUS_NAME: &str = "spindle-status.json";
/// Its format.
const STATUS_FORMAT: u32 = 1;
/// Nobody publishes more than this.
const STATUS_BYTES_MAX: u64 = 256 << 20;

/// What a pool has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Always false here: of a pool that does not open another answer is given.
    #[serde(default)]
    pub damaged: bool,
    /// What lies on drives that are not in use, and nowhere else.
    #[serde(default)]
    pub only_elsewhere: Vec<ShownOnlyCopies>,
    /// What to do with drives that are not in use.
    #[serde(default)]
    pub unused: Vec<String>,
    /// Those that the folder names.
    pub drives: Vec<ShownDrive>,
    /// Why drives may run out of space.
    pub warnings: Vec<String>,
    /// What hosts can store.
    pub usable_bytes: u64,
    /// What is stored for them.
    pub used_bytes: u64,
    /// 80, 90, 95 or 100 once the pool is that full; else 0.
    pub alarm_percent: u8,
    /// What the deletion of snapshots would free, once the pool is 95 % full; not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_room: Option<Vec<ShownSnapshotRoom>>,
    /// Drives that take part: of those that are there some may have fallen behind.
    pub drives_in_use: usize,
    /// Copies the pool keeps of everything.
    pub copies: u8,
    /// Segments that lack a copy, of those that the drives in use can have.
    pub degraded_segments: u64,
    /// Segments of raid0 volumes on drives that are not there.
    pub lost_segments: u64,
    /// Copies that were wrong or unreadable, and were written again, since it was opened.
    pub mended: u64,
    /// Copies that are to be made since segments began to lack some.
    pub rebuild: ShownRebuild,
    /// By name.
    pub volumes: Vec<ShownVolume>,
}

/// What one drive that is not in use has, and no drive in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownOnlyCopies {
    /// UUID of the drive.
    pub drive: String,
    /// Of one copy.
    pub bytes: u64,
}

/// Copies that are to be made since segments began to lack some.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownRebuild {
    /// All of them.
    pub total_bytes: u64,
    /// Those that are made.
    pub done_bytes: u64,
    /// What has one copy left of two or more.
    pub single_copy_bytes: u64,
    /// What no copy could be read of.
    pub unreadable_blocks: u64,
}

/// A drive that the folder names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownDrive {
    /// For people: bay, model and serial number as far as they are known, and the path.
    pub name: String,
    /// Where it is now, or was last.
    pub path: PathBuf,
    /// It was found when the pool was opened.
    pub is_there: bool,
    /// It takes part. One that is there and does not fell behind, was lost, or is blank.
    pub is_in_use: bool,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// UUID of its superblock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// The name that is recorded, which stays with it where udev gives one.
    pub recorded_path: PathBuf,
    /// What is printed on it.
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// The drives of a pool as they were found when it was opened.
#[derive(Clone, Debug)]
pub struct ShownDrives {
    folder: PathBuf,
    drives: Vec<ShownDrive>,
    warnings: Vec<String>,
}

impl ShownDrives {
    /// Those that a search found or missed, and what they lack.
    pub fn of(folder: &Path, search: &DriveSearch, warnings: &[String]) -> Self {
        let shown = |drive: &PoolDrive| {
            let recorded_path = folder.join(&drive.recorded.path);
            ShownDrive {
                name: drive.name(folder),
                path: drive.state.as_ref().map_or_else(|_| recorded_path.clone(), |open| open.path.clone()),
                is_there: drive.state.is_ok(),
                is_in_use: false,
                reason: drive.state.as_ref().err().cloned(),
                drive: drive.recorded.drive.map(|drive| drive.to_string()),
                recorded_path,
                hardware: drive.recorded.hardware.clone(),
            }
        };
        let folder = folder.to_owned();
        Self { folder, drives: search.drives.iter().map(shown).collect(), warnings: warnings.to_vec() }
    }

    /// The same, with which of them a pool uses now.
    fn now(&self, pool: &Pool) -> Vec<ShownDrive> {
        let in_use: BTreeSet<String> = pool.drives_in_use().iter().map(DriveId::to_string).collect();
        let mut drives = self.drives.clone();
        for drive in &mut drives {
            drive.is_in_use = drive.drive.as_ref().is_some_and(|drive| in_use.contains(drive));
        }
        drives
    }
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShownVolume {
    /// Its name.
    pub name: String,
    /// What it holds when it is full.
    pub size_bytes: u64,
    /// Writes are answered before they are stable.
    pub write_cache: bool,
    /// One copy at rest.
    pub raid0: bool,
    /// What it may take, and what is kept for it.
    #[serde(flatten)]
    pub limits: ShownLimits,
    /// Their names.
    pub snapshots: Vec<String>,
}

/// What the process that has a pool open says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    format: u32,
    /// Who has the pool open.
    pub process: u32,
    /// Since when, in UTC.
    pub opened_at: String,
    /// When this was written, in UTC.
    pub written_at: String,
    /// The same, in seconds since 1970.
    written_unix_s: i64,
    /// Why nothing is written any more, if so.
    pub stopped: Option<String>,
    /// What happened last, oldest first.
    pub events: Vec<EventReport>,
    /// What the pool has.
    pub pool: Shown,
}

impl Shown {
    /// What an open pool has now.
    pub fn of(pool: &Pool, drives: &ShownDrives) -> Self {
        let space = pool.space();
        // Counted anew whenever it is asked for.
        let (rebuild, degraded, redundancy) = (pool.rebuild_progress(), pool.degraded(), pool.redundancy());
        let volumes = pool.volumes().into_iter().map(|volume| {
            let snapshots = pool.snapshots(&volume.name).expect("it was listed just now");
            ShownVolume {
                size_bytes: volume.size_bytes,
                write_cache: volume.setting.write_cache == WriteCache::On,
                raid0: volume.setting.class == RedundancyClass::Raid0,
                limits: ShownLimits::of(&volume.setting),
                snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
                name: volume.name,
            }
        });
        let only_elsewhere = pool.only_copies_elsewhere();
        let shown_drives = drives.now(pool);
        let unused = unused::advice(&drives.folder, pool, &shown_drives, &only_elsewhere);
        let only_elsewhere = only_elsewhere
            .into_iter()
            .map(|(drive, bytes)| ShownOnlyCopies { drive: drive.to_string(), bytes });
        Self {
            damaged: false,
            only_elsewhere: only_elsewhere.collect(),
            unused,
            drives: shown_drives,
            warnings: drives.warnings.clone(),
            usable_bytes: space.usable_bytes,
            used_bytes: space.used_bytes,
            alarm_percent: space.alarm().map_or(0, |alarm| alarm as u8),
            snapshot_room: None,
            drives_in_use: pool.drives_present(),
            copies: redundancy.copies,
            degraded_segments: degraded.segments,
            lost_segments: degraded.lost,
            mended: pool.repaired(),
            rebuild: ShownRebuild {
                total_bytes: rebuild.total_bytes,
                done_bytes: rebuild.done_bytes,
                single_copy_bytes: rebuild.single_copy_bytes,
                unreadable_blocks: rebuild.unreadable_blocks,
            },
            volumes: volumes.collect(),
        }
    }

    /// What a pool that this process has open has now, and how to make room if it is nearly full.
    pub async fn with_snapshot_room(open: &OpenPool) -> Self {
        let shown = Self::of_open(open);
        if shown.alarm_percent < 95 {
            return shown;
        }
        let room = open.pool.snapshot_room().await.ok();
        Self { snapshot_room: room.map(|room| room.iter().map(ShownSnapshotRoom::of).collect()), ..shown }
    }

    /// What a pool that this process has open has now.
    pub fn of_open(open: &OpenPool) -> Self {
        Self::of(&open.pool, &ShownDrives::of(open.folder(), &open.drives, &open.warnings))
    }
}

impl Status {
    /// What is to be published now.
    pub fn now(
        world: &World,
        opened: WallTime,
        pool: &Pool,
        drives: &ShownDrives,
        events: Vec<EventReport>,
    ) -> Self {
        let now = world.wall();
        Self {
            format: STATUS_FORMAT,
            process: std::process::id(),
            opened_at: utc_time(opened),
            written_at: utc_time(now),
            written_unix_s: now.seconds,
            stopped: pool.failure(),
            events,
            pool: Shown::of(pool, drives),
        }
    }

    /// Whether it says the same as another, but for when.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        let Self { stopped, events, pool, .. } = self;
        (stopped, events, pool) == (&other.stopped, &other.events, &other.pool)
    }

    /// As it is stored.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain fields") + "\n"
    }

    /// How old it is, in seconds.
    pub fn age_seconds(&self, now: WallTime) -> u64 {
        u64::try_from(now.seconds - self.written_unix_s).unwrap_or(0)
    }

    /// What the process that has the pool of a folder open published last.
    pub fn published(folder: &Path) -> Result<Self, Refusal> {
        let path = path_in(folder);
        let busy = |why: &str, remedy: &str| {
            Refusal::new(
                format!("{}: another Spindle has the pool open, and {why}", folder.display()),
                remedy,
            )
        };
        let read = host_files::read_at_most(&path, STATUS_BYTES_MAX);
        let bytes = read.map_err(|error| match error.kind() {
            IoErrorKind::NotFound => busy("has not published its status", "try again in a moment"),
            _ => Refusal::new(error.to_string(), "check its permissions"),
        })?;
        let status: Self = serde_json::from_slice(&bytes).map_err(|error| {
            let why = format!("published what cannot be read ({}: {error})", path.display());
            busy(&why, "use the version that exports the pool")
        })?;
        if status.format != STATUS_FORMAT {
            let why = format!("published its status in format {}, not {STATUS_FORMAT}", status.format);
            return Err(busy(&why, "use the version that exports the pool"));
        }
        let process = PathBuf::from(format!("/proc/{}", status.process));
        match host_files::kind(&process) {
            Ok(PathKind::Missing) => {
                let why = format!("its status is of process {}, which is not here", status.process);
                Err(busy(&why, "try again in a moment, or where that process runs"))
            }
            _ => Ok(status),
        }
    }
}

/// Where a pool's status is published.
pub fn path_in(folder: &Path) -> PathBuf {
    folder.join(STATUS_NAME)
}

/// Removes what is published in a folder, which this process holds.
pub fn withdraw(folder: &Path) {
    // What cannot be removed is not believed either, as soon as the process that wrote it has ended.
    let _ = host_files::remove_file(&path_in(folder));
}

/// The first figures of a pool, in a line.
pub fn used_of(shown: &Shown) -> String {
    format!("{} used of {}", ByteCount(shown.used_bytes), ByteCount(shown.usable_bytes))
}
