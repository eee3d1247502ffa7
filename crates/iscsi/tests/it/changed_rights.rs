//! Targets and rights that change under sessions.

use crate::{
    scene::{identity, properties},
    sessions::{TARGET, address, encode, with_target},
};
use iscsi::{
    scsi::{properties::UnitProperties, unit::LogicalUnit},
    target::{
        SessionFailure, Target, TargetEvent, Targets,
        access::{AccessList, AccessRight, InitiatorRights},
        serve,
    },
    wire::{
        header::{FINAL, IMMEDIATE, Login, PduHeader, ScsiCommand, opcode},
        pdu::{Digests, Pdu},
        text,
    },
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use tokio::io::AsyncWriteExt;
use world::{
    BlockDevice, Stream, World,
    sim::{SimDrive, SimNetwork},
};

const HOST: &str = "iqn.2026-11.test:host";
const OTHER: &str = "iqn.2026-11.test:other";
const GOOD: u8 = 0;
const CHECK_CONDITION: u8 = 2;
/// Sense key and additional sense of a status.
const NONE: [u8; 3] = [0; 3];
const RESET: [u8; 3] = [6, 0x29, 0];
const LUNS_CHANGED: [u8; 3] = [6, 0x3f, 0x0e];

struct Scene {
    units: [Rc<LogicalUnit>; 2],
    targets: Targets,
    failures: Rc<RefCell<Vec<String>>>,
}

/// Rights on units 0 and 1; `None` hides a unit.
type Rights = [Option<AccessRight>; 2];

fn access(rights: &[(&str, Rights)]) -> AccessList {
    let named = rights.iter().map(|(host, rights)| {
        let units = (0..).zip(rights).filter_map(|(number, right)| Some((number, (*right)?)));
        let units = BTreeMap::from([(TARGET.to_owned(), units.collect())]);
        ((*host).to_owned(), InitiatorRights { credentials: None, units })
    });
    AccessList::only(named, None).unwrap()
}

impl Scene {
    async fn start(
        world: &World,
        network: &SimNetwork,
        drive: &Rc<SimDrive>,
        rights: &[(&str, Rights)],
    ) -> Self {
        let unit = |number: u64| {
            let properties = UnitProperties { identity: identity(number), ..properties() };
            let device = Rc::clone(drive) as Rc<dyn BlockDevice>;
            Rc::new(LogicalUnit::new(properties, device, None, false).exclusive())
        };
        let units = [unit(0), unit(1)];
        let targets = Targets::new(vec![target(&units)]).with_access(access(rights));
        let failures: Rc<RefCell<Vec<String>>> = Rc::default();
        let told = Rc::clone(&failures);
        let tell = Rc::new(move |event| {
            if let TargetEvent::Ended { why: Some(why), .. } = event {
                told.borrow_mut().push(why.to_string());
            }
        });
        let listener = network.host("server").listen(&address()).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets.clone(), tell));
        Self { units, targets, failures }
    }

    fn change(&self, rights: &[(&str, Rights)]) {
        self.targets.replaced_by(vec![target(&self.units)], access(rights)).update_sessions();
    }
}

fn target(units: &[Rc<LogicalUnit>; 2]) -> Target {
    let units = (0..).zip(units).map(|(number, unit)| (number, Rc::clone(unit)));
    Target { name: TARGET.to_owned(), units: units.collect() }
}

/// A session of raw PDUs.
struct Session {
    stream: Stream,
    cmd_sn: u32,
}

impl Session {
    async fn log_in(network: &SimNetwork, initiator: &str) -> Self {
        let mut stream = network.host("client").connect(&address()).await.unwrap();
        let isid = [0x80, 0, 0, 0, 0, 1];
        let header = Login { first: IMMEDIATE, flags: 0x87, isid, cmd_sn: 1.into(), ..Login::empty() };
        let pairs = [("InitiatorName", initiator), ("TargetName", TARGET), ("SessionType", "Normal")];
        stream.write_all(&encode(&header, text::write(pairs))).await.unwrap();
        let answer = Pdu::read(&mut stream, Digests::default(), 65_536).await.unwrap().unwrap();
        assert_eq!((answer.opcode(), answer.header[36]), (opcode::LOGIN_RESPONSE, 0), "{initiator}");
        Self { stream, cmd_sn: 1 }
    }

    /// Executes a command that reads at most 256 bytes; none if the session has ended.
    async fn execute(&mut self, unit: u8, cdb: &[u8]) -> Option<(u8, [u8; 3], Vec<u8>)> {
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        let command = ScsiCommand {
            flags: FINAL | 0x40,
            lun: [0, unit, 0, 0, 0, 0, 0, 0],
            itt: self.cmd_sn.into(),
            expected_transfer_length: 256.into(),
            cmd_sn: self.cmd_sn.into(),
            cdb: whole,
            ..ScsiCommand::empty()
        };
        self.cmd_sn += 1;
        self.stream.write_all(&encode(&command, Vec::new())).await.ok()?;
        let mut data = Vec::new();
        loop {
            let pdu = Pdu::read(&mut self.stream, Digests::default(), 65_536).await.ok()??;
            match pdu.opcode() {
                opcode::DATA_IN => {
                    data.extend(&pdu.data);
                    if pdu.header[1] & 1 == 1 {
                        return Some((pdu.header[3], NONE, data));
                    }
                }
                opcode::SCSI_RESPONSE => {
                    let sense = match pdu.data.get(2..) {
                        Some(sense) if sense.len() >= 14 => [sense[2] & 0xf, sense[12], sense[13]],
                        _ => NONE,
                    };
                    return Some((pdu.header[3], sense, data));
                }
                _ => {}
            }
        }
    }

