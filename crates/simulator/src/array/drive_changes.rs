//! Drives that leave while hosts work: retired, replaced, kept after all, forgotten; those that have left come
//! back as new ones. Drives are levelled, and room for lost ones is kept.

use super::{
    fixture::PoolFixture,
    growth::slots_in,
    plan::{SHELVES, SLOT_BYTES},
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, DomainName, DriveId, SparingLevel, superblock::DATA_START_BYTES_MIN},
    mover::EmptyingProblem,
    pool::{NewDrive, Pool, events::LevellingOutcome},
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::{IoErrorKind, Random, World};

/// Binary logarithm of the longest pause before a change, in microseconds.
const PAUSE_MAX_LOG2: u64 = 21;

/// The last change of a drive that a verb answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveFate {
    Leaves,
    Stays,
}

/// Changes of drives by verbs.
#[derive(Clone, Debug, Default)]
pub struct DriveChangeLog {
    /// By drive, since the pool was made; none while a verb about it is under way, or has been interrupted.
    answered: BTreeMap<DriveId, DriveFate>,
    /// Domains answered, by drive; none while a verb about it is under way, or has been interrupted.
    domains: BTreeMap<DriveId, Option<DomainName>>,
    /// Verbs about domains under way.
    domains_under_way: usize,
    /// Verbs under way, by drive.
    under_way: BTreeMap<DriveId, usize>,
    /// Names of drives that are not the ones of the start, by index.
    names: BTreeMap<usize, DriveId>,
    /// Drives that had left as of the last audit, by index.
    pub left: Vec<usize>,
    /// A drive that was behind has been given to the pool since.
    pub is_taken_back: bool,
}

impl DriveChangeLog {
    /// True if a drive that was no member at the start was ever given to the pool.
    pub fn was_given(&self, index: usize) -> bool {
        self.names.contains_key(&index)
    }

    /// Index of a drive under a name that it has now, of so many at the start; none for the spare.
    pub fn index_of(&self, drive: DriveId, begun: usize) -> Option<usize> {
        let renamed = self.names.iter().find(|(_, name)| **name == drive).map(|(index, _)| *index);
        let is_so = |index: &usize| drive == DriveId([*index as u8 + 1; 16]) && !self.was_given(*index);
        renamed.or_else(|| (0..begun).find(is_so))
    }
}

/// Issues changes of drives.
pub struct DriveChanger {
    pub fixture: PoolFixture,
    pub pool: Rc<Pool>,
    pub world: World,
    pub random: Random,
}

impl DriveChanger {
    /// Issues all changes of this incarnation.
    pub async fn work(mut self, world: World) -> Result<(), PoolRunError> {
        if self.fixture.plan.levels && self.fixture.bay.borrow().is_levelling {
            // A crash has interrupted one.
            self.level().await?;
        }
        if self.fixture.behind(&self.pool).is_some() && self.random.percent(60.0) {
            // Before the copies that it had are made elsewhere.
            self.add().await?;
        }
        for _ in 0..1 + self.random.below(5) {
            world.sleep(Duration::from_micros(1 << self.random.below(PAUSE_MAX_LOG2))).await;
            let kinds = if self.fixture.plan.levels { 16 } else { 10 };
            let of_domains = if self.fixture.plan.has_domains { 4 } else { 0 };
            let of_sets = if self.fixture.plan.has_sets { 1 } else { 0 };
            let of_growth = if self.fixture.plan.growth.is_empty() { 0 } else { 8 };
            let others = kinds + of_domains + of_sets;
            let done = match self.random.below(others + of_growth) {
                change if change >= others => self.grow().await,
                change if change >= kinds + of_domains => self.set_failure_sets().await,
                change if change >= kinds => self.set_domains().await,
                10..=13 => self.level().await,
                14.. => self.set_sparing().await,
                0..=4 => self.retire().await,
                5..=6 => self.replace().await,
                7 => self.keep().await,
                8 => self.add().await,
                _ => self.forget().await,
            };
            match done {
                Err(PoolRunError::Refused(refusal))
                    if refusal.is_for_space() && self.fixture.has_shortage() => {}
                done => done?,
            }
        }
        Ok(())
    }

