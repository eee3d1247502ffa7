//! Logs that the engine wrote, checked inside a simulated world: whole, damaged, unreadable, and after power
//! cuts.

use maildb::{
    PageNumber, PageSize,
    format::{
        header::{LogTime, Signature},
        page_size::{DbTime, ObjectId},
    },
    log::{
        LogConfig, LogFiles, LogHandle, LogReader, LogRecord, NodeOperation,
        segment::{SEGMENT_BYTES, seal_segment},
    },
};
use std::rc::Rc;
use verify::in_world::{LogReport, verify_logs};
use world::{
    BlockDevice, ByteCount, Directory, ExtentDirectory, Random, World,
    sim::{DriveOptions, FaultPlan, SimFolder, SimLimits, SimOutcome, Simulation},
};

const BASE_NAME: &str = "E00";

fn config(segments: u64) -> LogConfig {
    LogConfig {
        base_name: BASE_NAME.to_owned(),
        file_bytes: ByteCount::kib(4 * segments),
        buffer_bytes: ByteCount::kib(16),
        circular: false,
        database_page_size: PageSize::Kib8,
    }
}

/// An insertion of up to 9,000 bytes; most are short.
fn any_record(random: &mut Random, number: u32) -> LogRecord {
    let length = match random.below(20) {
        0 => random.below(9_000),
        1..6 => random.below(1_000),
        _ => random.below(60),
    };
    let operation = NodeOperation {
        procid: 3,
        dbid: 1,
        page: PageNumber(number),
        dbtime: DbTime(2),
        dbtime_before: DbTime(1),
        transaction: number,
        level: 0,
        slot: 0,
        flags: 0,
        rceid: number,
        tree_root: PageNumber(4),
        object: ObjectId(5),
    };
    // Runs of equal bytes are the weakness of the format's own checksum.
    let letter = [b'A', 0xAA, 0][random.below(3) as usize];
    LogRecord::Insert { operation, key: number.to_be_bytes().to_vec(), data: vec![letter; length as usize] }
}

/// Begins the log, or recovers and continues it.
async fn open_log(world: &World, directory: &Rc<dyn Directory>, config: LogConfig) -> LogHandle {
    let files = LogFiles::scan(directory, BASE_NAME).await.expect("the log is found");
    if files.is_empty() {
        return LogHandle::create(world, Rc::clone(directory), config, Signature::default())
            .await
            .expect("the log is created");
    }
    let mut reader = LogReader::from_oldest(files).expect("the log has a beginning");
    while reader.next().await.expect("the log is whole").is_some() {}
    LogHandle::continue_after(world, Rc::clone(directory), config, reader.into_tail())
        .await
        .expect("the log continues")
}

/// Appends records and makes them stable from time to time; ends in the middle of a generation. Returns their
/// number.
async fn append_records(log: &LogHandle, random: &mut Random, count: u32, stable_percent: f64) -> u64 {
    let mut number = 0;
    while number < count || log.end().segment != 4 {
        log.append(&any_record(random, number));
        if random.percent(stable_percent) {
            log.make_stable(log.end()).await.expect("the records are written");
        }
        number += 1;
    }
    log.make_stable(log.end()).await.expect("the records are written");
    number.into()
}

fn verify(disk: &SimFolder) -> LogReport {
    let disk = disk.clone();
    let checking = |world: World| async move {
        let directory = disk.directory(&world);
        verify_logs(&directory, BASE_NAME, &mut |_, _| ()).await
    };
    let outcome = Simulation::new(0).run(SimLimits::generous(), checking);
    outcome.completed().expect("the log can be read")
}

/// A closed log of several generations, and the number of its records.
fn finished_log(seed: u64) -> (SimFolder, u64) {
    let disk = SimFolder::default();
    let folder = disk.clone();
    let writing = move |world: World| async move {
        let log = open_log(&world, &folder.directory(&world), config(8)).await;
        let records = append_records(&log, &mut Random::new(seed, "records"), 200, 30.0).await;
        log.close().await.expect("the log closes");
        records
    };
    let records = Simulation::new(seed).run(SimLimits::generous(), writing).completed();
    (disk, records)
}

#[test]
fn verification_accepts_a_whole_log_and_locates_damage() {
    let (disk, records) = finished_log(6);
    let whole = verify(&disk);
    assert!(whole.is_clean(), "{whole:?}");
    assert_eq!(whole.records, records);
    assert!(whole.total(|tally| tally.shadow) >= 1);

    disk.edit("E0000000002.log", |bytes| bytes[2 * 4096 + 97] ^= 2);
    let damaged = verify(&disk);
    assert_eq!(damaged.total(|tally| tally.damaged), 1);
    assert!(damaged.broken.is_some() && !damaged.is_clean());
    let file = damaged.files.iter().find(|file| !file.is_clean()).expect("one file is damaged");
    assert_eq!((file.name.as_str(), file.damage().count()), ("E0000000002.log", 1));
}

