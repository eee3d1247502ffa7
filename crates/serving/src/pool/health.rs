//! Health of an open pool: its drives, copies and jobs.
//!
//! Invariant of [`HealthCollector`]: it reads the rows of all segments once in 10 s, or more often while that takes less than a
//! thousandth of the time; at once after changes.

use super::{
    departure::{LeavingStatus, leaving_of},
    domains::DomainReport,
    failure_sets::FailureSetsReport,
    format_level::FormatStatus,
    growth::{GrownStatus, grown_of},
    levelling::LevelStatus,
    losses::LossStatus,
    record::Hardware,
    sparing::SparingStatus,
    status::{DriveStatus, DriveStatuses, OnlyCopyStatus, RebuildStatus},
    unused,
};
use crate::uuid::parse_uuid;
use array::{
    format::DriveId,
    mover::{DriveFill, JobKind, PoolJob},
    pool::Pool,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{Moment, WorkUnit, World};

/// Interval of counting in a small pool, and in the largest.
const COUNTED_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Part of the time that counting may take: 1 of 1000.
const TIME_PART: u32 = 1000;

/// Health of a pool; the fields that [`PoolStatus`](super::status::PoolStatus) has, too, are as there.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolHealth {
    pub drives: Vec<DriveHealth>,
    /// One of each kind.
    pub jobs: Vec<JobStatus>,
    pub only_elsewhere: Vec<OnlyCopyStatus>,
    pub unused: Vec<String>,
    pub warnings: Vec<String>,
    pub alarm_percent: u8,
    pub copies: u8,
    pub degraded_segments: u64,
    pub copies_wait_s: u64,
    pub lost_segments: u64,
    pub mended: u64,
    pub rebuild: RebuildStatus,
    pub leaving: Vec<LeavingStatus>,
    pub losses: LossStatus,
    pub sparing: SparingStatus,
    pub levelling: LevelStatus,
    pub grown: Vec<GrownStatus>,
    pub domains: Vec<DomainReport>,
    pub failure_sets: FailureSetsReport,
    pub format: FormatStatus,
}

/// A drive of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveHealth {
    pub status: DriveStatus,
    /// False for a drive in use that the pool's folder does not list, or that has no folder.
    pub is_recorded: bool,
    /// It has left for good, and is in the folder's record for a moment yet.
    pub has_left: bool,
    /// Bytes of all its slots; `None` if it is not in use.
    pub size_bytes: Option<u64>,
    /// Bytes of its slots that are used.
    pub used_bytes: u64,
    pub domain: Option<String>,
    /// Bytes by which it has become larger than the pool uses.
    pub unused_bytes: u64,
    /// Bytes whose only copies lie there, if it is not in use.
    pub only_copy_bytes: u64,
    pub leaving: Option<LeavingStatus>,
}

/// A job of a pool: under way, or the last one of its kind.
#[derive(Clone, Debug, PartialEq)]
pub struct JobStatus {
    pub kind: JobKind,
    pub is_running: bool,
    pub unit: WorkUnit,
    /// Work to do; 0 if that is not known.
    pub total: u64,
    pub done: u64,
    pub per_second: u64,
    pub time_left: Option<Duration>,
    /// The reason why it does not go on at present.
    pub problem: Option<String>,
}

impl PoolHealth {
    /// The health now. Reads the rows of all segments.
    pub fn of(pool: &Pool, drives: &DriveStatuses) -> Self {
        let (rebuild, degraded, redundancy) = (pool.rebuild_progress(), pool.degraded(), pool.redundancy());
        let only_there = pool.only_copies_elsewhere();
        let failure_sets = FailureSetsReport::of(pool);
        let listed = drives.now(pool, &failure_sets);
        let leaving = leaving_of(pool, drives);
        let grown = grown_of(pool, drives);
        let only_elsewhere =
            only_there.iter().map(|(drive, &bytes)| OnlyCopyStatus { drive: drive.to_string(), bytes });
        Self {
            jobs: pool.jobs().iter().map(|job| JobStatus::of(pool, job, &leaving)).collect(),
            only_elsewhere: only_elsewhere.collect(),
            unused: unused::advice(&drives.folder, &listed, &only_there),
            warnings: drives.warnings.clone(),
            alarm_percent: pool.space().alarm().map_or(0, |alarm| alarm as u8),
            copies: redundancy.copies,
            degraded_segments: degraded.segments,
            copies_wait_s: pool.copies_wait().as_secs(),
            lost_segments: degraded.lost,
            mended: pool.repaired(),
            rebuild: RebuildStatus {
                total_bytes: rebuild.total_bytes,
                done_bytes: rebuild.done_bytes,
                single_copy_bytes: rebuild.single_copy_bytes,
                unreadable_blocks: rebuild.unreadable_blocks,
            },
            losses: LossStatus::of(pool.loss_tolerance()),
            sparing: SparingStatus::of(pool),
            levelling: LevelStatus::of(pool),
            domains: DomainReport::all(pool),
            drives: DriveHealth::all(pool, (listed, &failure_sets), (&leaving, &grown, &only_there)),
            leaving,
            grown,
            failure_sets,
            format: FormatStatus::of(pool),
        }
    }
}

