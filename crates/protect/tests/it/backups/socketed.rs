//! Seeded backups of a process that is frozen over a socket: it fails and hangs, and the connection breaks or goes silent at any
//! moment.

use super::{
    BUDGET, assert_ends, assert_noticed,
    fakes::{CutterScript, FakeApplication, FakeCutter, Journal, Step},
    seeds, span,
};
use protect::{
    backup::{
        BackupCutter, BackupLabel, BackupPolicy, BackupSet, Freezable, UncoveredCut,
        control_socket::{FreezeService, ServedThing, SocketFreeze},
        start_backup,
    },
    planted::BackupBug,
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use world::{
    World,
    network::Address,
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

/// After so long a service has noticed that nobody orders anything any more.
const NOTICED_WITHIN: Duration = Duration::from_secs(120);

pub fn backup(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let limits = SimLimits { span: Duration::from_secs(900), ..SimLimits::generous() };
    simulation.run(limits, move |world| take(world, network)).completed()
}

async fn take(world: World, network: SimNetwork) -> Option<BackupLabel> {
    let mut random = world.random("backup");
    let journal = Rc::<Journal>::default();
    let application = match random.percent(60.0) {
        true => FakeApplication::sound(&world, &journal),
        false => FakeApplication::new(&world, &journal, 0, &mut random),
    };
    let at = Address::Unix("/run/mail.sock".into());
    let listener = network.host("mail").listen(&at).await.expect("it listens");
    let thing = Rc::clone(&application) as Rc<dyn Freezable>;
    let told = Rc::<RefCell<Vec<String>>>::default();
    let by_service = Rc::clone(&told);
    let service = FreezeService::start(
        &world,
        listener,
        ServedThing { frozen: thing, logs: None, mailboxes: None },
        move |ended| {
            by_service.borrow_mut().push(ended.name);
        },
    );
    let cutter = Rc::new(FakeCutter::new(&world, &Rc::<Journal>::default(), CutterScript::draw(&mut random)));
    let client = Rc::new(SocketFreeze::new(&world, network.host("mail"), at, "mail 17"));
    let set = BackupSet {
        things: vec![Rc::clone(&client) as Rc<dyn Freezable>],
        cutter: Rc::clone(&cutter) as Rc<dyn BackupCutter>,
    };
    let policy =
        BackupPolicy::with_budget(BUDGET).expect("possible").with_uncovered(UncoveredCut::KeepAsCrash);
    let taking = start_backup(&world, set, policy, "b1");
    // The connection breaks, or the process behind it stops, or nothing of the kind.
    let accident = random.below(10);
    let when = span(&mut random);
    let mut service = Some(service);
    if accident < 6 {
        world.sleep(when).await;
        match accident {
            0..=2 => network.reset("mail", "mail"),
            3..=4 => network.cut("mail", "mail"),
            _ => service.take().expect("it runs").stop().await,
        }
    }
    let outcome = taking.await;
    let was_covered = cutter.returned_at().is_some_and(|at| application.was_frozen_at(at));
    if let Some(BackupLabel::Application | BackupLabel::Filesystem) = &outcome.label {
        assert!(was_covered, "{outcome:?}");
    }
    network.restore("mail", "mail");
    world.sleep(NOTICED_WITHIN).await;
    assert!(!application.is_frozen(), "it stayed frozen");
    let steps = journal.steps();
    let count = |step: Step| steps.iter().filter(|&&taken| taken == step).count();
    assert_eq!(count(Step::Thaw(0)), count(Step::Freeze(0)), "{steps:?}");
    assert_eq!(count(Step::After(0)), count(Step::Prepare(0)), "{steps:?}");
    assert_eq!(told.borrow().len(), count(Step::Freeze(0)), "each freeze is reported");
    assert!(told.borrow().iter().all(|name| name == "mail 17"));
    if let Some(service) = service {
        service.stop().await;
    }
    outcome.label
}

#[test]
fn whatever_becomes_of_the_connection_nothing_stays_frozen_and_labels_are_true() {
    assert_ends(seeds(1000), (&[Some("application"), Some("crash"), None], 50), backup);
}

#[test]
fn every_planted_bug_of_sockets_is_noticed() {
    assert_noticed(BackupBug::OF_SOCKETS, 1000, backup);
}