#[test]
fn a_lost_header_is_damage_even_if_the_whole_file_is_blank() {
    for fill in [0, 0x33] {
        let (disk, _) = finished_log(7);
        disk.edit("E0000000001.log", |bytes| bytes.fill(fill));
        let report = verify(&disk);
        assert!(!report.is_clean() && report.files[0].verdict.facts.is_none(), "{report:?}");
    }
}

#[test]
fn damage_behind_the_recorded_end_does_not_count() {
    let (disk, records) = finished_log(6);
    let end = verify(&disk).files[0].recorded_end.expect("it has a successor");
    // A segment that was written, with one flipped bit.
    let flip_in = |index: u16| {
        let disk = disk.copy();
        disk.edit("E0000000001.log", |bytes| {
            let segment = &mut bytes[usize::from(index) * SEGMENT_BYTES..][..SEGMENT_BYTES];
            seal_segment(segment, 1, index, LogTime::default(), index);
            segment[700] ^= 1;
        });
        verify(&disk)
    };
    let behind = flip_in(end.segment + 1);
    assert_eq!(behind.total(|tally| tally.damaged), 1);
    assert!(behind.is_clean(), "{behind:?}");
    assert_eq!(behind.records, records);
    let before = flip_in(end.segment);
    assert!(before.broken.is_some() && !before.files[0].is_clean(), "{before:?}");
}

#[test]
fn an_unreadable_sector_costs_only_its_own_segment() {
    let mut reports = 0;
    for seed in 0..30 {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(16)));
        let checking = move |world: World| async move {
            let directory = ExtentDirectory::format(Rc::clone(&drive) as Rc<dyn BlockDevice>).await;
            let directory: Rc<dyn Directory> = Rc::new(directory.expect("the drive can be formatted"));
            let log = open_log(&world, &directory, config(64)).await;
            append_records(&log, &mut Random::new(seed, "records"), 1_000, 5.0).await;
            log.close().await.expect("the log closes");
            drive.set_faults(FaultPlan { unreadable_percent: 20.0, ..FaultPlan::none() });
            verify_logs(&directory, BASE_NAME, &mut |_, _| ()).await
        };
        let Ok(report) = simulation.run(SimLimits::generous(), checking).completed() else { continue };
        // The newest generation is not full.
        let mut archived = report.files.iter().filter(|file| file.name != "E00.log");
        let Some(file) = archived.find(|file| file.verdict.tally.damaged > 0) else { continue };
        assert!(file.verdict.tally.good > 30 && !report.is_clean(), "{file:?}");
        reports += 1;
    }
    assert!(reports > 3, "only {reports} logs had an unreadable sector");
}

/// Recovers the log, appends records, and cuts the power at a random moment.
fn append_until_power_cut(simulation: &mut Simulation, disk: &SimFolder, random: &mut Random, seed: u64) {
    let limits = SimLimits { polls: Some(20 + random.below(1_500)), ..SimLimits::generous() };
    let folder = disk.clone();
    let writing = move |world: World| async move {
        let log = open_log(&world, &folder.directory(&world), config(8)).await;
        let mut random = Random::new(seed, "records");
        loop {
            // Seldom, so that most writes have several segments.
            append_records(&log, &mut random, 20, 5.0).await;
        }
    };
    let outcome: SimOutcome<()> = simulation.run(limits, writing);
    assert_eq!(outcome, SimOutcome::Crashed, "seed {seed}");
    simulation.cut_power();
    disk.cut_power(random);
}

#[test]
fn a_log_after_power_cuts_is_clean_before_and_after_its_recovery() {
    let (mut repairable, mut incomplete) = (0, 0);
    for seed in 0..150 {
        let disk = SimFolder::default();
        let (mut simulation, mut random) = (Simulation::new(seed), Random::new(seed, "power cuts"));
        for cut in 0..4 {
            append_until_power_cut(&mut simulation, &disk, &mut random, seed * 10 + cut);
            let report = verify(&disk);
            assert!(report.is_clean(), "seed {seed}, power cut {cut}: {report:#?}");
            repairable += report.total(|tally| tally.repairable);
            let findings = report.files.iter().flat_map(|file| &file.verdict.findings);
            incomplete += findings.filter(|finding| finding.what.contains("an incomplete write, of")).count();
        }
    }
    println!("measured: {repairable} repairable segments, {incomplete} of incomplete writes");
    // The test is void if no power cut tore a write.
    assert!(repairable > 20 && incomplete > 5, "{repairable} repairable, {incomplete} incomplete");
}
