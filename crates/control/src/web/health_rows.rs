//! Rows of drives, jobs and the health of pools. Names are those of `spindle pool show --json`.

use crate::{
    job_request::{JobAnswer, JobOutcome, JobRequest},
    view::PoolView,
};
use array::mover::JobKind;
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use serving::pool::{
    departure::LeavingStatus,
    domains::DomainReport,
    failure_sets::{FailureSetsReport, SetReport},
    health::{DriveHealth, JobStatus, PoolHealth},
    levelling::LevelStatus,
    losses::LossStatus,
    sparing::SparingStatus,
    status::{OnlyCopyStatus, RebuildStatus},
};
use utoipa::ToSchema;
use world::WorkUnit;

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DriveRow {
    /// UUID; none of a drive that was never found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Bay, model and serial number as far as they are known, and the path.
    pub name: String,
    /// Current or last path on the server, or a URI.
    pub path: String,
    /// The path in the folder's record, which follows the drive where udev provides one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recorded_path: String,
    /// It has left for good, and goes out of the list in a moment.
    #[serde(default)]
    pub has_left: bool,
    pub state: DriveState,
    /// The reason if it is missing, or cannot be emptied at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Slot of the enclosure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bay: Option<String>,
    /// Bytes that the pool uses of it; none if it is not in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Of one that has just joined: all of its bytes, of which the pool uses `size_bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_bytes: Option<u64>,
    /// Bytes of it that hold data.
    pub used_bytes: u64,
    /// Name of its failure domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Number of its failure set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set: Option<u8>,
    /// Bytes by which it has become larger than the pool uses.
    pub unused_bytes: u64,
    /// Bytes whose only copies lie there, of a drive that is not in use.
    pub only_copy_bytes: u64,
    /// Progress of a drive that leaves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<DepartureRow>,
}

/// State of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    InUse,
    /// It leaves when it is empty.
    Leaving,
    /// It is there, and fell behind, was lost, or is blank.
    Unused,
    Missing,
}

/// Progress of a drive that leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DepartureRow {
    /// Bytes on it that are to be copied elsewhere.
    pub left_bytes: u64,
    /// Of all drives that leave, as the work that is done.
    pub total_bytes: u64,
    pub done_bytes: u64,
}

/// A job of a pool: under way, or the last one of its kind since the pool was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobRow {
    pub kind: JobName,
    pub state: JobState,
    pub unit: JobUnit,
    /// Work to do; 0 if that is not known.
    pub total: u64,
    pub done: u64,
    /// Recent rate; 0 if nothing is done.
    pub per_second: u64,
    /// Seconds; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_left_s: Option<u64>,
    /// The reason why it does not go on at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The request for it, if somebody asked for it: the one under way, or the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<JobRequestRow>,
}

/// A request for a job. It goes on over restarts of the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobRequestRow {
    /// UUID.
    pub id: String,
    pub asked_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// None while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<JobOutcome>,
    /// Its result, as the verbs of `spindle pool` have it with --json.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub answer: Option<JobAnswer>,
    /// The reason if it has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobName {
    /// Making copies that are missing.
    Rebuild,
    /// Copying elsewhere what lies on drives that leave.
    Empty,
    /// Moving data until drives are equally full.
    Level,
    /// Reading every copy of everything.
    Scrub,
    /// Moving blocks of raid0 volumes out of the mirrored log.
    Destage,
    /// Freeing the space of what was deleted.
    Reclaim,
    /// Copying what clones share with their sources.
    Fill,
    /// Copying a snapshot of another pool into a new volume.
    Copy,
    /// Bringing a copy up to another snapshot of its source.
    Refresh,
    /// Moving a volume of another pool here.
    Move,
    /// Copying a device elsewhere into a volume that hosts use meanwhile.
    Import,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Idle,
    /// It was asked for, and waits for other work.
    Waiting,
    Running,
}

