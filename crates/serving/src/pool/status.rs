//! Status of a pool as JSON: made by the process that has it open, which publishes it in the pool's folder.
//!
//! Invariants:
//!
//! 1. A published status is trusted only while the folder is locked and the process that wrote it exists.
//!    The process that takes the lock removes the old status, and removes its own before it lets go.
//! 2. It is replaced atomically, and never flushed: after a power loss it means nothing.

use super::{
    cut::CutStatus,
    departure::LeavingStatus,
    domains::DomainReport,
    drive_search::{DriveSearch, PoolDrive},
    events::EventReport,
    failure_sets::FailureSetsReport,
    folder::OpenPool,
    format_level::FormatStatus,
    growth::GrownStatus,
    health::PoolHealth,
    levelling::LevelStatus,
    limits::LimitStatus,
    losses::LossStatus,
    note::NoteStatus,
    record::Hardware,
    snapshot_room::SnapshotRoomStatus,
    sparing::SparingStatus,
    volume_import::ImportOrigin,
    withholding::WithholdingStatus,
};
use crate::export::readers_clone_of;
use array::{
    format::{DriveId, RedundancyClass, row::WriteCache},
    pool::{FillStatus, ImportStatus, Pool, VolumeInfo, VolumeOrigin, is_incomplete_copy, is_moved},
};
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::{
    ByteCount, IoErrorKind, WallTime, World,
    real::host_files::{self, PathKind},
};

const STATUS_NAME: &str = "spindle-status.json";
const STATUS_FORMAT: u32 = 1;
/// Bound on the size of a published status.
const STATUS_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Always false; a pool that does not open has another answer.
    #[serde(default)]
    pub damaged: bool,
    /// Blocks whose only copies are on drives not in use.
    #[serde(default)]
    pub only_elsewhere: Vec<OnlyCopyStatus>,
    /// Advice on drives that are not in use.
    #[serde(default)]
    pub unused: Vec<String>,
    pub drives: Vec<DriveStatus>,
    /// Reasons why drives may run out of space.
    pub warnings: Vec<String>,
    pub usable_bytes: u64,
    pub used_bytes: u64,
    /// 80, 90, 95 or 100 once the pool is that full; else 0.
    pub alarm_percent: u8,
    /// Room that the deletion of snapshots would free, once the pool is 95 % full; not published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_room: Option<Vec<SnapshotRoomStatus>>,
    /// Present drives that have not fallen behind.
    pub drives_in_use: usize,
    pub copies: u8,
    /// Segments that lack a copy which the drives in use could hold.
    pub degraded_segments: u64,
    /// Seconds for which drives that are away are waited for, before copies are made.
    #[serde(default)]
    pub copies_wait_s: u64,
    /// Segments of raid0 volumes on missing drives.
    pub lost_segments: u64,
    /// Wrong or unreadable copies rewritten since the pool was opened.
    pub mended: u64,
    /// Progress of making missing copies.
    pub rebuild: RebuildStatus,
    /// Drives that leave.
    #[serde(default)]
    pub leaving: Vec<LeavingStatus>,
    /// Drives that may be lost.
    #[serde(default)]
    pub losses: LossStatus,
    /// Room kept for lost drives.
    #[serde(default)]
    pub sparing: SparingStatus,
    /// Fill of the drives.
    #[serde(default)]
    pub levelling: LevelStatus,
    /// Drives that have become larger than the pool uses.
    #[serde(default)]
    pub grown: Vec<GrownStatus>,
    /// By name.
    #[serde(default)]
    pub domains: Vec<DomainReport>,
    #[serde(default)]
    pub failure_sets: FailureSetsReport,
    #[serde(default)]
    pub format: FormatStatus,
    /// Sorted by name.
    pub volumes: Vec<VolumeStatus>,
}

/// Bytes whose only copies are on one drive that is not in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnlyCopyStatus {
    pub drive: String,
    /// Counted once for all copies.
    pub bytes: u64,
}

/// Progress of making missing copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RebuildStatus {
    pub total_bytes: u64,
    pub done_bytes: u64,
    /// Bytes with one copy left of two or more.
    pub single_copy_bytes: u64,
    /// Blocks of which no copy could be read.
    pub unreadable_blocks: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Bay, model and serial number as far as they are known, and the path.
    pub name: String,
    /// Current or last path.
    pub path: PathBuf,
    /// It was found when the pool was opened.
    pub is_there: bool,
    /// False for a drive that is present but fell behind, was lost, or is blank.
    pub is_in_use: bool,
    /// The reason if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive: Option<String>,
    /// Number of its failure set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u8>,
    /// The recorded path, which follows the drive where udev provides one.
    pub recorded_path: PathBuf,
    #[serde(flatten)]
    pub hardware: Hardware,
}

