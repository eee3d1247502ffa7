//! Sessions: silent initiators, task management, logout.

use crate::scene::{BLOCKS, properties};
use iscsi::{
    scsi::{commands::code, unit::LogicalUnit},
    session::login::LoginRefusal,
    target::{
        SessionFailure, Target, TargetEvent, Targets,
        access::{AccessList, AccessRight, InitiatorRights},
        serve,
    },
    wire::{
        header::{
            FINAL, IMMEDIATE, Login, Logout, NO_TAG, NopIn, NopOut, PduHeader, ScsiCommand, TaskManagement,
            opcode,
        },
        pdu::{Digests, Pdu},
        text,
    },
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use tokio::io::AsyncWriteExt;
use world::{
    Address, BlockDevice, ByteCount, EventLog, FollowedEvent, Stream, World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, Simulation},
};

pub const TARGET: &str = "iqn.2026-11.test:mail";

pub fn address() -> Address {
    Address::parse("server", 3260).unwrap()
}

/// Serves the drive and records events.
pub async fn start(
    world: &World,
    network: &SimNetwork,
    drive: &Rc<SimDrive>,
) -> (Targets, Rc<RefCell<Vec<TargetEvent>>>) {
    let unit = Rc::new(LogicalUnit::new(properties(), Rc::clone(drive) as Rc<dyn BlockDevice>, None, false));
    let target = Target { name: TARGET.to_owned(), units: BTreeMap::from([(0, unit)]) };
    let targets = Targets::new(vec![target]);
    let events: Rc<RefCell<Vec<TargetEvent>>> = Rc::default();
    let told = Rc::clone(&events);
    let tell = Rc::new(move |event| told.borrow_mut().push(event));
    let listener = network.host("server").listen(&address()).await.unwrap();
    let serving = serve(world.clone(), listener.into(), targets.clone(), tell);
    world.spawn("server", serving);
    (targets, events)
}

pub fn with_target<F: Future<Output = ()> + 'static>(
    seed: u64,
    test: impl FnOnce(World, SimNetwork, Rc<SimDrive>) -> F + 'static,
) {
    let mut simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
    let network = simulation.add_network(NetworkOptions::rack());
    simulation.run(SimLimits::generous(), |world| test(world, network, drive)).completed();
}

pub fn encode<H: PduHeader>(header: &H, data: Vec<u8>) -> Vec<u8> {
    Pdu::new(header.to_bytes(), data).encode(Digests::default())
}

/// A login request for the full feature phase.
pub fn login(name: &str, pairs: &[(&str, &str)]) -> Vec<u8> {
    let header = Login {
        first: IMMEDIATE,
        flags: 0x87,
        isid: [0x80, 0, 0, 0, 0, 1],
        cmd_sn: 1.into(),
        ..Login::empty()
    };
    let own = [("InitiatorName", name), ("TargetName", TARGET), ("SessionType", "Normal")];
    encode(&header, text::write(own.into_iter().chain(pairs.iter().copied())))
}

/// A connection in the full feature phase.
async fn logged_in(network: &SimNetwork, name: &str) -> Stream {
    let mut stream = network.host(name).connect(&address()).await.unwrap();
    stream.write_all(&login(&format!("iqn.x:{name}"), &[])).await.unwrap();
    let answer = Pdu::read(&mut stream, Digests::default(), 65_536).await.unwrap().unwrap();
    assert_eq!((answer.opcode(), answer.header[36]), (opcode::LOGIN_RESPONSE, 0));
    stream
}

#[test]
fn a_silent_initiator_gets_a_nop_in_and_is_disconnected_without_an_answer() {
    with_target(1, |world, network, drive| async move {
        let (_, events) = start(&world, &network, &drive).await;
        let began = world.now();
        let mut silent = logged_in(&network, "silent").await;
        let ping = Pdu::read(&mut silent, Digests::default(), 65_536).await.unwrap().unwrap();
        let ping = NopIn::of(&ping.header);
        assert!(ping.itt.get() == NO_TAG && ping.ttt.get() != NO_TAG, "it wants an answer");
        assert_eq!(world.now().since(began).as_secs(), 15);
        // An initiator that answers stays connected.
        let mut answering = logged_in(&network, "answering").await;
        for _ in 0..4 {
            let ping = Pdu::read(&mut answering, Digests::default(), 65_536).await.unwrap().unwrap();
            let ttt = NopIn::of(&ping.header).ttt;
            let answer =
                NopOut { first: IMMEDIATE, flags: FINAL, itt: NO_TAG.into(), ttt, ..NopOut::empty() };
            answering.write_all(&encode(&answer, Vec::new())).await.unwrap();
        }
        assert!(matches!(Pdu::read(&mut silent, Digests::default(), 65_536).await, Ok(None)));
        let told: Vec<String> = events.borrow().iter().filter_map(why).collect();
        assert_eq!(told, ["the initiator does not respond"]);
    });
}

