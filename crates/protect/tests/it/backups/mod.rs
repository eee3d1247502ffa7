//! Seeded backups: applications and cutters fail, hang and die at any step, and every promise of a backup is
//! checked against what really happened.

/// Messages that are delivered over a socket.
mod deliveries;
mod fakes;
/// Applications behind hooks.
pub mod hooked;
/// Logs that go once a backup is proven.
pub mod kept_logs;
/// Frozen filesystems.
pub mod mounted;
/// Processes that are frozen over a socket.
pub mod socketed;

use fakes::{CutterScript, FakeApplication, FakeCutter, Journal, Step};
use protect::{
    backup::{
        BackupCutter, BackupLabel, BackupOutcome, BackupPolicy, BackupSet, Consistency, Freezable,
        UncoveredCut, start_backup,
    },
    planted::{BackupBug, with_backup_bug},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    time::Duration,
};
use world::{
    Random, World,
    sim::{SimLimits, Simulation},
};

const BUDGET: Duration = Duration::from_secs(10);

/// Takes one backup; returns its label.
pub fn backup(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let limits = SimLimits { span: Duration::from_secs(600), ..SimLimits::generous() };
    simulation.run(limits, take).completed()
}

async fn take(world: World) -> Option<BackupLabel> {
    let mut random = world.random("backup");
    let journal = Rc::<Journal>::default();
    let things: Vec<Rc<FakeApplication>> = (0..1 + random.below(3) as usize)
        .map(|number| FakeApplication::new(&world, &journal, number, &mut random))
        .collect();
    let cutter = Rc::new(FakeCutter::new(&world, &journal, CutterScript::draw(&mut random)));
    let uncovered = if random.percent(30.0) { UncoveredCut::KeepAsCrash } else { UncoveredCut::Remove };
    let policy = BackupPolicy::with_budget(BUDGET).expect("possible").with_uncovered(uncovered);
    let set = BackupSet {
        things: things.iter().map(|thing| Rc::clone(thing) as Rc<dyn Freezable>).collect(),
        cutter: Rc::clone(&cutter) as Rc<dyn BackupCutter>,
    };
    let began = world.now();
    let waiting = start_backup(&world, set, policy, "b1");
    let outcome = waiting.await;
    assert!(world.now().since(began) < Duration::from_secs(500), "every step ends");
    expect_order(&journal, things.len());
    expect_truth(&outcome, &things, &cutter, uncovered);
    world.sleep(Duration::from_secs(30)).await;
    assert!(outcome.label.is_some() || !cutter.is_there() || cutter.refuses_removal(), "a cut stayed");
    assert!(things.iter().all(|thing| !thing.is_frozen()), "something stayed frozen");
    outcome.label
}

/// Whatever was begun is undone once, in reverse order.
fn expect_order(journal: &Journal, things: usize) {
    let steps = journal.steps();
    let count = |step: Step| steps.iter().filter(|&&taken| taken == step).count();
    for number in 0..things {
        let (prepared, frozen) = (count(Step::Prepare(number)), count(Step::Freeze(number)));
        assert!(prepared <= 1 && frozen <= prepared, "{steps:?}");
        assert_eq!(count(Step::Thaw(number)), frozen, "{steps:?}");
        assert_eq!(count(Step::After(number)), prepared, "{steps:?}");
    }
    assert_eq!(count(Step::Hold), count(Step::Release), "{steps:?}");
    let undoing: Vec<Step> = steps.iter().copied().filter(|step| step.undoes()).collect();
    let mut sorted = undoing.clone();
    sorted.sort_by_key(|step| step.order_of_undoing());
    assert_eq!(undoing, sorted, "release, then thaws backwards, then what comes after backwards: {steps:?}");
}