/// The drives of a pool as found when it was opened, and as they have joined and left since.
#[derive(Clone, Debug, Default)]
pub struct DriveStatuses {
    pub(super) folder: PathBuf,
    pub(super) drives: Vec<DriveStatus>,
    pub(super) warnings: Vec<String>,
}

impl DriveStatuses {
    /// Status of the drives that a search found or missed.
    pub fn of(folder: &Path, search: &DriveSearch, warnings: &[String]) -> Self {
        let status = |drive: &PoolDrive| {
            let recorded_path = drive.recorded.place(folder).path;
            DriveStatus {
                name: drive.name(folder),
                path: drive.state.as_ref().map_or_else(|_| recorded_path.clone(), |open| open.path.clone()),
                is_there: drive.state.is_ok(),
                is_in_use: false,
                reason: drive.state.as_ref().err().cloned(),
                drive: drive.recorded.drive.map(|drive| drive.to_string()),
                set: None,
                recorded_path,
                hardware: drive.recorded.hardware.clone(),
            }
        };
        let folder = folder.to_owned();
        Self { folder, drives: search.drives.iter().map(status).collect(), warnings: warnings.to_vec() }
    }

    /// The same with the drives that the pool uses now.
    pub(super) fn now(&self, pool: &Pool, sets: &FailureSetsReport) -> Vec<DriveStatus> {
        let in_use: BTreeSet<String> = pool.drives_in_use().iter().map(DriveId::to_string).collect();
        let mut drives = self.drives.clone();
        for drive in &mut drives {
            drive.is_in_use = drive.drive.as_ref().is_some_and(|drive| in_use.contains(drive));
            drive.set = drive.drive.as_ref().and_then(|drive| sets.set_of(drive));
        }
        drives
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    pub name: String,
    pub size_bytes: u64,
    pub write_cache: bool,
    pub raid0: bool,
    #[serde(flatten)]
    pub limits: LimitStatus,
    /// The volume, and the snapshot unless it was the present, that it began with: of a clone, or after a
    /// rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun_at: Option<String>,
    /// The volume whose rollback left it: it is read-only, and its room counts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_by: Option<String>,
    /// The volume whose replica somebody reads: this one is a clone that the server keeps for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shows_replica_of: Option<String>,
    /// It is being filled, to need its source no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filling: Option<FillingStatus>,
    /// It is being imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub importing: Option<ImportingStatus>,
    /// Its consistency group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Clients from which a forced rollback withholds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<WithholdingStatus>,
    pub snapshots: Vec<String>,
    /// Of the snapshots that have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteStatus>,
    /// Of the snapshots of several pools that are not settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<CutStatus>,
}

/// Progress of a volume that is being filled with what it reads through its source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FillingStatus {
    pub filled_bytes: u64,
    /// The size of the volume.
    pub total_bytes: u64,
    /// Its snapshot that still reads the source, once it is filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// The reason why it does not go on at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl FillingStatus {
    fn of(FillStatus { filled_bytes, total_bytes, waits_for, problem }: FillStatus) -> Self {
        Self { filled_bytes, total_bytes, waits_for, problem }
    }

    /// Behind a comma.
    fn text(&self) -> String {
        let percent = 100 * self.filled_bytes / self.total_bytes.max(1);
        match (&self.waits_for, &self.problem) {
            (Some(snapshot), _) => format!(", filled, and waits until its snapshot {snapshot} is deleted"),
            (None, Some(problem)) => format!(", {percent} % filled, stopped: {problem}"),
            (None, None) => format!(", {percent} % filled"),
        }
    }
}

