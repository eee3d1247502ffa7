//! Units that serve one initiator name at a time.

use crate::{
    scene::{identity, properties},
    sessions::{TARGET, address, encode, login, with_target},
};
use iscsi::{
    initiator::{InitiatorOptions, discover},
    scsi::{properties::UnitProperties, unit::LogicalUnit},
    target::{
        SessionFailure, Target, TargetEvent, Targets, UNIT_KEPT,
        access::{AccessList, AccessRight, InitiatorRights},
        serve,
    },
    wire::{
        header::{FINAL, IMMEDIATE, Login, Logout, NO_TAG, NopIn, NopOut, PduHeader, opcode},
        pdu::{Digests, Pdu},
        text,
    },
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::io::AsyncWriteExt;
use world::{
    BlockDevice, Stream, World,
    sim::{SimDrive, SimNetwork},
};

const LOGS: &str = "iqn.2026-11.test:logs";
const OK: (u8, u8) = (0, 0);
/// Service unavailable: the initiator may try again (RFC 7143, 11.13.5).
const REFUSED: (u8, u8) = (3, 1);
const SECOND: Duration = Duration::from_secs(1);

/// A unit over the drive with this identity.
fn unit(drive: &Rc<SimDrive>, number: u64) -> LogicalUnit {
    let properties = UnitProperties { identity: identity(number), ..properties() };
    LogicalUnit::new(properties, Rc::clone(drive) as Rc<dyn BlockDevice>, None, false)
}

fn target(name: &str, units: impl IntoIterator<Item = (u64, LogicalUnit)>) -> Target {
    let units = units.into_iter().map(|(number, unit)| (number, Rc::new(unit)));
    Target { name: name.to_owned(), units: units.collect() }
}

/// A server, as its hosts see it.
struct Site {
    network: SimNetwork,
    targets: Targets,
    failures: Rc<RefCell<Vec<SessionFailure>>>,
}

impl Site {
    async fn start(world: &World, network: &SimNetwork, targets: Targets) -> Self {
        let failures: Rc<RefCell<Vec<SessionFailure>>> = Rc::default();
        let told = Rc::clone(&failures);
        let tell = Rc::new(move |event| {
            if let TargetEvent::Ended { why: Some(why), .. } = event {
                told.borrow_mut().push(why);
            }
        });
        let listener = network.host("server").listen(&address()).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets.clone(), tell));
        Self { network: network.clone(), targets, failures }
    }

    /// Logs `initiator` in, in the session `isid`. Returns the status.
    async fn log_in(&self, initiator: &str, target: &str, isid: u8) -> (Stream, (u8, u8)) {
        let host = initiator.rsplit(':').next().unwrap().to_lowercase();
        let mut stream = self.network.host(&host).connect(&address()).await.unwrap();
        let isid = [0x80, 0, 0, 0, 0, isid];
        let header = Login { first: IMMEDIATE, flags: 0x87, isid, cmd_sn: 1.into(), ..Login::empty() };
        let pairs = [("InitiatorName", initiator), ("TargetName", target), ("SessionType", "Normal")];
        stream.write_all(&encode(&header, text::write(pairs))).await.unwrap();
        let answer = next(&mut stream).await.unwrap();
        assert_eq!(answer.opcode(), opcode::LOGIN_RESPONSE);
        (stream, (answer.header[36], answer.header[37]))
    }

    async fn status(&self, initiator: &str, target: &str) -> (u8, u8) {
        self.log_in(initiator, target, 9).await.1
    }

    fn last_failure(&self) -> String {
        self.failures.borrow().last().unwrap().to_string()
    }
}

async fn next(stream: &mut Stream) -> Option<Pdu> {
    Pdu::read(stream, Digests::default(), 65_536).await.unwrap()
}

async fn log_out(mut stream: Stream) {
    let header = Logout { first: IMMEDIATE, flags: FINAL, ..Logout::empty() };
    stream.write_all(&encode(&header, Vec::new())).await.unwrap();
    while next(&mut stream).await.is_some() {}
}

/// A server of one exclusive unit.
async fn one_unit(world: &World, network: &SimNetwork, drive: &Rc<SimDrive>) -> Site {
    let targets = Targets::new(vec![target(TARGET, [(0, unit(drive, 1).exclusive())])]);
    Site::start(world, network, targets).await
}