fn why(event: &TargetEvent) -> Option<String> {
    match event {
        TargetEvent::Ended { why, .. } => why.as_ref().map(ToString::to_string),
        _ => None,
    }
}

fn manage(function: u8, itt: u32) -> Vec<u8> {
    let header = TaskManagement {
        first: IMMEDIATE,
        flags: FINAL | function,
        itt: itt.into(),
        ..TaskManagement::empty()
    };
    encode(&header, Vec::new())
}

/// Sends a write without data and reads the R2T.
async fn begin_write(stream: &mut Stream, itt: u32, number: u32) {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (code::WRITE_10, 8);
    let header = ScsiCommand {
        flags: FINAL | 0x20,
        itt: itt.into(),
        expected_transfer_length: 4096.into(),
        cmd_sn: number.into(),
        cdb,
        ..ScsiCommand::empty()
    };
    stream.write_all(&encode(&header, Vec::new())).await.unwrap();
    assert_eq!(next(stream).await.0, opcode::READY_TO_TRANSFER);
}

/// Opcode and third byte of the next PDU; the third byte is the response code.
async fn next(stream: &mut Stream) -> (u8, u8) {
    let pdu = Pdu::read(stream, Digests::default(), 65_536).await.unwrap().unwrap();
    (pdu.opcode(), pdu.header[2])
}

async fn test_unit_ready(stream: &mut Stream, itt: u32, number: u32) -> (u8, Vec<u8>) {
    let header = ScsiCommand { flags: FINAL, itt: itt.into(), cmd_sn: number.into(), ..ScsiCommand::empty() };
    stream.write_all(&encode(&header, Vec::new())).await.unwrap();
    let answer = Pdu::read(stream, Digests::default(), 65_536).await.unwrap().unwrap();
    assert_eq!(answer.opcode(), opcode::SCSI_RESPONSE);
    (answer.header[3], answer.data)
}

#[test]
fn task_management_aborts_tasks_and_establishes_unit_attentions() {
    with_target(2, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let (mut a, mut b) = (logged_in(&network, "a").await, logged_in(&network, "b").await);
        for stream in [&mut a, &mut b] {
            assert_eq!(test_unit_ready(stream, 1, 1).await.0, 2, "the reset when it came");
        }
        // ABORT TASK: the task exists once.
        begin_write(&mut a, 7, 2).await;
        for response in [0, 1] {
            let mut abort = manage(1, 99);
            abort[20..24].copy_from_slice(&7_u32.to_be_bytes());
            a.write_all(&abort).await.unwrap();
            assert_eq!(next(&mut a).await, (opcode::TASK_MANAGEMENT_RESPONSE, response));
        }
        // CLEAR TASK SET aborts tasks of all initiators, ABORT TASK SET only its own.
        begin_write(&mut b, 8, 2).await;
        for (function, is_cleared) in [(2, false), (4, true)] {
            a.write_all(&manage(function, 100)).await.unwrap();
            assert_eq!(next(&mut a).await, (opcode::TASK_MANAGEMENT_RESPONSE, 0));
            let mut abort = manage(1, 99);
            abort[20..24].copy_from_slice(&8_u32.to_be_bytes());
            if is_cleared {
                b.write_all(&abort).await.unwrap();
                assert_eq!(next(&mut b).await, (opcode::TASK_MANAGEMENT_RESPONSE, 1), "it is gone");
            }
        }
        let (status, sense) = test_unit_ready(&mut b, 9, 3).await;
        assert_eq!((status, sense[14], sense[15]), (2, 0x2f, 0), "COMMANDS CLEARED BY ANOTHER INITIATOR");
        // LOGICAL UNIT RESET and TARGET WARM RESET establish unit attentions. Response 2: no such LUN. 5: not
        // supported.
        for function in [5, 6] {
            a.write_all(&manage(function, 101)).await.unwrap();
            assert_eq!(next(&mut a).await, (opcode::TASK_MANAGEMENT_RESPONSE, 0));
            for (stream, number) in [(&mut a, function - 2), (&mut b, function - 1)] {
                let (status, sense) = test_unit_ready(stream, 10, number.into()).await;
                assert_eq!((status, sense[14]), (2, 0x29), "RESET OCCURRED");
            }
        }
        let mut elsewhere = manage(5, 102);
        elsewhere[9] = 5;
        a.write_all(&[elsewhere, manage(9, 103)].concat()).await.unwrap();
        assert_eq!((next(&mut a).await.1, next(&mut a).await.1), (2, 5));
        // TARGET COLD RESET ends all sessions of the target.
        a.write_all(&manage(7, 104)).await.unwrap();
        assert_eq!(next(&mut a).await, (opcode::TASK_MANAGEMENT_RESPONSE, 0));
        for stream in [&mut a, &mut b] {
            assert!(matches!(Pdu::read(stream, Digests::default(), 65_536).await, Ok(None)));
        }
    });
}

