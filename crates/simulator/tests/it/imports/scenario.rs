//! A run of one seed: a pool, a source, hosts, and processes that are killed until the import has ended.

use super::{
    hosts::Host,
    model::{Model, OF_BLOCK, SECTOR, ZERO, sectors_of},
    source::{BLOCK, SourceState, TestSource},
};
use array::{
    error::Error,
    format::{DriveId, PoolId, SparingLevel, VolumeId},
    pool::{
        ImportTerms, ImportedVolume, NewDrive, NewImport, NewPool, OpenSetting, Pool, VolumeSetting,
        create_with_copies, open,
    },
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Job, Random, World,
    sim::{DriveOptions, SimDrive, SimLimits, SimOutcome, Simulation},
};

const MIB: u64 = 1 << 20;
const BLOCKS: u64 = 2600;
const VOLUME: VolumeId = VolumeId([9; 16]);

#[derive(Clone, Copy)]
pub struct Scenario {
    pub is_killed: bool,
    pub is_cut: bool,
    pub is_slow: bool,
    /// Blocks of the source that it cannot read.
    pub is_damaged: bool,
    /// The damage is repaired; otherwise the import ends by order.
    pub is_repaired: bool,
    /// Some answers are wrong, once.
    pub is_rotten: bool,
    pub has_hosts: bool,
    /// Copies are compared with their checksums: wrong answers of the source would stay.
    pub reads_once: bool,
    /// After each crash, all below the mark that is not zero in the source must be in the volume.
    pub checks_the_mark: bool,
}

impl Scenario {
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed, "scenario");
        let reads_once = Random::new(seed, "terms").percent(35.0);
        Self {
            is_killed: random.percent(70.0),
            is_cut: random.percent(50.0),
            is_slow: random.percent(40.0),
            is_damaged: random.percent(35.0),
            is_repaired: random.percent(50.0),
            is_rotten: random.percent(20.0) && !reads_once,
            has_hosts: random.percent(90.0),
            reads_once,
            checks_the_mark: true,
        }
    }
}

#[derive(Default)]
pub struct Report {
    pub crashes: u32,
    pub host_writes: u64,
    pub compared_bytes: u64,
    pub read_back_bytes: u64,
    pub had_bad_blocks: bool,
}

/// Things that outlive a process.
struct Room {
    scenario: Scenario,
    seed: u64,
    source: Rc<SourceState>,
    model: Rc<RefCell<Model>>,
    writes: Rc<Cell<u64>>,
    end: RefCell<Option<ImportedVolume>>,
    /// An import was under way: a kill may have come behind its end.
    has_begun: Cell<bool>,
}

pub fn run(seed: u64, scenario: Scenario) -> Report {
    let mut simulation = Simulation::new(seed);
    let drives: Vec<_> =
        (0..3).map(|_| simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)))).collect();
    let devices = |drives: &[Rc<SimDrive>]| -> Vec<Rc<dyn BlockDevice>> {
        drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
    };
    let made = devices(&drives);
    simulation.run(SimLimits::generous(), |world| async move { make(&world, made).await }).completed();
    let mut random = Random::new(seed, "room");
    let source = Rc::new(source(&mut random, scenario));
    let model = Rc::new(RefCell::new(Model::of(&source.bytes)));
    let room = Rc::new(Room {
        scenario,
        seed,
        source,
        model,
        writes: Rc::default(),
        end: RefCell::default(),
        has_begun: Cell::new(false),
    });
    let mut report = Report { had_bad_blocks: !room.source.bad.borrow().is_empty(), ..Report::default() };
    for life in 0.. {
        let is_last = !scenario.is_killed || life >= 6;
        let most = if random.percent(50.0) { 800 } else { 4000 };
        let polls = (!is_last).then(|| 100 + random.below(most));
        let limits = SimLimits { polls, in_a_stable_write: random.percent(50.0), ..SimLimits::generous() };
        let (devices, living) = (devices(&drives), Rc::clone(&room));
        match simulation.run(limits, |world| async move { live(&world, devices, &living, is_last).await }) {
            SimOutcome::Completed(()) if room.end.borrow().is_some() => break,
            SimOutcome::Crashed => {
                report.crashes += 1;
                if random.percent(50.0) { simulation.cut_power() } else { simulation.kill() }
            }
            other => {
                other.completed();
            }
        }
    }
    // The source is gone, and the pool is opened once more.
    let (devices, last) = (devices(&drives), Rc::clone(&room));
    simulation
        .run(SimLimits::generous(), |world| async move { check_alone(&world, devices, &last).await })
        .completed();
    let end = room.end.borrow_mut().take().expect("it has ended");
    report.host_writes = room.writes.get();
    report.compared_bytes = end.compared_bytes;
    report.read_back_bytes = end.read_back_bytes;
    report
}