/// Progress of a volume that is being imported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImportingStatus {
    /// URI or path of the source.
    pub from: String,
    /// Bytes that were looked at, and copied unless they are zeroes.
    pub filled_bytes: u64,
    /// The size of the volume.
    pub total_bytes: u64,
    /// Bytes that were compared with the source, once all are filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_bytes: Option<u64>,
    /// Bytes that the source cannot read.
    #[serde(default)]
    pub bad_bytes: u64,
    /// The reason why it does not go on at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ImportingStatus {
    fn of(status: ImportStatus) -> Self {
        let source = ImportOrigin::decode(&status.source);
        let from = source
            .map_or("a source of a newer program".to_owned(), |source| source.from.display().to_string());
        let ImportStatus { filled_bytes, total_bytes, compared_bytes, bad_bytes, problem, .. } = status;
        Self { from, filled_bytes, total_bytes, compared_bytes, bad_bytes, problem }
    }

    /// Behind a comma.
    fn text(&self) -> String {
        let percent = |bytes: u64| 100 * bytes / self.total_bytes.max(1);
        let progress = match self.compared_bytes {
            Some(compared) => format!("copied, {} % compared", percent(compared)),
            None => format!("{} % copied", percent(self.filled_bytes)),
        };
        let bad = match self.bad_bytes {
            0 => String::new(),
            bytes => format!(", {} cannot be read", ByteCount(bytes)),
        };
        let problem = self.problem.as_ref().map_or(String::new(), |problem| format!(", stopped: {problem}"));
        format!(", imported from {}: {progress}{bad}{problem}", self.from)
    }
}

impl VolumeStatus {
    fn of(pool: &Pool, volume: VolumeInfo) -> Self {
        let shown = volume.origin.as_ref().map(|origin| origin.volume.clone());
        let shown_id = readers_clone_of(volume.volume);
        let shows_replica_of =
            shown.filter(|name| pool.volume_id(name.as_str()).is_ok_and(|id| id == shown_id));
        let snapshots = pool.snapshots(&volume.name).expect("it was listed just now");
        Self {
            size_bytes: volume.size_bytes,
            write_cache: volume.setting.write_cache == WriteCache::On,
            raid0: volume.setting.class == RedundancyClass::Raid0,
            limits: LimitStatus::of(&volume.setting),
            begun_at: volume.origin.as_ref().map(begin_of),
            left_by: volume.left_by,
            shows_replica_of,
            filling: volume.filling.map(FillingStatus::of),
            importing: volume.importing.map(ImportingStatus::of),
            group: volume.group,
            withheld: WithholdingStatus::of(&volume.withheld_from),
            notes: snapshots
                .iter()
                .filter_map(|snapshot| NoteStatus::of(&snapshot.name, &snapshot.note))
                .collect(),
            cuts: snapshots.iter().filter_map(CutStatus::of).collect(),
            snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
            name: volume.name,
        }
    }

    /// A snapshot with its note, in a line.
    pub fn snapshot_text(&self, snapshot: &str) -> String {
        let note = self.notes.iter().find(|note| note.snapshot == snapshot);
        let note = note.map_or(String::new(), |note| format!(": {}", note.text()));
        let cut = self.cuts.iter().find(|cut| cut.snapshot == snapshot);
        let cut = cut.map_or(String::new(), |cut| format!(", {}", cut.text()));
        format!("snapshot {}@{snapshot}{cut}{note}", self.name)
    }

    /// In a line.
    pub fn text(&self) -> String {
        let Self { name, size_bytes, write_cache, raid0, limits, begun_at, left_by, filling, group, .. } =
            self;
        let filling = filling.as_ref().map_or(String::new(), FillingStatus::text);
        let importing = self.importing.as_ref().map_or(String::new(), ImportingStatus::text);
        let size = ByteCount(*size_bytes);
        if let Some(volume) = left_by {
            return format!("volume {name}: {size}, read-only, left by a rollback of {volume}{filling}");
        }
        if let Some(volume) = &self.shows_replica_of {
            return format!("volume {name}: {size}, kept while somebody reads {volume}@replica");
        }
        if is_incomplete_copy(name) {
            return format!(
                "volume {name}: {size}, an incomplete copy: copy, refresh or move it again to complete it, or delete it"
            );
        }
        if is_moved(name) {
            return format!(
                "volume {name}: {size}, complete in the pool that it was moved to: move it again to end that"
            );
        }
        let cache = if *write_cache { "write cache on" } else { "write cache off" };
        let raid0 = if *raid0 { ", raid0: one copy at rest" } else { "" };
        let begun_at = begun_at.as_ref().map_or(String::new(), |begun_at| format!(", from {begun_at}"));
        let group = group.as_ref().map_or(String::new(), |group| format!(", in group {group}"));
        let withheld = self.withheld.as_ref().map_or(String::new(), WithholdingStatus::text);
        let limits = limits.text();
        format!(
            "volume {name}: {size}, {cache}{raid0}{limits}{begun_at}{filling}{importing}{group}{withheld}"
        )
    }
}

