//! Last stamps of branches: they survive closings and power cuts exactly, so that a follower may send again
//! what it lost, and nothing else.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{
        CatalogueTable, SnapshotId, Stamp, Superblock,
        features::{COMPATIBLE_LEVEL, READ_ONLY_BRANCH_STAMPS},
        row::BranchRow,
        superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_start_bytes},
    },
    pool::{AnswerHold, DeliveredChange, DeliveredRecord, LogSubscriber, OpenSetting, Pool, open},
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, World,
    sim::{SimLimits, SimOutcome},
};

const VOLUMES: [&str; 3] = ["a", "b", "c"];

/// The last stamp of each branch, by number, as delivered records have them. The branch of a volume here is
/// its number in [`VOLUMES`], from 1.
#[derive(Clone, Default)]
struct LastStamps(Rc<RefCell<BTreeMap<u64, u64>>>);

impl LastStamps {
    fn of(&self, volume: usize) -> u64 {
        self.0.borrow().get(&(volume as u64 + 1)).copied().unwrap_or(0)
    }

    fn note(&self, branch: u64, stamp: u64) {
        let mut last = self.0.borrow_mut();
        let last = last.entry(branch).or_default();
        *last = stamp.max(*last);
    }
}

impl LogSubscriber for LastStamps {
    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        for change in &record.changes {
            match change {
                DeliveredChange::Write { key, .. } => self.note(key.branch.0.into(), key.stamp.0),
                DeliveredChange::Zeroes { interval, .. } | DeliveredChange::Discard { interval, .. } => {
                    self.note(interval.branch.0.into(), interval.stamp.0);
                }
                DeliveredChange::Put { row, .. } if row.table == CatalogueTable::Point => {
                    self.note(row.id, row.sub);
                }
                // A command that changes rows alone.
                DeliveredChange::Put { row, bytes, .. } if row.table == CatalogueTable::Branch => {
                    self.note(row.id, BranchRow::decode(bytes).expect("a row").stamp_max.0);
                }
                DeliveredChange::Put { .. } | DeliveredChange::Remove(_) => {}
            }
        }
    }
}

/// A write with a stamp that was begun last before a power cut: the number of its volume, and the stamp.
type StampedWrite = Option<(usize, u64)>;

/// The block that such writes go to.
const BLOCK: u64 = 200 << 12;

/// A block that begins with a stamp.
fn block_of(stamp: u64) -> [Arc<Buffer>; 1] {
    let mut block = Buffer::zeroed(4096);
    block[..8].copy_from_slice(&stamp.to_le_bytes());
    [Arc::new(block)]
}

/// Checks that a branch accepts the stamp behind its last one, and none before. That gives it the stamp.
async fn check(pool: &Rc<Pool>, volume: usize, last: &LastStamps) {
    let device = pool.volume(VOLUMES[volume]).expect("it is there");
    let was = last.of(volume);
    for taken in [was, was.saturating_sub(1), was / 2] {
        let refused = device.apply_write(ByteOffset(0), &block_of(1), Stamp(taken)).await;
        assert!(refused.is_err(), "stamp {taken} of volume {volume}, whose last one is {was}");
    }
    let applied = device.apply_write(ByteOffset(0), &block_of(1), Stamp(was + 1)).await;
    applied.unwrap_or_else(|error| panic!("volume {volume}, whose last stamp is {was}: {error}"));
    assert_eq!(last.of(volume), was + 1);
}

/// Changes of one incarnation.
struct Work {
    pool: Rc<Pool>,
    random: Random,
    last: LastStamps,
    snapshots: Rc<Cell<u64>>,
}

impl Work {
    async fn change(&mut self) {
        let volume = self.random.below(2) as usize;
        let name = VOLUMES[volume];
        let device = VolumeDevice(self.pool.volume(name).expect("it is there"));
        let at = self.random.below(100) * 4096;
        match self.random.below(10) {
            0..=2 => write(&device, at + 512 * self.random.below(3), 7, 4096).await,
            3 => device.discard(ByteOffset(at), ByteCount(40 << 12)).await.expect("it is discarded"),
            4..=6 => {
                // Far below what the other branches have, or far above.
                let stamp = self.last.of(volume) + 1 + (1 << self.random.below(36));
                let applied = device.0.apply_write(ByteOffset(at), &block_of(8), Stamp(stamp)).await;
                applied.expect("it is above all of this branch");
            }
            7 => {
                let count = self.snapshots.replace(self.snapshots.get() + 1);
                let (snapshot, id) = (count.to_string(), SnapshotId([count as u8; 16]));
                self.pool.snapshot(&[name], &snapshot, id).await.expect("it is taken");
            }
            8 => {
                if let Some(oldest) = self.pool.snapshots(name).expect("they are listed").first() {
                    self.pool.delete_snapshot(name, &oldest.name).await.expect("it is deleted");
                }
            }
            _ => {
                for size in [MIB / 2, MIB] {
                    self.pool.resize_volume(name, size).await.expect("it is resized");
                }
            }
        }
        if self.random.below(8) == 0 {
            self.pool.checkpoint().await.expect("it is made");
        }
    }
}

/// The end of an incarnation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    /// When all commands were answered.
    Cut,
    /// In the middle of writes with given stamps, or before them.
    CutWhileWriting,
}

/// A pool with the volumes of [`VOLUMES`] over several incarnations.
#[derive(Clone)]
struct History {
    random: Rc<RefCell<Random>>,
    last: LastStamps,
    snapshots: Rc<Cell<u64>>,
    begun: Rc<Cell<StampedWrite>>,
    /// Writes at a power cut that are there, and those that are not.
    survivors: Rc<Cell<(u32, u32)>>,
}

