//! A seed's whole run: incarnations that crash, then some that must be perfect.

use super::{
    atlas::{Grade, Ill},
    canary::Bug,
    foreign::{Audit, Copies},
    ground::{Ground, Tally},
    incarnation::Course,
    plan::{RunOptions, RunPlan},
    shortage::Spell,
    trouble::{Trouble, Violation},
};
use crate::failure::{self, Failure};
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
    Random,
    sim::{DriveStatistics, Limits, Outcome, Simulation, Trace},
};

/// Most polls before a crash.
const POLLS_MAX_LOG2: f64 = 13.0;

/// What a run that broke no promise did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// Hash of everything that happened.
    pub trace: Trace,
    /// Counters and story.
    pub tally: Tally,
    /// Incarnations that were crashed.
    pub crashes: u64,
    /// Crashes of those before the pool was open.
    pub crashes_while_opening: u64,
    /// Incarnations the pool ended with an error for which the drives gave the reason.
    pub refusals: u64,
    /// What a drive had, by kind.
    pub ills: BTreeSet<Ill>,
    /// What the drives did.
    pub drives: Vec<DriveStatistics>,
    /// Branches of the pool that were taken, and how often.
    pub reached: BTreeMap<Sometimes, u64>,
}

/// The command that replays one seed.
pub fn replay_command(seed: u64, options: RunOptions) -> String {
    let beyond = if options.grade == Grade::Beyond { " --beyond" } else { "" };
    format!("cargo xtask sim array --seeds 1 --from {seed}{beyond}")
}

