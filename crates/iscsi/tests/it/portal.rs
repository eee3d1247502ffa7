//! Targets of two threads behind one portal.

use crate::{
    malformed_sessions::{send_and_drain, sessions, spoil, whole_session},
    scene::properties,
    sessions::{TARGET, address, login, with_target},
};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    scsi::unit::LogicalUnit,
    target::{
        ListedTarget, Target, TargetEvent, Targets,
        access::AccessList,
        portal::{MovingConnection, TargetDirectory, TargetPlace, ThreadTargets, serve_portal},
    },
    wire::{
        header::opcode,
        pdu::{Digests, Pdu},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    sim::{SimDrive, SimNetwork},
};

const OTHER: &str = "iqn.2026-11.test:logs";

/// The threads of two targets. They are tasks here; what goes to them may be sent to others.
struct Threads {
    threads: BTreeMap<&'static str, Rc<ThreadTargets>>,
    discovery: Targets,
    is_stopped: Cell<bool>,
    sent: Cell<usize>,
}

fn must_be_sent<T: Send>(value: T) -> T {
    value
}

impl TargetDirectory for Threads {
    fn targets(&self) -> Targets {
        let listed = |name: &&str| ListedTarget { name: (*name).to_owned(), units: BTreeSet::from([0]) };
        self.discovery.with_listed(self.threads.keys().map(listed))
    }

    fn place(&self, target: &str) -> TargetPlace {
        match self.threads.contains_key(target) {
            true if self.is_stopped.get() => TargetPlace::Stopped,
            true => TargetPlace::Thread,
            false => TargetPlace::Nowhere,
        }
    }

    fn send(&self, target: &str, connection: MovingConnection) -> bool {
        self.sent.set(self.sent.get() + 1);
        self.threads[target].take(must_be_sent(connection));
        true
    }
}

/// Serves the drive as unit 0 of both targets.
async fn start(
    world: &World,
    network: &SimNetwork,
    drive: &Rc<SimDrive>,
) -> (Rc<Threads>, Rc<RefCell<Vec<TargetEvent>>>) {
    let events: Rc<RefCell<Vec<TargetEvent>>> = Rc::default();
    let told = Rc::clone(&events);
    let tell: Rc<dyn Fn(TargetEvent)> = Rc::new(move |event| told.borrow_mut().push(event));
    let thread = |name: &'static str| {
        let unit = LogicalUnit::new(properties(), Rc::clone(drive) as Rc<dyn BlockDevice>, None, false);
        let target = Target { name: name.to_owned(), units: BTreeMap::from([(0, Rc::new(unit))]) };
        let targets = Targets::new(vec![target]).with_access(AccessList::everybody());
        (name, ThreadTargets::new(world, targets, Rc::clone(&tell)))
    };
    let threads = BTreeMap::from([thread(TARGET), thread(OTHER)]);
    let discovery = Targets::default();
    let threads = Rc::new(Threads { threads, discovery, is_stopped: Cell::new(false), sent: Cell::new(0) });
    let listener = network.host("server").listen(&address()).await.unwrap();
    let directory: Rc<dyn TargetDirectory> = Rc::clone(&threads) as _;
    world.spawn("portal", serve_portal(world.clone(), listener.into(), directory, tell));
    (threads, events)
}

async fn connect(world: &World, network: &SimNetwork, target: &str) -> world::IoResult<Initiator> {
    let uri = IscsiUri { address: address(), others: Vec::new(), target: target.to_owned(), unit: 0 };
    Initiator::connect(world, network.host("client"), uri, InitiatorOptions::default()).await
}

#[test]
fn each_session_is_its_targets_threads_and_discovery_the_portals() {
    with_target(1, |world, network, drive| async move {
        let (threads, events) = start(&world, &network, &drive).await;
        for target in [TARGET, OTHER] {
            let disk = connect(&world, &network, target).await.unwrap();
            disk.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        }
        assert_eq!(threads.sent.get(), 2);
        let options = InitiatorOptions::default();
        let found = discover(&world, &*network.host("client"), &address(), &options).await.unwrap();
        assert_eq!(found.iter().map(|target| target.name.as_str()).collect::<Vec<_>>(), [OTHER, TARGET]);
        assert!(connect(&world, &network, "iqn.2026-11.test:none").await.is_err());
        assert_eq!(threads.sent.get(), 2, "neither is a thread's");
        let sessions = |event: &TargetEvent| matches!(event, TargetEvent::LoggedIn { target: Some(_), .. });
        assert_eq!(events.borrow().iter().filter(|event| sessions(event)).count(), 2);
    });
}

#[test]
fn a_login_to_a_stopped_target_may_be_repeated() {
    with_target(2, |world, network, drive| async move {
        let (threads, events) = start(&world, &network, &drive).await;
        threads.is_stopped.set(true);
        let mut stream = network.host("client").connect(&address()).await.unwrap();
        stream.write_all(&login("iqn.x:host", &[])).await.unwrap();
        let answer = Pdu::read(&mut stream, Digests::default(), 65_536).await.unwrap().unwrap();
        // Service unavailable (RFC 7143, 11.13.5).
        assert_eq!((answer.opcode(), &answer.header[36..38]), (opcode::LOGIN_RESPONSE, &[3, 1][..]));
        let mut rest = Vec::new();
        assert_eq!(stream.read_to_end(&mut rest).await.unwrap(), 0);
        let said = |event: &TargetEvent| match event {
            TargetEvent::Ended { why: Some(why), .. } => Some(why.to_string()),
            _ => None,
        };
        let said: Vec<_> = events.borrow().iter().filter_map(said).collect();
        assert_eq!(said, ["login refused: target is stopped (status 0x0301)"]);
        threads.is_stopped.set(false);
        connect(&world, &network, TARGET).await.unwrap();
    });
}

#[test]
fn a_connection_that_says_nothing_is_closed_by_the_portal() {
    with_target(3, |world, network, drive| async move {
        let (_, events) = start(&world, &network, &drive).await;
        let mut stream = network.host("client").connect(&address()).await.unwrap();
        let begun = world.now();
        let mut nothing = Vec::new();
        assert_eq!(stream.read_to_end(&mut nothing).await.unwrap(), 0);
        assert_eq!(world.now().since(begun).as_secs(), 15);
        assert_eq!(events.borrow().len(), 1);
    });
}

#[test]
fn a_portal_and_its_threads_survive_malformed_sessions() {
    for seed in 0..sessions() / 50 {
        with_target(seed, move |world, network, drive| async move {
            let (threads, _) = start(&world, &network, &drive).await;
            let mut random = world.random("sessions");
            for _ in 0..50 {
                let mut bytes = whole_session(&mut random);
                spoil(&mut random, &mut bytes);
                send_and_drain(&world, &network, bytes).await;
            }
            assert!(threads.sent.get() > 20, "seed {seed}: {} were sent", threads.sent.get());
            let disk = connect(&world, &network, TARGET).await.expect("it serves on");
            disk.read(ByteOffset(0), vec![Buffer::zeroed(4096)]).await.unwrap();
        });
    }
}
