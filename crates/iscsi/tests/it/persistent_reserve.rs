//! Reservation commands.

use crate::scene::{Initiator, cdb, properties, sense_of, with_unit};
use iscsi::scsi::{commands::code, sense::AdditionalSense, unit::CommandStatus, withholding::SessionEnd};

fn out(action: u8, kind: u8) -> [u8; 10] {
    [code::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn list(own: u64, other: u64) -> Vec<u8> {
    [&own.to_be_bytes()[..], &other.to_be_bytes(), &[0; 8]].concat()
}

fn read_in(action: u8) -> [u8; 10] {
    [code::PERSISTENT_RESERVE_IN, action, 0, 0, 0, 0, 0, 1, 0, 0]
}

#[test]
fn a_holder_excludes_others_until_it_is_preempted() {
    with_unit(1, properties(), |_, unit| async move {
        let (a, b) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        Initiator::done(a.execute(&unit, &out(0, 0), &list(0, 0xa)).await);
        Initiator::done(b.execute(&unit, &out(0, 0), &list(0, 0xb)).await);
        Initiator::done(a.execute(&unit, &out(1, 3), &list(0xa, 0)).await);
        let write = cdb(code::WRITE_10, 0, 0, 1);
        assert!(matches!(b.execute(&unit, &write, &[1; 512]).await, CommandStatus::ReservationConflict));
        Initiator::done(a.execute(&unit, &write, &[1; 512]).await);
        let keys = Initiator::done(b.execute(&unit, &read_in(0), &[]).await);
        assert_eq!(keys[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
        let held = Initiator::done(b.execute(&unit, &read_in(1), &[]).await);
        assert_eq!((held.len(), held[15], held[21]), (24, 0xa, 3));
        let status = Initiator::done(b.execute(&unit, &read_in(3), &[]).await);
        assert_eq!(status[7] as usize, status.len() - 8);
        assert_eq!((status[8 + 7], status[8 + 12], status[8 + 13]), (0xa, 1, 3));
        Initiator::done(b.execute(&unit, &out(4, 1), &list(0xb, 0xa)).await);
        let heard = a.execute(&unit, &[0; 6], &[]).await;
        assert_eq!(sense_of(&heard).1, AdditionalSense::REGISTRATIONS_PREEMPTED);
        assert!(matches!(a.execute(&unit, &write, &[2; 512]).await, CommandStatus::ReservationConflict));
        assert_eq!(Initiator::done(a.execute(&unit, &cdb(code::READ_10, 0, 0, 1), &[]).await), [1; 512]);
    });
}

#[test]
fn invalid_parameter_lists_and_types_are_refused() {
    with_unit(2, properties(), |_, unit| async move {
        let a = Initiator::awake(&unit, "a").await;
        Initiator::done(a.execute(&unit, &out(0, 0), &list(0, 0xa)).await);
        let mut short = out(0, 0);
        short[8] = 16;
        let ended = a.execute(&unit, &short, &list(0xa, 0)[..16]).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for kind in [0, 2, 4, 9, 0x11] {
            let ended = a.execute(&unit, &out(1, kind), &list(0xa, 0)).await;
            assert_eq!(sense_of(&ended).1, AdditionalSense::INVALID_FIELD_IN_CDB, "type {kind:#x}");
        }
        let mut persistent = list(0xa, 0xc);
        persistent[20] = 1;
        let ended = a.execute(&unit, &out(0, 0), &persistent).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::INVALID_FIELD_IN_PARAMETER_LIST);
        assert!(matches!(
            a.execute(&unit, &out(1, 1), &list(0xb, 0)).await,
            CommandStatus::ReservationConflict
        ));
        let told = Initiator::done(a.execute(&unit, &read_in(2), &[]).await);
        assert_eq!((told.len(), told[4], told[5]), (8, 0xea, 0x01));
    });
}

#[test]
fn a_reserve_6_reservation_ends_with_its_session() {
    with_unit(3, properties(), |_, unit| async move {
        let (a, b) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        Initiator::done(a.execute(&unit, &[code::RESERVE_6, 0, 0, 0, 0, 0], &[]).await);
        assert!(matches!(b.execute(&unit, &[0; 6], &[]).await, CommandStatus::ReservationConflict));
        unit.end_session(&a.0, SessionEnd::LoggedOut);
        Initiator::done(b.execute(&unit, &[0; 6], &[]).await);
        Initiator::done(b.execute(&unit, &[code::RESERVE_6, 0, 0, 0, 0, 0], &[]).await);
        Initiator::done(b.execute(&unit, &[code::RELEASE_6, 0, 0, 0, 0, 0], &[]).await);
    });
}
