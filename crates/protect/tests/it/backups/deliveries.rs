//! Seeded deliveries of messages over a socket: the connection breaks at any moment, and those who deliver try again.

use super::{
    assert_noticed,
    fakes::{FakeApplication, Journal},
    seeds, span,
};
use protect::{
    backup::{
        BackupLabel, StepError, StepResult,
        control_socket::{
            Delivery, DeliveryConnection, FreezeService, LiveMailboxes, MessageDelivery, ServedThing,
        },
    },
    planted::BackupBug,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};
use world::{
    LocalFuture, Random, World,
    network::Address,
    sim::{NetworkOptions, SimLimits, SimNetwork, Simulation},
};

const MESSAGES: u8 = 40;
/// Messages of a connection.
const BATCH: usize = 8;

/// A database that takes its time, and sometimes refuses.
struct FakeMailboxes {
    world: World,
    stable: RefCell<BTreeSet<Vec<u8>>>,
    open: RefCell<BTreeSet<Vec<u8>>>,
    /// Messages delivered that were stable before.
    twice: Cell<u32>,
    /// Messages that came, of databases that are here, kept or not.
    came: Cell<u32>,
    random: RefCell<Random>,
}

impl FakeMailboxes {
    fn pause(&self) -> LocalFuture<()> {
        let (world, ms) = (self.world.clone(), self.random.borrow_mut().below(50));
        Box::pin(async move { world.sleep(Duration::from_millis(ms)).await })
    }
}

/// The same for those who share it.
struct SharedMailboxes(Rc<FakeMailboxes>);

impl LiveMailboxes for SharedMailboxes {
    fn deliver(&self, database: &str, message: Vec<u8>) -> LocalFuture<Result<Delivery, StepError>> {
        let (mailboxes, is_here) = (Rc::clone(&self.0), database == "priv1.edb");
        Box::pin(async move {
            mailboxes.pause().await;
            if !is_here {
                return Ok(Delivery::Elsewhere);
            }
            mailboxes.came.set(mailboxes.came.get() + 1);
            if mailboxes.random.borrow_mut().percent(2.0) {
                return Err(StepError("it is being changed; try again".to_owned()));
            }
            if mailboxes.stable.borrow().contains(&message) {
                mailboxes.twice.set(mailboxes.twice.get() + 1);
                return Ok(Delivery::Same);
            }
            let is_new = mailboxes.open.borrow_mut().insert(message);
            assert!(is_new, "what another connection left open is claimed for ever");
            Ok(Delivery::Added)
        })
    }

    fn keep(&self) -> LocalFuture<StepResult> {
        let mailboxes = Rc::clone(&self.0);
        Box::pin(async move {
            mailboxes.pause().await;
            let kept = mailboxes.open.take();
            mailboxes.stable.borrow_mut().extend(kept);
            Ok(())
        })
    }

    fn undo(&self) -> LocalFuture<()> {
        let mailboxes = Rc::clone(&self.0);
        Box::pin(async move {
            mailboxes.open.take();
        })
    }
}

/// `Some` if it went wrong on the way at least once.
fn deliveries(seed: u64) -> Option<BackupLabel> {
    let mut simulation = Simulation::new(seed);
    let network = simulation.add_network(NetworkOptions::rack());
    let limits = SimLimits { span: Duration::from_secs(4_000), ..SimLimits::generous() };
    simulation.run(limits, move |world| deliver_all(world, network)).completed()
}