/// The label is what really was; a cut without one is gone.
fn expect_truth(
    outcome: &BackupOutcome,
    things: &[Rc<FakeApplication>],
    cutter: &FakeCutter,
    uncovered: UncoveredCut,
) {
    let was_covered =
        cutter.returned_at().is_some_and(|at| things.iter().all(|thing| thing.was_frozen_at(at)));
    match &outcome.label {
        Some(BackupLabel::Application | BackupLabel::Filesystem) => {
            assert!(was_covered, "{outcome:?}");
            let application = things.iter().any(|thing| thing.consistency() == Consistency::Application);
            assert_eq!(application, outcome.label == Some(BackupLabel::Application));
            assert!(outcome.evidence.iter().all(|one| one.held.is_ok()), "{outcome:?}");
        }
        Some(BackupLabel::Crash(reason)) => {
            assert!(uncovered == UncoveredCut::KeepAsCrash && !reason.is_empty(), "{outcome:?}");
        }
        None => assert!(!outcome.problems.is_empty(), "{outcome:?}"),
    }
    if let (Some(began), Some(returned)) = (outcome.freeze_began, outcome.cut_returned) {
        assert!(returned.since(began) <= BUDGET, "{outcome:?}");
    }
}

/// Seeds of a test; ten times as many with `cargo xtask test --full`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("SPINDLE_FULL").is_some() { count * 10 } else { count }
}

/// Takes a backup a seed; each of these ends comes more than `least` times.
fn assert_ends(
    seeds: std::ops::Range<u64>,
    (ends, least): (&[Option<&str>], usize),
    backup: impl Fn(u64) -> Option<BackupLabel>,
) {
    let labels: Vec<Option<String>> = seeds.map(|seed| backup(seed).map(|label| label.to_string())).collect();
    for &label in ends {
        let count = labels.iter().filter(|found| found.as_deref() == label).count();
        println!("note: {count} backups are {label:?}");
        assert!(count > least, "{label:?}");
    }
}

/// Requires of each bug that one of so many seeds fails with it.
fn assert_noticed(
    bugs: impl IntoIterator<Item = BackupBug>,
    seeds: u64,
    backup: impl Fn(u64) -> Option<BackupLabel>,
) {
    let mut escaped = Vec::new();
    for bug in bugs {
        let fails =
            |seed: &u64| with_backup_bug(bug, || catch_unwind(AssertUnwindSafe(|| backup(*seed))).is_err());
        match (0..seeds).find(fails) {
            Some(seed) => println!("note: {bug:?} was noticed by seed {seed}"),
            None => escaped.push(bug),
        }
    }
    assert!(escaped.is_empty(), "nothing noticed {escaped:?}");
}

/// All ends of a backup.
const ENDS: [Option<&str>; 4] = [Some("application"), Some("filesystem"), Some("crash"), None];

#[test]
fn whatever_fails_everything_is_undone_once_and_labels_are_true() {
    assert_ends(seeds(3000), (&ENDS, 100), backup);
}

#[test]
fn a_caller_that_leaves_changes_nothing() {
    let (journal, _) = world::sim::run(7, |world: World| async move {
        let journal = Rc::<Journal>::default();
        let thing = FakeApplication::sound(&world, &journal);
        let cutter = Rc::new(FakeCutter::new(&world, &journal, CutterScript::sound()));
        let set = BackupSet { things: vec![thing], cutter };
        drop(start_backup(&world, set, BackupPolicy::default(), "left alone"));
        world.sleep(Duration::from_secs(5)).await;
        journal.steps()
    });
    let all = [
        Step::Prepare(0),
        Step::Freeze(0),
        Step::Hold,
        Step::Cut,
        Step::Release,
        Step::Thaw(0),
        Step::After(0),
    ];
    assert_eq!(journal, all);
}

#[test]
fn every_planted_bug_of_a_backup_is_noticed() {
    assert_noticed(BackupBug::ALL, 1000, backup);
}

/// A duration: mostly short, sometimes about as long as the budget.
fn span(random: &mut Random) -> Duration {
    let exponent = random.below(20);
    Duration::from_micros(random.below(20 << exponent))
}
