//! Access control: authentication, and the targets and units hidden from an initiator.

use crate::scene::{BLOCKS, identity, properties};
use iscsi::{
    initiator::{Initiator, InitiatorOptions, IscsiUri, discover},
    scsi::{properties::UnitProperties, unit::LogicalUnit},
    session::chap::{Credentials, Secret},
    target::{
        Target, Targets,
        access::{AccessList, AccessRight, InitiatorRights},
        serve,
    },
};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, IoResult, Stability, World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, Simulation},
};

const MAIL: &str = "iqn.2026-11.test:mail";
const LOGS: &str = "iqn.2026-11.test:logs";

fn who(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: Secret::new(secret).unwrap() }
}

fn rights(credentials: Option<Credentials>, units: &[(&str, u64, AccessRight)]) -> InitiatorRights {
    let mut rights = InitiatorRights { credentials, ..InitiatorRights::default() };
    for (target, unit, right) in units {
        rights.units.entry((*target).to_owned()).or_default().insert(*unit, *right);
    }
    rights
}

/// LUNs 0 and 1 of `mail`, LUN 0 of `logs`.
fn targets(drive: &Rc<SimDrive>) -> Vec<Target> {
    let unit = |number: u64| {
        let properties = UnitProperties { identity: identity(number), ..properties() };
        Rc::new(LogicalUnit::new(properties, Rc::clone(drive) as Rc<dyn BlockDevice>, None, false))
    };
    vec![
        Target { name: MAIL.to_owned(), units: BTreeMap::from([(0, unit(1)), (1, unit(2))]) },
        Target { name: LOGS.to_owned(), units: BTreeMap::from([(0, unit(3))]) },
    ]
}

/// `alice` must authenticate herself, `bob` may only read, all others are refused.
fn access() -> AccessList {
    let alice = rights(
        Some(who("alice", "a secret of alice")),
        &[(MAIL, 0, AccessRight::Write), (LOGS, 0, AccessRight::Write)],
    );
    let bob = rights(None, &[(MAIL, 1, AccessRight::Read)]);
    AccessList::only(
        [("iqn.x:alice".to_owned(), alice), ("iqn.x:bob".to_owned(), bob)],
        Some(who("array", "a secret of the array")),
    )
    .unwrap()
}

async fn start(world: &World, network: &SimNetwork, host: &str, targets: Targets) {
    let address = Address::parse(host, 3260).unwrap();
    let listener = network.host(host).listen(&address).await.unwrap();
    world.spawn("server", serve(world.clone(), listener.into(), targets, Rc::new(drop)));
}

struct Someone {
    world: World,
    network: SimNetwork,
    options: InitiatorOptions,
}

impl Someone {
    async fn connect(&self, target: &str, unit: u16) -> IoResult<Initiator> {
        let address = Address::parse("server", 3260).unwrap();
        let uri = IscsiUri { address, others: Vec::new(), target: target.to_owned(), unit };
        Initiator::connect(&self.world, self.network.host("client"), uri, self.options.clone()).await
    }

    async fn sees(&self) -> Result<Vec<String>, IoErrorKind> {
        let address = Address::parse("server", 3260).unwrap();
        let host = self.network.host("client");
        let found =
            discover(&self.world, &*host, &address, &self.options).await.map_err(|error| error.kind())?;
        Ok(found.into_iter().map(|found| found.name).collect())
    }
}

fn with_targets<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(World, SimNetwork, Targets, Box<dyn Fn(&str) -> Someone>) -> F + 'static,
) {
    let mut simulation = Simulation::new(3);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
    let network = simulation.add_network(NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        let targets = Targets::new(targets(&drive)).with_access(access());
        let (own, between) = (world.clone(), network.clone());
        let someone = move |name: &str| Someone {
            world: own.clone(),
            network: between.clone(),
            options: InitiatorOptions { name: format!("iqn.x:{name}"), ..InitiatorOptions::default() },
        };
        test(world, network, targets, Box::new(someone)).await;
    });
    run.completed();
}