    async fn test(&mut self, unit: u8) -> (u8, [u8; 3]) {
        let (status, sense, _) = self.execute(unit, &[0; 6]).await.expect("the session goes on");
        (status, sense)
    }

    /// Units that REPORT LUNS lists.
    async fn units(&mut self) -> usize {
        let cdb = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let (status, _, data) = self.execute(0, &cdb).await.unwrap();
        assert_eq!(status, GOOD);
        u32::from_be_bytes(data[..4].try_into().unwrap()) as usize / 8
    }
}

const WRITES: Option<AccessRight> = Some(AccessRight::Write);
const READS: Option<AccessRight> = Some(AccessRight::Read);

#[test]
fn an_initiator_that_gains_a_unit_learns_of_it_in_the_session_it_has() {
    with_target(31, |world, network, drive| async move {
        let scene = Scene::start(&world, &network, &drive, &[(HOST, [WRITES, None])]).await;
        let mut session = Session::log_in(&network, HOST).await;
        assert_eq!(session.test(0).await, (CHECK_CONDITION, RESET));
        assert_eq!((session.units().await, session.test(0).await), (1, (GOOD, NONE)));
        scene.change(&[(HOST, [WRITES, WRITES])]);
        assert_eq!(session.test(0).await, (CHECK_CONDITION, LUNS_CHANGED));
        assert_eq!(session.units().await, 2);
        assert_eq!((session.test(1).await, session.test(1).await), ((CHECK_CONDITION, RESET), (GOOD, NONE)));
        scene.change(&[(HOST, [WRITES, WRITES])]);
        assert_eq!(session.test(0).await, (GOOD, NONE), "nothing has changed");
        assert!(scene.failures.borrow().is_empty());
    });
}

#[test]
fn a_session_that_loses_a_unit_or_a_right_ends_and_others_do_not_notice() {
    for less in [[WRITES, None], [READS, WRITES]] {
        with_target(32, move |world, network, drive| async move {
            let other = [None, None];
            let scene =
                Scene::start(&world, &network, &drive, &[(HOST, [WRITES, WRITES]), (OTHER, other)]).await;
            let mut session = Session::log_in(&network, HOST).await;
            session.test(0).await;
            scene.change(&[(HOST, less)]);
            assert!(session.execute(0, &[0; 6]).await.is_none(), "it has ended");
            let lost = SessionFailure::RightsLost.to_string();
            while scene.failures.borrow().is_empty() {
                world.sleep(std::time::Duration::from_millis(10)).await;
            }
            assert_eq!(*scene.failures.borrow(), [lost]);
        });
    }
}

#[test]
fn a_unit_that_another_initiator_holds_is_not_gained() {
    with_target(33, |world, network, drive| async move {
        let scene =
            Scene::start(&world, &network, &drive, &[(HOST, [WRITES, None]), (OTHER, [None, WRITES])]).await;
        let mut host = Session::log_in(&network, HOST).await;
        let mut other = Session::log_in(&network, OTHER).await;
        scene.change(&[(HOST, [WRITES, WRITES]), (OTHER, [None, WRITES])]);
        host.test(0).await;
        assert_eq!((host.units().await, host.test(0).await), (1, (GOOD, NONE)));
        other.test(1).await;
        assert_eq!(other.test(1).await, (GOOD, NONE));
    });
}

#[test]
fn a_login_under_way_when_its_units_go_is_no_session() {
    with_target(34, |world, network, drive| async move {
        let scene = Scene::start(&world, &network, &drive, &[(HOST, [WRITES, WRITES])]).await;
        let mut stream = network.host("client").connect(&address()).await.unwrap();
        let isid = [0x80, 0, 0, 0, 0, 1];
        // The first request stays in its stage, the second one ends the login.
        for flags in [0x04, 0x87] {
            let header = Login { first: IMMEDIATE, flags, isid, cmd_sn: 1.into(), ..Login::empty() };
            let pairs = [("InitiatorName", HOST), ("TargetName", TARGET), ("SessionType", "Normal")];
            let pairs = if flags == 0x04 { text::write(pairs) } else { Vec::new() };
            stream.write_all(&encode(&header, pairs)).await.unwrap();
            let answer = Pdu::read(&mut stream, Digests::default(), 65_536).await.unwrap().unwrap();
            assert_eq!((answer.opcode(), answer.header[36]), (opcode::LOGIN_RESPONSE, 0));
            scene.change(&[(HOST, [WRITES, None])]);
        }
        let mut session = Session { stream, cmd_sn: 1 };
        assert!(session.execute(1, &[0; 6]).await.is_none(), "it is not in");
        assert_eq!(*scene.failures.borrow(), [SessionFailure::RightsLost.to_string()]);
    });
}