#[test]
fn a_second_initiator_is_refused_and_learns_of_the_target_all_the_same() {
    with_target(1, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        let (held, status) = site.log_in("iqn.x:a", TARGET, 1).await;
        assert_eq!(status, OK);
        world.sleep(SECOND * 5).await;
        let (mut refused, status) = site.log_in("iqn.x:b", TARGET, 1).await;
        assert_eq!(status, REFUSED);
        assert!(next(&mut refused).await.is_none(), "the connection is closed");
        let said = site.last_failure();
        let start = format!("iqn.x:b was refused: LUN 0 of {TARGET} is used by iqn.x:a (");
        assert!(said.starts_with(&start), "{said}");
        assert!(
            said.ends_with(") for 5 s; log that one out, or set shared = true if both may use it"),
            "{said}"
        );
        let Some(SessionFailure::UnitHeld(conflict)) = site.failures.take().pop() else { panic!("{said}") };
        assert_eq!((conflict.holder.as_str(), conflict.unit, conflict.kept_for), ("iqn.x:a", 0, None));
        assert!(!conflict.holder_peer.is_empty());
        let options = InitiatorOptions::default();
        let found = discover(&world, &*network.host("b"), &address(), &options).await.unwrap();
        assert_eq!(found.len(), 1);
        drop(held);
    });
}

#[test]
fn an_initiator_has_as_many_sessions_as_it_wants_in_any_case_of_its_name() {
    with_target(2, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        let (first, _) = site.log_in("iqn.x:a", TARGET, 1).await;
        let (mut second, status) = site.log_in("iqn.x:a", TARGET, 2).await;
        assert_eq!(status, OK);
        let (_third, status) = site.log_in("IQN.X:A", TARGET, 3).await;
        assert_eq!(status, OK);
        // Session reinstatement: the older one ends.
        let (again, status) = site.log_in("iqn.x:a", TARGET, 2).await;
        assert_eq!(status, OK);
        assert!(next(&mut second).await.is_none());
        for stream in [first, again] {
            assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED);
            log_out(stream).await;
        }
        assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED, "one session is left");
    });
}

#[test]
fn after_a_logout_the_next_initiator_is_admitted() {
    with_target(3, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        let (held, _) = site.log_in("iqn.x:a", TARGET, 1).await;
        assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED);
        log_out(held).await;
        // The refused login holds nothing.
        let (held, status) = site.log_in("iqn.x:c", TARGET, 1).await;
        assert_eq!(status, OK);
        assert_eq!(site.status("iqn.x:a", TARGET).await, REFUSED);
        drop(held);
    });
}

#[test]
fn after_a_cut_the_unit_is_kept_for_its_initiator_for_a_while() {
    with_target(4, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        for _ in 0..2 {
            let (held, status) = site.log_in("iqn.x:a", TARGET, 1).await;
            assert_eq!(status, OK, "it comes back at once, and is not refused");
            drop(held);
            world.sleep(SECOND * 10).await;
            assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED);
            let said = site.last_failure();
            assert!(said.contains("s more for iqn.x:a (") && said.contains("whose session broke"), "{said}");
        }
        world.sleep(UNIT_KEPT - SECOND * 12).await;
        assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED);
        world.sleep(SECOND * 4).await;
        let (held, status) = site.log_in("iqn.x:b", TARGET, 1).await;
        assert_eq!(status, OK);
        assert_eq!(site.status("iqn.x:a", TARGET).await, REFUSED, "the other has it now");
        drop(held);
    });
}

/// The last session that logs out frees the unit, whatever broke before.
#[test]
fn nothing_is_kept_for_an_initiator_that_has_another_session() {
    with_target(9, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        // One of two paths breaks; a session breaks and comes back; one is replaced.
        for (first, second, is_cut_first) in [(1, 2, false), (1, 1, true), (1, 1, false)] {
            let (before, status) = site.log_in("iqn.x:a", TARGET, first).await;
            assert_eq!(status, OK);
            let mut before = Some(before);
            if is_cut_first {
                drop(before.take());
                world.sleep(SECOND).await;
            }
            let (after, status) = site.log_in("iqn.x:a", TARGET, second).await;
            assert_eq!(status, OK);
            drop(before);
            world.sleep(SECOND).await;
            assert_eq!(site.status("iqn.x:b", TARGET).await, REFUSED);
            log_out(after).await;
            let (next, status) = site.log_in("iqn.x:b", TARGET, 1).await;
            assert_eq!(status, OK, "{first} {second} {is_cut_first}");
            log_out(next).await;
        }
    });
}

/// A host that has crashed does not close its connection.
#[test]
fn a_silent_host_is_relieved_within_45_s() {
    with_target(5, |world, network, drive| async move {
        let site = one_unit(&world, &network, &drive).await;
        let (_silent, _) = site.log_in("iqn.x:a", TARGET, 1).await;
        let began = world.now();
        let mut admitted = loop {
            world.sleep(SECOND).await;
            let (stream, status) = site.log_in("iqn.x:b", TARGET, 1).await;
            if status == OK {
                break stream;
            }
            assert_eq!(status, REFUSED);
        };
        let took = world.now().since(began).as_secs();
        assert!((29..=45).contains(&took), "{took} s");
        // One that answers stays.
        for _ in 0..4 {
            let ttt = NopIn::of(&next(&mut admitted).await.unwrap().header).ttt;
            let pong = NopOut { first: IMMEDIATE, flags: FINAL, itt: NO_TAG.into(), ttt, ..NopOut::empty() };
            admitted.write_all(&encode(&pong, Vec::new())).await.unwrap();
            assert_eq!(site.status("iqn.x:c", TARGET).await, REFUSED);
        }
    });
}

