//! A medium that is taken out, and put in again.

use crate::scene::{Initiator, cdb, facts, sense_of, with_unit};
use iscsi::scsi::{
    commands::code,
    facts::Facts,
    sense::{AdditionalSense, SenseKey},
};

const EJECT: [u8; 6] = [code::START_STOP_UNIT, 0, 0, 0, 0x02, 0];
const LOAD: [u8; 6] = [code::START_STOP_UNIT, 0, 0, 0, 0x03, 0];
const PREVENT: [u8; 6] = [code::PREVENT_ALLOW, 0, 0, 0, 1, 0];
const ALLOW: [u8; 6] = [code::PREVENT_ALLOW, 0, 0, 0, 0, 0];
const READY: [u8; 6] = [0; 6];
const PREVENTED: (SenseKey, AdditionalSense) = (SenseKey::IllegalRequest, AdditionalSense::REMOVAL_PREVENTED);
const OUT: (SenseKey, AdditionalSense) = (SenseKey::NotReady, AdditionalSense::MEDIUM_NOT_PRESENT);

fn removable() -> Facts {
    Facts { is_removable: true, ..facts() }
}

#[test]
fn nothing_is_done_without_a_medium_and_nothing_is_lost_with_it() {
    with_unit(1, removable(), |_, unit| async move {
        let (own, other) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        let inquiry = [code::INQUIRY, 0, 0, 0, 96, 0];
        assert_eq!(Initiator::done(own.ask(&unit, &inquiry, &[]).await)[1], 0x80, "RMB");
        Initiator::done(own.ask(&unit, &cdb(code::WRITE_16, 0, 7, 1), &[5; 512]).await);
        Initiator::done(own.ask(&unit, &EJECT, &[]).await);
        Initiator::done(own.ask(&unit, &EJECT, &[]).await);
        let capacity = [code::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0].to_vec();
        let of_blocks = [code::READ_16, code::WRITE_16, code::VERIFY_10, code::SYNCHRONIZE_CACHE_10]
            .into_iter()
            .chain([code::WRITE_SAME_16, code::ORWRITE_16, code::PRE_FETCH_10, code::WRITE_VERIFY_16])
            .map(|code| cdb(code, 0, 7, 1));
        for cdb in of_blocks.chain([READY.to_vec(), capacity]) {
            assert_eq!(sense_of(&other.ask(&unit, &cdb, &[9; 512]).await), OUT, "{cdb:x?}");
        }
        Initiator::done(other.ask(&unit, &inquiry, &[]).await);
        Initiator::done(own.ask(&unit, &LOAD, &[]).await);
        Initiator::done(own.ask(&unit, &READY, &[]).await);
        let changed = (SenseKey::UnitAttention, AdditionalSense::MEDIUM_MAY_HAVE_CHANGED);
        assert_eq!(sense_of(&other.ask(&unit, &READY, &[]).await), changed);
        let read = Initiator::done(other.ask(&unit, &cdb(code::READ_16, 0, 7, 1), &[]).await);
        assert_eq!(read, [5; 512], "what was there, and nothing of what was refused");
    });
}

#[test]
fn who_prevents_removal_does_so_for_all_until_it_allows_it_or_goes() {
    with_unit(2, removable(), |_, unit| async move {
        let (own, other) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        for ending in ["allows", "goes", "comes anew", "is reset"] {
            Initiator::done(own.ask(&unit, &PREVENT, &[]).await);
            for initiator in [&own, &other] {
                assert_eq!(sense_of(&initiator.ask(&unit, &EJECT, &[]).await), PREVENTED);
                // Of a power condition, LOEJ means nothing.
                Initiator::done(initiator.ask(&unit, &[0x1b, 0, 0, 0, 0x12, 0], &[]).await);
                Initiator::done(initiator.ask(&unit, &READY, &[]).await);
            }
            // Another one's leave does not help.
            Initiator::done(other.ask(&unit, &ALLOW, &[]).await);
            assert_eq!(sense_of(&other.ask(&unit, &EJECT, &[]).await), PREVENTED);
            match ending {
                "allows" => drop(Initiator::done(own.ask(&unit, &ALLOW, &[]).await)),
                "goes" => unit.end(&own.0),
                "comes anew" => unit.begin(&own.0),
                _ => unit.reset(None),
            }
            // They may have something to hear.
            other.ask(&unit, &READY, &[]).await;
            own.ask(&unit, &READY, &[]).await;
            Initiator::done(other.ask(&unit, &EJECT, &[]).await);
            assert_eq!(sense_of(&own.ask(&unit, &READY, &[]).await), OUT, "it {ending}");
            Initiator::done(other.ask(&unit, &LOAD, &[]).await);
            own.ask(&unit, &READY, &[]).await;
        }
    });
}

#[test]
fn what_cannot_be_removed_stays_and_stops_and_starts() {
    with_unit(3, facts(), |_, unit| async move {
        let own = Initiator::awake(&unit, "a").await;
        for moving in [EJECT, LOAD] {
            let refused = sense_of(&own.ask(&unit, &moving, &[]).await);
            assert_eq!(refused, (SenseKey::IllegalRequest, AdditionalSense::INVALID_FIELD_IN_CDB));
        }
        for fine in [PREVENT, ALLOW, [0x1b, 0, 0, 0, 0, 0], [0x1b, 0, 0, 0, 1, 0], READY] {
            Initiator::done(own.ask(&unit, &fine, &[]).await);
        }
    });
}