/// Blocks with tags of their own, and some of zeroes; the last one is there in part.
fn source(random: &mut Random, scenario: Scenario) -> SourceState {
    let mut bytes = Vec::new();
    let mut zeroes = 0;
    for sector in 0..BLOCKS * OF_BLOCK - 3 {
        if sector % OF_BLOCK == 0 && zeroes == 0 && random.percent(3.0) {
            zeroes = OF_BLOCK * (1 + random.below(100));
        }
        let tag = if zeroes > 0 { ZERO } else { 1 + sector };
        zeroes = u64::saturating_sub(zeroes, 1);
        bytes.extend(sectors_of(tag, 1));
    }
    let delay = Duration::from_millis(2 + random.below(20));
    let mut some = |is_some: bool, count: u64| -> BTreeSet<u64> {
        (0..if is_some { 1 + random.below(count) } else { 0 }).map(|_| random.below(BLOCKS)).collect()
    };
    let (bad, rotten) = (some(scenario.is_damaged, 12), some(scenario.is_rotten, 12));
    SourceState {
        bytes,
        is_cut: Cell::new(false),
        delay: Cell::new(delay),
        bad: RefCell::new(bad),
        is_rotten_source: scenario.is_rotten,
        rotten: RefCell::new(rotten),
        reads: Cell::new(0),
    }
}

async fn make(world: &World, devices: Vec<Rc<dyn BlockDevice>>) {
    let new = NewPool {
        pool: PoolId([7; 16]),
        name: "test".to_owned(),
        slot_bytes: MIB as u32,
        sparing: SparingLevel::None,
    };
    let drive = |(index, device)| NewDrive {
        drive: DriveId([index as u8 + 1; 16]),
        serial: format!("S{index}"),
        device,
        domain: None,
    };
    let drives: Vec<_> = devices.into_iter().enumerate().map(drive).collect();
    create_with_copies(world, &new, &drives, 2).await.expect("a pool is made");
}

fn setting(seed: u64) -> OpenSetting {
    match seed % 2 {
        0 => OpenSetting::default(),
        _ => OpenSetting { table_entries: 300, cache_bytes: 64 << 10, ..OpenSetting::default() },
    }
}