/// Executes PERSISTENT RESERVE OUT.
async fn reserve_out(stream: &mut Stream, number: u32, action: u8, own: u64, other: u64) {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (code::PERSISTENT_RESERVE_OUT, action, 1, 24);
    let header = ScsiCommand {
        flags: FINAL | 0x20,
        itt: (50 + number).into(),
        expected_transfer_length: 24.into(),
        cmd_sn: number.into(),
        cdb,
        ..ScsiCommand::empty()
    };
    let list = [&own.to_be_bytes()[..], &other.to_be_bytes(), &[0; 8]].concat();
    stream.write_all(&encode(&header, list)).await.unwrap();
    let answer = Pdu::read(stream, Digests::default(), 65_536).await.unwrap().unwrap();
    assert_eq!((answer.opcode(), answer.header[3]), (opcode::SCSI_RESPONSE, 0), "action {action}");
}

#[test]
fn preempt_and_abort_aborts_tasks_and_preempt_does_not() {
    with_target(4, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let (mut a, mut b) = (logged_in(&network, "a").await, logged_in(&network, "b").await);
        for (stream, key) in [(&mut a, 1), (&mut b, 2)] {
            assert_eq!(test_unit_ready(stream, 1, 1).await.0, 2, "the reset when it came");
            reserve_out(stream, 2, 0, 0, key).await;
        }
        let mut number = 3;
        for (action, is_aborted) in [(4, 0), (5, 1)] {
            begin_write(&mut b, 8, number).await;
            reserve_out(&mut a, number, action, 1, 2).await;
            let mut abort = manage(1, 99);
            abort[20..24].copy_from_slice(&8_u32.to_be_bytes());
            b.write_all(&abort).await.unwrap();
            assert_eq!(next(&mut b).await, (opcode::TASK_MANAGEMENT_RESPONSE, is_aborted), "action {action}");
            let (status, sense) = test_unit_ready(&mut b, 9, number + 1).await;
            assert_eq!((status, sense[14], sense[15]), (2, 0x2a, 5), "REGISTRATIONS PREEMPTED");
            reserve_out(&mut b, number + 2, 0, 0, 2).await;
            assert_eq!(test_unit_ready(&mut a, 9, number + 1).await.0, 0);
            assert_eq!(test_unit_ready(&mut a, 9, number + 2).await.0, 0);
            number += 3;
        }
    });
}

#[test]
fn initiators_are_requested_to_log_out_before_the_target_stops() {
    with_target(3, |world, network, drive| async move {
        let (targets, _) = start(&world, &network, &drive).await;
        let mut a = logged_in(&network, "a").await;
        let ending = world.spawn("ending", async move { targets.log_out_all().await });
        let message = Pdu::read(&mut a, Digests::default(), 65_536).await.unwrap().unwrap();
        assert_eq!((message.opcode(), message.header[36]), (opcode::ASYNC_MESSAGE, 1), "log out");
        drop(a);
        ending.await;
    });
}