impl DriveHealth {
    fn all(
        pool: &Pool,
        (listed, sets): (Vec<DriveStatus>, &FailureSetsReport),
        (leaving, grown, only_there): (&[LeavingStatus], &[GrownStatus], &BTreeMap<DriveId, u64>),
    ) -> Vec<Self> {
        let fills: BTreeMap<String, DriveFill> =
            pool.fills().into_iter().map(|fill| (fill.drive.to_string(), fill)).collect();
        let only_there: BTreeMap<String, u64> =
            only_there.iter().map(|(drive, &bytes)| (drive.to_string(), bytes)).collect();
        let domains: BTreeMap<String, String> = pool
            .domains()
            .into_iter()
            .flat_map(|domain| {
                let name = domain.name.to_string();
                let drives = domain.drives.into_iter().chain(domain.absent);
                drives.map(move |drive| (drive.to_string(), name.clone())).collect::<Vec<_>>()
            })
            .collect();
        let known: BTreeSet<String> = listed.iter().filter_map(|status| status.drive.clone()).collect();
        let unlisted = fills.keys().filter(|drive| !known.contains(*drive));
        let unlisted: Vec<_> = unlisted.map(|drive| (unlisted_drive(drive, sets), false)).collect();
        let all = listed.into_iter().map(|status| (status, true)).chain(unlisted);
        let health = |(status, is_recorded): (DriveStatus, bool)| {
            let id = status.drive.clone().unwrap_or_default();
            let fill = fills.get(&id);
            let has_left = parse_uuid(&id).is_ok_and(|id| pool.has_left(DriveId(id)));
            Self {
                is_recorded,
                has_left,
                size_bytes: fill.map(|fill| fill.slot_bytes),
                used_bytes: fill.map_or(0, |fill| fill.used_bytes),
                domain: domains.get(&id).cloned(),
                unused_bytes: grown
                    .iter()
                    .find(|grown| grown.drive == id)
                    .map_or(0, |known| known.unused_bytes),
                only_copy_bytes: only_there.get(&id).copied().unwrap_or(0),
                leaving: leaving.iter().find(|leaving| leaving.drive == id).cloned(),
                status,
            }
        };
        all.map(health).collect()
    }
}

fn unlisted_drive(drive: &str, sets: &FailureSetsReport) -> DriveStatus {
    DriveStatus {
        name: drive.to_owned(),
        path: PathBuf::new(),
        is_there: true,
        is_in_use: true,
        reason: None,
        drive: Some(drive.to_owned()),
        set: sets.set_of(drive),
        recorded_path: PathBuf::new(),
        hardware: Hardware::default(),
    }
}

impl JobStatus {
    fn of(pool: &Pool, job: &PoolJob, leaving: &[LeavingStatus]) -> Self {
        let PoolJob { kind, progress } = *job;
        let problem = match kind {
            JobKind::Empty => leaving.iter().find_map(|leaving| leaving.problem.clone()),
            JobKind::Fill if progress.is_running || progress.done < progress.total => {
                pool.volumes().into_iter().find_map(|volume| volume.filling?.problem)
            }
            _ => None,
        };
        Self {
            kind,
            is_running: progress.is_running,
            unit: progress.unit,
            total: progress.total,
            done: progress.done,
            per_second: progress.per_second.round() as u64,
            time_left: progress.time_left.map(|left| Duration::from_secs(left.as_secs())),
            problem,
        }
    }
}

/// Reasons to count at once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct HealthOccasion {
    /// Of changes on request.
    revision: u64,
    in_use: Vec<DriveId>,
    leaving: usize,
}

/// Collects the health of one pool.
pub struct HealthCollector {
    world: World,
    pool: Rc<Pool>,
    last: Option<LastHealth>,
}

struct LastHealth {
    health: Arc<PoolHealth>,
    occasion: HealthOccasion,
    again_at: Moment,
}

impl HealthCollector {
    pub fn new(world: &World, pool: &Rc<Pool>) -> Self {
        Self { world: world.clone(), pool: Rc::clone(pool), last: None }
    }

    /// The health: that of the last call, unless drives or `revision` have changed or it is old.
    pub fn collect(&mut self, revision: u64, drives: impl FnOnce() -> DriveStatuses) -> Arc<PoolHealth> {
        let begun = self.world.now();
        let occasion = HealthOccasion {
            revision,
            in_use: self.pool.drives_in_use(),
            leaving: self.pool.leaving().len(),
        };
        if let Some(last) = &self.last
            && last.occasion == occasion
            && begun < last.again_at
        {
            return Arc::clone(&last.health);
        }
        let health = PoolHealth::of(&self.pool, &drives());
        let health = match self.last.take() {
            Some(last) if *last.health == health => last.health,
            _ => Arc::new(health),
        };
        let now = self.world.now();
        let pause = (now.since(begun) * TIME_PART).clamp(COUNTED_EVERY.0, COUNTED_EVERY.1);
        self.last = Some(LastHealth { health: Arc::clone(&health), occasion, again_at: now + pause });
        health
    }
}
