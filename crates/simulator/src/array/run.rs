//! A whole run of a seed: incarnations that crash, then some that must succeed completely.

use super::{
    canary::Bug,
    fault_model::{DriveFault, PoolFaultGrade},
    fixture::{Bay, PoolFixture, PoolTally},
    growth::GrowthLog,
    incarnation::PoolScenario,
    independent_reader::{Audit, CopyRule},
    plan::{Branching, PoolRunOptions, PoolRunPlan, SHELVES},
    shortage::ShortageEpisode,
    violation::{PoolRunError, PoolViolation},
};
use crate::failure::{self, SeedFailure};
use array::{
    format::superblock::DATA_START_BYTES_MIN,
    simulation::{
        canary,
        sometimes::{self, Sometimes},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{
    ByteCount, Random,
    sim::{DriveOptions, DriveStatistics, SimLimits, SimOutcome, SimTrace, Simulation},
};

/// Binary logarithm of the number of polls before a crash, at most.
const POLLS_MAX_LOG2: f64 = 13.0;

/// The results of a run without violations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolRunReport {
    /// Hash of all events.
    pub trace: SimTrace,
    pub tally: PoolTally,
    pub crashes: u64,
    /// Those of them that crashed before the pool was open.
    pub crashes_while_opening: u64,
    /// Incarnations that ended with an error caused by the drives.
    pub refusals: u64,
    /// The faults of the faulty drive, by kind.
    pub drive_faults: BTreeSet<DriveFault>,
    pub drives: Vec<DriveStatistics>,
    /// Branches of the pool that were taken, with counts.
    pub reached: BTreeMap<Sometimes, u64>,
}

/// The command that replays one seed.
pub fn replay_command(seed: u64, options: PoolRunOptions) -> String {
    let beyond = if options.grade == PoolFaultGrade::Beyond { " --beyond" } else { "" };
    let branches = match options.branching {
        Branching::Always if options.grouping == Branching::Always => " --groups",
        Branching::Drawn => "",
        Branching::Always => " --branches",
        Branching::Never => " --no-branches",
    };
    let drive_changes = match (options.levels, options.drive_changes) {
        (true, _) => " --levelling",
        (false, true) => " --drive-changes",
        (false, false) => "",
    };
    let domains = if options.domains { " --domains" } else { "" };
    let sets = if options.sets { " --sets" } else { "" };
    let growth = if options.grows { " --growth" } else { "" };
    let differences = if options.compares { " --differences" } else { "" };
    let withholding = if options.withholds { " --withholding" } else { "" };
    let remote = if options.remote { " --remote" } else { "" };
    format!(
        "cargo xtask sim array --seeds 1 --from {seed}{beyond}{branches}{drive_changes}{domains}{sets}{growth}{differences}{withholding}{remote}"
    )
}

/// Runs a seed. Failed assertions of the pool are failures too.
///
/// # Errors
///
/// The violation, and the events of the run.
pub fn run(seed: u64, options: PoolRunOptions) -> Result<PoolRunReport, SeedFailure> {
    let _planted = options.bug.and_then(|bug| match bug {
        Bug::InPool(canary) => Some(canary::plant(canary)),
        Bug::BeforeDrives(_) => None,
    });
    // The previous run on this thread may have left counts.
    sometimes::take_counts();
    let plan = PoolRunPlan::draw(&mut Random::new(seed, "plan"), options);
    let mut run = Run::new(seed, plan);
    let what = match failure::complete(|| run.complete()) {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let story = failure::story(&run.fixture.plan, &run.fixture.tally.borrow().story);
    Err(SeedFailure { seed, what, story, replay: replay_command(seed, options) })
}

pub(super) struct Run {
    pub(super) simulation: Simulation,
    random: Random,
    illness: Random,
    creation: Random,
    pub(super) log_corruption: Random,
    pub(super) headers: Random,
    /// The audit after a kill, until the pool is opened again.
    found_behind_kill: Option<Audit>,
    pub(super) fixture: PoolFixture,
    crashes: u64,
    crashes_while_opening: u64,
    refusals: u64,
    pub(super) drive_faults: BTreeSet<DriveFault>,
    /// The drive that the others continued without.
    left_out: Option<usize>,
    /// Minimum number of copies of all data on drives that count.
    copies_least: usize,
}

impl Run {
    fn new(seed: u64, plan: PoolRunPlan) -> Self {
        let mut simulation = Simulation::new(seed);
        let spare = plan.spare.iter().map(|(options, _)| options);
        let all = plan.drives.iter().chain(spare).chain(&plan.extras);
        let growth = plan.growth.iter().copied().chain(std::iter::repeat(0));
        let drives = all.zip(growth).map(|(options, more)| {
            let size = ByteCount(options.size.0 + more);
            simulation.add_drive(DriveOptions { size, ..options.clone() })
        });
        let drives = Rc::new(drives.collect());
        let (random, illness) = (simulation.random("crashes"), simulation.random("illness"));
        let (creation, log_corruption) = (simulation.random("creation"), simulation.random("log_corruption"));
        let headers = simulation.random("headers");
        let is_untold = Rc::new(Cell::new(plan.is_untold));
        let copies = Rc::new(Cell::new(CopyRule::All));
        let (plan, model, tally) = (Rc::new(plan), Rc::default(), Rc::new(RefCell::default()));
        let (follower, early_end) = (Rc::default(), Rc::default());
        let shown = |options: &DriveOptions| Rc::new(Cell::new(options.size.0));
        let spare = plan.spare.iter().map(|(options, _)| options);
        let all = plan.drives.iter().chain(spare).chain(&plan.extras);
        let sizes = all.map(shown).enumerate().take(plan.growth.len()).collect();
        let growth = GrowthLog::of(sizes);
        let bay = Rc::new(RefCell::new(Bay { growth, ..Bay::default() }));
        let fixture = PoolFixture { drives, bay, plan, model, tally, is_untold, copies, early_end, follower };
        Self {
            simulation,
            random,
            illness,
            creation,
            log_corruption,
            headers,
            found_behind_kill: None,
            fixture,
            crashes: 0,
            crashes_while_opening: 0,
            refusals: 0,
            drive_faults: BTreeSet::new(),
            left_out: None,
            copies_least: 0,
        }
    }

    fn complete(&mut self) -> Result<PoolRunReport, PoolViolation> {
        while self.creation.percent(20.0) {
            self.create_and_crash()?;
        }
        let fixture = self.fixture.clone();
        let created = self.simulation.run(SimLimits::generous(), |world| fixture.create(world)).completed();
        self.excuse(created)?;
        self.fixture.audit("when a pool was made")?;
        for cycle in 0..self.fixture.plan.cycles as usize {
            self.cycle(cycle)?;
        }
        self.cure();
        let heals = self.fixture.plan.grade == PoolFaultGrade::Envelope;
        let scenario = PoolScenario {
            inspects: Some(100.0),
            works: true,
            heals,
            closes: true,
            ..PoolScenario::default()
        };
        self.undisturbed(scenario)?;
        // After a close, a power cut loses nothing.
        self.simulation.cut_power();
        self.fixture.model.borrow_mut().lose_power();
        let audit = self.fixture.audit("after the last power cut")?;
        if let Some(audit) = audit {
            self.check_copies(&audit)?;
        }
        self.undisturbed(PoolScenario { inspects: Some(100.0), ..PoolScenario::default() })?;
        self.without_some()?;
        if heals {
            let fixture = self.fixture.clone();
            let emptied =
                self.simulation.run(SimLimits::generous(), |world| fixture.empty(world)).completed();
            self.excuse(emptied)?;
        }
        Ok(PoolRunReport {
            trace: self.simulation.trace(),
            tally: self.fixture.tally.borrow().clone(),
            crashes: self.crashes,
            crashes_while_opening: self.crashes_while_opening,
            refusals: self.refusals,
            drive_faults: self.drive_faults.clone(),
            drives: self.fixture.drives.iter().map(|drive| drive.statistics()).collect(),
            reached: sometimes::take_counts(),
        })
    }

    /// After healing, everything has all its copies, apart from data stored in one; also in a pool that began
    /// with one drive and got another. Some pools have no space for them.
    fn check_copies(&mut self, audit: &Audit) -> Result<(), PoolViolation> {
        let promised = self.fixture.plan.copies.max(2).min(audit.drives.len());
        let has_raid0 = self.fixture.plan.has_raid0;
        self.copies_least = if has_raid0 { 1 } else { audit.copies_least.min(audit.drives.len()) };
        if audit.copies_least >= promised || self.fixture.plan.is_tight {
            Ok(())
        } else {
            Err(PoolViolation::NotConverged(format!("some data has {} copies", audit.copies_least)))
        }
    }

    /// Removes all faults; a drive taken out stays away.
    fn cure(&self) {
        self.fixture.end_shortage();
        let mut bay = self.fixture.bay.borrow_mut();
        (bay.resized, bay.is_spare_faulty, bay.has_shortage, bay.is_ill) = (None, false, false, false);
    }

    /// Crashes while the pool is created: the rest is no pool, or an empty one. Then erases the drives.
    fn create_and_crash(&mut self) -> Result<(), PoolViolation> {
        let limits = SimLimits { polls: Some(1 + self.creation.below(60)), ..SimLimits::generous() };
        let fixture = self.fixture.clone();
        match self.simulation.run(limits, |world| fixture.create(world)) {
            SimOutcome::Completed(created) => self.excuse(created)?,
            SimOutcome::Crashed => self.fixture.tally.borrow_mut().cut_creations += 1,
            other => return Err(PoolViolation::Endless(format!("{other:?}"))),
        }
        self.end_badly(None);
        let fixture = self.fixture.clone();
        let looked =
            self.simulation.run(SimLimits::generous(), |world| fixture.look_at_new(world)).completed();
        self.excuse(looked)?;
        self.simulation.cut_power();
        for drive in self.fixture.drives.iter() {
            drive.poke(0, &vec![0; DATA_START_BYTES_MIN as usize]);
        }
        Ok(())
    }

    /// With two copies of every block any drive may go, the second one too, and with three two of five; a
    /// drive that was left out must not open as a pool.
    fn without_some(&mut self) -> Result<(), PoolViolation> {
        if self.fixture.plan.has_sets {
            // The sets may have changed since the last look.
            self.simulation.cut_power();
            self.fixture.model.borrow_mut().lose_power();
            self.fixture.audit("before drives are left out")?;
        }
        let mut counting = self.fixture.bay.borrow().counting.clone();
        if self.copies_least >= 2 {
            // More than half must be present, unless opening is forced.
            let away = if self.copies_least >= 3 && counting.len() >= 5 { 2 } else { 1 };
            let absent: Vec<usize> = (0..away)
                .map(|_| counting.swap_remove(self.random.below(counting.len() as u64) as usize))
                .collect();
            let absent = self.shelf_to_leave_out().or_else(|| self.one_of_each_set()).unwrap_or(absent);
            self.left_out = Some(absent[0]);
            self.undisturbed(PoolScenario {
                absent,
                inspects: Some(100.0),
                works: true,
                ..PoolScenario::default()
            })?;
        }
        if let Some(stale) = self.left_out {
            let fixture = self.fixture.clone();
            let refused =
                self.simulation.run(SimLimits::generous(), |world| fixture.refuse_stale(world, stale));
            self.excuse(refused.completed())?;
        }
        Ok(())
    }

    /// All drives of a shelf, if more than half are in the others, and all of its data, too.
    fn shelf_to_leave_out(&mut self) -> Option<Vec<usize>> {
        let plan = Rc::clone(&self.fixture.plan);
        let counting = self.fixture.bay.borrow().counting.len();
        let is_possible = plan.keeps_apart() && counting == plan.drives.len();
        is_possible.then(|| plan.drives_in(self.random.below(SHELVES as u64) as usize))
    }

    /// An incarnation without an early end.
    fn undisturbed(&mut self, scenario: PoolScenario) -> Result<(), PoolViolation> {
        let fixture = self.fixture.clone();
        let outcome = self.simulation.run(SimLimits::generous(), |world| fixture.live(world, scenario));
        self.fixture.model.borrow_mut().end_incarnation();
        match outcome {
            SimOutcome::Completed(result) => self.excuse(result),
            other => Err(PoolViolation::Endless(format!("{other:?}"))),
        }
    }

    /// Applies the faults of a cycle, at its start or later.
    fn make_faulty(&mut self, cycle: usize, scenario: &mut PoolScenario) {
        let plan = Rc::clone(&self.fixture.plan);
        self.cure();
        self.fixture.drives.iter().for_each(|drive| drive.set_faults(plan.faults.clone()));
        scenario.shortage = plan.shortages[cycle].clone();
        self.fixture.bay.borrow_mut().has_shortage = scenario.shortage.is_some();
        if scenario.shortage.is_some() && self.fixture.copies.get() == CopyRule::All {
            // A header that found no space is missing until the next checkpoint's row leaves that copy out.
            self.fixture.copies.set(CopyRule::AllButSomeHeaders);
        }
        if let Some((shelf, of_cycle)) = plan.lost_shelf
            && of_cycle == cycle
        {
            self.fixture.tally.borrow_mut().shelves_lost += 1;
            self.lose_at_once(&plan.drives_in(shelf), scenario);
        }
        if plan.one_of_each_lost == Some(cycle)
            && let Some(drives) = self.one_of_each_set()
        {
            self.fixture.tally.borrow_mut().one_of_each_set_lost += 1;
            self.lose_at_once(&drives, scenario);
        }
        let is_swapped = self.fixture.bay.borrow().taken_out.is_some();
        if plan.spare.as_ref().is_some_and(|(_, from)| cycle as u64 >= *from) {
            self.add_spare(is_swapped || plan.drive_faults[cycle] == Some(DriveFault::Swapped), scenario);
        }
        if is_swapped {
            return;
        }
        let (Some(faulty_drive), Some(drive_fault)) = (plan.faulty_drive, plan.drive_faults[cycle]) else {
            return;
        };
        self.drive_faults.insert(drive_fault);
        self.fixture.bay.borrow_mut().is_ill = drive_fault != DriveFault::Absent;
        if drive_fault.does_damage() {
            self.fixture.copies.set(CopyRule::One);
        }
        let faults = drive_fault.faults(&mut self.illness);
        let size = plan.drives[faulty_drive].size.0;
        if drive_fault == DriveFault::Absent {
            scenario.absent = vec![faulty_drive];
        } else if drive_fault == DriveFault::Swapped {
            self.fixture.tell(format!("drive {faulty_drive} is taken out"));
            self.fixture.bay.borrow_mut().taken_out = Some(faulty_drive);
        } else if let DriveFault::Smaller | DriveFault::Larger = drive_fault {
            let least = DATA_START_BYTES_MIN;
            let less = least + self.illness.below((size - least) >> 12 << 12);
            let resized = if drive_fault == DriveFault::Larger { 2 * size } else { less };
            self.fixture.tell(format!("drive {faulty_drive} has {resized} bytes"));
            self.fixture.bay.borrow_mut().resized = Some((faulty_drive, resized >> 12 << 12));
        } else if self.illness.percent(40.0) {
            self.fixture.tell(format!("drive {faulty_drive} has a fault: {drive_fault:?}"));
            self.fixture.drives[faulty_drive].set_faults(faults);
        } else {
            let after = Duration::from_micros(1 << self.illness.below(20));
            scenario.becomes_faulty = vec![(faulty_drive, faults, after)];
        }
    }

    /// A drive of each failure set, if each segment lies in one: the others have copies of all data, and are a majority.
    fn one_of_each_set(&mut self) -> Option<Vec<usize>> {
        let sets = self.fixture.bay.borrow().sets.clone();
        let mut pick = |set: &Vec<usize>| set[self.illness.below(set.len() as u64) as usize];
        (sets.len() > 1).then(|| sets.iter().map(&mut pick).collect())
    }

    /// These drives are away from the start, or die later, at about the same time.
    fn lose_at_once(&mut self, drives: &[usize], scenario: &mut PoolScenario) {
        if self.illness.percent(40.0) {
            self.fixture.tell(format!("drives {drives:?} are away"));
            scenario.absent = drives.to_vec();
            return;
        }
        let after = 1 << self.illness.below(20);
        for &drive in drives {
            let faults = DriveFault::Dies.faults(&mut self.illness);
            let after = Duration::from_micros(after + self.illness.below(200));
            scenario.becomes_faulty.push((drive, faults, after));
        }
    }

    /// Adds the spare; where it replaces a lost drive it may fail in turn.
    fn add_spare(&mut self, may_die: bool, scenario: &mut PoolScenario) {
        let is_member =
            self.fixture.spare().is_some_and(|spare| self.fixture.bay.borrow().counting.contains(&spare));
        let after = Duration::from_micros(1 << self.illness.below(18));
        let ill_after = Duration::from_micros(1 << self.illness.below(22));
        let dies = self.illness.percent(30.0) && may_die;
        scenario.adds = (!is_member).then_some((after, dies.then_some(ill_after)));
    }

    fn cycle(&mut self, cycle: usize) -> Result<(), PoolViolation> {
        let mut scenario = PoolScenario {
            inspects: self.random.percent(70.0).then(|| [0.0, 20.0, 100.0][self.random.below(3) as usize]),
            works: true,
            closes: self.random.percent(30.0),
            may_end_early: self.fixture.plan.groups,
            ..PoolScenario::default()
        };
        self.make_faulty(cycle, &mut scenario);
        let killed_or_cut = self.fixture.plan.cuts_behind_replay.then(|| cycle.is_multiple_of(2));
        scenario.ends_behind_replay = killed_or_cut == Some(false);
        let crashes = self.random.percent(85.0) && !scenario.ends_behind_replay;
        let polls = 2_f64.powf(4.0 + self.random.unit() * (POLLS_MAX_LOG2 - 4.0)) as u64;
        let in_a_stable_write = self.random.percent(50.0);
        let limits =
            SimLimits { polls: crashes.then_some(polls), in_a_stable_write, ..SimLimits::generous() };
        let is_whole = scenario.absent.is_empty()
            && scenario.becomes_faulty.is_empty()
            && self.fixture.plan.drive_faults[cycle].is_none();
        let found_behind_kill = self.found_behind_kill.take().filter(|_| is_whole);
        let openings = self.fixture.tally.borrow().openings;
        let (fixture, absent) = (self.fixture.clone(), scenario.absent.first().copied());
        let shortage = scenario.shortage.clone();
        let outcome = self.simulation.run(limits, |world| fixture.live(world, scenario));
        self.fixture.model.borrow_mut().end_incarnation();
        let was_opened = self.fixture.tally.borrow().openings > openings;
        if was_opened && absent.is_some() {
            self.left_out = absent;
        }
        let how = match outcome {
            SimOutcome::Completed(result) => {
                self.settle_cycle(result, shortage.as_ref())?;
                "after its end"
            }
            SimOutcome::Crashed => {
                self.crashes += 1;
                self.crashes_while_opening += u64::from(!was_opened);
                "while it ran"
            }
            other => return Err(PoolViolation::Endless(format!("{other:?}"))),
        };
        let what = self.end_badly(killed_or_cut);
        self.fixture.tell(format!("{what} {how}, after {} polls", self.simulation.polls()));
        let Some(audit) = self.fixture.audit(what)? else { return Ok(()) };
        if let Some(before) = found_behind_kill {
            self.check_replayed(&before, &audit)?;
        }
        // A copy that had no space for a record is rebuilt first: the others may be the only ones.
        if shortage.is_none() {
            self.corrupt_log(&audit)?;
            self.corrupt_header(&audit)?;
        }
        self.found_behind_kill = (what == "kill").then_some(audit);
        Ok(())
    }

    /// Checks that an opening which announced itself has made its replayed records stable.
    fn check_replayed(&self, before: &Audit, now: &Audit) -> Result<(), PoolViolation> {
        let is_behind_replay = now.checkpoint == before.checkpoint && now.incarnation > before.incarnation;
        if !is_behind_replay || before.records.is_empty() {
            return Ok(());
        }
        self.fixture.tally.borrow_mut().replays_cut += 1;
        let last = |audit: &Audit| audit.records.last().map_or(audit.position, |record| record.position);
        if last(now) >= last(before) {
            Ok(())
        } else {
            Err(PoolViolation::Foreign {
                when: "behind a replay",
                what: format!("the log ends at {}, and {} was replayed", last(now), last(before)),
            })
        }
    }

    /// Ends an incarnation as it is, with a kill, or with a power cut.
    fn end_badly(&mut self, killed_or_cut: Option<bool>) -> &'static str {
        let drawn = self.random.below(10);
        let how = killed_or_cut.map_or(drawn, |is_killed| if is_killed { 6 } else { 0 });
        if !(6..=7).contains(&how) {
            self.fixture.model.borrow_mut().lose_power();
        }
        match how {
            0..=5 => {
                self.simulation.cut_power();
                "power cut"
            }
            6..=7 => {
                self.simulation.kill();
                "kill"
            }
            _ => {
                self.simulation.kill();
                self.simulation.cut_power();
                "kill and power cut"
            }
        }
    }

    /// A shortage is a valid cause, too.
    fn settle_cycle(
        &mut self,
        result: Result<(), PoolRunError>,
        shortage: Option<&ShortageEpisode>,
    ) -> Result<(), PoolViolation> {
        match (result, shortage) {
            (Err(error), Some(shortage)) if self.fixture.is_for(shortage, &error) => {
                self.fixture.tally.borrow_mut().ended_by_shortage += 1;
                self.fixture.tell(format!("refused for a shortage: {error:?}"));
                Ok(())
            }
            (result, _) => self.excuse(result),
        }
    }

    /// An error is allowed if drives caused it; wrong data never is.
    pub(super) fn excuse(&mut self, result: Result<(), PoolRunError>) -> Result<(), PoolViolation> {
        match result {
            Ok(()) => Ok(()),
            Err(PoolRunError::Refused(refusal)) if self.fixture.plan.grade == PoolFaultGrade::Beyond => {
                self.refusals += 1;
                self.fixture.tell(format!("refused: {}", refusal.what));
                Ok(())
            }
            Err(PoolRunError::Refused(refusal)) => Err(PoolViolation::Refused(refusal.what)),
            Err(PoolRunError::PoolViolation(violation)) => Err(violation),
        }
    }
}
