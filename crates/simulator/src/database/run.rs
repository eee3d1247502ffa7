//! A whole run of a seed: incarnations that crash, then one that must succeed completely, and a verification
//! of its files.

use super::{
    history::History,
    incarnation::{GroupFixture, GroupScenario, GroupTally},
    plan::{GroupFaultGrade, GroupRunOptions, GroupRunPlan},
    violation::{GroupRunError, GroupViolation, is_no_space},
};
use crate::failure::{self, SeedFailure};
use std::{cell::RefCell, rc::Rc};
use world::{
    Random,
    sim::{DriveStatistics, FaultPlan, SimDrive, SimLimits, SimOutcome, SimTrace, Simulation},
};

/// Binary logarithm of the number of polls before a crash, at most. Recovery takes some hundred polls, the
/// work of an incarnation some thousand.
const POLLS_MAX_LOG2: f64 = 12.0;

/// The results of a run without violations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRunReport {
    /// Hash of all events.
    pub trace: SimTrace,
    pub tally: GroupTally,
    pub crashes: u64,
    /// Those of them that crashed before the group was open.
    pub crashes_while_opening: u64,
    /// Incarnations that ended with an error caused by the drives.
    pub refusals: u64,
    /// Counters of the database drive, and of the log drive if it is another.
    pub drives: Vec<DriveStatistics>,
}

/// The command that replays one seed.
pub fn replay_command(seed: u64, options: GroupRunOptions) -> String {
    let torn = if options.torn_page_writes { " --torn-page-writes" } else { "" };
    let beyond = if options.grade == GroupFaultGrade::Beyond { " --beyond" } else { "" };
    format!("cargo xtask sim maildb --seeds 1 --from {seed}{torn}{beyond}")
}

