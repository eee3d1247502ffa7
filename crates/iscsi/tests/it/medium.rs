//! Every command that writes agrees with every command that reads.

use crate::scene::{BLOCKS, Initiator, cdb, properties, sense_of, with_unit};
use iscsi::scsi::{
    commands::code,
    properties::UnitProperties,
    sense::{AdditionalSense, SenseKey},
    unit::{CommandStatus, LogicalUnit, ScsiRequest},
};
use world::Random;

/// Executes a random command on the unit and applies it to `content`, the model.
async fn step(unit: &LogicalUnit, initiator: &Initiator, random: &mut Random, content: &mut [u8]) {
    let count = 1 + random.below(16);
    let block = random.below(BLOCKS - count);
    let place = (block * 512) as usize..((block + count) * 512) as usize;
    let mut data = vec![0; place.len()];
    random.fill(&mut data);
    let fua = [0, 0x08, 0x18][random.below(3) as usize];
    let known = &mut content[place];
    match random.below(10) {
        0 => {
            let codes = [code::WRITE_10, code::WRITE_16];
            let cdb = cdb(codes[random.below(2) as usize], fua, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, &data).await);
            known.copy_from_slice(&data);
        }
        1 => {
            let cdb = [code::WRITE_6, (block >> 16) as u8, (block >> 8) as u8, block as u8, count as u8, 0];
            Initiator::done(initiator.execute(unit, &cdb, &data).await);
            known.copy_from_slice(&data);
        }
        2 => {
            let cdb = cdb(code::WRITE_VERIFY_16, 0x02, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, &data).await);
            known.copy_from_slice(&data);
        }
        3 => {
            let cdb = cdb(code::ORWRITE_16, fua, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, &data).await);
            known.iter_mut().zip(&data).for_each(|(known, new)| *known |= new);
        }
        4 => {
            let one = &data[..512];
            let cdb = cdb(code::WRITE_SAME_16, 0, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, one).await);
            known.chunks_mut(512).for_each(|block| block.copy_from_slice(one));
        }
        5 => {
            let cdb = cdb(code::WRITE_SAME_16, 0x01, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, &[]).await);
            known.fill(0);
        }
        6 => {
            let mut cdb = cdb(code::COMPARE_AND_WRITE, fua, block, 0);
            cdb[13] = count as u8;
            let both = [&*known, &data].concat();
            Initiator::done(initiator.execute(unit, &cdb, &both).await);
            known.copy_from_slice(&data);
            // The expected data are gone: nothing may be written.
            if let CommandStatus::CheckCondition(sense) = initiator.execute(unit, &cdb, &both).await {
                assert_eq!(sense.key, SenseKey::Miscompare);
                let place = sense.information.expect("it says where") as usize;
                assert_ne!(both[place], known[place]);
                assert_eq!(both[..place], known[..place]);
            } else {
                assert_eq!(both[..data.len()], both[data.len()..], "they differed");
            }
        }
        7 => {
            let cdb = cdb(code::VERIFY_10, 0x02, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, known).await);
            let refused = initiator.execute(unit, &cdb, &data).await;
            assert_eq!(sense_of(&refused).0, SenseKey::Miscompare);
        }
        8 => {
            let cdb = cdb(code::SYNCHRONIZE_CACHE_10, 0, block, count as u32);
            Initiator::done(initiator.execute(unit, &cdb, &[]).await);
        }
        _ => {
            for code in [code::READ_10, code::READ_16] {
                let cdb = cdb(code, fua, block, count as u32);
                assert!(Initiator::done(initiator.execute(unit, &cdb, &[]).await) == known);
            }
        }
    }
}

#[test]
fn every_write_command_agrees_with_every_read_command() {
    for seed in 0..20 {
        with_unit(seed, properties(), |world, unit| async move {
            let initiator = Initiator::awake(&unit, "a").await;
            let mut random = world.random("commands");
            let mut content = vec![0; (BLOCKS * 512) as usize];
            for _ in 0..150 {
                step(&unit, &initiator, &mut random, &mut content).await;
            }
            let all = cdb(code::READ_16, 0, 0, BLOCKS as u32);
            assert!(Initiator::done(initiator.execute(&unit, &all, &[]).await) == content, "seed {seed}");
        });
    }
}