impl History {
    async fn live(self, world: World, devices: Vec<Rc<dyn BlockDevice>>, is_first: bool, end: End) {
        let mut random = Random::new(self.random.borrow_mut().next_u64(), "incarnation");
        let setting = if random.below(2) == 0 { small() } else { OpenSetting::default() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let _subscription = pool.subscribe(Rc::new(self.last.clone()));
        if is_first {
            for name in VOLUMES {
                make_volume(&pool, name, MIB).await.expect("it is made");
            }
        }
        self.look_for_last_write(&pool).await;
        if end == End::CutWhileWriting {
            return self.write_forever(&pool, random.below(2) as usize).await;
        }
        // Not always, since the check gives the branch another stamp.
        for volume in 0..VOLUMES.len() {
            if random.below(2) == 0 {
                check(&pool, volume, &self.last).await;
            }
        }
        let commands = random.below(30);
        let snapshots = Rc::clone(&self.snapshots);
        let mut work = Work { pool: Rc::clone(&pool), random, last: self.last, snapshots };
        for _ in 0..commands {
            work.change().await;
        }
        if end == End::Close {
            pool.close().await.expect("it closes");
        }
    }

    /// Finds out if the write at the last power cut is there.
    async fn look_for_last_write(&self, pool: &Rc<Pool>) {
        let Some((volume, stamp)) = self.begun.get() else { return };
        let device = VolumeDevice(pool.volume(VOLUMES[volume]).expect("it is there"));
        let (mut there, mut lost) = self.survivors.get();
        if read(&device, BLOCK, 4096).await[..8] == stamp.to_le_bytes() {
            self.last.note(volume as u64 + 1, stamp);
            there += 1;
        } else {
            lost += 1;
        }
        self.survivors.set((there, lost));
        self.begun.set(None);
    }

    async fn write_forever(&self, pool: &Rc<Pool>, volume: usize) {
        let device = pool.volume(VOLUMES[volume]).expect("it is there");
        loop {
            let stamp = self.last.of(volume) + 10;
            self.begun.set(Some((volume, stamp)));
            let applied = device.apply_write(ByteOffset(BLOCK), &block_of(stamp), Stamp(stamp)).await;
            applied.expect("it is above all of this branch");
        }
    }
}

#[test]
fn a_branch_takes_exactly_the_stamps_above_its_last_one_after_any_opening() {
    let survivors = Rc::<Cell<(u32, u32)>>::default();
    for seed in 0..16 {
        let mut scene = Scene::new(900 + seed, 2);
        let history = History {
            random: Rc::new(RefCell::new(Random::new(seed, "history"))),
            last: LastStamps::default(),
            snapshots: Rc::default(),
            begun: Rc::default(),
            survivors: Rc::clone(&survivors),
        };
        for incarnation in 0..8 {
            let is_first = incarnation == 0;
            let (end, polls) = {
                let mut random = history.random.borrow_mut();
                let ends = [End::Close, End::Cut, End::CutWhileWriting];
                let end = ends[random.below(if is_first { 2 } else { 3 }) as usize];
                (end, (1 << random.below(6)) * (100 + random.below(100)))
            };
            let polls = (end == End::CutWhileWriting).then_some(polls);
            let limits = SimLimits { polls, ..SimLimits::generous() };
            let devices = scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
            let history = history.clone();
            let outcome = scene.simulation.run(limits, |world| history.live(world, devices, is_first, end));
            if end == End::CutWhileWriting {
                assert_eq!(outcome, SimOutcome::Crashed);
            } else {
                outcome.completed();
            }
            if end != End::Close {
                scene.simulation.cut_power();
            }
        }
    }
    let (there, lost) = survivors.get();
    assert!(there > 0 && lost > 0, "{there} of the writes at a power cut are there, {lost} not");
}

/// Removes the feature from all superblocks, as if an older program had written them.
fn forget_stamps(scene: &Scene) {
    let places = (0..SUPERBLOCK_PLACES as u8).map(superblock_start_bytes);
    for (drive, at) in places.flat_map(|at| scene.drives.iter().map(move |drive| (drive, at))) {
        let mut image = vec![0; SUPERBLOCK_BYTES_MAX];
        drive.peek(at, &mut image);
        if let Ok(mut superblock) = Superblock::decode(&image) {
            superblock.features.read_only &= !READ_ONLY_BRANCH_STAMPS;
            superblock.features.compatible &= !COMPATIBLE_LEVEL;
            drive.poke(at, &superblock.encode());
        }
    }
}

#[test]
fn a_branch_of_an_older_program_may_have_any_stamp_of_the_pool() {
    let mut scene = Scene::new(950, 2);
    let stamp = Rc::new(Cell::new(0));
    let known = Rc::clone(&stamp);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        for name in ["a", "b"] {
            make_volume(&pool, name, MIB).await.expect("it is made");
        }
        let last = LastStamps::default();
        let _subscription = pool.subscribe(Rc::new(last.clone()));
        write(&VolumeDevice(pool.volume("b").expect("it is there")), 0, 1, 4096).await;
        known.set(last.of(1));
        pool.close().await.expect("it closes");
    });
    forget_stamps(&scene);
    let last = stamp.get();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        for name in ["a", "b"] {
            let volume = pool.volume(name).expect("it is there");
            assert!(volume.apply_write(ByteOffset(0), &block_of(1), Stamp(last)).await.is_err());
        }
        pool.upgrade().await.expect("it is upgraded");
        pool.close().await.expect("it closes");
        // From now on the rows tell.
        let pool = open(&world, &devices, small()).await.expect("it opens");
        for (name, stamp) in [("a", last + 1), ("b", last + 3)] {
            let volume = pool.volume(name).expect("it is there");
            volume.apply_write(ByteOffset(0), &block_of(1), Stamp(stamp)).await.expect("it is above all");
        }
    });
}
