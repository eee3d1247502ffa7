//! A unit withheld from its initiators.

use crate::scene::{Initiator, cdb, properties, sense_of, with_unit};
use iscsi::scsi::{
    commands::code,
    sense::{AdditionalSense, SenseKey},
    unit::CommandStatus,
    withholding::SessionEnd,
};

const WITHHELD: (SenseKey, AdditionalSense) =
    (SenseKey::NotReady, AdditionalSense::MANUAL_INTERVENTION_REQUIRED);

#[test]
fn a_withheld_initiator_reaches_nothing_until_it_has_logged_out() {
    with_unit(3, properties(), |_, unit| async move {
        let own = Initiator::awake(&unit, "own").await;
        let block = vec![1; 512];
        let write = cdb(code::WRITE_10, 0, 0, 1);
        Initiator::done(own.execute(&unit, &write, &block).await);
        assert_eq!(unit.withhold().await, ["iqn.2026-11.test:own"]);
        assert!(unit.withhold().await.is_empty(), "it was withheld before");
        unit.contents_changed();
        let reserve = [code::RESERVE_6, 0, 0, 0, 0, 0];
        for command in [&[0; 6][..], &write, &cdb(code::READ_10, 0, 0, 1), &reserve] {
            let data = if command == write { &block[..] } else { &[] };
            assert_eq!(sense_of(&own.execute(&unit, command, data).await), WITHHELD, "{command:?}");
        }
        let inquiry = [code::INQUIRY, 0, 0, 0, 96, 0];
        assert!(matches!(own.execute(&unit, &inquiry, &[]).await, CommandStatus::Good(_)));
        // Its session breaks, and it comes back.
        unit.end_session(&own.0, SessionEnd::Broken);
        unit.begin_session(&own.0);
        assert_eq!(sense_of(&own.execute(&unit, &write, &block).await), WITHHELD);
        // An initiator that was not connected is not concerned.
        let other = Initiator::awake(&unit, "other").await;
        Initiator::done(other.execute(&unit, &write, &block).await);
        unit.end_session(&own.0, SessionEnd::LoggedOut);
        assert!(unit.withheld_from().is_empty());
        let own = Initiator::awake(&unit, "own").await;
        Initiator::done(own.execute(&unit, &write, &block).await);
    });
}

#[test]
fn a_readmitted_initiator_is_told_that_the_contents_changed() {
    with_unit(4, properties(), |_, unit| async move {
        let own = Initiator::awake(&unit, "own").await;
        unit.withhold().await;
        unit.contents_changed();
        assert_eq!(sense_of(&own.execute(&unit, &[0; 6], &[]).await), WITHHELD);
        assert!(!unit.readmit("iqn.2026-11.test:other") && unit.readmit("iqn.2026-11.test:own"));
        for told in [AdditionalSense::MEDIUM_MAY_HAVE_CHANGED, AdditionalSense::CAPACITY_CHANGED] {
            let heard = own.execute(&unit, &[0; 6], &[]).await;
            assert_eq!(sense_of(&heard), (SenseKey::UnitAttention, told));
        }
        Initiator::done(own.execute(&unit, &[0; 6], &[]).await);
    });
}

#[test]
fn a_session_that_replaces_another_one_has_its_attention_and_not_its_reservation() {
    with_unit(5, properties(), |_, unit| async move {
        let own = Initiator::awake(&unit, "own").await;
        let other = Initiator::awake(&unit, "other").await;
        Initiator::done(own.execute(&unit, &[code::RESERVE_6, 0, 0, 0, 0, 0], &[]).await);
        assert!(matches!(other.execute(&unit, &[0; 6], &[]).await, CommandStatus::ReservationConflict));
        // The new session begins before the old one has ended.
        unit.begin_session(&own.0);
        Initiator::done(other.execute(&unit, &[0; 6], &[]).await);
        unit.end_session(&own.0, SessionEnd::Broken);
        let heard = own.execute(&unit, &[0; 6], &[]).await;
        assert_eq!(sense_of(&heard), (SenseKey::UnitAttention, AdditionalSense::RESET_OCCURRED));
        Initiator::done(own.execute(&unit, &[0; 6], &[]).await);
    });
}
