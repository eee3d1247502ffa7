//! Differences of points while hosts work: applied to the earlier state, each gives the later one.
//!
//! It draws from a random stream of its own. The points are of one volume, also if rollbacks lie between them,
//! or of two, if one was cloned from the other. Volumes that are compared are busy for the administrator; now
//! and then the earlier snapshot is deleted under the walk.

use super::{
    content::{SECTOR_BYTES, VolumeKey},
    fixture::{PoolFixture, snapshot_id},
    inspection::{read_sectors, within},
    model::{CutKey, Presence},
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    pool::{Difference, DifferenceRange, Pool, RangeChange, SnapshotKey, VolumeKey as PoolVolumeKey},
};
use std::{ops::Range, rc::Rc};
use world::{BlockDevice, Random, World};

/// Comparisons of an incarnation, at most.
const ROUNDS_MAX: u64 = 4;
/// Runs of sectors that are read at both points, and sectors of a run.
const RUNS_MAX: usize = 24;
const RUN_SECTORS_MAX: u64 = 256;
const DELETED_PERCENT: f64 = 20.0;
/// Comparisons of two volumes, if there are two.
const OTHER_VOLUME_PERCENT: f64 = 40.0;

/// Compares points of the volumes of a pool.
pub struct Comparer {
    pub fixture: PoolFixture,
    pub pool: Rc<Pool>,
    pub random: Random,
}

/// The points of a comparison.
struct ComparedPoints {
    volume: VolumeKey,
    earlier: CutKey,
    /// The volume of the later point.
    other: VolumeKey,
    /// None is now.
    later: Option<CutKey>,
}

impl Comparer {
    /// Compares for as long as an administrator works.
    pub async fn work(mut self, world: World) -> Result<(), PoolRunError> {
        for _ in 0..self.random.below(ROUNDS_MAX + 1) {
            let mean = self.fixture.plan.pause * 8;
            world.sleep(mean.mul_f64(-(1.0 - self.random.unit()).ln())).await;
            let Some(points) = self.pick() else { continue };
            self.set_busy(&points, true);
            let compared = self.compare(&points).await;
            match compared {
                Err(PoolRunError::Refused(refusal)) if refusal.is_full && self.fixture.plan.is_tight => {}
                Err(PoolRunError::Refused(refusal))
                    if refusal.is_for_space() && self.fixture.has_shortage() => {}
                compared => compared?,
            }
            self.set_busy(&points, false);
        }
        Ok(())
    }

    fn set_busy(&self, points: &ComparedPoints, is_busy: bool) {
        let mut model = self.fixture.model.borrow_mut();
        for volume in [points.volume, points.other] {
            model.volume(volume).is_busy = is_busy;
        }
    }

    fn pick(&mut self) -> Option<ComparedPoints> {
        let idle = self.fixture.model.borrow().idle();
        let mut cuts = self.fixture.model.borrow().readable_cuts();
        cuts.retain(|(_, volume)| idle.contains(volume));
        if cuts.is_empty() {
            return None;
        }
        let (earlier, volume) = cuts[self.random.below(cuts.len() as u64) as usize];
        let others: Vec<VolumeKey> = idle.into_iter().filter(|other| *other != volume).collect();
        let other = if !others.is_empty() && self.random.percent(OTHER_VOLUME_PERCENT) {
            others[self.random.below(others.len() as u64) as usize]
        } else {
            volume
        };
        let is_later = |(cut, of): &&(CutKey, VolumeKey)| *of == other && (other != volume || *cut > earlier);
        let later = cuts.iter().filter(is_later).map(|(cut, _)| Some(*cut));
        let later: Vec<Option<CutKey>> = later.chain([None]).collect();
        let later = later[self.random.below(later.len() as u64) as usize];
        Some(ComparedPoints { volume, earlier, other, later })
    }

    async fn compare(&mut self, points: &ComparedPoints) -> Result<(), PoolRunError> {
        let refused = |error| PoolRefusal::of_pool("comparing two points", &error);
        let key = |cut| SnapshotKey::from(snapshot_id(cut));
        let of = |volume| PoolVolumeKey::from(self.fixture.model.borrow().id_of(volume));
        let from = (of(points.volume), key(points.earlier));
        let walk = self.pool.difference_between(from, (of(points.other), points.later.map(key))).await;
        let mut walk = match walk {
            // They were never one, or a clone was filled.
            Err(Error::NothingInCommon { .. }) => {
                self.fixture.tally.borrow_mut().unrelated += 1;
                return Ok(());
            }
            walk => walk.map_err(refused)?,
        };
        if self.random.percent(DELETED_PERCENT) {
            self.delete(points).await?;
        }
        let walk_is_across = walk.is_across_branches();
        let mut ranges = Vec::new();
        while let Some(more) = walk.next().await.map_err(refused)? {
            ranges.extend(more);
        }
        let sectors = walk.sizes_bytes().map(|bytes| bytes / SECTOR_BYTES as u64);
        let mut volumes = vec![points.volume];
        volumes.extend((points.other != points.volume).then_some(points.other));
        for volume in volumes {
            for run in self.runs(volume, sectors[0].max(sectors[1])) {
                self.check(points, &walk, (&ranges, sectors), run).await?;
            }
        }
        walk.end().await.map_err(|error| PoolRefusal::in_reserve("ending a comparison", &error))?;
        let mut tally = self.fixture.tally.borrow_mut();
        tally.differences += 1;
        tally.differences_across += u64::from(walk_is_across);
        Ok(())
    }

