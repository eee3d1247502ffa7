//! The log on damaged disks: damage is reported or repaired, and wrong records are never read.

use super::{
    Damage, LogError, LogFiles, LogHandle, LogRecord, LoggedRecord,
    buffer::first_position,
    crash_tests::{Model, NEVER, SIGNATURE, any_record, config, read_all},
    memory_world::MemoryWorld,
    segment::seal_segment,
};
use std::rc::Rc;
use world::{Random, sim::SimFolder};

/// A closed log of several generations, none of them released.
fn finished_log(seed: u64) -> (SimFolder, Rc<Model>) {
    let disk = SimFolder::default();
    let model = Rc::new(Model::default());
    let memory = MemoryWorld::new(seed);
    let (world, directory) = (memory.world(), disk.directory(&memory.world()));
    let told = Rc::clone(&model);
    memory
        .run(u64::MAX, async move {
            let log =
                LogHandle::create(&world, directory, config(8, false), SIGNATURE).await.expect("created");
            let mut random = Random::new(seed, "records");
            let mut number = 0;
            // To the middle of a generation, so that every test has segments to damage in the newest.
            while number < 200 || log.end().segment != 4 {
                let end = told.append(&log, any_record(&mut random, number));
                if random.percent(30.0) {
                    told.make_stable(&log, end).await.expect("stable");
                }
                number += 1;
            }
            told.make_stable(&log, log.end()).await.expect("stable");
            log.close().await.expect("closed");
        })
        .expect("runs to the end");
    (disk, model)
}

/// Reads a disk from generation 1.
fn recover(disk: &SimFolder) -> Result<Vec<LoggedRecord>, LogError> {
    let memory = MemoryWorld::new(0);
    let directory = disk.directory(&memory.world());
    let reading = async move {
        let files = LogFiles::scan(&directory, "E00").await?;
        read_all(files, first_position(1)).await.map(|(entries, _)| entries)
    };
    memory.run(u64::MAX, reading).expect("reading ends")
}

#[test]
fn a_flipped_bit_never_yields_a_wrong_record_or_hides_one_before_others() {
    let mut told = 0;
    for seed in 0..10 {
        let (disk, model) = finished_log(seed);
        let entries = model.entries.borrow().clone();
        assert_eq!(recover(&disk).expect("undamaged"), entries);
        let newest = entries.last().expect("not empty").start.generation;
        assert!(newest >= 3, "seed {seed} made only {newest} generations");
        let names: Vec<String> =
            disk.names().into_iter().filter(|name| name.ends_with(".log") && name != "E00tmp.log").collect();
        let mut random = Random::new(seed, "flips");
        for flip in 0..150 {
            let damaged = disk.copy();
            let name = &names[random.below(names.len() as u64) as usize];
            let bit = random.below(damaged.length(name) as u64 * 8) as usize;
            damaged.edit(name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
            match recover(&damaged) {
                Ok(read) => {
                    assert_eq!(read, entries[..read.len()], "seed {seed}, flip {flip}");
                    // Only the last write has nothing after it that proves it was acknowledged.
                    let complete = read.len() == entries.len();
                    assert!(
                        complete || name == "E00.log",
                        "seed {seed}, bit {bit} of {name}: records vanished"
                    );
                }
                Err(LogError::Damaged { .. }) => told += 1,
                Err(other) => panic!("seed {seed}, bit {bit} of {name}: {other}"),
            }
        }
    }
    assert!(told > 500, "only {told} flips were reported");
}

#[test]
fn a_gap_before_acknowledged_log_is_damage_not_the_end() {
    let (disk, model) = finished_log(3);
    let last = model.entries.borrow().last().expect("not empty").end;
    assert!(last.segment > 3, "the newest generation has a few segments: {last:?}");
    disk.edit("E00.log", |bytes| bytes[4096..8192].fill(0));
    let error = recover(&disk).expect_err("a hole");
    assert!(matches!(error, LogError::Damaged { segment: 1, damage: Damage::Segment, .. }), "{error}");
}

#[test]
fn a_torn_partial_segment_is_read_from_its_shadow() {
    let (disk, model) = finished_log(3);
    let last = model.entries.borrow().last().expect("not empty").end;
    let torn = usize::from(last.segment) * 4096 + 512;
    disk.edit("E00.log", |bytes| bytes[torn..torn + 512].fill(0));
    assert_eq!(recover(&disk).expect("repaired"), *model.entries.borrow());
}

#[test]
fn the_newest_generation_is_found_after_a_crash_at_each_step_of_a_roll() {
    let (disk, model) = finished_log(5);
    let entries = model.entries.borrow();
    let newest = entries.last().expect("not empty").start.generation;
    let archived = format!("E00{:08X}.log", newest - 1);
    // Both renames missing: the newest generation has the temporary name, the one before the current name.
    disk.rename("E00.log", "E00tmp.log");
    assert_eq!(recover(&disk).expect("one rename missing"), *entries);
    disk.rename(&archived, "E00.log");
    assert_eq!(recover(&disk).expect("both renames missing"), *entries);

    // The log continues, and the names are right again.
    let memory = MemoryWorld::new(1);
    let (world, directory) = (memory.world(), disk.directory(&memory.world()));
    let going_on = async move {
        let files = LogFiles::scan(&directory, "E00").await.expect("scanned");
        let (_, reader) = read_all(files, first_position(1)).await.expect("read");
        let log = LogHandle::continue_after(&world, directory, config(8, false), reader.into_tail()).await?;
        log.append(&LogRecord::DetachDatabase { dbid: 1 });
        log.close().await
    };
    memory.run(u64::MAX, going_on).expect("ends").expect("continued");
    assert_eq!(recover(&disk).expect("chain is whole").len(), entries.len() + 1);
    for generation in 1..=newest {
        assert!(disk.names().contains(&format!("E00{generation:08X}.log")), "{:?}", disk.names());
    }
}

#[test]
fn a_segment_that_differs_from_the_next_generations_checksum_is_damage() {
    let (disk, _) = finished_log(3);
    // As after a lost write: an earlier, valid version of the segment.
    disk.edit("E0000000002.log", |bytes| {
        let segment = &mut bytes[3 * 4096..4 * 4096];
        segment[2000..].fill(0);
        seal_segment(segment, 2, 3, NEVER, 3);
    });
    let error = recover(&disk).expect_err("a lost write");
    assert!(matches!(error, LogError::Damaged { damage: Damage::Accumulated, .. }), "{error}");
}

#[test]
fn a_missing_generation_in_the_middle_is_named() {
    let (disk, _) = finished_log(2);
    disk.rename("E0000000002.log", "elsewhere");
    assert!(matches!(recover(&disk), Err(LogError::Missing { generation: 2 })));
}

#[test]
fn replay_that_must_begin_behind_the_end_of_the_log_is_refused() {
    let (disk, model) = finished_log(4);
    let mut beyond = model.entries.borrow().last().expect("not empty").end;
    beyond.segment += 1;
    let memory = MemoryWorld::new(0);
    let directory = disk.directory(&memory.world());
    let outcome = memory.run(u64::MAX, async move {
        let files = LogFiles::scan(&directory, "E00").await?;
        read_all(files, beyond).await.map(|(entries, _)| entries)
    });
    let error = outcome.expect("ends").expect_err("refused");
    assert!(matches!(error, LogError::Damaged { damage: Damage::EndsBefore(_), .. }), "{error}");
}