    pub(super) fn pick<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        (!of.is_empty()).then(|| of[self.random.below(of.len() as u64) as usize])
    }

    async fn retire(&mut self) -> Result<(), PoolRunError> {
        let in_use = self.pool.drives_in_use();
        let Some(drive) = self.pick(&in_use) else { return Ok(()) };
        self.begin("retiring", drive);
        let retired = self.pool.retire(drive).await;
        self.end(drive, retired.is_ok().then_some(DriveFate::Leaves));
        if self.is_done("retiring a drive", &retired)? {
            self.fixture.tally.borrow_mut().drives_retired += 1;
            self.fixture.tell(format!("{drive} leaves"));
        }
        Ok(())
    }

    async fn keep(&mut self) -> Result<(), PoolRunError> {
        let leaving: Vec<DriveId> = self.pool.leaving().iter().map(|leaving| leaving.drive).collect();
        let Some(drive) = self.pick(&leaving) else { return Ok(()) };
        self.begin("keeping", drive);
        let kept = self.pool.keep(drive).await;
        self.end(drive, kept.is_ok().then_some(DriveFate::Stays));
        if self.is_done("keeping a drive", &kept)? {
            self.fixture.tally.borrow_mut().drives_kept += 1;
            self.fixture.tell(format!("{drive} is kept"));
        }
        Ok(())
    }

    async fn replace(&mut self) -> Result<(), PoolRunError> {
        let in_use = self.pool.drives_in_use();
        let (Some(old), Some(index)) = (self.pick(&in_use), self.pick_blank()) else { return Ok(()) };
        self.begin("replacing", old);
        let new = self.new_drive(index);
        let replaced = self.pool.replace(old, &new).await;
        self.end(old, replaced.is_ok().then_some(DriveFate::Leaves));
        if self.is_done("replacing a drive", &replaced)? {
            self.fixture.tally.borrow_mut().drives_replaced += 1;
            self.fixture.tell(format!("drive {index}, {}, replaces {old}", new.drive));
        }
        Ok(())
    }

    async fn add(&mut self) -> Result<(), PoolRunError> {
        let Some(index) = self.pick_blank() else { return Ok(()) };
        let new = self.new_drive(index);
        let added = self.pool.add_drive(&new).await;
        if self.is_done("adding a drive", &added)? {
            self.fixture.tell(format!("drive {index} was added as {}", new.drive));
        }
        Ok(())
    }

    async fn forget(&mut self) -> Result<(), PoolRunError> {
        let known: Vec<DriveId> = self.fixture.bay.borrow().changes.answered.keys().copied().collect();
        let Some(drive) = self.pick(&known) else { return Ok(()) };
        let is_in_use = self.pool.drives_in_use().contains(&drive);
        let forgotten = self.pool.forget(drive).await;
        if forgotten.is_ok() && is_in_use && self.pool.drives_in_use().contains(&drive) {
            return Err(PoolViolation::NotRefused(format!("forgetting {drive}, which is in use")).into());
        }
        self.is_done("forgetting a drive", &forgotten).map(drop)
    }

    async fn level(&mut self) -> Result<(), PoolRunError> {
        let was_levelling = std::mem::replace(&mut self.fixture.bay.borrow_mut().is_levelling, true);
        let levelled = self.pool.level().await;
        let outcome = match levelled {
            Ok(outcome) => outcome,
            // A target that was added has the shortage, too.
            Err(Error::OutOfSpace(_)) if self.fixture.has_shortage() => return Ok(()),
            Err(error) => return Err(PoolRefusal::of_pool("levelling the drives", &error).into()),
        };
        self.fixture.bay.borrow_mut().is_levelling = false;
        self.fixture.tell(format!("levelled: {outcome:?}"));
        if matches!(outcome, LevellingOutcome::Level | LevellingOutcome::NoMoveHelps) {
            let mut tally = self.fixture.tally.borrow_mut();
            tally.levellings += 1;
            tally.levellings_resumed += u64::from(was_levelling);
        }
        Ok(())
    }

    async fn set_sparing(&mut self) -> Result<(), PoolRunError> {
        let level =
            [SparingLevel::None, SparingLevel::Single, SparingLevel::Double][self.random.below(3) as usize];
        let changed = self.pool.set_sparing(level).await;
        let mut tally = self.fixture.tally.borrow_mut();
        match changed {
            Ok(()) => tally.sparing_changed += 1,
            Err(Error::TooFewToSpare { .. } | Error::TooFullToSpare { .. }) => tally.sparing_refused += 1,
            Err(error) => return Err(PoolRefusal::of_pool("changing the sparing", &error).into()),
        }
        drop(tally);
        self.fixture.tell(format!("sparing is {:?}", self.pool.sparing()));
        Ok(())
    }

    async fn set_failure_sets(&mut self) -> Result<(), PoolRunError> {
        let is_wanted = self.random.percent(70.0);
        let changed = self.pool.set_failure_sets(is_wanted).await;
        changed.map_err(|error| PoolRefusal::of_pool("changing the failure sets", &error))?;
        self.fixture.tally.borrow_mut().failure_sets_changed += 1;
        self.fixture.tell(format!("failure sets: {is_wanted}"));
        Ok(())
    }

    /// Moves up to two drives to other shelves, or to none.
    async fn set_domains(&mut self) -> Result<(), PoolRunError> {
        let in_use = self.pool.drives_in_use();
        let (Some(first), Some(second)) = (self.pick(&in_use), self.pick(&in_use)) else { return Ok(()) };
        let mut changes = BTreeMap::new();
        for drive in [first, second] {
            let shelf = self.random.below(SHELVES as u64 + 1) as usize;
            let domain = (shelf < SHELVES).then(|| self.fixture.plan.domain(shelf)).flatten();
            changes.insert(drive, domain);
            self.fixture.bay.borrow_mut().changes.domains.remove(&drive);
        }
        self.fixture.bay.borrow_mut().changes.domains_under_way += 1;
        let wanted: Vec<_> = changes.into_iter().collect();
        self.fixture.tell(format!("domains become {wanted:?}"));
        let set = self.pool.set_domains(&wanted).await;
        let changes = &mut self.fixture.bay.borrow_mut().changes;
        changes.domains_under_way -= 1;
        match set {
            Ok(()) => {
                self.fixture.tally.borrow_mut().domains_changed += 1;
                if changes.domains_under_way == 0 {
                    changes.domains.extend(wanted);
                }
                Ok(())
            }
            Err(Error::NoDrive(_)) => Ok(()),
            Err(error) => Err(PoolRefusal::of_pool("changing domains", &error).into()),
        }
    }

    /// A drive that is no member: one that was never given, that had left at the last audit, or that the others
    /// continued without.
    fn pick_blank(&mut self) -> Option<usize> {
        if let Some(behind) = self.fixture.behind(&self.pool)
            && self.random.percent(70.0)
        {
            self.fixture.tell(format!("drive {behind} is taken back"));
            self.fixture.tally.borrow_mut().drives_taken_back += 1;
            self.fixture.bay.borrow_mut().changes.is_taken_back = true;
            if self.random.percent(50.0) {
                self.make_older(behind);
            }
            return Some(behind);
        }
        let blank = {
            let bay = self.fixture.bay.borrow();
            let never = self.fixture.extras().filter(|&index| !bay.changes.was_given(index));
            let left = bay.changes.left.iter().copied();
            let is_sound = |index: &usize| {
                Some(*index) != self.fixture.plan.faulty_drive
                    && Some(*index) != self.fixture.spare()
                    && Some(*index) != bay.taken_out
            };
            never.chain(left).filter(is_sound).collect::<Vec<_>>()
        };
        self.pick(&blank)
    }

    /// Makes a drive that was left out an image of an earlier time: of each slot it has the first blocks only.
    fn make_older(&mut self, index: usize) {
        self.fixture.tell(format!("drive {index} is a copy of an earlier time"));
        let (drive, slot_bytes) = (&self.fixture.drives[index], u64::from(SLOT_BYTES));
        let shown = self.fixture.bay.borrow().growth.sizes.get(&index).map(|size| size.get());
        let slots = slots_in(shown.unwrap_or(self.fixture.plan.drives[index].size.0));
        for slot in 0..slots {
            let blocks = 1 + self.random.below(8);
            let missing = slot_bytes - blocks * BLOCK_BYTES as u64;
            let end = DATA_START_BYTES_MIN + (slot + 1) * slot_bytes;
            drive.poke(end - missing, &vec![0; missing as usize]);
        }
    }

    /// The drive under a name that it never had.
    fn new_drive(&self, index: usize) -> NewDrive {
        let drive = {
            let mut bay = self.fixture.bay.borrow_mut();
            bay.additions += 1;
            let drive = DriveId([100 + bay.additions; 16]);
            bay.changes.names.insert(index, drive);
            bay.changes.left.retain(|&left| left != index);
            drive
        };
        let (device, domain) = (self.fixture.device(&self.world, index), self.fixture.plan.domain(index));
        NewDrive { drive, serial: format!("extra {index}"), domain, device }
    }

    fn begin(&self, doing: &str, drive: DriveId) {
        self.fixture.tell(format!("{doing} {drive}"));
        let changes = &mut self.fixture.bay.borrow_mut().changes;
        changes.answered.remove(&drive);
        *changes.under_way.entry(drive).or_default() += 1;
    }

    /// Records an answer, unless another verb about the drive is under way: it may change its row by now.
    fn end(&self, drive: DriveId, answered: Option<DriveFate>) {
        let changes = &mut self.fixture.bay.borrow_mut().changes;
        let under_way = changes.under_way.get_mut(&drive).expect("it was begun");
        *under_way -= 1;
        if *under_way == 0
            && let Some(answered) = answered
        {
            changes.answered.insert(drive, answered);
        }
    }

    /// False if the pool refused, for a reason that the state of its drives gives.
    pub(super) fn is_done(&self, doing: &str, done: &Result<(), Error>) -> Result<bool, PoolRunError> {
        match done {
            Ok(()) => Ok(true),
            // A new drive that had left before has the shortage, too.
            Err(Error::Drive { error, .. })
                if error.kind() == IoErrorKind::NoSpace && self.fixture.has_shortage() =>
            {
                Ok(false)
            }
            Err(
                Error::TooFewToLeave { .. }
                | Error::TooSmallToLeave { .. }
                | Error::TooFullToLeave { .. }
                | Error::TooFewToSpare { .. }
                | Error::NoDrive(_)
                | Error::DriveAbsent(_)
                | Error::DriveInUse(_)
                | Error::DriveNeeded { .. },
            ) => {
                self.fixture.tally.borrow_mut().drive_changes_refused += 1;
                Ok(false)
            }
            Err(error) => Err(PoolRefusal::of_pool(doing, error).into()),
        }
    }
}