#[test]
fn units_that_are_shared_or_only_read_serve_all() {
    with_target(6, |world, network, drive| async move {
        let read_only = UnitProperties { is_read_only: true, ..properties() };
        let device = Rc::clone(&drive) as Rc<dyn BlockDevice>;
        let read_only = LogicalUnit::new(read_only, device, None, false).exclusive();
        let targets = vec![target(TARGET, [(0, unit(&drive, 2)), (1, read_only)])];
        let site = Site::start(&world, &network, Targets::new(targets)).await;
        let (_one, status) = site.log_in("iqn.x:a", TARGET, 1).await;
        assert_eq!(status, OK);
        let (_other, status) = site.log_in("iqn.x:b", TARGET, 1).await;
        assert_eq!(status, OK);
    });
}

/// The rights of an initiator on units of both targets.
fn rights(initiator: &str, units: &[(&str, u64, AccessRight)]) -> (String, InitiatorRights) {
    let mut rights = InitiatorRights::default();
    for &(target, unit, right) in units {
        rights.units.entry(target.to_owned()).or_default().insert(unit, right);
    }
    (initiator.to_owned(), rights)
}

#[test]
fn only_units_that_the_initiator_may_use_count_in_whatever_target_they_are() {
    with_target(7, |world, network, drive| async move {
        // LUN 1 of one target and LUN 5 of the other are the same unit.
        let mail = target(TARGET, [(0, unit(&drive, 1).exclusive()), (1, unit(&drive, 2).exclusive())]);
        let logs = target(LOGS, [(0, unit(&drive, 3).exclusive()), (5, unit(&drive, 2).exclusive())]);
        let access = AccessList::only(
            [
                rights("iqn.x:a", &[(LOGS, 5, AccessRight::Write)]),
                rights("iqn.x:b", &[(TARGET, 0, AccessRight::Write), (LOGS, 0, AccessRight::Write)]),
                rights("iqn.x:c", &[(TARGET, 0, AccessRight::Write), (TARGET, 1, AccessRight::Write)]),
                rights("iqn.x:reader", &[(TARGET, 1, AccessRight::Read)]),
            ],
            None,
        );
        let targets = Targets::new(vec![mail, logs]).with_access(access.unwrap());
        let site = Site::start(&world, &network, targets).await;
        let (held, status) = site.log_in("iqn.x:a", LOGS, 1).await;
        assert_eq!(status, OK);
        let (other, status) = site.log_in("iqn.x:b", LOGS, 1).await;
        assert_eq!(status, OK, "of this target it may use another unit");
        assert_eq!(site.status("iqn.x:c", TARGET).await, REFUSED, "one of two is held");
        assert!(site.last_failure().contains(&format!("LUN 1 of {TARGET} is used by iqn.x:a (")));
        // A reader beside a writer sees a filesystem in pieces.
        assert_eq!(site.status("iqn.x:reader", TARGET).await, REFUSED);
        log_out(held).await;
        let (held, status) = site.log_in("iqn.x:reader", TARGET, 1).await;
        assert_eq!(status, OK);
        assert_eq!(site.status("iqn.x:a", LOGS).await, REFUSED, "a reader holds it as well");
        log_out(held).await;
        assert_eq!(site.status("iqn.x:c", TARGET).await, OK);
        log_out(other).await;
    });
}

/// Sessions from before count: `apply` makes a unit exclusive under its initiators.
#[test]
fn a_unit_that_becomes_exclusive_is_held_by_those_that_use_it() {
    with_target(8, |world, network, drive| async move {
        let shared = Targets::new(vec![target(TARGET, [(0, unit(&drive, 1))])]);
        let site = Site::start(&world, &network, shared).await;
        let (a, _) = site.log_in("iqn.x:a", TARGET, 1).await;
        let (b, _) = site.log_in("iqn.x:b", TARGET, 1).await;
        let exclusive = vec![target(TARGET, [(0, unit(&drive, 1).exclusive())])];
        let targets = site.targets.replaced_by(exclusive, AccessList::everybody());
        let port = world::Address::parse("server", 3261).unwrap();
        let listener = network.host("server").listen(&port).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets, Rc::new(drop)));
        for (name, expected) in [("iqn.x:c", REFUSED), ("iqn.x:a", OK), ("iqn.x:b", OK)] {
            let mut stream = network.host("client").connect(&port).await.unwrap();
            stream.write_all(&login(name, &[])).await.unwrap();
            let answer = next(&mut stream).await.unwrap();
            assert_eq!((answer.header[36], answer.header[37]), expected, "{name}");
            drop(stream);
        }
        drop((a, b));
    });
}
