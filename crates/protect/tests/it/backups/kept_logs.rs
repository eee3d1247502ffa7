//! Seeded releases of logs over a socket: for the cut that is named, if its freeze was held, and for nothing else.

use super::{
    BUDGET, assert_noticed,
    fakes::{CutterScript, FakeApplication, FakeCutter, Journal},
    seeds, span,
};
use protect::{
    backup::{
        BackupLabel, BackupPolicy, BackupSet, Consistency, Freezable, StepError, StepResult, UncoveredCut,
        control_socket::{FreezeService, KeptLogs, LogRelease, ServedThing, SocketFreeze, release_logs},
        start_backup,
    },
    planted::BackupBug,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use world::{
    LocalFuture, Moment, World,
    network::Address,
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

/// An application whose log begins a generation with each freeze that succeeds.
struct LoggedApplication {
    application: RefCell<Rc<FakeApplication>>,
    newest: Rc<Cell<u32>>,
    frozen_at: Rc<Cell<Option<u32>>>,
    /// Generations before which everything went, with the names that were given.
    released: RefCell<Vec<(String, u32)>>,
    fails: Cell<bool>,
}

impl Freezable for LoggedApplication {
    fn describe(&self) -> String {
        "a mail server".to_owned()
    }

    fn consistency(&self) -> Consistency {
        Consistency::Application
    }

    fn prepare(&self) -> LocalFuture<StepResult> {
        self.application.borrow().prepare()
    }

    fn freeze(&self, deadline: Moment) -> LocalFuture<StepResult> {
        let freezing = self.application.borrow().freeze(deadline);
        let (newest, frozen_at) = (Rc::clone(&self.newest), Rc::clone(&self.frozen_at));
        Box::pin(async move {
            frozen_at.set(None);
            freezing.await?;
            newest.set(newest.get() + 1);
            frozen_at.set(Some(newest.get()));
            Ok(())
        })
    }

    fn thaw(&self) -> LocalFuture<Result<bool, StepError>> {
        self.application.borrow().thaw()
    }

    fn after(&self) -> LocalFuture<StepResult> {
        self.application.borrow().after()
    }
}

impl KeptLogs for LoggedApplication {
    fn frozen_at(&self) -> Option<u32> {
        self.frozen_at.get()
    }

    fn release(&self, generation: u32, name: &str) -> LocalFuture<Result<u32, StepError>> {
        let result = match self.fails.get() {
            true => Err(StepError("the disk is gone".to_owned())),
            false => Ok(generation),
        };
        if result.is_ok() {
            self.released.borrow_mut().push((name.to_owned(), generation));
        }
        Box::pin(std::future::ready(result))
    }
}

/// The answer to the last release of a seed.
fn releases(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let limits = SimLimits { span: Duration::from_secs(4_000), ..SimLimits::generous() };
    simulation.run(limits, move |world| rounds(world, network)).completed()
}

async fn rounds(world: World, network: SimNetwork) -> Option<BackupLabel> {
    let mut random = world.random("rounds");
    let journal = Rc::<Journal>::default();
    let server = Rc::new(LoggedApplication {
        application: RefCell::new(FakeApplication::sound(&world, &journal)),
        newest: Rc::default(),
        frozen_at: Rc::default(),
        released: RefCell::default(),
        fails: Cell::new(false),
    });
    let at = Address::Unix("/run/mail.sock".into());
    // The cuts that this process knows: its freezes that were held.
    let held = Rc::<RefCell<BTreeMap<String, u32>>>::default();
    let start = async || {
        held.borrow_mut().clear();
        let listener = network.host("mail").listen(&at).await.expect("it listens");
        let (thing, by_service) = (Rc::clone(&server), Rc::clone(&held));
        FreezeService::start(
            &world,
            listener,
            ServedThing { frozen: thing.clone(), logs: Some(thing.clone()), mailboxes: None },
            move |ended| {
                if let Some(generation) = thing.frozen_at.get().filter(|_| ended.was_held) {
                    by_service.borrow_mut().insert(ended.name, generation);
                }
            },
        )
    };
    let mut service = start().await;
    let mut label = None;
    for round in 1..=4 {
        let application = match random.percent(50.0) {
            true => FakeApplication::sound(&world, &journal),
            false => FakeApplication::new(&world, &journal, 0, &mut random),
        };
        server.application.replace(application);
        let name = format!("mail {round}");
        let cutter =
            Rc::new(FakeCutter::new(&world, &Rc::<Journal>::default(), CutterScript::draw(&mut random)));
        let client = SocketFreeze::new(&world, network.host("mail"), at.clone(), &name);
        let set = BackupSet { things: vec![Rc::new(client)], cutter };
        let policy =
            BackupPolicy::with_budget(BUDGET).expect("possible").with_uncovered(UncoveredCut::KeepAsCrash);
        let taking = start_backup(&world, set, policy, &name);
        if random.percent(20.0) {
            world.sleep(span(&mut random)).await;
            network.reset("mail", "mail");
        }
        label = taking.await.label;
        if random.percent(20.0) {
            service.stop().await;
            service = start().await;
        }
        let named = format!("mail {}", 1 + random.below(5));
        server.fails.set(random.percent(10.0));
        expect_release(&world, &network, (&server, &at), (&named, &held)).await;
    }
    service.stop().await;
    label
}

async fn expect_release(
    world: &World,
    network: &SimNetwork,
    (server, at): (&LoggedApplication, &Address),
    (named, held): (&str, &RefCell<BTreeMap<String, u32>>),
) {
    let before = server.released.borrow().len();
    let answer = release_logs(world, &*network.host("mail"), at, named).await;
    let generation = held.borrow().get(named).copied();
    let released = server.released.borrow()[before..].to_vec();
    match (answer, generation) {
        (Ok(LogRelease::Released { oldest }), Some(generation)) => {
            assert_eq!(oldest, generation);
            assert_eq!(released, [(named.to_owned(), generation)], "the logs before its own cut");
        }
        (Ok(LogRelease::Nothing(reason)), None) => {
            assert!(reason.contains("was not frozen for that cut"), "{reason}");
            assert_eq!(released, []);
        }
        (Err(error), Some(_)) if server.fails.get() => {
            assert!(error.to_string().contains("the disk is gone"), "{error}");
        }
        (answer, generation) => panic!("{answer:?} for {named}, whose freeze was held: {generation:?}"),
    }
}

#[test]
fn logs_go_for_the_cut_that_is_named_if_its_freeze_was_held() {
    let ends: Vec<_> = seeds(500).map(releases).collect();
    let made = ends.iter().filter(|label| **label == Some(BackupLabel::Application)).count();
    assert!(made > 100, "{made} of {} are application", ends.len());
}

#[test]
fn a_thing_without_kept_logs_says_so() {
    let mut simulation = Simulation::new(7);
    let network = simulation.add_network(NetworkOptions::rack());
    let limits = SimLimits { span: Duration::from_secs(600), ..SimLimits::generous() };
    let answer = simulation.run(limits, move |world| async move {
        let at = Address::Unix("/run/mail.sock".into());
        let listener = network.host("mail").listen(&at).await.expect("it listens");
        let thing = FakeApplication::sound(&world, &Rc::<Journal>::default());
        let service = FreezeService::start(
            &world,
            listener,
            ServedThing { frozen: thing, logs: None, mailboxes: None },
            |_| {},
        );
        let answer = release_logs(&world, &*network.host("mail"), &at, "mail 1").await;
        service.stop().await;
        let nobody = release_logs(&world, &*network.host("mail"), &at, "mail 1").await;
        (answer, nobody)
    });
    let (answer, nobody) = answer.completed();
    assert_eq!(answer, Ok(LogRelease::Nothing("its logs wait for no backup".to_owned())));
    assert!(nobody.unwrap_err().to_string().contains("--control"));
}

#[test]
fn every_planted_bug_of_kept_logs_is_noticed() {
    assert_noticed(BackupBug::OF_KEPT_LOGS, 500, releases);
}