async fn deliver_all(world: World, network: SimNetwork) -> Option<BackupLabel> {
    let mut random = world.random("deliveries");
    let mailboxes = Rc::new(FakeMailboxes {
        world: world.clone(),
        stable: RefCell::default(),
        open: RefCell::default(),
        twice: Cell::default(),
        came: Cell::default(),
        random: RefCell::new(world.random("mailboxes")),
    });
    let at = Address::Unix("/run/mail.sock".into());
    let listener = network.host("mail").listen(&at).await.expect("it listens");
    let thing = ServedThing {
        frozen: FakeApplication::sound(&world, &Rc::<Journal>::default()),
        logs: None,
        mailboxes: Some(Rc::new(SharedMailboxes(Rc::clone(&mailboxes)))),
    };
    let service = FreezeService::start(&world, listener, thing, |_| {});
    let breaks = random.below(4);
    let breaker = {
        let (world, network, mut random) = (world.clone(), network.clone(), world.random("breaks"));
        world.clone().spawn("breaks", async move {
            for _ in 0..breaks {
                world.sleep(span(&mut random) / 4).await;
                network.reset("mail", "mail");
            }
        })
    };
    let all: Vec<Vec<u8>> = (0..MESSAGES).map(|number| vec![number; usize::from(number) * 100]).collect();
    // Of several groups: the first one does not have the database.
    let other = Address::Unix("/run/other.sock".into());
    let elsewhere = elsewhere_service(&world, &network, (&other, &mailboxes)).await;
    let mut delivery = MessageDelivery::new(&world, vec![other, at.clone()]);
    let mut failures = 0;
    for batch in all.chunks(BATCH) {
        while let Err(reason) = deliver_batch(&network, &mut delivery, batch).await {
            assert!(!reason.to_string().contains("no answer of"), "{reason}");
            failures += 1;
            assert!(failures < 50, "it never ends: {reason}");
        }
        let stable = mailboxes.stable.borrow();
        assert!(batch.iter().all(|message| stable.contains(message)), "kept, and not there");
    }
    let came = mailboxes.came.get();
    let few = u32::from(MESSAGES) + failures * BATCH as u32;
    assert!(came <= few, "{came} messages came, though no more than {few} had to");
    let nowhere = delivery.deliver_batch(&*network.host("mail"), ("priv9.edb", &all[..1])).await;
    assert!(!matches!(nowhere, Ok(Some(_))), "nobody has it: {nowhere:?}");
    elsewhere.stop().await;
    breaker.await;
    // One that is not kept is gone with its connection.
    let mut left = DeliveryConnection::open(&world, &*network.host("mail"), &at).await.expect("it serves");
    if left.deliver("priv1.edb", b"one more").await.is_ok() {
        drop(left);
        let mut next =
            DeliveryConnection::open(&world, &*network.host("mail"), &at).await.expect("it serves");
        assert_eq!(next.deliver("priv9.edb", b"x").await, Ok(Delivery::Elsewhere));
        assert!(mailboxes.open.borrow().is_empty(), "what was not kept stayed");
    }
    service.stop().await;
    assert!(!mailboxes.stable.borrow().contains(&b"one more"[..]));
    assert!(mailboxes.twice.get() == 0 || failures > 0, "a message is delivered again after a failure alone");
    (failures > 0).then_some(BackupLabel::Application)
}

async fn deliver_batch(
    network: &SimNetwork,
    delivery: &mut MessageDelivery,
    batch: &[Vec<u8>],
) -> Result<(), StepError> {
    let delivered = delivery.deliver_batch(&*network.host("mail"), ("priv1.edb", batch)).await?;
    assert_eq!(delivered.map(|delivered| delivered.len()), Some(batch.len()), "one result each");
    Ok(())
}

/// Databases of other names.
struct OtherMailboxes(Rc<FakeMailboxes>);

impl LiveMailboxes for OtherMailboxes {
    fn deliver(&self, _: &str, _: Vec<u8>) -> LocalFuture<Result<Delivery, StepError>> {
        let mailboxes = Rc::clone(&self.0);
        Box::pin(async move {
            mailboxes.pause().await;
            Ok(Delivery::Elsewhere)
        })
    }

    fn keep(&self) -> LocalFuture<StepResult> {
        panic!("nothing was delivered here");
    }

    fn undo(&self) -> LocalFuture<()> {
        Box::pin(async {})
    }
}

async fn elsewhere_service(
    world: &World,
    network: &SimNetwork,
    (at, mailboxes): (&Address, &Rc<FakeMailboxes>),
) -> FreezeService {
    let listener = network.host("mail").listen(at).await.expect("it listens");
    let thing = ServedThing {
        frozen: FakeApplication::sound(world, &Rc::<Journal>::default()),
        logs: None,
        mailboxes: Some(Rc::new(OtherMailboxes(Rc::clone(mailboxes)))),
    };
    FreezeService::start(world, listener, thing, |_| {})
}

#[test]
fn what_was_kept_is_there_and_what_was_not_is_taken_back_with_its_connection() {
    let ends: Vec<_> = seeds(300).map(deliveries).collect();
    let failed = ends.iter().flatten().count();
    assert!(failed > 100 && failed < ends.len(), "{failed} of {} failed on the way", ends.len());
}

#[test]
fn every_planted_bug_of_deliveries_is_noticed() {
    assert_noticed(BackupBug::OF_DELIVERIES, 100, deliveries);
}
