//! A whole run of a seed: incarnations that crash, then one that must succeed completely.

use super::{
    Chain, CutRunError, CutRunOptions, CutRunPlan, CutTally,
    incarnation::{CutFixture, CutScenario},
};
use crate::{
    array::independent_reader::{CopyRule, audit, platters::Platters},
    failure::{self, SeedFailure},
};
use array::{
    format::{DriveId, PoolId, SparingLevel},
    pool::{NewDrive, NewPool, create},
    simulation::{
        canary,
        sometimes::{self, Sometimes},
        thread_delays,
    },
};
use std::{collections::BTreeMap, rc::Rc};
use world::{
    BlockDevice, Random,
    sim::{FaultPlan, SimDrive, SimLimits, SimOutcome, SimTrace, Simulation},
};

/// Binary logarithm of the number of polls before a crash, at most.
const POLLS_MAX_LOG2: f64 = 13.0;

/// The results of a run without violations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutRunReport {
    /// Hash of all events.
    pub trace: SimTrace,
    pub tally: CutTally,
    pub crashes: u64,
    /// Branches of the pools that were taken, with counts.
    pub reached: BTreeMap<Sometimes, u64>,
}

/// The command that replays one seed.
pub fn replay_command(seed: u64) -> String {
    format!("cargo xtask sim cuts --seeds 1 --from {seed}")
}

/// Runs a seed. Failed assertions of the pools are failures too.
///
/// # Errors
///
/// The violation, and the events of the run.
pub fn run(seed: u64, options: CutRunOptions) -> Result<CutRunReport, SeedFailure> {
    let _planted = options.bug.map(canary::plant);
    // The previous run on this thread may have left counts.
    sometimes::take_counts();
    let plan = CutRunPlan::draw(&mut Random::new(seed, "plan"));
    let _delays = thread_delays::begin(seed, plan.thread_delay_us);
    let mut run = Run::new(seed, plan);
    let what = match failure::complete(|| run.complete()) {
        Ok(report) => return Ok(report),
        Err(what) => what,
    };
    let story = failure::story(&run.fixture.plan, &run.fixture.ledger.tally.borrow().story);
    Err(SeedFailure { seed, what, story, replay: replay_command(seed) })
}

struct Run {
    simulation: Simulation,
    random: Random,
    drives: [Vec<Rc<SimDrive>>; 2],
    fixture: CutFixture,
    crashes: u64,
}

impl Run {
    fn new(seed: u64, plan: CutRunPlan) -> Self {
        let mut simulation = Simulation::new(seed);
        let drives = plan
            .drives
            .map(|count| (0..count).map(|_| simulation.add_drive(plan.drive.clone())).collect::<Vec<_>>());
        let devices = drives.each_ref().map(|drives| {
            drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect::<Vec<_>>()
        });
        let chains = Rc::new((0..plan.hosts as u64).map(Chain::new).collect());
        let fixture = CutFixture { devices, plan: Rc::new(plan), chains, ledger: Rc::default() };
        let random = simulation.random("crashes");
        Self { simulation, random, drives, fixture, crashes: 0 }
    }

    fn complete(&mut self) -> Result<CutRunReport, CutRunError> {
        self.create()?;
        for _ in 0..self.fixture.plan.cycles {
            self.cycle()?;
        }
        self.undisturbed(CutScenario { works: true, closes: true, ..CutScenario::default() })?;
        self.simulation.cut_power();
        self.audit()?;
        self.undisturbed(CutScenario::default())?;
        Ok(CutRunReport {
            trace: self.simulation.trace(),
            tally: self.fixture.ledger.tally.borrow().clone(),
            crashes: self.crashes,
            reached: sometimes::take_counts(),
        })
    }

