//! Drives that become larger while the pool has them open. The pool is told at once, later, or not before another
//! opening.

use super::{
    drive_changes::DriveChanger,
    fault_model::PoolFaultGrade,
    fixture::PoolFixture,
    plan::SLOT_BYTES,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    format::{DriveId, superblock::DATA_START_BYTES_MIN},
    pool::Pool,
};
use std::{cell::Cell, collections::BTreeMap, rc::Rc};
use world::{BlockDevice, Random};

/// Growth that verbs answered, and the sizes that drives show.
#[derive(Clone, Debug, Default)]
pub struct GrowthLog {
    /// Bytes that each drive shows, by index; none if no drive grows.
    pub sizes: BTreeMap<usize, Rc<Cell<u64>>>,
    /// Slots up to which the pool has said to use a drive.
    answered: BTreeMap<DriveId, u64>,
}

impl GrowthLog {
    /// Of drives that show these sizes, by index.
    pub fn of(sizes: BTreeMap<usize, Rc<Cell<u64>>>) -> Self {
        Self { sizes, answered: BTreeMap::new() }
    }
}

/// Slots of a drive of that size.
pub fn slots_in(size: u64) -> u64 {
    (size - DATA_START_BYTES_MIN) / u64::from(SLOT_BYTES)
}

impl DriveChanger {
    /// Makes a drive larger, tells the pool of one that is larger than it knows, or both.
    pub async fn grow(&mut self) -> Result<(), PoolRunError> {
        let in_use = self.pool.drives_in_use();
        let Some(drive) = self.pick(&in_use) else { return Ok(()) };
        if self.random.percent(70.0) {
            self.fixture.enlarge(drive, &mut self.random);
        }
        if self.random.percent(30.0) {
            return Ok(());
        }
        // It may become still larger meanwhile.
        let size = self.fixture.shown_size(drive);
        let grown = self.pool.grow(drive).await;
        if let (Ok(_), Some(size)) = (&grown, size) {
            let answered = &mut self.fixture.bay.borrow_mut().growth.answered;
            let slots = answered.entry(drive).or_default();
            *slots = slots_in(size).max(*slots);
        }
        let gained = *grown.as_ref().unwrap_or(&0);
        if self.is_done("growing a drive", &grown.map(drop))? && gained > 0 {
            self.fixture.tally.borrow_mut().drives_grown += 1;
            self.fixture.tell(format!("{drive} has {gained} bytes more"));
        }
        self.fixture.check_growth(&self.pool).map_err(PoolRunError::from)
    }
}

impl PoolFixture {
    /// Index of a drive of the pool; none for the spare, whose names are not kept.
    fn index_of(&self, drive: DriveId) -> Option<usize> {
        let bay = self.bay.borrow();
        bay.changes.index_of(drive, self.plan.drives.len())
    }

    /// Bytes that a drive shows; none if it does not show what it has.
    fn shown_size(&self, drive: DriveId) -> Option<u64> {
        let index = self.index_of(drive)?;
        let bay = self.bay.borrow();
        let is_resized = bay.resized.is_some_and(|(resized, _)| resized == index);
        bay.growth.sizes.get(&index).filter(|_| !is_resized).map(|size| size.get())
    }

    /// Lets a drive show more of what it has, not always in whole slots.
    fn enlarge(&self, drive: DriveId, random: &mut Random) {
        let Some(index) = self.index_of(drive) else { return };
        let most = self.drives[index].geometry().size.0;
        let size = self.bay.borrow().growth.sizes.get(&index).cloned();
        let Some(size) = size.filter(|size| size.get() < most) else { return };
        let more = (random.below(30 * u64::from(SLOT_BYTES)) + 4096) >> 12 << 12;
        size.set(most.min(size.get() + more));
        self.tell(format!("drive {index} is larger: {} bytes", size.get()));
    }

    /// Checks that the pool uses drives as far as it has said that it does.
    pub fn check_growth(&self, pool: &Pool) -> Result<(), PoolViolation> {
        if self.plan.grade == PoolFaultGrade::Beyond {
            return Ok(());
        }
        let unused: BTreeMap<DriveId, u64> = pool.unused_growth().into_iter().collect();
        let answered = self.bay.borrow().growth.answered.clone();
        for (drive, slots) in answered {
            let Some(size) = self.shown_size(drive).filter(|_| unused.contains_key(&drive)) else { continue };
            let used = slots_in(size) - unused[&drive] / u64::from(SLOT_BYTES);
            if used < slots {
                let what = format!("{drive} was grown to {slots} slots, and {used} are used");
                return Err(PoolViolation::DriveChange(what));
            }
        }
        Ok(())
    }

    /// Grows all drives as far as they go: the pool has more room then, and nothing is left unused.
    pub async fn grow_all(&self, pool: &Pool) -> Result<(), PoolRunError> {
        let before = pool.space().usable_bytes;
        for (index, size) in &self.bay.borrow().growth.sizes {
            size.set(self.drives[*index].geometry().size.0);
        }
        let leaving: Vec<DriveId> = pool.leaving().iter().map(|leaving| leaving.drive).collect();
        let unused = pool.unused_growth();
        let growing = unused.iter().filter(|(drive, _)| !leaving.contains(drive));
        let (mut grown, mut least) = (0, u64::MAX);
        for (drive, bytes) in growing {
            let gained = pool.grow(*drive).await;
            let gained = gained.map_err(|error| PoolRefusal::of_pool("growing a drive", &error))?;
            if gained != *bytes {
                let what = format!("{drive} gained {gained} bytes of {bytes}");
                return Err(PoolViolation::DriveChange(what).into());
            }
            if let Some(size) = self.shown_size(*drive) {
                self.bay.borrow_mut().growth.answered.insert(*drive, slots_in(size));
            }
            (grown, least) = (grown + 1, least.min(gained));
        }
        let after = pool.space().usable_bytes;
        // What one drive alone gained may find no partner, or be kept for a lost one; a slot may go to the reserve.
        let is_much = least >= 8 * u64::from(SLOT_BYTES);
        let must_grow = is_much && grown == pool.drives_present() && leaving.is_empty() && !self.plan.levels;
        self.tell(format!("all drives are grown: {before} bytes usable before, {after} after"));
        if after < before || must_grow && after == before {
            let what = format!("{before} bytes were usable, and {after} when {grown} drives had grown");
            return Err(PoolViolation::DriveChange(what).into());
        }
        self.tally.borrow_mut().drives_grown += grown as u64;
        Ok(())
    }
}