/// Runs a seed. Failed assertions of the engine are failures too.
pub fn run(seed: u64, options: GroupRunOptions) -> Result<GroupRunReport, SeedFailure> {
    let mut random = Random::new(seed, "plan");
    let mut plan = GroupRunPlan::draw(&mut random, options);
    plan.draw_held(&mut Random::new(seed, "held transactions"));
    let tally = Rc::new(RefCell::new(GroupTally::default()));
    let mut run = Run::new(seed, random, plan, Rc::clone(&tally));
    let what = match failure::complete(|| run.complete()) {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let story = failure::story(&run.fixture.plan, &tally.borrow().story);
    Err(SeedFailure { seed, what, story, replay: replay_command(seed, options) })
}

struct Run {
    simulation: Simulation,
    random: Random,
    fixture: GroupFixture,
    drives: Vec<Rc<SimDrive>>,
    crashes: u64,
    crashes_while_opening: u64,
    refusals: u64,
    /// True once only incarnations without crashes remain.
    is_last: bool,
}

impl Run {
    fn new(seed: u64, random: Random, plan: GroupRunPlan, tally: Rc<RefCell<GroupTally>>) -> Self {
        let mut simulation = Simulation::new(seed);
        let database_drive = simulation.add_drive(plan.database_drive.clone());
        let mut drives = vec![Rc::clone(&database_drive)];
        if let Some(options) = &plan.log_drive {
            drives.push(simulation.add_drive(options.clone()));
        }
        let log_drive = Rc::clone(drives.last().expect("at least one"));
        let history = Rc::new(RefCell::new(History::default()));
        let fixture = GroupFixture { database_drive, log_drive, plan: Rc::new(plan), history, tally };
        Self {
            simulation,
            random,
            fixture,
            drives,
            crashes: 0,
            crashes_while_opening: 0,
            refusals: 0,
            is_last: false,
        }
    }

    fn complete(&mut self) -> Result<GroupRunReport, GroupViolation> {
        let formatting = self.simulation.run(SimLimits::generous(), |_| self.fixture.clone().format());
        self.excuse(formatting.completed())?;
        for cycle in 0..self.fixture.plan.cycles {
            self.set_faults(cycle);
            self.cycle()?;
        }
        self.drives.iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        self.is_last = true;
        self.undisturbed(GroupScenario { judge_first: true, judge_last: true, works: true })?;
        // After a clean shutdown a power cut loses nothing.
        self.simulation.cut_power();
        self.undisturbed(GroupScenario { judge_first: false, judge_last: false, works: false })?;
        Ok(GroupRunReport {
            trace: self.simulation.trace(),
            tally: self.fixture.tally.borrow().clone(),
            crashes: self.crashes,
            crashes_while_opening: self.crashes_while_opening,
            refusals: self.refusals,
            drives: self.drives.iter().map(|drive| drive.statistics()).collect(),
        })
    }

    /// An incarnation without an early end.
    fn undisturbed(&mut self, scenario: GroupScenario) -> Result<(), GroupViolation> {
        let fixture = self.fixture.clone();
        match self.simulation.run(SimLimits::generous(), |world| fixture.live(world, scenario)) {
            SimOutcome::Completed(result) => self.excuse(result),
            other => Err(GroupViolation::Endless(format!("{other:?}"))),
        }
    }

    fn set_faults(&self, cycle: u64) {
        let plan = &self.fixture.plan;
        for drive in &self.drives {
            let is_of_log = !Rc::ptr_eq(drive, &self.fixture.database_drive);
            let mut faults = if plan.spares_log && is_of_log {
                plan.faults.within_promises()
            } else {
                plan.faults.clone()
            };
            if cycle > 0
                && let Some(space) = plan.space
            {
                faults.space = Some(drive.space_used() + space);
            }
            drive.set_faults(faults);
        }
    }

    fn cycle(&mut self) -> Result<(), GroupViolation> {
        let scenario = GroupScenario {
            judge_first: self.random.percent(20.0),
            judge_last: self.random.percent(20.0),
            works: true,
        };
        let crashes = self.random.percent(85.0);
        let polls = 2_f64.powf(4.0 + self.random.unit() * (POLLS_MAX_LOG2 - 4.0)) as u64;
        let in_a_stable_write = self.random.percent(50.0);
        let limits =
            SimLimits { polls: crashes.then_some(polls), in_a_stable_write, ..SimLimits::generous() };
        let openings = self.fixture.tally.borrow().openings;
        let fixture = self.fixture.clone();
        let outcome = self.simulation.run(limits, |world| fixture.live(world, scenario));
        let polls = self.simulation.polls();
        let may_hang = self.fixture.plan.faults.stuck_percent > 0.0;
        let how = match outcome {
            SimOutcome::Completed(result) => {
                self.excuse(result)?;
                "after its end"
            }
            SimOutcome::Crashed => {
                self.crashes += 1;
                self.crashes_while_opening += u64::from(self.fixture.tally.borrow().openings == openings);
                "while it ran"
            }
            SimOutcome::TimedOut | SimOutcome::Deadlocked(_) if may_hang => "while a command was stuck",
            other => return Err(GroupViolation::Endless(format!("{other:?}"))),
        };
        let what = match self.random.below(10) {
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
        };
        self.fixture.tally.borrow_mut().story.push(format!("{what} {how}, after {polls} polls"));
        Ok(())
    }

    fn excuse(&mut self, result: Result<(), GroupRunError>) -> Result<(), GroupViolation> {
        let Err(error) = result else { return Ok(()) };
        if !self.is_excused(&error) {
            return Err(match error {
                GroupRunError::Refused(error) => GroupViolation::Refused(error),
                GroupRunError::GroupViolation(violation) => violation,
            });
        }
        self.refusals += 1;
        self.fixture.tally.borrow_mut().story.push(format!("refused: {error:?}"));
        Ok(())
    }

    /// True if the drives caused the error. An error is allowed if a drive had faults or no space; reported
    /// damage is allowed if a drive did damage. Wrong data never is.
    fn is_excused(&self, error: &GroupRunError) -> bool {
        let plan = &self.fixture.plan;
        let is_beyond = !plan.faults.is_within_promises();
        match error {
            GroupRunError::Refused(error) if plan.space.is_some() && !self.is_last => {
                is_beyond || is_no_space(error) || matches!(error, maildb::Error::Stopped(_))
            }
            GroupRunError::Refused(_) | GroupRunError::GroupViolation(GroupViolation::Damaged { .. }) => {
                is_beyond
            }
            // The checkpoint that recorded it may be lost.
            GroupRunError::GroupViolation(GroupViolation::NotClean { .. }) => self.fixture.may_lose_log(),
            GroupRunError::GroupViolation(_) => false,
        }
    }
}