    fn create(&mut self) -> Result<(), CutRunError> {
        let devices = self.fixture.devices.clone();
        let created = self.simulation.run(SimLimits::generous(), |world| async move {
            for (index, devices) in devices.into_iter().enumerate() {
                let pool = PoolId([[0xa; 16], [0xb; 16]][index]);
                let new = NewPool {
                    pool,
                    name: format!("pool {index}"),
                    slot_bytes: 1 << 20,
                    sparing: SparingLevel::None,
                };
                let drives = devices.into_iter().enumerate().map(|(number, device)| NewDrive {
                    drive: DriveId([(16 * index + number) as u8 + 1; 16]),
                    serial: format!("S{index}{number}"),
                    device,
                    domain: None,
                });
                create(&world, &new, &drives.collect::<Vec<_>>()).await?;
            }
            Ok(())
        });
        created.completed()
    }

    /// An incarnation that may crash, or in which the drives of one pool fail.
    fn cycle(&mut self) -> Result<(), CutRunError> {
        let plan = Rc::clone(&self.fixture.plan);
        let scenario = CutScenario {
            works: true,
            alone: self.random.percent(plan.alone_percent).then(|| self.random.below(2) as usize),
            closes: self.random.percent(30.0),
        };
        let failing = self.random.percent(plan.failing_percent).then(|| self.random.below(2) as usize);
        if let Some(pool) = failing {
            // Some writes are refused from the beginning: too many, sooner or later, for both copies.
            let faults =
                FaultPlan { failed_write_percent: 0.5 + 4.0 * self.random.unit(), ..FaultPlan::none() };
            self.fixture.ledger.tell(format!("the drives of pool {pool} refuse some writes"));
            self.drives[pool].iter().for_each(|drive| drive.set_faults(faults.clone()));
        }
        let crashes = self.random.percent(85.0);
        let polls = 2_f64.powf(6.0 + self.random.unit() * (POLLS_MAX_LOG2 - 6.0)) as u64;
        let in_a_stable_write = self.random.percent(50.0);
        let limits =
            SimLimits { polls: crashes.then_some(polls), in_a_stable_write, ..SimLimits::generous() };
        let fixture = self.fixture.clone();
        let outcome = self.simulation.run(limits, |world| fixture.live(world, scenario));
        let begun: Vec<u64> = self.fixture.chains.iter().map(Chain::begun).collect();
        self.fixture.ledger.end_all(&begun);
        let is_excused = failing.is_some();
        match outcome {
            SimOutcome::Completed(Ok(())) => {}
            SimOutcome::Completed(Err(CutRunError::Refused(error))) if is_excused => {
                self.fixture.ledger.tell(format!("refused: {error}"));
            }
            SimOutcome::Completed(Err(error)) => return Err(error),
            SimOutcome::Crashed => self.crashes += 1,
            other => return Err(CutRunError::Broken(format!("the run does not end: {other:?}"))),
        }
        self.drives.iter().flatten().for_each(|drive| drive.set_faults(FaultPlan::none()));
        let is_cut = self.random.percent(60.0);
        self.fixture
            .ledger
            .tell(if is_cut { "the power is cut" } else { "the process is killed" }.to_owned());
        if is_cut {
            self.simulation.cut_power();
        } else {
            self.simulation.kill();
        }
        if failing.is_none() { self.audit() } else { Ok(()) }
    }

    fn undisturbed(&mut self, scenario: CutScenario) -> Result<(), CutRunError> {
        let fixture = self.fixture.clone();
        self.simulation.run(SimLimits::generous(), |world| fixture.live(world, scenario)).completed()
    }

    /// Checks the drives with the independent reader of the format.
    fn audit(&self) -> Result<(), CutRunError> {
        for (index, drives) in self.drives.iter().enumerate() {
            let audited = audit(&Platters(drives.clone()), CopyRule::One);
            audited.map_err(|what| CutRunError::Broken(format!("pool {index}: {what}")))?;
            self.fixture.ledger.tally.borrow_mut().audits += 1;
        }
        Ok(())
    }
}
