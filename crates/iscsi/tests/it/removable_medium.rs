//! START STOP UNIT and PREVENT ALLOW MEDIUM REMOVAL.

use crate::scene::{Initiator, cdb, properties, sense_of, with_unit};
use iscsi::scsi::{
    commands::code,
    properties::UnitProperties,
    sense::{AdditionalSense, SenseKey},
    withholding::SessionEnd,
};

const EJECT: [u8; 6] = [code::START_STOP_UNIT, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [code::START_STOP_UNIT, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [code::PREVENT_ALLOW, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [code::PREVENT_ALLOW, 0, 0, 0, 0, 0];
const READY: [u8; 6] = [0; 6];
const PREVENTED: (SenseKey, AdditionalSense) = (SenseKey::IllegalRequest, AdditionalSense::REMOVAL_PREVENTED);
const OUT: (SenseKey, AdditionalSense) = (SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT);

fn removable() -> UnitProperties {
    UnitProperties { is_removable: true, ..properties() }
}

#[test]
fn medium_commands_fail_without_a_medium_and_ejecting_loses_nothing() {
    with_unit(1, removable(), |_, unit| async move {
        let (own, other) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        let inquiry = [code::INQUIRY, 0, 0, 0, 96, 0];
        assert_eq!(Initiator::done(own.execute(&unit, &inquiry, &[]).await)[1], 0x80, "RMB");
        Initiator::done(own.execute(&unit, &cdb(code::WRITE_16, 0, 7, 1), &[5; 512]).await);
        Initiator::done(own.execute(&unit, &EJECT, &[]).await);
        Initiator::done(own.execute(&unit, &EJECT, &[]).await);
        let capacity = [code::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
        let of_blocks = [code::READ_16, code::WRITE_16, code::VERIFY_10, code::SYNCHRONIZE_CACHE_10]
            .into_iter()
            .chain([code::WRITE_SAME_16, code::ORWRITE_16, code::PRE_FETCH_10, code::WRITE_VERIFY_16])
            .map(|code| cdb(code, 0, 7, 1));
        for cdb in of_blocks.chain([READY.to_vec(), capacity]) {
            assert_eq!(sense_of(&other.execute(&unit, &cdb, &[9; 512]).await), OUT, "{cdb:x?}");
        }
        Initiator::done(other.execute(&unit, &inquiry, &[]).await);
        Initiator::done(own.execute(&unit, &LOAD, &[]).await);
        Initiator::done(own.execute(&unit, &READY, &[]).await);
        let changed = (SenseKey::UnitAttention, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
        assert_eq!(sense_of(&other.execute(&unit, &READY, &[]).await), changed);
        let read = Initiator::done(other.execute(&unit, &cdb(code::READ_16, 0, 7, 1), &[]).await);
        assert_eq!(read, [5; 512], "what was there, and nothing of what was refused");
    });
}

#[test]
fn removal_stays_prevented_until_the_initiator_allows_it_or_ends() {
    with_unit(2, removable(), |_, unit| async move {
        let (own, other) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        for ending in ["allows", "goes", "comes anew", "is reset"] {
            Initiator::done(own.execute(&unit, &PREVENT, &[]).await);
            for initiator in [&own, &other] {
                assert_eq!(sense_of(&initiator.execute(&unit, &EJECT, &[]).await), PREVENTED);
                // With POWER CONDITION, LOEJ is ignored.
                Initiator::done(initiator.execute(&unit, &[0x1b, 0, 0, 0, 0x12, 0], &[]).await);
                Initiator::done(initiator.execute(&unit, &READY, &[]).await);
            }
            // ALLOW by another initiator has no effect.
            Initiator::done(other.execute(&unit, &ALLOW, &[]).await);
            assert_eq!(sense_of(&other.execute(&unit, &EJECT, &[]).await), PREVENTED);
            match ending {
                "allows" => drop(Initiator::done(own.execute(&unit, &ALLOW, &[]).await)),
                "goes" => unit.end_session(&own.0, SessionEnd::LoggedOut),
                "comes anew" => unit.begin_session(&own.0),
                _ => unit.reset(None),
            }
            // Takes pending unit attentions.
            other.execute(&unit, &READY, &[]).await;
            own.execute(&unit, &READY, &[]).await;
            Initiator::done(other.execute(&unit, &EJECT, &[]).await);
            assert_eq!(sense_of(&own.execute(&unit, &READY, &[]).await), OUT, "it {ending}");
            Initiator::done(other.execute(&unit, &LOAD, &[]).await);
            own.execute(&unit, &READY, &[]).await;
        }
    });
}

#[test]
fn a_fixed_medium_stops_and_starts_but_is_not_ejected() {
    with_unit(3, properties(), |_, unit| async move {
        let own = Initiator::awake(&unit, "a").await;
        for moving in [EJECT, LOAD] {
            let refused = sense_of(&own.execute(&unit, &moving, &[]).await);
            assert_eq!(refused, (SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB));
        }
        for fine in [PREVENT, ALLOW, [0x1b, 0, 0, 0, 0, 0], [0x1b, 0, 0, 0, 1, 0], READY] {
            Initiator::done(own.execute(&unit, &fine, &[]).await);
        }
    });
}