/// Runs a seed. Failed assertions of the pool are failures like any other.
///
/// # Errors
///
/// The promise that was broken, and the story of the run.
pub fn run(seed: u64, options: RunOptions) -> Result<RunReport, Failure> {
    let _planted = options.bug.and_then(|bug| match bug {
        Bug::InPool(canary) => Some(canary::plant(canary)),
        Bug::BeforeDrives(_) => None,
    });
    // What another run on this thread left.
    sometimes::take_counts();
    let plan = RunPlan::draw(&mut Random::new(seed, "plan"), options);
    let mut run = Run::new(seed, plan);
    let what = match failure::complete(|| run.complete()) {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let story = failure::story(&run.ground.plan, &run.ground.tally.borrow().story);
    Err(Failure { seed, what, story, again: replay_command(seed, options) })
}

pub(super) struct Run {
    pub(super) simulation: Simulation,
    random: Random,
    illness: Random,
    creation: Random,
    pub(super) sabotage: Random,
    pub(super) headers: Random,
    /// What was found behind a kill, until the pool is opened again.
    found_behind_kill: Option<Audit>,
    pub(super) ground: Ground,
    crashes: u64,
    crashes_while_opening: u64,
    refusals: u64,
    pub(super) ills: BTreeSet<Ill>,
    /// The drive that others went on without.
    left_out: Option<usize>,
    /// Copies on drives that count that all data has.
    copies_least: usize,
}

impl Run {
    fn new(seed: u64, plan: RunPlan) -> Self {
        let mut simulation = Simulation::new(seed);
        let spare = plan.spare.iter().map(|(options, _)| options);
        let all = plan.drives.iter().chain(spare);
        let drives = all.map(|options| simulation.add_drive(options.clone()));
        let drives = Rc::new(drives.collect());
        let (random, illness) = (simulation.random("crashes"), simulation.random("illness"));
        let (creation, sabotage) = (simulation.random("creation"), simulation.random("sabotage"));
        let headers = simulation.random("headers");
        let is_untold = Rc::new(Cell::new(plan.is_untold));
        let copies = Rc::new(Cell::new(Copies::All));
        let (plan, model, tally) = (Rc::new(plan), Rc::default(), Rc::new(RefCell::default()));
        let ground = Ground { drives, bay: Rc::default(), plan, model, tally, is_untold, copies };
        Self {
            simulation,
            random,
            illness,
            creation,
            sabotage,
            headers,
            found_behind_kill: None,
            ground,
            crashes: 0,
            crashes_while_opening: 0,
            refusals: 0,
            ills: BTreeSet::new(),
            left_out: None,
            copies_least: 0,
        }
    }

    fn complete(&mut self) -> Result<RunReport, Violation> {
        while self.creation.percent(20.0) {
            self.create_and_crash()?;
        }
        let ground = self.ground.clone();
        let created = self.simulation.run(Limits::generous(), |world| ground.create(world)).completed();
        self.settle_trouble(created)?;
        self.ground.audit("when a pool was made")?;
        for cycle in 0..self.ground.plan.cycles as usize {
            self.cycle(cycle)?;
        }
        self.cure();
        let heals = self.ground.plan.grade == Grade::Envelope;
        let course = Course { inspects: Some(100.0), works: true, heals, closes: true, ..Course::default() };
        self.undisturbed(course)?;
        // Whoever closed may pull the plug.
        self.simulation.cut_power();
        self.ground.model.borrow_mut().lose_power();
        let audit = self.ground.audit("after the last power cut")?;
        if let Some(audit) = audit {
            self.check_copies(&audit)?;
        }
        self.undisturbed(Course { inspects: Some(100.0), ..Course::default() })?;
        self.without_some()?;
        if heals {
            let ground = self.ground.clone();
            let emptied = self.simulation.run(Limits::generous(), |world| ground.empty(world)).completed();
            self.settle_trouble(emptied)?;
        }
        Ok(RunReport {
            trace: self.simulation.trace(),
            tally: self.ground.tally.borrow().clone(),
            crashes: self.crashes,
            crashes_while_opening: self.crashes_while_opening,
            refusals: self.refusals,
            ills: self.ills.clone(),
            drives: self.ground.drives.iter().map(|drive| drive.statistics()).collect(),
            reached: sometimes::take_counts(),
        })
    }

    /// Once all is healed everything has all its copies, but for what rests in one; also in a pool that began with one drive and
    /// got another. Some pools have no room.
    fn check_copies(&mut self, audit: &Audit) -> Result<(), Violation> {
        let promised = self.ground.plan.copies.max(2).min(audit.drives.len());
        let has_raid0 = self.ground.plan.has_raid0;
        self.copies_least = if has_raid0 { 1 } else { audit.copies_least.min(audit.drives.len()) };
        match audit.copies_least >= promised || self.ground.plan.is_tight {
            true => Ok(()),
            false => Err(Violation::NotConverged(format!("some data has {} copies", audit.copies_least))),
        }
    }

    /// All drives are well again; one that was taken out stays away.
    fn cure(&self) {
        self.ground.end_shortage();
        let mut bay = self.ground.bay.borrow_mut();
        (bay.resized, bay.is_spare_ill, bay.has_spell) = (None, false, false);
    }

    /// A pool in the making, and a crash; what it left is no pool, or an empty one. Then the drives are erased.
    fn create_and_crash(&mut self) -> Result<(), Violation> {
        let limits = Limits { polls: Some(1 + self.creation.below(60)), ..Limits::generous() };
        let ground = self.ground.clone();
        match self.simulation.run(limits, |world| ground.create(world)) {
            Outcome::Completed(created) => self.settle_trouble(created)?,
            Outcome::Crashed => self.ground.tally.borrow_mut().cut_creations += 1,
            other => return Err(Violation::Endless(format!("{other:?}"))),
        }
        self.end_badly(None);
        let ground = self.ground.clone();
        let looked = self.simulation.run(Limits::generous(), |world| ground.look_at_new(world)).completed();
        self.settle_trouble(looked)?;
        self.simulation.cut_power();
        for drive in self.ground.drives.iter() {
            drive.poke(0, &vec![0; DATA_START_BYTES_MIN as usize]);
        }
        Ok(())
    }

    /// Where every block has two copies, any drive may go, also the second one, and where it has three, two of five; and a
    /// drive that was left out is no pool.
    fn without_some(&mut self) -> Result<(), Violation> {
        let mut counting = self.ground.bay.borrow().counting.clone();
        if self.copies_least >= 2 {
            // More than half have to be there, unless somebody says that the others are lost.
            let away = if self.copies_least >= 3 && counting.len() >= 5 { 2 } else { 1 };
            let absent: Vec<usize> = (0..away)
                .map(|_| counting.swap_remove(self.random.below(counting.len() as u64) as usize))
                .collect();
            self.left_out = Some(absent[0]);
            self.undisturbed(Course { absent, inspects: Some(100.0), works: true, ..Course::default() })?;
        }
        if let Some(stale) = self.left_out {
            let ground = self.ground.clone();
            let refused = self.simulation.run(Limits::generous(), |world| ground.refuse_stale(world, stale));
            self.settle_trouble(refused.completed())?;
        }
        Ok(())
    }

    /// An incarnation that nothing ends early.
    fn undisturbed(&mut self, course: Course) -> Result<(), Violation> {
        let ground = self.ground.clone();
        let outcome = self.simulation.run(Limits::generous(), |world| ground.live(world, course));
        self.ground.model.borrow_mut().end_incarnation();
        match outcome {
            Outcome::Completed(result) => self.settle_trouble(result),
            other => Err(Violation::Endless(format!("{other:?}"))),
        }
    }

    /// What is wrong with drives in a cycle: from its beginning on, or later.
    fn fall_ill(&mut self, cycle: usize, course: &mut Course) {
        let plan = Rc::clone(&self.ground.plan);
        self.cure();
        self.ground.drives.iter().for_each(|drive| drive.set_faults(plan.faults.clone()));
        course.spell = plan.spells[cycle].clone();
        self.ground.bay.borrow_mut().has_spell = course.spell.is_some();
        if course.spell.is_some() && self.ground.copies.get() == Copies::All {
            // A header that found no space is missing until the next checkpoint's row leaves that copy out.
            self.ground.copies.set(Copies::AllButSomeHeaders);
        }
        let is_swapped = self.ground.bay.borrow().taken_out.is_some();
        if plan.spare.as_ref().is_some_and(|(_, from)| cycle as u64 >= *from) {
            self.add_spare(is_swapped || plan.ills[cycle] == Some(Ill::Swapped), course);
        }
        if is_swapped {
            return;
        }
        let (Some(patient), Some(ill)) = (plan.patient, plan.ills[cycle]) else { return };
        self.ills.insert(ill);
        if ill.does_damage() {
            self.ground.copies.set(Copies::One);
        }
        let faults = ill.faults(&mut self.illness);
        let size = plan.drives[patient].size.0;
        if ill == Ill::Absent {
            course.absent = vec![patient];
        } else if ill == Ill::Swapped {
            self.ground.tell(format!("drive {patient} is taken out"));
            self.ground.bay.borrow_mut().taken_out = Some(patient);
        } else if let Ill::Smaller | Ill::Larger = ill {
            let least = DATA_START_BYTES_MIN;
            let less = least + self.illness.below((size - least) >> 12 << 12);
            let resized = if ill == Ill::Larger { 2 * size } else { less };
            self.ground.tell(format!("drive {patient} has {resized} bytes"));
            self.ground.bay.borrow_mut().resized = Some((patient, resized >> 12 << 12));
        } else if self.illness.percent(40.0) {
            self.ground.tell(format!("drive {patient} is ill: {ill:?}"));
            self.ground.drives[patient].set_faults(faults);
        } else {
            let after = Duration::from_micros(1 << self.illness.below(20));
            course.falls_ill = Some((patient, faults, after));
        }
    }

    /// The spare is asked for; where it takes the place of one that is gone it may die in its turn.
    fn add_spare(&mut self, may_die: bool, course: &mut Course) {
        let is_member =
            self.ground.spare().is_some_and(|spare| self.ground.bay.borrow().counting.contains(&spare));
        let after = Duration::from_micros(1 << self.illness.below(18));
        let ill_after = Duration::from_micros(1 << self.illness.below(22));
        let dies = self.illness.percent(30.0) && may_die;
        course.adds = (!is_member).then_some((after, dies.then_some(ill_after)));
    }

    fn cycle(&mut self, cycle: usize) -> Result<(), Violation> {
        let mut course = Course {
            inspects: self.random.percent(70.0).then(|| [0.0, 20.0, 100.0][self.random.below(3) as usize]),
            works: true,
            closes: self.random.percent(30.0),
            ..Course::default()
        };
        self.fall_ill(cycle, &mut course);
        let killed_or_cut = self.ground.plan.cuts_behind_replay.then(|| cycle.is_multiple_of(2));
        course.ends_behind_replay = killed_or_cut == Some(false);
        let crashes = self.random.percent(85.0) && !course.ends_behind_replay;
        let polls = 2_f64.powf(4.0 + self.random.unit() * (POLLS_MAX_LOG2 - 4.0)) as u64;
        let in_a_stable_write = self.random.percent(50.0);
        let limits = Limits { polls: crashes.then_some(polls), in_a_stable_write, ..Limits::generous() };
        let is_whole =
            course.absent.is_empty() && course.falls_ill.is_none() && self.ground.plan.ills[cycle].is_none();
        let found_behind_kill = self.found_behind_kill.take().filter(|_| is_whole);
        let openings = self.ground.tally.borrow().openings;
        let (ground, absent) = (self.ground.clone(), course.absent.first().copied());
        let spell = course.spell.clone();
        let outcome = self.simulation.run(limits, |world| ground.live(world, course));
        self.ground.model.borrow_mut().end_incarnation();
        let was_opened = self.ground.tally.borrow().openings > openings;
        if was_opened && absent.is_some() {
            self.left_out = absent;
        }
        let how = match outcome {
            Outcome::Completed(result) => {
                self.settle_cycle(result, spell.as_ref())?;
                "after its end"
            }
            Outcome::Crashed => {
                self.crashes += 1;
                self.crashes_while_opening += u64::from(!was_opened);
                "while it ran"
            }
            other => return Err(Violation::Endless(format!("{other:?}"))),
        };
        let what = self.end_badly(killed_or_cut);
        self.ground.tell(format!("{what} {how}, after {} polls", self.simulation.polls()));
        let Some(audit) = self.ground.audit(what)? else { return Ok(()) };
        if let Some(before) = found_behind_kill {
            self.check_replayed(&before, &audit)?;
        }
        // A copy that had no space for a record has to be made good first: the others may be the only ones.
        if spell.is_none() {
            self.spoil_log(&audit)?;
            self.spoil_header(&audit)?;
        }
        self.found_behind_kill = (what == "kill").then_some(audit);
        Ok(())
    }

    /// An opening that got as far as to say who writes from now on has made stable what it replayed.
    fn check_replayed(&self, before: &Audit, now: &Audit) -> Result<(), Violation> {
        let is_behind_replay = now.checkpoint == before.checkpoint && now.incarnation > before.incarnation;
        if !is_behind_replay || before.records.is_empty() {
            return Ok(());
        }
        self.ground.tally.borrow_mut().replays_cut += 1;
        let last = |audit: &Audit| audit.records.last().map_or(audit.position, |record| record.position);
        match last(now) >= last(before) {
            true => Ok(()),
            false => Err(Violation::Foreign {
                when: "behind a replay",
                what: format!("the log ends at {}, and {} was replayed", last(now), last(before)),
            }),
        }
    }

    /// As it falls, or with a kill, or with a power cut.
    fn end_badly(&mut self, killed_or_cut: Option<bool>) -> &'static str {
        let drawn = self.random.below(10);
        let how = killed_or_cut.map_or(drawn, |is_killed| if is_killed { 6 } else { 0 });
        if !(6..=7).contains(&how) {
            self.ground.model.borrow_mut().lose_power();
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

    /// A shortage is a reason, too.
    fn settle_cycle(&mut self, result: Result<(), Trouble>, spell: Option<&Spell>) -> Result<(), Violation> {
        match (result, spell) {
            (Err(trouble), Some(spell)) if self.ground.is_for(spell, &trouble) => {
                self.ground.tally.borrow_mut().ended_by_shortage += 1;
                self.ground.tell(format!("refused for a shortage: {trouble:?}"));
                Ok(())
            }
            (result, _) => self.settle_trouble(result),
        }
    }

    /// An error has a reason if drives gave one; wrong data never has.
    pub(super) fn settle_trouble(&mut self, result: Result<(), Trouble>) -> Result<(), Violation> {
        match result {
            Ok(()) => Ok(()),
            Err(Trouble::Refused(refusal)) if self.ground.plan.grade == Grade::Beyond => {
                self.refusals += 1;
                self.ground.tell(format!("refused: {}", refusal.what));
                Ok(())
            }
            Err(Trouble::Refused(refusal)) => Err(Violation::Refused(refusal.what)),
            Err(Trouble::Violation(violation)) => Err(violation),
        }
    }
}
