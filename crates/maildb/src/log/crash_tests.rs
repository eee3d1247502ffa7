//! The log under power cuts and failing writes, with thousands of seeds; every failure prints its seed.

use super::{
    CheckpointFile, LogCheckpoint, LogConfig, LogError, LogFiles, LogHandle, LogReader, LogRecord,
    LogStatistics, LoggedRecord, NodeOperation, buffer::first_position, memory_world::MemoryWorld,
};
use crate::format::{
    header::{LogPosition, LogTime, Signature},
    page_size::{DbTime, ObjectId, PageNumber, PageSize},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{ByteCount, Random, sim::SimFolder};

pub(super) const NEVER: LogTime = LogTime {
    years_since_1900: 0,
    month: 0,
    day: 0,
    hour: 0,
    minute: 0,
    second: 0,
    millisecond: 0,
    utc: false,
};
pub(super) const SIGNATURE: Signature =
    Signature { random: 77, created: NEVER, computer: *b"test\0\0\0\0\0\0\0\0\0\0\0\0" };

pub(super) fn config(segments: u64, circular: bool) -> LogConfig {
    LogConfig {
        base_name: "E00".to_owned(),
        file_bytes: ByteCount::kib(4 * segments),
        buffer_bytes: ByteCount::kib(16),
        circular,
        database_page_size: PageSize::Kib8,
    }
}

/// Expected contents of the log: all appended records in order, and the end of the acknowledged ones.
#[derive(Default)]
pub(super) struct Model {
    pub(super) entries: RefCell<Vec<LoggedRecord>>,
    /// Records that end here or before were acknowledged.
    acknowledged: Cell<LogPosition>,
    /// Generations below this one were released.
    floor: Cell<u32>,
}

impl Model {
    pub(super) fn append(&self, log: &LogHandle, record: LogRecord) -> LogPosition {
        let range = log.append(&record);
        self.entries.borrow_mut().push(LoggedRecord { start: range.start, end: range.end, record });
        range.end
    }

    pub(super) async fn make_stable(&self, log: &LogHandle, upto: LogPosition) -> Result<(), LogError> {
        log.make_stable(upto).await?;
        assert!(log.stable() >= upto);
        self.acknowledged.set(self.acknowledged.get().max(upto));
        Ok(())
    }

    /// The records read from `from` on must be a prefix of the appended ones, and include all acknowledged
    /// ones. The model forgets the rest.
    fn check_recovered(&self, from: LogPosition, read: &[LoggedRecord], seed: u64) {
        let mut entries = self.entries.borrow_mut();
        let skipped = entries.iter().take_while(|entry| entry.start < from).count();
        let expected = &entries[skipped..];
        assert!(
            read.len() <= expected.len(),
            "seed {seed}: {} records too many",
            read.len() - expected.len()
        );
        for (got, want) in read.iter().zip(expected) {
            assert_eq!(got, want, "seed {seed}");
        }
        let lost = expected[read.len()..].first();
        assert!(
            lost.is_none_or(|entry| entry.end > self.acknowledged.get()),
            "seed {seed}: an acknowledged record at {:?} is lost",
            lost.map(|entry| entry.start)
        );
        entries.truncate(skipped + read.len());
    }
}

pub(super) fn any_record(random: &mut Random, number: u32) -> LogRecord {
    let length = match random.below(20) {
        0 => random.below(9_000),
        1..6 => random.below(1_000),
        _ => random.below(60),
    };
    if length == 0 {
        return LogRecord::Commit { transaction: number, procid: 3 };
    }
    // Runs of equal bytes are the weakness of the format's own checksum.
    let letter = [b'A', 0xAA, 0][random.below(3) as usize];
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
    LogRecord::Insert { operation, key: number.to_be_bytes().to_vec(), data: vec![letter; length as usize] }
}

pub(super) async fn read_all(
    files: LogFiles,
    from: LogPosition,
) -> Result<(Vec<LoggedRecord>, LogReader), LogError> {
    let mut reader = LogReader::new(files, from);
    let mut entries = Vec::new();
    while let Some(entry) = reader.next().await? {
        entries.push(entry);
    }
    Ok((entries, reader))
}

/// One incarnation of a storage group: recover, continue, run several sessions, and sometimes close.
async fn live(
    memory: Rc<MemoryWorld>,
    disk: SimFolder,
    config: LogConfig,
    model: Rc<Model>,
    seed: u64,
    rounds: u64,
) -> LogStatistics {
    let world = memory.world();
    let directory = disk.directory(&memory.world());
    let mut random = Random::new(seed, "life");
    let files = LogFiles::scan(&directory, "E00").await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let log = if files.is_empty() {
        model.check_recovered(LogPosition::default(), &[], seed);
        LogHandle::create(&world, directory, config, SIGNATURE).await.expect("created")
    } else {
        let mut from = first_position(model.floor.get().max(1));
        // A checkpoint may be behind any acknowledged record.
        let acknowledged = model.acknowledged.get();
        let ends: Vec<LogPosition> = model.entries.borrow().iter().map(|entry| entry.end).collect();
        let candidates: Vec<LogPosition> =
            ends.into_iter().filter(|&end| end <= acknowledged && end >= from).collect();
        if !candidates.is_empty() && random.percent(50.0) {
            from = candidates[random.below(candidates.len() as u64) as usize];
        }
        let (entries, reader) =
            read_all(files, from).await.unwrap_or_else(|e| panic!("seed {seed}, from {from:?}: {e}"));
        model.check_recovered(from, &entries, seed);
        LogHandle::continue_after(&world, directory, config, reader.into_tail()).await.expect("continued")
    };

    let sessions = 1 + random.below(4);
    let mut running = Vec::new();
    for session in 0..sessions {
        let (log, model, memory) = (log.clone(), Rc::clone(&model), Rc::clone(&memory));
        let mut random = Random::new(seed, &format!("session {session}"));
        running.push(world.spawn("session", async move {
            for number in 0..rounds {
                log.room().await.expect("no failure");
                let mut end = LogPosition::default();
                for _ in 0..1 + random.below(4) {
                    end = model.append(&log, any_record(&mut random, number as u32));
                }
                match random.below(10) {
                    0..5 => model.make_stable(&log, end).await.expect("stable"),
                    5 => log.request_write(),
                    6 => {
                        let generation = log.stable().generation;
                        model.floor.set(model.floor.get().max(generation));
                        log.release_before(generation).await.expect("released");
                    }
                    _ => memory.pause().await,
                }
            }
        }));
    }
    for session in running {
        session.await;
    }
    if random.percent(50.0) {
        let end = log.end();
        log.close().await.expect("closed");
        model.acknowledged.set(model.acknowledged.get().max(end));
    }
    log.statistics()
}

/// Several incarnations of one group, each cut off after a random number of steps.
fn lives(seed: u64) -> LogStatistics {
    let mut random = Random::new(seed, "lives");
    let disk = SimFolder::default();
    let model = Rc::new(Model::default());
    let config = config([4, 5, 8, 16][random.below(4) as usize], random.percent(70.0));
    let mut config = config;
    config.file_bytes = config.file_bytes.max(ByteCount::kib(20));
    let mut sum = LogStatistics::default();
    for life in 0..2 + random.below(4) {
        let memory = MemoryWorld::new(seed * 100 + life);
        let steps = [30, 200, 2_000, 1_000_000][random.below(4) as usize];
        let steps = 1 + random.below(steps);
        let work = live(
            Rc::clone(&memory),
            disk.clone(),
            config.clone(),
            Rc::clone(&model),
            seed * 100 + life,
            2 + random.below(40),
        );
        if let Some(done) = memory.run(steps, work) {
            sum.rolls += done.rolls;
            sum.recycled += done.recycled;
            sum.record_stalls += done.record_stalls;
            sum.shadow_writes += done.shadow_writes;
        }
        // Otherwise only the process died: its writes can be read, and a later power cut may still discard
        // them.
        if random.percent(75.0) {
            disk.cut_power(&mut random);
        }
    }
    // The last power cut is recovered from too.
    let memory = MemoryWorld::new(seed);
    let last = live(Rc::clone(&memory), disk, config, model, seed * 100 + 99, 1);
    memory.run(u64::MAX, last).expect("an incarnation without a power cut ends");
    sum
}

/// Number of seeds from the environment; 2,500 by default.
fn seeds() -> u64 {
    const SEEDS: u64 = 2_500;
    std::env::var("SPINDLE_LOG_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(SEEDS)
}

#[test]
fn acknowledged_records_survive_any_power_cut_and_the_log_is_a_prefix() {
    let mut sum = LogStatistics::default();
    for seed in 0..seeds() {
        let done = lives(seed);
        sum.rolls += done.rolls;
        sum.recycled += done.recycled;
        sum.record_stalls += done.record_stalls;
        sum.shadow_writes += done.shadow_writes;
    }
    // The test is void if it missed one of these paths.
    assert!(
        sum.rolls > 100 && sum.recycled > 100 && sum.record_stalls > 100 && sum.shadow_writes > 100,
        "{sum:?}"
    );
}

#[test]
fn after_a_failed_write_nothing_is_acknowledged() {
    for writes in 3..30 {
        let disk = SimFolder::default();
        let memory = MemoryWorld::new(writes);
        let (world, directory) = (memory.world(), disk.directory(&memory.world()));
        disk.fail_after(writes);
        let outcome = memory.run(u64::MAX, async move {
            let log =
                LogHandle::create(&world, directory, config(8, false), SIGNATURE).await.expect("created");
            let mut failed = false;
            for number in 0..200 {
                let end = log.append(&LogRecord::Begin { transaction: number, procid: 1 }).end;
                let outcome = log.make_stable(end).await;
                assert!(!failed || outcome.is_err(), "acknowledged after a failure");
                failed |= outcome.is_err();
                assert_eq!(log.room().await.is_err(), failed);
            }
            assert!(failed && matches!(log.close().await, Err(LogError::Io(_))));
        });
        outcome.expect("no task waits forever");
    }
}

#[test]
fn commits_that_wait_together_share_writes() {
    let disk = SimFolder::default();
    let memory = MemoryWorld::new(9);
    let (world, directory) = (memory.world(), disk.directory(&memory.world()));
    let statistics = memory.run(u64::MAX, async move {
        let log = LogHandle::create(&world, directory, config(256, false), SIGNATURE).await.expect("created");
        let mut sessions = Vec::new();
        for procid in 0..50 {
            let own = log.clone();
            sessions.push(world.spawn("session", async move {
                for transaction in 0..20 {
                    let end = own.append(&LogRecord::Commit { transaction, procid }).end;
                    own.make_stable(end).await.expect("stable");
                }
            }));
        }
        for session in sessions {
            session.await;
        }
        log.statistics()
    });
    let statistics = statistics.expect("ends");
    assert_eq!(statistics.records, 1000);
    assert!(statistics.writes < 500, "{statistics:?}");
}

#[test]
fn a_checkpoint_survives_power_cuts_as_the_last_one_written_or_the_one_before() {
    for seed in 0..500 {
        let mut random = Random::new(seed, "checkpoints");
        let disk = SimFolder::default();
        let written = Rc::new(Cell::new(0));
        let confirmed = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let memory = MemoryWorld::new(seed);
            let directory = disk.directory(&memory.world());
            let (written, confirmed) = (Rc::clone(&written), Rc::clone(&confirmed));
            memory.run(1 + random.below(40), async move {
                let (file, found) = CheckpointFile::open(&directory, "E00").await.expect("opened");
                let found = found.map_or(0, |checkpoint| checkpoint.position.generation);
                assert!((confirmed.get()..=written.get()).contains(&found), "seed {seed}: {found}");
                for generation in found + 1..found + 10 {
                    let position = first_position(generation);
                    written.set(generation);
                    let checkpoint = LogCheckpoint {
                        position,
                        consistent: position,
                        databases: 1,
                        signature: SIGNATURE,
                        stamps: [3; 10],
                    };
                    file.write(&checkpoint).await.expect("written");
                    confirmed.set(generation);
                }
            });
            disk.cut_power(&mut random);
        }
    }
}