/// `store@monday`, or `store` as it was at some moment.
fn begin_of(origin: &VolumeOrigin) -> String {
    let VolumeOrigin { volume, snapshot, is_deleted } = origin;
    let deleted = if *is_deleted { " (deleted)" } else { "" };
    match snapshot {
        Some(snapshot) => format!("{volume}@{snapshot}{deleted}"),
        None => format!("{volume}{deleted}"),
    }
}

/// The status that the process which has a pool open publishes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedStatus {
    format: u32,
    pub process: u32,
    /// In UTC.
    pub opened_at: String,
    /// In UTC.
    pub written_at: String,
    /// `written_at` in seconds since 1970.
    written_unix_s: i64,
    /// Reason why the pool has stopped, if it has.
    pub stopped: Option<String>,
    /// Oldest first.
    pub events: Vec<EventReport>,
    pub pool: PoolStatus,
}

impl PoolStatus {
    /// The current status of an open pool.
    pub fn of(pool: &Pool, drives: &DriveStatuses) -> Self {
        let volumes = pool.volumes().into_iter().map(|volume| VolumeStatus::of(pool, volume)).collect();
        let PoolHealth {
            drives,
            only_elsewhere,
            unused,
            warnings,
            alarm_percent,
            copies,
            degraded_segments,
            copies_wait_s,
            lost_segments,
            mended,
            rebuild,
            leaving,
            losses,
            sparing,
            levelling,
            grown,
            domains,
            failure_sets,
            format,
            ..
        } = PoolHealth::of(pool, drives);
        let space = pool.space();
        Self {
            damaged: false,
            only_elsewhere,
            unused,
            drives: drives.into_iter().filter(|drive| drive.is_recorded).map(|drive| drive.status).collect(),
            warnings,
            usable_bytes: space.usable_bytes,
            used_bytes: space.used_bytes,
            alarm_percent,
            snapshot_room: None,
            drives_in_use: pool.drives_present(),
            copies,
            degraded_segments,
            copies_wait_s,
            lost_segments,
            mended,
            rebuild,
            leaving,
            losses,
            sparing,
            levelling,
            grown,
            domains,
            failure_sets,
            format,
            volumes,
        }
    }

    /// The current status, with room that snapshots would free if the pool is nearly full.
    pub async fn with_snapshot_room(open: &OpenPool) -> Self {
        Self::of_open(open).and_snapshot_room(&open.pool).await
    }

    /// This status of a pool, with room that snapshots would free if it is nearly full.
    pub async fn and_snapshot_room(self, pool: &Pool) -> Self {
        if self.alarm_percent < 95 {
            return self;
        }
        let room = pool.snapshot_room().await.ok();
        Self { snapshot_room: room.map(|room| room.iter().map(SnapshotRoomStatus::of).collect()), ..self }
    }

    /// The current status of a pool that this process has open.
    pub fn of_open(open: &OpenPool) -> Self {
        Self::of(&open.pool, &open.shown().statuses)
    }
}

impl PublishedStatus {
    pub fn now(
        world: &World,
        opened: WallTime,
        pool: &Pool,
        drives: &DriveStatuses,
        events: Vec<EventReport>,
    ) -> Self {
        let now = world.wall();
        Self {
            format: STATUS_FORMAT,
            process: std::process::id(),
            opened_at: utc_time(opened.seconds),
            written_at: utc_time(now.seconds),
            written_unix_s: now.seconds,
            stopped: pool.failure(),
            events,
            pool: PoolStatus::of(pool, drives),
        }
    }

    /// True if both are equal apart from their times.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        let Self { stopped, events, pool, .. } = self;
        (stopped, events, pool) == (&other.stopped, &other.events, &other.pool)
    }

    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain fields") + "\n"
    }

    pub fn age_seconds(&self, now: WallTime) -> u64 {
        u64::try_from(now.seconds - self.written_unix_s).unwrap_or(0)
    }

    /// The last status that the process which has the pool open published.
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

pub fn path_in(folder: &Path) -> PathBuf {
    folder.join(STATUS_NAME)
}

/// Removes the status in a folder that this process has locked.
pub fn withdraw(folder: &Path) {
    // A status that cannot be removed is not trusted once the process that wrote it has ended.
    let _ = host_files::remove_file(&path_in(folder));
}

/// Used and usable size, in a line.
pub fn used_of(status: &PoolStatus) -> String {
    format!("{} used of {}", ByteCount(status.used_bytes), ByteCount(status.usable_bytes))
}