#[test]
fn commands_beyond_the_end_or_with_too_few_data_are_refused() {
    with_unit(1, properties(), |_, unit| async move {
        let initiator = Initiator::awake(&unit, "a").await;
        let out = (SenseKey::IllegalRequest, AdditionalSense::LBA_OUT_OF_RANGE);
        for code in [code::READ_16, code::WRITE_16, code::VERIFY_16, code::ORWRITE_16, code::WRITE_SAME_16]
            .into_iter()
            .chain([code::SYNCHRONIZE_CACHE_16, code::PRE_FETCH_16, code::WRITE_VERIFY_16])
        {
            for (block, count) in [(BLOCKS, 1), (BLOCKS - 1, 2), (u64::MAX, 1), (BLOCKS + 1, 0)] {
                let ended = initiator.execute(&unit, &cdb(code, 0, block, count), &[0; 512]).await;
                assert_eq!(sense_of(&ended), out, "{code:#x} of {count} at {block}");
            }
        }
        let ended = initiator.execute(&unit, &cdb(code::ORWRITE_16, 0, 0, 2), &[0; 512]).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::INVALID_FIELD_IN_CDB);
        let ended = initiator.execute(&unit, &cdb(code::WRITE_16, 0, 0, 2), &[7; 700]).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::INVALID_FIELD_IN_INFORMATION_UNIT);
        Initiator::done(initiator.execute(&unit, &cdb(code::WRITE_16, 0, 0, 2), &[7; 512]).await);
        let both = Initiator::done(initiator.execute(&unit, &cdb(code::READ_16, 0, 0, 2), &[]).await);
        assert_eq!((both[0], both[511], both[512]), (7, 7, 0), "the whole blocks that came are written");
        Initiator::done(initiator.execute(&unit, &cdb(code::WRITE_16, 0, BLOCKS, 0), &[]).await);
        Initiator::done(initiator.execute(&unit, &cdb(code::READ_10, 0, 0, 0), &[]).await);
        let none = initiator.execute(&unit, &cdb(code::WRITE_SAME_16, 0, 0, 0), &[0; 512]).await;
        assert_eq!(sense_of(&none).1, AdditionalSense::INVALID_FIELD_IN_CDB, "no blocks are not all");
    });
}

/// A one-block CDB of every command that writes, with its data-out length.
fn writing() -> Vec<(Vec<u8>, usize)> {
    let mut all = vec![([code::WRITE_6, 0, 0, 0, 1, 0].to_vec(), 512)];
    for code in [code::WRITE_10, code::WRITE_VERIFY_10, code::WRITE_SAME_10, code::WRITE_16]
        .into_iter()
        .chain([code::WRITE_VERIFY_16, code::WRITE_SAME_16, code::ORWRITE_16])
    {
        all.push((cdb(code, 0, 0, 1), 512));
    }
    for code in [code::WRITE_12, code::WRITE_VERIFY_12] {
        all.push(([code, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0].to_vec(), 512));
    }
    for code in [code::WRITE_SAME_10, code::WRITE_SAME_16] {
        // The UNMAP bit, with and without a block.
        all.extend([(cdb(code, 0x08, 0, 1), 512), (cdb(code, 0x08, 0, 1), 0)]);
    }
    all.push((cdb(code::WRITE_SAME_16, 0x01, 0, 1), 0));
    let mut compare = cdb(code::COMPARE_AND_WRITE, 0, 0, 0);
    compare[13] = 1;
    all.push((compare, 1024));
    all.push(([code::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24, 0].to_vec(), 24));
    all
}

#[test]
fn write_protection_comes_before_other_errors() {
    let protected = (SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    for is_read_only in [true, false] {
        with_unit(2, UnitProperties { is_read_only, ..properties() }, move |_, unit| async move {
            let initiator = Initiator::awake(&unit, "a").await;
            for (cdb, bytes) in writing() {
                for is_mismatched in [false, true] {
                    let data = vec![1; bytes];
                    let request = initiator.request(&cdb, &data);
                    let ended =
                        unit.execute(ScsiRequest { may_write: is_read_only, is_mismatched, ..request }).await;
                    assert_eq!(sense_of(&ended), protected, "{cdb:x?}, read-only: {is_read_only}");
                }
            }
            let first = Initiator::done(initiator.execute(&unit, &cdb(code::READ_16, 0, 0, 1), &[]).await);
            assert_eq!(first, [0; 512]);
        });
    }
}

#[test]
fn a_reservation_conflict_comes_before_other_errors() {
    with_unit(4, properties(), |_, unit| async move {
        let (holder, other) = (Initiator::awake(&unit, "a").await, Initiator::awake(&unit, "b").await);
        Initiator::done(holder.execute(&unit, &[code::RESERVE_6, 0, 0, 0, 0, 0], &[]).await);
        for (cdb, _) in writing() {
            let request = ScsiRequest { is_mismatched: true, may_write: false, ..other.request(&cdb, &[]) };
            assert!(matches!(unit.execute(request).await, CommandStatus::ReservationConflict), "{cdb:x?}");
        }
    });
}

#[test]
fn only_thin_units_accept_unmap() {
    with_unit(3, properties(), |_, unit| async move {
        let initiator = Initiator::awake(&unit, "a").await;
        let unmap = [code::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        let ended = initiator.execute(&unit, &unmap, &[0; 24]).await;
        assert_eq!(sense_of(&ended).1, AdditionalSense::INVALID_OPERATION_CODE);
    });
}