/// Unit of a job's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobUnit {
    Bytes,
    Nanoseconds,
    /// Of a whole whose size is estimated.
    Millionths,
}

/// Copies of a pool, and what threatens them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PoolHealthRow {
    pub copies: u8,
    /// Segments that lack a copy which the drives in use could hold.
    pub degraded_segments: u64,
    /// Seconds for which drives that are away are waited for, before copies are made.
    pub copies_wait_s: u64,
    /// Segments of raid0 volumes on missing drives.
    pub lost_segments: u64,
    /// Wrong or unreadable copies rewritten since the pool was opened.
    pub mended: u64,
    /// 80, 90, 95 or 100 once the pool is that full; else 0.
    pub alarm_percent: u8,
    pub rebuild: RebuildRow,
    pub losses: LossRow,
    pub sparing: SparingRow,
    pub levelling: LevelRow,
    /// By name.
    pub domains: Vec<DomainRow>,
    pub failure_sets: FailureSetsRow,
    pub format: FormatRow,
    /// Bytes whose only copies are on drives that are not in use.
    pub only_elsewhere: Vec<OnlyCopyRow>,
    /// Advice on drives that are not in use.
    pub unused: Vec<String>,
    /// Reasons why drives may run out of space.
    pub warnings: Vec<String>,
}

/// Format level of a pool: which features a program may bring into it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FormatRow {
    pub level: u8,
    /// That of new pools.
    pub newest: u8,
    /// Features that an upgrade brings.
    pub brings: Vec<String>,
}

/// Progress of making missing copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RebuildRow {
    pub total_bytes: u64,
    pub done_bytes: u64,
    /// Bytes with one copy left of two or more.
    pub single_copy_bytes: u64,
    /// Blocks of which no copy could be read.
    pub unreadable_blocks: u64,
}

/// Drives that may be lost, and why no more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LossRow {
    pub at_once: usize,
    pub at_once_limit: String,
    /// One after another, with all copies made after each.
    pub in_turn: usize,
    pub in_turn_limit: String,
}

/// Room kept for lost drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SparingRow {
    /// `none`, `single` or `double`.
    pub level: String,
    /// Drives for which room is kept now.
    pub kept_drives: u8,
    pub kept_bytes: u64,
}

/// Fill of the drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LevelRow {
    pub fullest_percent: f64,
    pub emptiest_percent: f64,
    pub is_running: bool,
    /// They differ so much that they are levelled without a request.
    pub is_uneven: bool,
    pub total_bytes: u64,
    pub done_bytes: u64,
}

/// A failure domain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DomainRow {
    pub name: String,
    /// UUIDs of its drives in use.
    pub drives: Vec<String>,
    /// UUIDs of its drives that are missing.
    pub missing: Vec<String>,
    /// Segments that lie there with all of their copies.
    pub shared_segments: u64,
    /// If all of its drives are lost at once: `survived`, `data_lost`, `stops`, `needs_force`, or `absent` if they are.
    pub loss: String,
    pub lost_bytes: u64,
}

/// Failure sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailureSetsRow {
    /// Drives are divided into sets, from 12 drives on.
    pub wanted: bool,
    pub sets: Vec<FailureSetRow>,
    /// Segments with copies in several sets, and their bytes of one copy.
    pub across_segments: u64,
    pub across_bytes: u64,
    /// Drives of each set that may be lost at once.
    pub losses_per_set: usize,
    pub losses_at_once: usize,
}

/// A failure set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailureSetRow {
    pub number: u8,
    /// UUIDs of its drives in use.
    pub drives: Vec<String>,
    /// UUIDs of its drives that are missing.
    pub missing: Vec<String>,
}

/// Bytes whose only copies are on one drive that is not in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OnlyCopyRow {
    /// UUID.
    pub drive: String,
    pub bytes: u64,
}

