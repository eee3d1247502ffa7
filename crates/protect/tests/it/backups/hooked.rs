//! Seeded backups of an application behind hooks: they are slow, fail, hang, lie and say *not now*, and the label is
//! checked against the application.

use super::{
    BUDGET, ENDS, assert_ends, assert_noticed,
    fakes::{CutterScript, FakeCutter, Journal},
    seeds, span,
};
use protect::{
    backup::{
        BackupCutter, BackupLabel, BackupOutcome, BackupPolicy, BackupSet, Consistency, Freezable,
        UncoveredCut,
        hooks::{HookCommand, HookEnd, HookPhase, HookSettings, HookedApplication},
        start_backup,
    },
    planted::BackupBug,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{
    Moment, ProgramCall, Programs, Random, World,
    sim::{ProgramWriter, SimLimits, SimPrograms, Simulation},
};

const NOT_NOW: i32 = 75;
const NOT_FROZEN: i32 = 3;

/// The course of a hook in one phase.
#[derive(Clone, Copy, Debug)]
struct HookScript {
    not_now: u64,
    span: Duration,
    course: HookCourse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HookCourse {
    Works,
    /// Exits with 1, and has done nothing.
    Fails,
    /// Has done its work, and never ends.
    HangsAfterwards,
    /// Never begins.
    HangsBefore,
    /// Says that it worked, and did nothing.
    Lies,
}

impl HookScript {
    fn draw(random: &mut Random) -> Self {
        let most = 4 << random.below(7);
        let not_now = if random.percent(15.0) { random.below(most) } else { 0 };
        let course = match random.below(40) {
            0 => HookCourse::Fails,
            1 => HookCourse::HangsAfterwards,
            2 => HookCourse::HangsBefore,
            3 => HookCourse::Lies,
            _ => HookCourse::Works,
        };
        Self { not_now, span: span(random), course }
    }
}

/// A line that a freeze hook prints, and the worth of the cut by it; `Err` if nobody understands it.
const STATEMENTS: [(&str, Result<Option<Consistency>, ()>); 5] = [
    ("quiet\n", Ok(Some(Consistency::Application))),
    ("spindle-consistency: application\n", Ok(Some(Consistency::Application))),
    ("spindle-consistency: filesystem\n", Ok(Some(Consistency::Filesystem))),
    ("spindle-consistency: none\n", Ok(None)),
    ("spindle-consistency: perfect\n", Err(())),
];

/// An application with a watchdog, which thaws it at the deadline that its freeze hook was told.
struct Application {
    world: World,
    scripts: [HookScript; 4],
    attempts: RefCell<[u64; 4]>,
    statement: usize,
    /// Thaws early, as an application that dies.
    life: Option<Duration>,
    frozen: Cell<Option<(Moment, Moment)>>,
    thawed: Cell<Option<Moment>>,
    running: Cell<Option<HookPhase>>,
    phases: RefCell<Vec<HookPhase>>,
}

/// The program that runs now; also forgotten if it is killed.
struct Running<'a>(&'a Application);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.set(None);
    }
}

impl Application {
    fn new(world: &World, random: &mut Random) -> Self {
        let statement = if random.percent(60.0) { 0 } else { random.below(STATEMENTS.len() as u64) as usize };
        let scripts = [0; 4].map(|_| HookScript::draw(random));
        let life = random.percent(10.0).then(|| span(random));
        let world = world.clone();
        let (attempts, frozen, thawed, running, phases) = Default::default();
        Self { world, scripts, attempts, statement, life, frozen, thawed, running, phases }
    }

    fn was_frozen_at(&self, moment: Moment) -> bool {
        let thawed = self.thawed.get().is_some_and(|thawed| thawed < moment);
        !thawed && self.frozen.get().is_some_and(|(from, until)| (from..=until).contains(&moment))
    }

    async fn run(self: Rc<Self>, call: ProgramCall, writer: ProgramWriter) -> i32 {
        let variable = |name| {
            let found = call.environment.iter().find(|(found, _)| found == name);
            found.expect("every hook gets it").1.clone()
        };
        assert_eq!((variable("SPINDLE_SET"), variable("SPINDLE_POINT")), ("mail".into(), "b1".into()));
        assert_eq!(call.grace, Duration::from_secs(2));
        let deadline: u64 = variable("SPINDLE_DEADLINE_MS").parse().expect("a number");
        let deadline = self.world.now() + Duration::from_millis(deadline);
        let phases = [HookPhase::Prepare, HookPhase::Freeze, HookPhase::Thaw, HookPhase::After];
        let index = phases.iter().position(|phase| phase.to_string() == variable("SPINDLE_PHASE"));
        let index = index.expect("a known phase");
        assert_eq!(self.running.replace(Some(phases[index])), None, "two hooks run at once");
        let _running = Running(&self);
        let script = self.scripts[index];
        self.world.sleep(script.span).await;
        let attempt = {
            let mut attempts = self.attempts.borrow_mut();
            attempts[index] += 1;
            attempts[index]
        };
        if attempt <= script.not_now {
            return NOT_NOW;
        }
        self.phases.borrow_mut().push(phases[index]);
        match script.course {
            HookCourse::Fails => return 1,
            HookCourse::HangsBefore => std::future::pending().await,
            HookCourse::Works | HookCourse::HangsAfterwards | HookCourse::Lies => {}
        }
        let is_idle = script.course == HookCourse::Lies;
        let mut code = 0;
        match phases[index] {
            HookPhase::Freeze => {
                writer.write(STATEMENTS[self.statement].0.as_bytes());
                let from = self.world.now();
                let until = self.life.map_or(deadline, |life| deadline.min(from + life));
                self.frozen.set((!is_idle).then_some((from, until)));
            }
            HookPhase::Thaw => {
                if !self.was_frozen_at(self.world.now()) && !is_idle {
                    code = NOT_FROZEN;
                }
                if !is_idle {
                    self.thawed.set(Some(self.world.now()));
                }
            }
            HookPhase::Prepare | HookPhase::After => {}
        }
        if script.course == HookCourse::HangsAfterwards {
            std::future::pending::<()>().await;
        }
        code
    }
}

