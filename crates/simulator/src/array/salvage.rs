//! Reads a pool without opening it, as a crash or a log corruption left it, and checks it against the model.
//!
//! Nothing of it happens in the run itself: drives are read in a separate world, so a seed gives the same run
//! with and without these reads.
//!
//! 1. Nothing is present that was never written.
//! 2. The log up to its hole and the trees are present: all blocks that no record from the hole on changes
//!    have the acknowledged contents.
//! 3. Where acknowledged data is missing, the pool reports that it may be older, or that it cannot read the
//!    sector.

use super::{
    content::{SECTOR_BYTES, SectorContent, VolumeKey, content_of},
    fixture::{PoolFixture, cut_key},
    frozen::FrozenRegister,
    independent_reader::Audit,
    inspection::within,
    model::{CutKey, Model, Presence},
    platter_device::PlatterDevice,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::pool::{PartContent as Part, ReadOnlyPool, ReadOnlyVolume, VolumePart, open_read_only};
use std::{ops::Range, rc::Rc};
use world::BlockDevice;

/// RAM for nodes, in bytes.
const CACHE_BYTES: usize = 1 << 20;
/// Sectors of one read, at most.
const READ_SECTORS_MAX: u64 = 512;
const BLOCK_SECTORS: u64 = 8;

/// The unreadable part of a log.
#[derive(Clone, Debug, Default)]
pub struct Hole {
    /// Position of the last record before it.
    before: u64,
    /// One above the last acknowledged record; 0 if nothing is missing.
    acknowledged_below: u64,
    /// Blocks of any branch that records from it on change.
    blocks: Vec<Range<u64>>,
    /// Records from it on change volumes or snapshots.
    has_rows: bool,
}

impl Hole {
    /// A hole from the record with this index of `audit` on.
    pub fn from(audit: &Audit, index: usize) -> Self {
        let gone = &audit.records[index..];
        let before = index.checked_sub(1).map_or(audit.position, |last| audit.records[last].position);
        Self {
            before,
            acknowledged_below: gone.iter().map(|record| record.acknowledged_below).max().unwrap_or(0),
            blocks: gone.iter().flat_map(|record| record.changes.iter().cloned()).collect(),
            has_rows: gone.iter().any(|record| record.has_rows),
        }
    }

    /// Like [`Self::from`], but the reader may also find more records.
    pub fn perhaps_from(audit: &Audit, index: usize) -> Self {
        Self { acknowledged_below: 0, ..Self::from(audit, index) }
    }

    /// True if a block may be older than acknowledged.
    fn has(&self, sector: u64) -> bool {
        let block = sector / BLOCK_SECTORS;
        self.has_rows || self.blocks.iter().any(|blocks| blocks.contains(&block))
    }
}

/// A volume or snapshot under check.
#[derive(Clone, Copy)]
enum CheckedDisk {
    Volume(VolumeKey),
    Snapshot(CutKey, VolumeKey),
}

impl CheckedDisk {
    fn snapshot(self, model: &Model) -> Option<&FrozenRegister> {
        match self {
            Self::Volume(_) => None,
            Self::Snapshot(cut, volume) => model.cuts.get(&cut)?.parts.get(&volume)?.register.as_ref(),
        }
    }
}

impl PoolFixture {
    /// The present drives, as raw contents.
    pub fn platter_devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let device = |index: usize| Rc::new(PlatterDevice(Rc::clone(&self.drives[index]))) as _;
        self.drives_there(&[]).into_iter().map(device).collect()
    }

    /// Reads the pool and checks it against the model.
    pub async fn salvage(self, hole: Hole) -> Result<(), PoolRunError> {
        let pool = open_read_only(&self.platter_devices(), CACHE_BYTES).await;
        let pool = pool.map_err(|error| PoolRefusal::of_pool("opening the pool for reading", &error))?;
        let condition = pool.condition();
        if condition.log.last.0 < hole.before || condition.log.refused.is_some() {
            let what = format!(
                "the log was read to {}, not {}: {:?}",
                condition.log.last, hole.before, condition.log
            );
            return Err(PoolViolation::Salvage(what).into());
        }
        let is_cut_short = hole.acknowledged_below > condition.log.last.0 + 1;
        if is_cut_short && !condition.may_be_older() {
            let what = format!("nothing is said to be missing: {:?}", condition.log);
            return Err(PoolViolation::Salvage(what).into());
        }
        if condition.log.last.0 == hole.before && is_cut_short {
            self.tally.borrow_mut().salvaged_in_part += 1;
        }
        self.tally.borrow_mut().salvaged += 1;
        self.check_listed(&pool, &hole)?;
        for info in pool.volumes() {
            let key = self.model.borrow().key_of(info.volume);
            let volume = pool.volume(&info.name).map_err(|error| PoolRefusal::of_pool("a volume", &error))?;
            self.check_all(&pool, &volume, CheckedDisk::Volume(key), &hole).await?;
            let snapshots = pool.snapshots(&info.name);
            for snapshot in snapshots.map_err(|error| PoolRefusal::of_pool("snapshots", &error))? {
                let volume = pool.snapshot(&info.name, &snapshot.name);
                let volume = volume.map_err(|error| PoolRefusal::of_pool("a snapshot", &error))?;
                let told = CheckedDisk::Snapshot(cut_key(snapshot.snapshot), key);
                self.check_all(&pool, &volume, told, &hole).await?;
            }
        }
        Ok(())
    }

    /// Checks that only known volumes are listed, and all required ones unless the hole affects them.
    fn check_listed(&self, pool: &Rc<ReadOnlyPool>, hole: &Hole) -> Result<(), PoolViolation> {
        let model = self.model.borrow();
        let listed: Vec<VolumeKey> = pool.volumes().iter().map(|info| model.key_of(info.volume)).collect();
        if let Some(unknown) = listed.iter().find(|key| !model.volumes.contains_key(key)) {
            return Err(PoolViolation::Salvage(format!("unknown volume {}", unknown.0)));
        }
        let is_wrong = |key: &VolumeKey, presence: Presence| match presence.may_and_must_be() {
            (_, true) => !listed.contains(key),
            (false, _) => listed.contains(key),
            _ => false,
        };
        match model.volumes.iter().find(|(key, volume)| is_wrong(key, volume.presence)) {
            Some((wrong, _)) if !hole.has_rows => {
                Err(PoolViolation::Salvage(format!("volume {} is lost, or back", wrong.0)))
            }
            _ => Ok(()),
        }
    }

    /// Reads all sectors ever written.
    async fn check_all(
        &self,
        pool: &Rc<ReadOnlyPool>,
        volume: &ReadOnlyVolume,
        told: CheckedDisk,
        hole: &Hole,
    ) -> Result<(), PoolRunError> {
        let touched = {
            let model = self.model.borrow();
            match told {
                CheckedDisk::Volume(key) => {
                    let volume = &model.volumes[&key];
                    let rolling = volume.rolling.iter();
                    let rolled_back = rolling.flat_map(|rolling| rolling.register.touched(READ_SECTORS_MAX));
                    volume.register.touched(READ_SECTORS_MAX).into_iter().chain(rolled_back).collect()
                }
                // A volume deleted behind the hole is unknown now.
                CheckedDisk::Snapshot(..) => {
                    told.snapshot(&model).map(|frozen| frozen.touched(READ_SECTORS_MAX)).unwrap_or_default()
                }
            }
        };
        for run in within(touched, volume.size_bytes() / SECTOR_BYTES as u64) {
            let bytes = run.start * SECTOR_BYTES as u64..run.end * SECTOR_BYTES as u64;
            let parts = volume.parts(bytes).await;
            for part in parts.map_err(|error| PoolRefusal::of_volume("reading parts", &error))? {
                self.check_part(pool, told, hole, &part)?;
            }
        }
        Ok(())
    }

    fn check_part(
        &self,
        pool: &Rc<ReadOnlyPool>,
        told: CheckedDisk,
        hole: &Hole,
        part: &VolumePart,
    ) -> Result<(), PoolViolation> {
        let zeroes = [0; SECTOR_BYTES];
        let first = part.range.start / SECTOR_BYTES as u64;
        for sector in first..part.range.end / SECTOR_BYTES as u64 {
            let bytes = match &part.content {
                Part::Hole => &zeroes[..],
                Part::Data(data) => &data[(sector - first) as usize * SECTOR_BYTES..][..SECTOR_BYTES],
                Part::Unreadable(error) => {
                    return Err(PoolViolation::Salvage(format!("sector {sector} cannot be read: {error}")));
                }
            };
            self.check_salvaged(pool, told, hole, (sector, bytes))?;
        }
        Ok(())
    }

    fn check_salvaged(
        &self,
        pool: &Rc<ReadOnlyPool>,
        told: CheckedDisk,
        hole: &Hole,
        (sector, bytes): (u64, &[u8]),
    ) -> Result<(), PoolViolation> {
        let model = self.model.borrow();
        let (CheckedDisk::Volume(volume) | CheckedDisk::Snapshot(_, volume)) = told;
        let wrong = |found: String, allowed: &str| {
            let what =
                format!("sector {sector} of volume {} reads as {found}; it may be {allowed}", volume.0);
            PoolViolation::Salvage(what)
        };
        let writers = &model.volumes[&volume].writers;
        let content = content_of(bytes, writers, sector).map_err(|found| wrong(found, "what was written"))?;
        if let SectorContent::Of(operation) = content
            && !model.has_written(operation, volume, sector)
        {
            return Err(wrong(format!("{content:?}"), "what was written there"));
        }
        let as_told = match told {
            CheckedDisk::Volume(_) => {
                let volume = &model.volumes[&volume];
                let span = model.look_from_outside();
                let as_rolled_back =
                    volume.rolling.as_ref().map(|rolling| rolling.register.may_show(sector, content, span));
                let as_before = volume.register.may_show(sector, content, span);
                as_rolled_back.map_or(as_before.clone(), |rolled_back| rolled_back.or(as_before))
            }
            CheckedDisk::Snapshot(..) => {
                told.snapshot(&model).map_or(Ok(()), |frozen| frozen.may_show(sector, content))
            }
        };
        let Err(allowed) = as_told else { return Ok(()) };
        if hole.has(sector) && pool.condition().may_be_older() {
            self.tally.borrow_mut().sectors_said_missing += 1;
            return Ok(());
        }
        Err(wrong(format!("{content:?}"), &allowed))
    }
}
