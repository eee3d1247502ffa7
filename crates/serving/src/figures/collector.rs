//! Collects the figures of an open pool once a second.
//!
//! Invariants:
//!
//! 1. Rows of volumes are made again only if the catalogue or their meter has changed; hosts go first after every 512.
//! 2. Figures that need the rows of all segments are counted every [`COUNTED_EVERY`] at most.

use super::{
    meters::{MeteredPoint, PoolMeters},
    values::{
        DriveTraffic, JobFigures, PoolFigures, RedundancyFigures, ScrubFigures, SpaceFigures, VolumeTraffic,
    },
};
use array::{
    format::SnapshotId,
    pool::{Pool, StageCounts, VolumeInfo},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{DeviceCounts, DeviceMeter, Moment, WallTime, World};

/// Interval of counting what needs the rows of all segments.
const COUNTED_EVERY: Duration = Duration::from_secs(10);
/// Rows after which the pool's I/O goes first.
const ROWS_AT_ONCE: usize = 512;

/// Collects the figures of one pool.
pub struct FiguresCollector {
    world: World,
    pool: Rc<Pool>,
    meters: Rc<PoolMeters>,
    /// Revision of the catalogue that `volumes` and `snapshots` are of.
    revision: Option<u64>,
    volumes: Arc<Vec<VolumeTraffic>>,
    /// Names of metered snapshots, `VOLUME@SNAPSHOT`.
    snapshots: BTreeMap<MeteredPoint, Arc<str>>,
    /// The counts of each meter, and its number of changes then.
    counts: BTreeMap<MeteredPoint, (u64, Arc<DeviceCounts>)>,
    counted: Option<(Moment, CountedFigures)>,
    checkpoint: Occurrence,
    scrub: Occurrence,
}

#[derive(Clone, Default)]
struct CountedFigures {
    jobs: Vec<JobFigures>,
    redundancy: RedundancyFigures,
    scrub: ScrubFigures,
}

/// A number that grows with each success, and when it was last seen to grow.
#[derive(Default)]
struct Occurrence {
    number: Option<u64>,
    at: Option<WallTime>,
}

impl Occurrence {
    /// The time of the last success since the pool was opened, to a second or so.
    fn seen(&mut self, world: &World, number: u64) -> Option<WallTime> {
        if self.number.replace(number).is_some_and(|before| before != number) {
            self.at = Some(world.wall());
        }
        self.at
    }
}

impl FiguresCollector {
    pub fn new(world: &World, pool: &Rc<Pool>, meters: &Rc<PoolMeters>) -> Self {
        Self {
            world: world.clone(),
            pool: Rc::clone(pool),
            meters: Rc::clone(meters),
            revision: None,
            volumes: Arc::default(),
            snapshots: BTreeMap::new(),
            counts: BTreeMap::new(),
            counted: None,
            checkpoint: Occurrence::default(),
            scrub: Occurrence::default(),
        }
    }

    /// The figures now. Clients, sessions and orders are those of the caller.
    pub async fn collect(&mut self) -> PoolFigures {
        self.collect_volumes().await;
        let CountedFigures { jobs, redundancy, scrub } = self.count();
        let space = self.pool.space();
        let throttle = self.pool.throttle();
        let StageCounts { queue, log, device } = self.pool.stages();
        PoolFigures {
            volumes: Arc::clone(&self.volumes),
            drives: Arc::new(self.drives()),
            space: SpaceFigures {
                used_bytes: space.used_bytes,
                usable_bytes: space.usable_bytes,
                segments: space.segments,
                free_segments: space.free,
                spare_segments: space.spare,
                reserve_segments: space.reserve,
            },
            stages: [("queue", queue), ("log", log), ("device", device), ("reply", self.meters.replies())],
            drives_in_use: self.pool.drives_present(),
            is_stopped: self.pool.failure().is_some(),
            checkpoints: self.pool.checkpoint_number(),
            checkpoint_at: self.checkpoint.seen(&self.world, self.pool.checkpoint_number()),
            repaired: self.pool.repaired(),
            levelled_bytes: self.pool.levelled_bytes(),
            host_slowdown: throttle.slowdown,
            mover_parallelism: throttle.parallelism,
            node_cache: self.pool.node_cache(),
            jobs,
            redundancy,
            scrub_at: self.scrub.seen(&self.world, scrub.rounds),
            scrub,
            ..PoolFigures::default()
        }
    }

    async fn collect_volumes(&mut self) {
        let meters = self.meters.points();
        let revision = self.pool.catalogue_revision();
        let is_new = self.revision.replace(revision) != Some(revision)
            || !self.counts.keys().eq(meters.iter().map(|(point, _)| point));
        let mut has_changed = false;
        for (index, (point, meter)) in meters.iter().enumerate() {
            has_changed |= self.read(*point, meter);
            if index % ROWS_AT_ONCE == ROWS_AT_ONCE - 1 {
                self.world.yield_now().await;
            }
        }
        if is_new {
            let infos = self.pool.volumes();
            self.name_snapshots(&infos, &meters);
            let there: BTreeSet<_> = infos.iter().map(|info| info.volume).collect();
            self.meters.forget_unless(|volume| there.contains(&volume));
            self.counts.retain(|(volume, _), _| there.contains(volume));
            self.volumes = Arc::new(self.rows(infos.into_iter().map(VolumeTraffic::of)));
        } else if has_changed {
            let rows = self.volumes.iter().filter(|row| row.snapshot.is_none()).cloned();
            self.volumes = Arc::new(self.rows(rows));
        }
    }

    /// Reads a meter; true if it has changed.
    fn read(&mut self, point: MeteredPoint, meter: &DeviceMeter) -> bool {
        let changes = meter.changes();
        match self.counts.get(&point) {
            Some((known, _)) if *known == changes => false,
            _ => {
                self.counts.insert(point, (changes, Arc::new(meter.counts())));
                true
            }
        }
    }

    fn name_snapshots(&mut self, infos: &[VolumeInfo], meters: &[(MeteredPoint, Rc<DeviceMeter>)]) {
        self.snapshots.clear();
        for info in infos {
            let known = |snapshot: Option<SnapshotId>| (info.volume, snapshot);
            let first = meters.partition_point(|(point, _)| *point <= known(None));
            let metered = meters[first..].iter().take_while(|((volume, _), _)| *volume == info.volume);
            let wanted: BTreeSet<_> = metered.filter_map(|((_, snapshot), _)| *snapshot).collect();
            if wanted.is_empty() {
                continue;
            }
            for snapshot in self.pool.snapshots(&*info.name).unwrap_or_default() {
                if wanted.contains(&snapshot.snapshot) {
                    let name = format!("{}@{}", info.name, snapshot.name).into();
                    self.snapshots.insert(known(Some(snapshot.snapshot)), name);
                }
            }
        }
    }

    /// Rows of these volumes with their counts, and of the metered snapshots, by name.
    fn rows(&self, volumes: impl Iterator<Item = VolumeTraffic>) -> Vec<VolumeTraffic> {
        let counts = |point| self.counts.get(&point).map(|(_, counts)| Arc::clone(counts));
        let volumes: Vec<_> =
            volumes.map(|row| VolumeTraffic { counts: counts((row.volume, None)), ..row }).collect();
        let sizes: BTreeMap<_, _> = match self.snapshots.is_empty() {
            true => BTreeMap::new(),
            false => volumes.iter().map(|row| (row.volume, row.size_bytes)).collect(),
        };
        let of_snapshot = |(&(volume, snapshot), name): (&MeteredPoint, &Arc<str>)| {
            let (name, counts) = (Arc::clone(name), counts((volume, snapshot)));
            Some(VolumeTraffic { name, volume, snapshot, size_bytes: *sizes.get(&volume)?, counts })
        };
        let snapshots = self.snapshots.iter().filter_map(of_snapshot);
        let mut rows: Vec<_> = volumes.iter().cloned().chain(snapshots).collect();
        rows.sort_by(|one, other| one.name.cmp(&other.name));
        rows
    }

    fn drives(&self) -> Vec<DriveTraffic> {
        let in_use: BTreeSet<_> = self.pool.drives_in_use().into_iter().collect();
        let fills: BTreeMap<_, _> = self.pool.fills().into_iter().map(|fill| (fill.drive, fill)).collect();
        // A drive that has left for good is no drive of the pool any more.
        let listed = self.meters.drives().into_iter().filter(|drive| self.pool.is_listed(drive.label.drive));
        let rows = listed.map(|drive| {
            let fill = fills.get(&drive.label.drive);
            DriveTraffic {
                is_in_use: in_use.contains(&drive.label.drive),
                used_bytes: fill.map_or(0, |fill| fill.used_bytes),
                size_bytes: fill.map_or(0, |fill| fill.slot_bytes),
                counts: drive.meter.counts(),
                label: drive.label,
            }
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by(|one, other| one.label.name.cmp(&other.label.name));
        tell_apart(&mut rows);
        rows
    }

    fn count(&mut self) -> CountedFigures {
        let now = self.world.now();
        if let Some((at, counted)) = &self.counted
            && now.since(*at) < COUNTED_EVERY
        {
            return counted.clone();
        }
        let rebuild = self.pool.rebuild_progress();
        let status = self.pool.redundancy();
        let scrub = self.pool.scrub_progress();
        let counted = CountedFigures {
            jobs: self.pool.jobs().iter().map(JobFigures::of).collect(),
            redundancy: RedundancyFigures {
                degraded_segments: status.segments,
                degraded_bytes: status.bytes,
                single_copy_bytes: status.single_copy_bytes,
                lost_segments: status.lost_raid0_segments,
                unreadable_blocks: rebuild.unreadable_blocks,
                rebuild_done_bytes: rebuild.done_bytes,
                rebuild_total_bytes: rebuild.total_bytes,
            },
            scrub: ScrubFigures { rounds: scrub.rounds, lost_places: scrub.last.lost_places },
        };
        self.counted = Some((now, counted.clone()));
        counted
    }
}

/// Appends the beginning of their UUIDs to names that several drives have.
fn tell_apart(rows: &mut [DriveTraffic]) {
    for same in rows.chunk_by_mut(|one, other| one.label.name == other.label.name) {
        if same.len() > 1 {
            for DriveTraffic { label, .. } in same {
                let uuid = label.drive.to_string();
                label.name = format!("{}-{}", label.name, uuid.get(..8).unwrap_or(&uuid));
            }
        }
    }
}