/// A process from its start to the end of the import, or to its crash.
async fn live(world: &World, devices: Vec<Rc<dyn BlockDevice>>, room: &Rc<Room>, is_last: bool) {
    let pool = open(world, &devices, setting(room.seed)).await.expect("it opens");
    room.source.is_cut.set(false);
    let source = || Rc::new(TestSource { world: world.clone(), state: Rc::clone(&room.source) });
    match pool.volumes().into_iter().next() {
        None => {
            let new = NewImport {
                name: "store".to_owned(),
                volume: VOLUME,
                setting: VolumeSetting::default(),
                source: b"the old array".to_vec(),
            };
            pool.begin_import(&new, source()).await.expect("it begins");
        }
        Some(info) if info.importing.is_none() => {
            let is_touched = |block: &u64| room.model.borrow().touched[*block as usize];
            let is_complete = room.source.bad.borrow().iter().all(is_touched);
            assert!(room.has_begun.get() && is_complete, "it ends once everything was copied");
            *room.end.borrow_mut() = Some(ImportedVolume::default());
            return;
        }
        Some(_) => {
            let refused = pool.volume("store").err().expect("what is not copied would read as zeroes");
            assert!(matches!(refused, Error::SourceNotAttached(_)), "{refused}");
            pool.attach_source("store", source()).expect("it is the same");
        }
    }
    if room.scenario.checks_the_mark {
        check_mark(&pool, room).await;
    }
    let device = VolumeDevice(pool.volume("store").expect("it is there"));
    let is_over = Rc::new(Cell::new(false));
    let half = room.model.borrow().sectors() / 2 / OF_BLOCK * OF_BLOCK;
    let parts = [0..half, half..room.model.borrow().sectors()];
    let hosts: Vec<_> = parts
        .into_iter()
        .filter(|_| room.scenario.has_hosts)
        .enumerate()
        .map(|(index, sectors)| {
            let host = Host {
                world: world.clone(),
                device: device.clone(),
                model: Rc::clone(&room.model),
                source: Rc::clone(&room.source),
                sectors,
                writes: Rc::clone(&room.writes),
                is_over: Rc::clone(&is_over),
            };
            let name = format!("host {index} of {}", room.writes.get());
            world.spawn("host", host.work(name, Duration::from_micros(200)))
        })
        .collect();
    let faults = world.spawn("faults", trouble(world.clone(), Rc::clone(room), Rc::clone(&is_over)));
    let imported = import((world, &pool), room, is_last).await;
    is_over.set(true);
    for host in hosts {
        host.await;
    }
    faults.await;
    let Some(imported) = imported else { return };
    let all = imported.compared_bytes
        + imported.read_back_bytes
        + imported.host_bytes
        + imported.findings.bad_bytes;
    assert_eq!(all, imported.size_bytes, "{imported:?}");
    assert_eq!(imported.findings.changed_bytes, 0);
    check_all(&device, room).await;
    *room.end.borrow_mut() = Some(imported);
    pool.close().await.expect("it closes");
}

/// Runs the import to its end; `None` if it goes on in another process.
async fn import((world, pool): (&World, &Rc<Pool>), room: &Room, is_last: bool) -> Option<ImportedVolume> {
    let job = || Job::new(world);
    let terms = ImportTerms { reads_once: room.scenario.reads_once, ..ImportTerms::default() };
    let by_order = ImportTerms { keeps_findings: true, ..terms };
    room.has_begun.set(true);
    let findings = match pool.import("store", terms, &job()).await {
        Ok(imported) => {
            assert!(imported.findings.is_empty());
            return Some(imported);
        }
        Err(Error::ImportIncomplete(findings)) => findings,
        Err(other) => panic!("{other}"),
    };
    let bad: Vec<u64> = room.source.bad.borrow().iter().copied().collect();
    let found = findings.bad.iter().flat_map(|range| range.start / BLOCK..range.end / BLOCK);
    assert!(findings.changed_bytes > 0 || findings.bad_bytes > 0);
    assert!(found.clone().all(|block| bad.contains(&block)), "{findings:?}, bad are {bad:?}");
    if findings.changed_bytes > 0 {
        // What came wrong once was copied so, and is found: the remedy is another import, or its place is written again.
        assert!(room.scenario.is_rotten, "{findings:?}");
        rewrite(pool, room, &findings.changed).await;
    }
    let untouched = bad.iter().filter(|block| !room.model.borrow().touched[**block as usize]).count();
    assert!(findings.bad_bytes / BLOCK >= untouched as u64, "{findings:?}, bad are {bad:?}");
    if !is_last {
        return None;
    }
    if room.scenario.is_repaired {
        room.source.bad.borrow_mut().clear();
        return Some(pool.import("store", terms, &job()).await.expect("it was repaired"));
    }
    let imported = pool.import("store", by_order, &job()).await.expect("it ends by order");
    bad.into_iter().for_each(|block| room.model.borrow_mut().give_up(block));
    Some(imported)
}