impl DriveRow {
    pub(super) fn of(health: &DriveHealth) -> Self {
        let DriveHealth {
            status,
            size_bytes,
            used_bytes,
            domain,
            unused_bytes,
            only_copy_bytes,
            leaving,
            ..
        } = health;
        let state = match (leaving, status.is_in_use, status.is_there) {
            (Some(_), ..) => DriveState::Leaving,
            (None, true, _) => DriveState::InUse,
            (None, false, true) => DriveState::Unused,
            (None, false, false) => DriveState::Missing,
        };
        let problem = leaving.as_ref().and_then(|leaving| leaving.problem.clone());
        Self {
            id: status.drive.clone(),
            name: status.name.clone(),
            path: status.path.display().to_string(),
            recorded_path: status.recorded_path.display().to_string(),
            has_left: health.has_left,
            state,
            reason: status.reason.clone().or(problem),
            serial: status.hardware.serial.clone(),
            model: status.hardware.model.clone(),
            bay: status.hardware.bay.clone(),
            size_bytes: *size_bytes,
            whole_bytes: None,
            used_bytes: *used_bytes,
            domain: domain.clone(),
            set: status.set,
            unused_bytes: *unused_bytes,
            only_copy_bytes: *only_copy_bytes,
            leaving: leaving.as_ref().map(DepartureRow::of),
        }
    }

    /// All drives of a pool.
    pub(super) fn all(view: &PoolView) -> Vec<Self> {
        let health = view.health.as_ref();
        health.map(|health| health.drives.iter().map(Self::of).collect()).unwrap_or_default()
    }
}

impl DepartureRow {
    fn of(&LeavingStatus { left_bytes, total_bytes, done_bytes, .. }: &LeavingStatus) -> Self {
        Self { left_bytes, total_bytes, done_bytes }
    }
}

impl JobRow {
    /// All jobs of a pool.
    pub(super) fn all(view: &PoolView) -> Vec<Self> {
        let row = |job: &JobStatus| {
            Self::of(job, view.job_requests.iter().find(|request| request.job.kind() == job.kind))
        };
        let of_pool = view.health.iter().flat_map(|health| health.jobs.iter());
        let mut rows: Vec<Self> = of_pool.chain(view.transfers.iter()).map(row).collect();
        // The last one of before the pool was opened.
        let others = view.job_requests.iter().filter(|request| request.job.is_transfer());
        for request in others {
            let kind = request.job.kind();
            if !rows.iter().any(|row| row.kind == JobName::of(kind)) {
                let idle = JobStatus {
                    kind,
                    is_running: false,
                    unit: WorkUnit::Bytes,
                    total: 0,
                    done: 0,
                    per_second: 0,
                    time_left: None,
                    problem: None,
                };
                rows.push(Self::of(&idle, Some(request)));
            }
        }
        rows
    }

    fn of(job: &JobStatus, request: Option<&JobRequest>) -> Self {
        let is_requested = request.is_some_and(JobRequest::is_open);
        let JobStatus { kind, is_running, unit, total, done, per_second, time_left, problem } = job;
        Self {
            kind: JobName::of(*kind),
            state: match (is_running, is_requested) {
                (true, _) => JobState::Running,
                (false, true) => JobState::Waiting,
                (false, false) => JobState::Idle,
            },
            unit: match unit {
                WorkUnit::Bytes => JobUnit::Bytes,
                WorkUnit::Nanoseconds => JobUnit::Nanoseconds,
                WorkUnit::Millionths => JobUnit::Millionths,
            },
            total: *total,
            done: *done,
            per_second: *per_second,
            time_left_s: time_left.map(|left| left.as_secs()),
            problem: problem.clone(),
            request: request.map(JobRequestRow::of),
        }
    }

    /// True if it is under way, or waits for other work.
    pub fn is_open(&self) -> bool {
        self.state != JobState::Idle
    }
}