/// Closes the session, and reads until the target has answered.
async fn log_out(stream: &mut Stream) {
    let logout = Logout { first: IMMEDIATE, flags: FINAL, itt: 9.into(), ..Logout::empty() };
    stream.write_all(&encode(&logout, Vec::new())).await.unwrap();
    while Pdu::read(stream, Digests::default(), 65_536).await.unwrap().unwrap().opcode()
        != opcode::LOGOUT_RESPONSE
    {}
}

/// Initiators log in again after a logout that the target asked for, and send again what was not answered.
#[test]
fn a_logout_that_the_target_asked_for_does_not_end_withholding() {
    with_target(7, |world, network, drive| async move {
        let unit = Rc::new(LogicalUnit::new(properties(), drive as Rc<dyn BlockDevice>, None, false));
        let target = Target { name: TARGET.to_owned(), units: BTreeMap::from([(0, Rc::clone(&unit))]) };
        let targets = Targets::new(vec![target]);
        let listener = network.host("server").listen(&address()).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets.clone(), Rc::new(|_| ())));
        let mut asked = logged_in(&network, "a").await;
        assert_eq!(unit.withhold().await, ["iqn.x:a"]);
        let ending = world.spawn("ending", async move { targets.log_out_all().await });
        world.sleep(Duration::from_secs(1)).await;
        log_out(&mut asked).await;
        ending.await;
        assert_eq!(unit.withheld_from(), ["iqn.x:a"]);
        let mut again = logged_in(&network, "a").await;
        log_out(&mut again).await;
        world.sleep(Duration::from_secs(1)).await;
        assert!(unit.withheld_from().is_empty(), "of its own accord");
    });
}

#[test]
fn an_initiator_without_a_name_that_can_be_shown_is_refused() {
    with_target(8, |world, network, drive| async move {
        start(&world, &network, &drive).await;
        let long = "iqn.x:".to_owned() + &"n".repeat(217);
        for (name, is_refused) in [("iqn.x:\n", true), (&(long.clone() + "n"), true), (&long, false)] {
            let mut stream = network.host("a").connect(&address()).await.unwrap();
            stream.write_all(&login(name, &[])).await.unwrap();
            let answer = Pdu::read(&mut stream, Digests::default(), 65_536).await.unwrap().unwrap();
            let status = if is_refused { (2, 7) } else { (0, 0) };
            assert_eq!((answer.header[36], answer.header[37]), status, "{name:?}");
        }
    });
}

#[test]
fn sessions_and_refusals_are_recorded_with_their_reasons() {
    with_target(5, |world, network, drive| async move {
        let unit = Rc::new(LogicalUnit::new(properties(), drive as Rc<dyn BlockDevice>, None, false));
        let target = Target { name: TARGET.to_owned(), units: BTreeMap::from([(0, unit)]) };
        let units = BTreeMap::from([(TARGET.to_owned(), BTreeMap::from([(0, AccessRight::Write)]))]);
        let rights = InitiatorRights { units, ..InitiatorRights::default() };
        let access = AccessList::only([("iqn.x:a".to_owned(), rights)], None).unwrap();
        let targets = Targets::new(vec![target]).with_access(access);
        let log = EventLog::new(&world, 8);
        let listener = network.host("server").listen(&address()).await.unwrap();
        world.spawn("server", serve(world.clone(), listener.into(), targets, log.sink()));
        let a = logged_in(&network, "a").await;
        let mut b = network.host("b").connect(&address()).await.unwrap();
        b.write_all(&login("iqn.x:b", &[])).await.unwrap();
        let refused = Pdu::read(&mut b, Digests::default(), 65_536).await.unwrap().unwrap();
        assert_eq!((refused.header[36], refused.header[37]), (2, 2));
        assert!(matches!(Pdu::read(&mut b, Digests::default(), 65_536).await, Ok(None)));
        drop(a);
        world.sleep(Duration::from_secs(1)).await;
        let mut reader = log.follow();
        let mut next = || match reader.try_next() {
            Some(FollowedEvent::Event(recorded)) => recorded,
            other => panic!("an event was recorded: {other:?}"),
        };
        assert!(matches!(&next().event, TargetEvent::LoggedIn { initiator, target, .. }
            if initiator == "iqn.x:a" && target.as_deref() == Some(TARGET)));
        assert!(matches!(
            next().event,
            TargetEvent::Ended { why: Some(SessionFailure::LoginRefused(LoginRefusal::FORBIDDEN)), .. }
        ));
        assert!(matches!(next().event, TargetEvent::Ended { .. }));
    });
}