#[test]
fn chap_is_required_in_both_directions() {
    with_targets(|world, network, targets, someone| async move {
        start(&world, &network, "server", targets).await;
        let mut alice = someone("alice");
        for credentials in
            [None, Some(who("alice", "a secret of malice")), Some(who("alicia", "a secret of alice"))]
        {
            alice.options.credentials = credentials;
            let refused = alice.connect(MAIL, 0).await.err().expect("she has not shown it");
            assert_eq!(refused.kind(), IoErrorKind::PermissionDenied, "{refused}");
            assert!(!refused.to_string().contains("secret of"), "{refused}");
            assert_eq!(alice.sees().await, Err(IoErrorKind::PermissionDenied), "nor is she told anything");
        }
        alice.options.credentials = Some(who("alice", "a secret of alice"));
        alice.connect(MAIL, 0).await.expect("she is alice");
        // Mutual CHAP.
        alice.options.target_credentials = Some(who("array", "a secret of the array"));
        alice.connect(MAIL, 0).await.expect("it is the array");
        alice.options.target_credentials = Some(who("array", "a secret of another"));
        assert!(alice.connect(MAIL, 0).await.is_err(), "it is not what she takes it for");
    });
}

#[test]
fn guesses_of_a_secret_are_refused_unchecked_after_ten_in_a_minute() {
    with_targets(|world, network, targets, someone| async move {
        start(&world, &network, "server", targets).await;
        let (mut mallory, bob) = (someone("alice"), someone("bob"));
        mallory.options.credentials = Some(who("alice", "a secret of malice"));
        for _ in 0..10 {
            assert!(mallory.connect(MAIL, 0).await.is_err());
        }
        mallory.options.credentials = Some(who("alice", "a secret of alice"));
        let refused = mallory.connect(MAIL, 0).await.err().expect("it is not checked");
        assert_eq!(refused.kind(), IoErrorKind::PermissionDenied, "{refused}");
        bob.connect(MAIL, 1).await.expect("bob does not wait, at the same address");
        world.sleep(Duration::from_secs(60)).await;
        mallory.connect(MAIL, 0).await.expect("the minute is over");
    });
}

#[test]
fn targets_and_units_an_initiator_may_not_use_are_hidden() {
    with_targets(|world, network, targets, someone| async move {
        start(&world, &network, "server", targets).await;
        let (mut alice, bob, eve) = (someone("alice"), someone("bob"), someone("eve"));
        alice.options.credentials = Some(who("alice", "a secret of alice"));
        assert_eq!(alice.sees().await.unwrap(), [MAIL, LOGS]);
        assert_eq!(bob.sees().await.unwrap(), [MAIL]);
        assert!(bob.connect(LOGS, 0).await.is_err(), "for bob there are no logs");
        assert!(bob.connect(MAIL, 0).await.is_err(), "nor the first unit");
        assert!(alice.connect(MAIL, 1).await.is_err(), "and for alice not the second");
        assert!(eve.connect(MAIL, 0).await.is_err(), "eve is nobody");
        assert!(eve.sees().await.is_err(), "and is told nothing");
        let disk = alice.connect(MAIL, 0).await.unwrap();
        let data = || vec![Arc::new(Buffer::copy_of(&[7; 512]))];
        disk.write(ByteOffset(0), data(), Stability::Stable).await.unwrap();
        let disk = bob.connect(MAIL, 1).await.unwrap();
        let refused = disk.write(ByteOffset(0), data(), Stability::Stable).await.unwrap_err();
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly, "bob only reads: {refused}");
        let read = disk.read(ByteOffset(0), vec![Buffer::zeroed(512)]).await.unwrap();
        assert_eq!(read[0][..], [7; 512]);
    });
}

#[test]
fn a_group_redirects_logins_to_its_portals() {
    with_targets(|world, network, targets, someone| async move {
        let group = targets.clone().redirected_to(["one:3260".to_owned(), "two:3260".to_owned()]);
        start(&world, &network, "server", group).await;
        let mut alice = someone("alice");
        alice.options.credentials = Some(who("alice", "a secret of alice"));
        assert_eq!(alice.sees().await.unwrap(), [MAIL, LOGS], "what there is, the group says itself");
        assert!(alice.connect(MAIL, 0).await.is_err(), "nobody listens where they are sent");
        for portal in ["one", "two"] {
            start(&world, &network, portal, targets.clone()).await;
        }
        for _ in 0..4 {
            alice.connect(MAIL, 0).await.expect("one of them serves her");
        }
    });
}