impl JobRequestRow {
    fn of(JobRequest { id, asked_unix_s, end, .. }: &JobRequest) -> Self {
        Self {
            id: id.clone(),
            asked_at: utc_time(*asked_unix_s),
            ended_at: end.as_ref().map(|end| utc_time(end.ended_unix_s)),
            outcome: end.as_ref().map(|end| end.outcome),
            answer: end.as_ref().and_then(|end| end.answer.clone()),
            problem: end.as_ref().and_then(|end| end.problem.clone()),
        }
    }
}

impl JobName {
    /// As in paths.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Empty => "empty",
            Self::Level => "level",
            Self::Scrub => "scrub",
            Self::Destage => "destage",
            Self::Reclaim => "reclaim",
            Self::Fill => "fill",
            Self::Copy => "copy",
            Self::Refresh => "refresh",
            Self::Move => "move",
            Self::Import => "import",
        }
    }

    pub(super) fn of(kind: JobKind) -> Self {
        match kind {
            JobKind::Rebuild => Self::Rebuild,
            JobKind::Empty => Self::Empty,
            JobKind::Level => Self::Level,
            JobKind::Scrub => Self::Scrub,
            JobKind::Destage => Self::Destage,
            JobKind::Reclaim => Self::Reclaim,
            JobKind::Fill => Self::Fill,
            JobKind::Copy => Self::Copy,
            JobKind::Refresh => Self::Refresh,
            JobKind::Move => Self::Move,
            JobKind::Import => Self::Import,
        }
    }
}

impl PoolHealthRow {
    pub(super) fn of(health: &PoolHealth) -> Self {
        let PoolHealth { rebuild, losses, sparing, levelling, failure_sets, format, .. } = health.clone();
        let RebuildStatus { total_bytes, done_bytes, single_copy_bytes, unreadable_blocks } = rebuild;
        let LossStatus { at_once, at_once_limit, in_turn, in_turn_limit } = losses;
        let SparingStatus { level, kept_drives, kept_bytes } = sparing;
        Self {
            copies: health.copies,
            degraded_segments: health.degraded_segments,
            copies_wait_s: health.copies_wait_s,
            lost_segments: health.lost_segments,
            mended: health.mended,
            alarm_percent: health.alarm_percent,
            rebuild: RebuildRow { total_bytes, done_bytes, single_copy_bytes, unreadable_blocks },
            losses: LossRow { at_once, at_once_limit, in_turn, in_turn_limit },
            sparing: SparingRow { level, kept_drives, kept_bytes },
            levelling: LevelRow::of(levelling),
            domains: health.domains.iter().cloned().map(DomainRow::of).collect(),
            failure_sets: FailureSetsRow::of(failure_sets),
            format: FormatRow { level: format.level, newest: format.newest, brings: format.brings },
            only_elsewhere: health.only_elsewhere.iter().cloned().map(OnlyCopyRow::of).collect(),
            unused: health.unused.clone(),
            warnings: health.warnings.clone(),
        }
    }
}

impl LevelRow {
    fn of(status: LevelStatus) -> Self {
        let LevelStatus { fullest_percent, emptiest_percent, is_running, is_uneven, total_bytes, done_bytes } =
            status;
        Self { fullest_percent, emptiest_percent, is_running, is_uneven, total_bytes, done_bytes }
    }
}

impl DomainRow {
    fn of(report: DomainReport) -> Self {
        let DomainReport { name, drives, missing, shared_segments, loss, lost_bytes } = report;
        Self { name, drives, missing, shared_segments, loss, lost_bytes }
    }
}

impl FailureSetsRow {
    fn of(report: FailureSetsReport) -> Self {
        let FailureSetsReport { wanted, sets, across_segments, across_bytes, losses_per_set, losses_at_once } =
            report;
        let set = |SetReport { number, drives, missing }| FailureSetRow { number, drives, missing };
        let sets = sets.into_iter().map(set).collect();
        Self { wanted, sets, across_segments, across_bytes, losses_per_set, losses_at_once }
    }
}

impl OnlyCopyRow {
    fn of(OnlyCopyStatus { drive, bytes }: OnlyCopyStatus) -> Self {
        Self { drive, bytes }
    }
}
