//! EXTENDED COPY and RECEIVE COPY RESULTS.

use crate::scene::{BLOCKS, Initiator, cdb, identity, properties, sense_of};
use iscsi::scsi::{
    commands::code,
    properties::UnitProperties,
    sense::{AdditionalSense, SenseKey},
    unit::LogicalUnit,
};
use std::rc::Rc;
use world::{
    BlockDevice, ByteCount,
    sim::{DriveOptions, SimLimits, Simulation},
};

/// A target descriptor of the unit with that identity.
fn target(number: u64, block_bytes: u32) -> Vec<u8> {
    let mut target = vec![0xe4, 0, 0, 0, 1, 3, 0, 8];
    target.extend(identity(number).naa());
    target.resize(28, 0);
    target.extend(block_bytes.to_be_bytes());
    target
}

fn segment((from, from_block): (u16, u64), (to, to_block): (u16, u64), blocks: u16) -> Vec<u8> {
    let mut segment = vec![2, 0, 0, 24];
    segment.extend([from.to_be_bytes(), to.to_be_bytes(), [0, 0], blocks.to_be_bytes()].concat());
    segment.extend([from_block.to_be_bytes(), to_block.to_be_bytes()].concat());
    segment
}

fn list(identifier: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut list = vec![identifier, 0];
    list.extend((targets.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    [list, targets, segments].concat()
}

fn copy(list: &[u8]) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    cdb[0] = code::EXTENDED_COPY;
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    cdb
}

fn results(action: u8, identifier: u8) -> Vec<u8> {
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[13]) = (code::RECEIVE_COPY_RESULTS, action, identifier, 255);
    cdb
}

/// Two units, with blocks of 512 and of 4096 bytes.
fn with_two<F: Future<Output = ()> + 'static>(test: impl FnOnce(Vec<Rc<LogicalUnit>>) -> F) {
    let mut simulation = Simulation::new(7);
    let unit = |(number, block_bytes): (u64, u32)| {
        let drive = simulation.add_drive(DriveOptions::new(ByteCount(BLOCKS * 512)));
        let properties = UnitProperties { identity: identity(number), block_bytes, ..properties() };
        Rc::new(LogicalUnit::new(properties, drive as Rc<dyn BlockDevice>, None, false))
    };
    let units = [(1, 512), (2, 4096)].map(unit).to_vec();
    simulation.run(SimLimits::generous(), |_| test(units)).completed();
}

#[test]
fn blocks_are_copied_between_units_and_within_one() {
    with_two(|units| async move {
        let (small, large) = (&units[0], &units[1]);
        let (a, other) = (Initiator::awake(small, "a").await, Initiator::awake(large, "a").await);
        let data: Vec<u8> = (0..32 * 512_u32).map(|at| (at / 512) as u8).collect();
        Initiator::done(a.execute(small, &cdb(code::WRITE_16, 0, 8, 32), &data).await);
        // From 512-byte to 4096-byte blocks, and between overlapping ranges of one unit.
        let both = list(
            3,
            &[target(1, 512), target(2, 4096)],
            &[segment((0, 8), (1, 5), 32), segment((0, 8), (0, 20), 32)],
        );
        Initiator::done(a.ask_within(small, &units, &copy(&both), &both).await);
        let there = Initiator::done(other.execute(large, &cdb(code::READ_16, 0, 5, 4), &[]).await);
        assert_eq!(there, data);
        let within = Initiator::done(a.execute(small, &cdb(code::READ_16, 0, 20, 32), &[]).await);
        assert_eq!(within, data, "what overlaps is read before it is overwritten");
        let told = Initiator::done(a.execute(small, &results(0, 3), &[]).await);
        assert_eq!(told, [0, 0, 0, 8, 1, 0, 2, 1, 0, 0, 0, 32], "done: 2 segments, 32 KiB");
        let again = a.execute(small, &results(0, 3), &[]).await;
        assert_eq!(sense_of(&again).1, AdditionalSense::INVALID_FIELD_IN_CDB, "it is told once");
    });
}

#[test]
fn a_failed_copy_reports_why_and_writes_nothing() {
    with_two(|units| async move {
        let small = &units[0];
        let a = Initiator::awake(small, "a").await;
        for (targets, segments, additional) in [
            (
                vec![target(1, 512)],
                vec![segment((0, 0), (1, 8), 8)],
                AdditionalSense::COPY_TARGET_NOT_REACHABLE,
            ),
            (
                vec![target(9, 512)],
                vec![segment((0, 0), (0, 8), 8)],
                AdditionalSense::COPY_TARGET_NOT_REACHABLE,
            ),
            (vec![target(1, 4096)], vec![segment((0, 0), (0, 8), 8)], AdditionalSense::INCORRECT_COPY_TARGET),
            (vec![target(1, 512)], vec![segment((0, 0), (0, BLOCKS - 1), 8)], AdditionalSense::NONE),
            (vec![target(1, 512), target(2, 4096)], vec![segment((0, 0), (1, 0), 7)], AdditionalSense::NONE),
        ] {
            let list = list(4, &targets, &segments);
            let ended = a.ask_within(small, &units, &copy(&list), &list).await;
            assert_eq!(sense_of(&ended), (SenseKey::CopyAborted, additional), "{segments:?}");
            let told = Initiator::done(a.execute(small, &results(0, 4), &[]).await);
            assert_eq!(told[4..7], [2, 0, 0], "aborted, before the first segment");
        }
        // A unit the initiator may not use is not reachable.
        let far = list(5, &[target(1, 512), target(2, 4096)], &[segment((0, 0), (1, 0), 8)]);
        let ended = a.ask_within(small, &units[..1], &copy(&far), &far).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::COPY_TARGET_NOT_REACHABLE);
    });
}

#[test]
fn reservations_apply_to_copies() {
    with_two(|units| async move {
        let (small, large) = (&units[0], &units[1]);
        let (a, b) = (Initiator::awake(small, "a").await, Initiator::awake(large, "b").await);
        Initiator::done(b.execute(large, &[code::RESERVE_6, 0, 0, 0, 0, 0], &[]).await);
        let list = list(1, &[target(1, 0), target(2, 0)], &[segment((0, 0), (1, 0), 8)]);
        let ended = a.ask_within(small, &units, &copy(&list), &list).await;
        assert!(matches!(ended, iscsi::scsi::unit::CommandStatus::ReservationConflict), "{ended:?}");
    });
}

#[test]
fn operating_parameters_are_reported() {
    with_two(|units| async move {
        let a = Initiator::awake(&units[0], "a").await;
        let told = Initiator::done(a.execute(&units[0], &results(3, 0), &[]).await);
        assert_eq!((told.len(), told[3]), (46, 42));
        assert_eq!((told[9], told[11], &told[43..]), (16, 16, &[2, 2, 0xe4][..]));
    });
}

#[test]
fn a_unit_withheld_from_an_initiator_is_not_reached_by_way_of_another_one() {
    with_two(|units| async move {
        let (small, large) = (&units[0], &units[1]);
        let own = Initiator::awake(small, "own").await;
        large.begin_session(&own.0);
        large.withhold().await;
        let targets = [target(1, 512), target(2, 4096)];
        for (from, to) in [(0, 1), (1, 0)] {
            let list = list(1, &targets, &[segment((from, 0), (to, 0), 8)]);
            let ended = own.ask_within(small, &units, &copy(&list), &list).await;
            let wanted = (SenseKey::CopyAborted, AdditionalSense::MANUAL_INTERVENTION_REQUIRED);
            assert_eq!(sense_of(&ended), wanted, "from {from} to {to}");
        }
    });
}