impl PoolFixture {
    /// Checks, after an opening, that answered changes of drives hold.
    pub fn check_drive_changes(&self, pool: &Pool) -> Result<(), PoolViolation> {
        let (in_use, leaving) = (pool.drives_in_use(), pool.leaving());
        self.bay.borrow_mut().changes.under_way.clear();
        self.bay.borrow_mut().changes.domains_under_way = 0;
        self.check_growth(pool)?;
        for (drive, domain) in &self.bay.borrow().changes.domains {
            if in_use.contains(drive) && pool.domain_of(*drive) != *domain {
                let what = format!("{drive} was put into {domain:?}, and is in {:?}", pool.domain_of(*drive));
                return Err(PoolViolation::DriveChange(what));
            }
        }
        for (drive, answered) in &self.bay.borrow().changes.answered {
            let leaves = leaving.iter().any(|leaving| leaving.drive == *drive);
            let is_wrong = match answered {
                DriveFate::Leaves => in_use.contains(drive) && !leaves,
                DriveFate::Stays => leaves,
            };
            if is_wrong {
                return Err(PoolViolation::DriveChange(format!(
                    "{drive} was answered as {answered:?}, and that is undone"
                )));
            }
        }
        Ok(())
    }

    /// The drive that fails or is away now and then, if it was no member at the last audit because the others
    /// continued without it, and it is sound now.
    fn behind(&self, pool: &Pool) -> Option<usize> {
        let bay = self.bay.borrow();
        let index = self.plan.faulty_drive.filter(|_| self.plan.faulty_drive_recovers() && !bay.is_ill)?;
        let name = bay.changes.names.get(&index).copied().unwrap_or(DriveId([index as u8 + 1; 16]));
        let is_out = !bay.counting.contains(&index)
            && !bay.changes.left.contains(&index)
            && !bay.changes.is_taken_back;
        (is_out && !pool.drives_in_use().contains(&name)).then_some(index)
    }

    /// True if no drive leaves any more, or only those that cannot.
    pub fn have_left(&self, pool: &Pool) -> bool {
        pool.leaving().iter().all(|leaving| match leaving.problem {
            None => false,
            Some(EmptyingProblem::TooFewDrives { .. }) => true,
            Some(EmptyingProblem::NoRoom) => self.plan.is_tight,
        })
    }

    /// Indices of the drives that only changes of drives give to the pool.
    pub fn extras(&self) -> std::ops::Range<usize> {
        let first = self.plan.drives.len() + usize::from(self.plan.spare.is_some());
        first..first + self.plan.extras.len()
    }
}