    /// Deletes the earlier snapshot: the walk goes on.
    async fn delete(&self, points: &ComparedPoints) -> Result<(), PoolRunError> {
        let set = |presence| {
            let mut model = self.fixture.model.borrow_mut();
            let cut = model.cuts.get_mut(&points.earlier).expect("its volume is busy");
            cut.parts.get_mut(&points.volume).expect("its volume is busy").presence = presence;
        };
        set(Presence::Deleting);
        let volume = self.fixture.model.borrow().id_of(points.volume);
        let deleted = self.pool.delete_snapshot(volume, snapshot_id(points.earlier)).await;
        deleted.map_err(|error| PoolRefusal::in_reserve("deleting a snapshot that is read", &error))?;
        set(Presence::Gone);
        self.fixture.tally.borrow_mut().snapshots_deleted += 1;
        Ok(())
    }

    /// Some of the sectors that hosts have written.
    fn runs(&mut self, volume: VolumeKey, sectors: u64) -> Vec<Range<u64>> {
        let touched = self.fixture.model.borrow_mut().volume(volume).register.touched(RUN_SECTORS_MAX);
        let mut runs: Vec<Range<u64>> = within(touched, sectors).collect();
        while runs.len() > RUNS_MAX {
            runs.swap_remove(self.random.below(runs.len() as u64) as usize);
        }
        runs
    }

    async fn check(
        &self,
        points: &ComparedPoints,
        walk: &Difference,
        (ranges, [before, after]): (&[DifferenceRange], [u64; 2]),
        run: Range<u64>,
    ) -> Result<(), PoolRunError> {
        let earlier = read_part(&walk.earlier(), &run, before).await?;
        let later = read_part(&walk.later(), &run, after).await?;
        if self.fixture.is_untold.get() {
            return Ok(());
        }
        let of = |bytes: &[u8], sector: u64| {
            let at = (sector - run.start) as usize * SECTOR_BYTES;
            bytes
                .get(at..at + SECTOR_BYTES)
                .map_or([0; SECTOR_BYTES], |bytes| bytes.try_into().expect("a sector"))
        };
        for sector in run.clone() {
            let change = change_at(ranges, sector * SECTOR_BYTES as u64);
            let applied = match change {
                _ if sector >= after => {
                    let is_gone = change == Some(RangeChange::BeyondSize) || sector >= before;
                    if is_gone { continue } else { None }
                }
                Some(RangeChange::Data) => Some(of(&later, sector)),
                Some(_) => Some([0; SECTOR_BYTES]),
                None => (sector < before).then(|| of(&earlier, sector)),
            };
            if applied != Some(of(&later, sector)) {
                let ComparedPoints { volume, earlier, other, later } = points;
                let what = format!(
                    "sector {sector} of volume {} from cut {} to volume {} at {later:?} is {change:?}, which does not give the later state",
                    volume.0, earlier.0, other.0
                );
                return Err(PoolViolation::Difference(what).into());
            }
        }
        Ok(())
    }
}

/// The part of a run of sectors that lies within a device of `sectors`.
async fn read_part(
    device: &dyn BlockDevice,
    run: &Range<u64>,
    sectors: u64,
) -> Result<Vec<u8>, PoolRunError> {
    let part = run.start.min(sectors)..run.end.min(sectors);
    if part.is_empty() {
        return Ok(Vec::new());
    }
    let read = read_sectors(device, &part).await;
    Ok(read.map_err(|error| PoolRefusal::of_volume("reading a compared point", &error))?.to_vec())
}

/// The change of the byte at an offset; none if it is the same.
fn change_at(ranges: &[DifferenceRange], at: u64) -> Option<RangeChange> {
    let index = ranges.partition_point(|range| range.end_bytes() <= at);
    ranges.get(index).filter(|range| range.at_bytes <= at).map(|range| range.change)
}
