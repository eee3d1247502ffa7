//! A seed's whole run: incarnations that crash, then one that must be perfect, and a look at what it left.

use super::{
    history::History,
    incarnation::{Course, Ground, Tally},
    plan::{Grade, RunOptions, RunPlan},
    trouble::{Trouble, Violation, is_no_space},
};
use crate::failure::{self, Failure};
use std::{cell::RefCell, rc::Rc};
use world::{
    Random,
    sim::{DriveStatistics, FaultPlan, Limits, Outcome, SimDrive, Simulation, Trace},
};

/// Most polls before a crash. Recovery takes some hundred, all the work of an incarnation some thousand.
const POLLS_MAX_LOG2: f64 = 12.0;

/// What a run that broke no promise did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// Hash of everything that happened.
    pub trace: Trace,
    /// Counters and story.
    pub tally: Tally,
    /// Incarnations that were crashed.
    pub crashes: u64,
    /// Crashes of those before the group was open.
    pub crashes_while_opening: u64,
    /// Incarnations the engine ended with an error for which the drives gave the reason.
    pub refusals: u64,
    /// What the database drive, and the log drive if it is another, did.
    pub drives: Vec<DriveStatistics>,
}

/// The command that replays one seed.
pub fn replay_command(seed: u64, options: RunOptions) -> String {
    let torn = if options.torn_page_writes { " --torn-page-writes" } else { "" };
    let beyond = if options.grade == Grade::Beyond { " --beyond" } else { "" };
    format!("cargo xtask sim maildb --seeds 1 --from {seed}{torn}{beyond}")
}

