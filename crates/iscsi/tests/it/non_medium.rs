//! Commands that do not access the medium.

use crate::scene::{BLOCKS, Initiator, properties, sense_of, with_unit};
use iscsi::scsi::{
    commands::{SUPPORTED_COMMANDS, code},
    sense::{AdditionalSense, SenseKey},
};

#[test]
fn capacity_is_reported_by_both_commands() {
    with_unit(1, properties(), |_, unit| async move {
        let initiator = Initiator::awake(&unit, "a").await;
        let short = [code::READ_CAPACITY_10, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let told = Initiator::done(initiator.execute(&unit, &short, &[]).await);
        assert_eq!(told, [0, 0, 0x07, 0xff, 0, 0, 2, 0]);
        let mut long = [0; 16];
        (long[0], long[1], long[13]) = (code::SERVICE_ACTION_IN_16, 0x10, 32);
        let told = Initiator::done(initiator.execute(&unit, &long, &[]).await);
        assert_eq!(told.len(), 32);
        assert_eq!(u64::from_be_bytes(told[..8].try_into().unwrap()), BLOCKS - 1);
        assert_eq!((told[13], told[14]), (3, 0), "eight blocks are a physical one, and it is not thin");
        long[13] = 12;
        assert_eq!(
            Initiator::done(initiator.execute(&unit, &long, &[]).await).len(),
            12,
            "as much as there is room for"
        );
    });
}

#[test]
fn a_new_session_gets_reset_occurred_once_and_inquiry_before_it() {
    with_unit(2, properties(), |_, unit| async move {
        let initiator = Initiator::new(&unit, "a");
        let inquiry = [code::INQUIRY, 0, 0, 0, 96, 0];
        assert_eq!(Initiator::done(initiator.execute(&unit, &inquiry, &[]).await).len(), 96);
        let luns = [code::REPORT_LUNS, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let told = Initiator::done(initiator.execute(&unit, &luns, &[]).await);
        assert_eq!(told[..4], 24_u32.to_be_bytes());
        assert_eq!(
            (&told[8..10], &told[16..18], &told[24..26]),
            (&[0, 0][..], &[0, 1][..], &[0x41, 0x2c][..])
        );
        let attention = (SenseKey::UnitAttention, AdditionalSense::RESET_OCCURRED);
        assert_eq!(sense_of(&initiator.execute(&unit, &[0; 6], &[]).await), attention);
        Initiator::done(initiator.execute(&unit, &[0; 6], &[]).await);
        unit.reset(None);
        let request_sense = [code::REQUEST_SENSE, 0, 0, 0, 18, 0];
        let told = Initiator::done(initiator.execute(&unit, &request_sense, &[]).await);
        assert_eq!((told[2], told[12]), (6, 0x29), "it is told to who asks");
        Initiator::done(initiator.execute(&unit, &[0; 6], &[]).await);
        let told = Initiator::done(initiator.execute(&unit, &request_sense, &[]).await);
        assert_eq!((told[2], told[12]), (0, 0));
    });
}

#[test]
fn mode_select_establishes_a_unit_attention_for_other_initiators() {
    with_unit(3, properties(), |_, unit| async move {
        let (first, second) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        let sense = [code::MODE_SENSE_6, 0x08, 0x08, 0, 255, 0];
        let mut list = Initiator::done(first.execute(&unit, &sense, &[]).await);
        assert_eq!(list.len(), 24);
        list[4 + 2] |= 4;
        list[0] = 0;
        let select = [code::MODE_SELECT_6, 0x10, 0, 0, list.len() as u8, 0];
        Initiator::done(first.execute(&unit, &select, &list).await);
        assert_eq!(Initiator::done(first.execute(&unit, &sense, &[]).await)[6] & 4, 4);
        let heard = second.execute(&unit, &[0; 6], &[]).await;
        assert_eq!(sense_of(&heard).1, AdditionalSense::MODE_PARAMETERS_CHANGED);
        unit.reset(Some(&first.0));
        assert_eq!(Initiator::done(first.execute(&unit, &sense, &[]).await)[6] & 4, 0, "as it was at first");
    });
}

#[test]
fn reported_commands_are_supported() {
    with_unit(4, properties(), |_, unit| async move {
        let initiator = Initiator::awake(&unit, "a").await;
        let all = [code::MAINTENANCE_IN, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0];
        let told = Initiator::done(initiator.execute(&unit, &all, &[]).await);
        assert_eq!(told.len(), 4 + 8 * SUPPORTED_COMMANDS.len());
        for descriptor in told[4..].chunks(8) {
            let (code, action, has_action) = (descriptor[0], descriptor[3], descriptor[5] & 1);
            let options = if has_action == 1 { 2 } else { 1 };
            let one = [code::MAINTENANCE_IN, 0x0c, options, code, 0, action, 0, 0, 0, 255, 0, 0];
            let told = Initiator::done(initiator.execute(&unit, &one, &[]).await);
            assert_eq!((told[1], told[4]), (3, code));
            assert_eq!(told[2..4], descriptor[6..8], "as long in both");
            let mut cdb = vec![0; 16];
            (cdb[0], cdb[1]) = (code, action);
            let ended = initiator.execute(&unit, &cdb, &[]).await;
            if let iscsi::scsi::unit::CommandStatus::CheckCondition(sense) = ended {
                let is_unmap = code == code::UNMAP;
                assert!(is_unmap || sense.additional != AdditionalSense::INVALID_OPERATION_CODE, "{code:#x}");
            }
        }
        let unknown = [code::MAINTENANCE_IN, 0x0c, 1, 0xff, 0, 0, 0, 0, 0, 255, 0, 0];
        assert_eq!(Initiator::done(initiator.execute(&unit, &unknown, &[]).await), [0, 1, 0, 0]);
    });
}
