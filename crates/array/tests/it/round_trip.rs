//! Values survive encoding and decoding.

use crate::{examples, values};
use array::format::{checkpoint::Checkpoint, *};
use proptest::prelude::*;

proptest! {
    #![proptest_config(values::cases(256))]

    #[test]
    fn a_location_comes_back(value in values::location()) {
        prop_assert_eq!(BlockLocation::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_slot_header_comes_back(value in values::slot_header()) {
        prop_assert_eq!(SlotHeader::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_summary_comes_back(value in values::summary()) {
        prop_assert_eq!(SummaryBlock::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_record_comes_back(value in values::record()) {
        prop_assert_eq!(LogRecord::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_checkpoint_comes_back(value in values::checkpoint()) {
        prop_assert_eq!(Checkpoint::decode(&value.encode()), Ok(value));
    }

    #[test]
    fn a_superblock_comes_back(value in values::superblock()) {
        prop_assert_eq!(Superblock::decode(&value.encode()), Ok(value));
    }
}

#[test]
fn the_examples_come_back_as_the_values_they_were_made_of() {
    assert_eq!(Superblock::decode(&examples::superblock().encode()), Ok(examples::superblock()));
    assert_eq!(SlotHeader::decode(&examples::log_slot_header().encode()), Ok(examples::log_slot_header()));
    assert_eq!(SummaryBlock::decode(&examples::summary().encode()), Ok(examples::summary()));
    assert_eq!(LogRecord::decode(&examples::record().encode()), Ok(examples::record()));
}

#[test]
fn a_torn_payload_is_found_wherever_it_is_torn() {
    let (record, seed) = (examples::record(), ChecksumSeed::of(examples::POOL));
    let whole = examples::payload();
    assert_eq!(record.check_payload(seed, &whole), Ok(()));
    let parts: Vec<_> = record.entries.iter().filter_map(LogEntry::payload).collect();
    for at in 0..whole.len() {
        let mut torn = whole.clone();
        torn[at] ^= 0x80;
        let is_part = parts.iter().any(|part| part.contains(&at));
        assert_eq!(record.check_payload(seed, &torn).is_err(), is_part, "byte {at}");
    }
    assert!(record.check_payload(seed, &whole[..4096]).is_err(), "half a payload");
}

#[test]
fn a_payload_of_an_older_stamp_is_found() {
    let (mut record, seed) = (examples::record(), ChecksumSeed::of(examples::POOL));
    let LogEntry::Write(write) = &mut record.entries[0] else { panic!("the first entry is a write") };
    write.key.stamp.0 -= 1;
    assert!(record.check_payload(seed, &examples::payload()).is_err());
}

#[test]
fn a_record_is_named_by_position_and_seal() {
    let (one, mut other) = (examples::record(), examples::record());
    other.accepted_at.0 += 1;
    let [one, other] = [one, other].map(|record| LogRecord::link_of(&record.encode()));
    assert_eq!(one.position, other.position);
    assert_ne!(one.seal, other.seal);
}