/// A host writes what was copied wrong.
async fn rewrite(pool: &Rc<Pool>, room: &Room, ranges: &[std::ops::Range<u64>]) {
    let device = VolumeDevice(pool.volume("store").expect("it is there"));
    for range in ranges {
        let sectors = range.start / SECTOR as u64..range.end / SECTOR as u64;
        let tag = room.model.borrow_mut().new_tag();
        room.model.borrow_mut().begin(sectors.clone(), tag);
        let data = vec![std::sync::Arc::new(Buffer::copy_of(&sectors_of(tag, sectors.end - sectors.start)))];
        let written = device.write(ByteOffset(range.start), data, world::Stability::Stable).await;
        written.expect("it is written");
        room.model.borrow_mut().acknowledge(sectors, tag);
    }
}

/// Cuts the source, and makes it slow, until the import is over.
async fn trouble(world: World, room: Rc<Room>, is_over: Rc<Cell<bool>>) {
    let mut random = world.random("trouble");
    while !is_over.get() {
        world.sleep(Duration::from_millis(20 + random.below(400))).await;
        if room.scenario.is_cut && random.percent(20.0) {
            room.source.is_cut.set(true);
            world.sleep(Duration::from_millis(100 + random.below(15_000))).await;
            room.source.is_cut.set(false);
        }
        if room.scenario.is_slow {
            let millis = if random.percent(50.0) { random.below(900) } else { 0 };
            room.source.delay.set(Duration::from_millis(2 + millis));
        }
    }
    room.source.is_cut.set(false);
    room.source.delay.set(Duration::ZERO);
}

/// All below the mark is the volume's own, but for zeroes and bad blocks.
async fn check_mark(pool: &Rc<Pool>, room: &Room) {
    let status = pool.volumes().into_iter().next().and_then(|info| info.importing).expect("it is imported");
    let volume = pool.volume("store").expect("it is there");
    // The source takes no reads meanwhile.
    let reads = room.source.reads.get();
    let bad = room.source.bad.borrow().clone();
    for block in 0..status.filled_bytes / BLOCK {
        let at = (block * BLOCK) as usize;
        let end = (at + BLOCK as usize).min(room.source.bytes.len());
        if bad.contains(&block) || room.source.bytes[at..end].iter().all(|byte| *byte == 0) {
            continue;
        }
        let device = VolumeDevice(Rc::clone(&volume));
        device
            .read(ByteOffset(block * BLOCK), vec![Buffer::zeroed(BLOCK as usize)])
            .await
            .expect("it is its own");
        assert_eq!(room.source.reads.get(), reads, "block {block} is below the mark and was not copied");
    }
}

async fn check_all(device: &VolumeDevice, room: &Room) {
    let sectors = room.model.borrow().sectors();
    for first in (0..sectors).step_by(64) {
        let count = 64.min(sectors - first);
        let into = vec![Buffer::zeroed(count as usize * SECTOR)];
        let read = device.read(ByteOffset(first * SECTOR as u64), into).await.expect("it is read");
        room.model.borrow_mut().check(first, &read[0]);
    }
}

async fn check_alone(world: &World, devices: Vec<Rc<dyn BlockDevice>>, room: &Room) {
    let pool = open(world, &devices, setting(room.seed)).await.expect("it opens");
    let info = pool.volumes().into_iter().next().expect("it is there");
    assert_eq!((info.importing, info.origin, info.filling), (None, None, None));
    let device = VolumeDevice(pool.volume("store").expect("it needs no source"));
    check_all(&device, room).await;
    let id = array::format::SnapshotId([3; 16]);
    pool.snapshot(&["store"], "after", id).await.expect("it is as any other volume");
}