pub fn backup(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let limits = SimLimits { span: Duration::from_secs(600), ..SimLimits::generous() };
    simulation.run(limits, take).completed()
}

async fn take(world: World) -> Option<BackupLabel> {
    let mut random = world.random("backup");
    let application = Rc::new(Application::new(&world, &mut random));
    let programs = Rc::new(SimPrograms::new(&world));
    let running = Rc::clone(&application);
    programs.install("/etc/mail/hook", move |call, writer| Rc::clone(&running).run(call, writer));
    let hook = HookCommand::new(&["/etc/mail/hook".to_owned()]).expect("possible");
    let mut settings = HookSettings::new(hook.clone(), hook.clone());
    if random.percent(80.0) {
        (settings.prepare, settings.after) = (Some(hook.clone()), Some(hook));
    }
    let timeout = Duration::from_millis(1 + random.below(15_000));
    let settings = settings.with_timeout(timeout).expect("possible");
    let programs = programs as Rc<dyn Programs>;
    let hooked = Rc::new(HookedApplication::new(&world, programs, settings.clone(), "mail", "b1"));
    let journal = Rc::<Journal>::default();
    let cutter = Rc::new(FakeCutter::new(&world, &journal, CutterScript::draw(&mut random)));
    let uncovered = if random.percent(30.0) { UncoveredCut::KeepAsCrash } else { UncoveredCut::Remove };
    let policy = BackupPolicy::with_budget(BUDGET).expect("possible").with_uncovered(uncovered);
    let set = BackupSet {
        things: vec![Rc::clone(&hooked) as Rc<dyn Freezable>],
        cutter: Rc::clone(&cutter) as Rc<dyn BackupCutter>,
    };
    let began = world.now();
    let outcome = start_backup(&world, set, policy, "b1").await;
    assert!(world.now().since(began) < Duration::from_secs(150), "every step ends: {outcome:?}");
    assert!(!outcome.problems.iter().any(|problem| problem.contains("did not thaw: it did not answer")));
    expect_truth(&outcome, &application, &hooked, &cutter);
    expect_runs(&outcome, &application, &hooked, &settings);
    world.sleep(Duration::from_secs(30)).await;
    assert!(!application.was_frozen_at(world.now()), "it stayed frozen");
    outcome.label
}

fn expect_truth(
    outcome: &BackupOutcome,
    application: &Application,
    hooked: &HookedApplication,
    cutter: &FakeCutter,
) {
    let runs = hooked.runs();
    let has_lied = application.scripts[2].course == HookCourse::Lies;
    let was_covered = cutter.returned_at().is_some_and(|at| application.was_frozen_at(at));
    match &outcome.label {
        Some(BackupLabel::Crash(reason)) => assert!(!reason.is_empty(), "{outcome:?}"),
        None => assert!(!outcome.problems.is_empty(), "{outcome:?}"),
        Some(label) => {
            assert!(was_covered || has_lied, "{outcome:?} {runs:?}");
            let worth = STATEMENTS[application.statement].1.expect("nonsense is refused");
            let expected = match worth.expect("it was said that nothing is frozen") {
                Consistency::Application => BackupLabel::Application,
                Consistency::Filesystem => BackupLabel::Filesystem,
            };
            assert_eq!(*label, expected, "{outcome:?}");
        }
    }
}

/// Each step ran once to an end, in order, and no longer than it may.
fn expect_runs(
    outcome: &BackupOutcome,
    application: &Application,
    hooked: &HookedApplication,
    settings: &HookSettings,
) {
    let runs = hooked.runs();
    let phases: Vec<HookPhase> = runs.iter().map(|run| run.phase).collect();
    assert!(phases.is_sorted() && phases.windows(2).all(|two| two[0] != two[1]), "{phases:?}");
    assert_eq!(phases.contains(&HookPhase::Freeze), phases.contains(&HookPhase::Thaw), "{outcome:?}");
    assert_eq!(phases.contains(&HookPhase::Prepare), phases.contains(&HookPhase::After), "{outcome:?}");
    assert!(application.phases.borrow().is_sorted(), "{:?}", application.phases);
    for run in &runs {
        let most = settings.timeout(run.phase) + Duration::from_secs(2);
        assert!(run.span <= most, "{run:?}");
        assert!(run.attempts <= 40, "the pauses grow: {run:?}");
        // A freeze that its deadline ended is told by the round in other words.
        let is_failed = matches!(&run.end, HookEnd::Failed(_));
        assert!(!is_failed || !outcome.problems.is_empty(), "{run:?}");
    }
}

#[test]
fn labels_of_hooked_applications_are_true_whatever_their_hooks_do() {
    assert_ends(seeds(3000), (&ENDS, 50), backup);
}

#[test]
fn every_planted_bug_of_hooks_is_noticed() {
    assert_noticed(BackupBug::OF_HOOKS, 3000, backup);
}