/// Runs a seed. Failed assertions of the engine are failures like any other.
pub fn run(seed: u64, options: RunOptions) -> Result<RunReport, Failure> {
    let mut random = Random::new(seed, "plan");
    let mut plan = RunPlan::draw(&mut random, options);
    plan.draw_held(&mut Random::new(seed, "held transactions"));
    let tally = Rc::new(RefCell::new(Tally::default()));
    let mut run = Run::new(seed, random, plan, Rc::clone(&tally));
    let what = match failure::complete(|| run.complete()) {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let story = failure::story(&run.ground.plan, &tally.borrow().story);
    Err(Failure { seed, what, story, again: replay_command(seed, options) })
}

struct Run {
    simulation: Simulation,
    random: Random,
    ground: Ground,
    drives: Vec<Rc<SimDrive>>,
    crashes: u64,
    crashes_while_opening: u64,
    refusals: u64,
    /// Whether only incarnations that must be perfect are left.
    is_last: bool,
}

impl Run {
    fn new(seed: u64, random: Random, plan: RunPlan, tally: Rc<RefCell<Tally>>) -> Self {
        let mut simulation = Simulation::new(seed);
        let database_drive = simulation.add_drive(plan.database_drive.clone());
        let mut drives = vec![Rc::clone(&database_drive)];
        if let Some(options) = &plan.log_drive {
            drives.push(simulation.add_drive(options.clone()));
        }
        let log_drive = Rc::clone(drives.last().expect("at least one"));
        let history = Rc::new(RefCell::new(History::default()));
        let ground = Ground { database_drive, log_drive, plan: Rc::new(plan), history, tally };
        Self {
            simulation,
            random,
            ground,
            drives,
            crashes: 0,
            crashes_while_opening: 0,
            refusals: 0,
            is_last: false,
        }
    }

    fn complete(&mut self) -> Result<RunReport, Violation> {
        let formatting = self.simulation.run(Limits::generous(), |_| self.ground.clone().format());
        self.settle_trouble(formatting.completed())?;
        for cycle in 0..self.ground.plan.cycles {
            self.set_faults(cycle);
            self.cycle()?;
        }
        self.drives.iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        self.is_last = true;
        self.undisturbed(Course { judge_first: true, judge_last: true, works: true })?;
        // Whoever shut down cleanly may pull the plug.
        self.simulation.cut_power();
        self.undisturbed(Course { judge_first: false, judge_last: false, works: false })?;
        Ok(RunReport {
            trace: self.simulation.trace(),
            tally: self.ground.tally.borrow().clone(),
            crashes: self.crashes,
            crashes_while_opening: self.crashes_while_opening,
            refusals: self.refusals,
            drives: self.drives.iter().map(|drive| drive.statistics()).collect(),
        })
    }

    /// An incarnation that nothing ends early.
    fn undisturbed(&mut self, course: Course) -> Result<(), Violation> {
        let ground = self.ground.clone();
        match self.simulation.run(Limits::generous(), |world| ground.live(world, course)) {
            Outcome::Completed(result) => self.settle_trouble(result),
            other => Err(Violation::Endless(format!("{other:?}"))),
        }
    }

    fn set_faults(&self, cycle: u64) {
        let plan = &self.ground.plan;
        for drive in &self.drives {
            let is_of_log = !Rc::ptr_eq(drive, &self.ground.database_drive);
            let mut faults = match plan.spares_log && is_of_log {
                true => plan.faults.within_promises(),
                false => plan.faults.clone(),
            };
            if cycle > 0
                && let Some(space) = plan.space
            {
                faults.space = Some(drive.space_used() + space);
            }
            drive.set_faults(faults);
        }
    }

    fn cycle(&mut self) -> Result<(), Violation> {
        let course = Course {
            judge_first: self.random.percent(20.0),
            judge_last: self.random.percent(20.0),
            works: true,
        };
        let crashes = self.random.percent(85.0);
        let polls = 2_f64.powf(4.0 + self.random.unit() * (POLLS_MAX_LOG2 - 4.0)) as u64;
        let in_a_stable_write = self.random.percent(50.0);
        let limits = Limits { polls: crashes.then_some(polls), in_a_stable_write, ..Limits::generous() };
        let openings = self.ground.tally.borrow().openings;
        let ground = self.ground.clone();
        let outcome = self.simulation.run(limits, |world| ground.live(world, course));
        let polls = self.simulation.polls();
        let may_hang = self.ground.plan.faults.stuck_percent > 0.0;
        let how = match outcome {
            Outcome::Completed(result) => {
                self.settle_trouble(result)?;
                "after its end"
            }
            Outcome::Crashed => {
                self.crashes += 1;
                self.crashes_while_opening += u64::from(self.ground.tally.borrow().openings == openings);
                "while it ran"
            }
            Outcome::TimedOut | Outcome::Deadlocked(_) if may_hang => "while a command was stuck",
            other => return Err(Violation::Endless(format!("{other:?}"))),
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
        self.ground.tally.borrow_mut().story.push(format!("{what} {how}, after {polls} polls"));
        Ok(())
    }

    fn settle_trouble(&mut self, result: Result<(), Trouble>) -> Result<(), Violation> {
        let Err(trouble) = result else { return Ok(()) };
        if !self.is_excused(&trouble) {
            return Err(match trouble {
                Trouble::Refused(error) => Violation::Refused(error),
                Trouble::Violation(violation) => violation,
            });
        }
        self.refusals += 1;
        self.ground.tally.borrow_mut().story.push(format!("refused: {trouble:?}"));
        Ok(())
    }

    /// Whether the drives gave a reason. An error has one if a drive had faults or no space; damage that the
    /// verifier reports has one if a drive did damage. Wrong data never has.
    fn is_excused(&self, trouble: &Trouble) -> bool {
        let plan = &self.ground.plan;
        let is_beyond = !plan.faults.is_within_promises();
        match trouble {
            Trouble::Refused(error) if plan.space.is_some() && !self.is_last => {
                is_beyond || is_no_space(error) || matches!(error, maildb::Error::Stopped(_))
            }
            Trouble::Refused(_) | Trouble::Violation(Violation::Damaged { .. }) => is_beyond,
            // The checkpoint that says so may be what was lost.
            Trouble::Violation(Violation::NotClean { .. }) => self.ground.may_lose_log(),
            Trouble::Violation(_) => false,
        }
    }
}
