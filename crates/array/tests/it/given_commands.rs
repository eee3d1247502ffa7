//! Commands with given stamps of every kind, beside an oracle: repeated, cut off by crashes, and contradicting what is
//! there.

use crate::scene::{MIB, Scene, read, small, write};
use array::{
    error::Error,
    format::{BlockCount, BlockIndex, SnapshotId, Stamp, VolumeId, WallNanoseconds},
    pool::{GivenSnapshot, NewSnapshot, NewVolume, Pool, RollbackGoal, VolumeSetting, open},
    volume::{Volume, VolumeDevice},
};
use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Random, Stability,
    sim::{SimLimits, SimOutcome},
};

const IDS: [VolumeId; 2] = [VolumeId([b'a'; 16]), VolumeId([b'b'; 16])];
const BLOCKS: u64 = 128;

async fn make_replicas(pool: &Rc<Pool>) {
    for (name, volume) in ["a", "b"].into_iter().zip(IDS) {
        let (size_bytes, setting) = (BLOCKS * 4096, VolumeSetting::default());
        let new = NewVolume { name: name.to_owned(), volume, size_bytes, setting };
        pool.create_replica(&new).await.expect("it is made");
    }
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Write { volume: usize, first: u64, count: u64, byte: u8 },
    Zeroes { volume: usize, first: u64, count: u64 },
    Discard { volume: usize, first: u64, count: u64 },
    Size { volume: usize, sectors: u64 },
    Snapshot(u8),
    SnapshotDeleted(u8),
    RollBack { volume: usize, snapshot: u8, left: u8 },
    Deleted { volume: usize },
}

/// Content of a volume; of each sector.
type Content = Vec<u8>;

/// State that the commands leave.
#[derive(Clone, Default)]
struct Oracle {
    volumes: [Option<Content>; 2],
    snapshots: BTreeMap<u8, [Option<Content>; 2]>,
    left: BTreeMap<u8, Content>,
}

impl Oracle {
    fn new() -> Self {
        let whole = || Some(vec![0; BLOCKS as usize * 8]);
        Self { volumes: [whole(), whole()], ..Self::default() }
    }

    fn sectors(&self, volume: usize) -> u64 {
        self.volumes[volume].as_ref().map_or(0, Vec::len) as u64
    }

    fn fill(&mut self, volume: usize, first: u64, count: u64, byte: u8) {
        let content = self.volumes[volume].as_mut().expect("it is there");
        content[first as usize * 8..(first + count) as usize * 8].fill(byte);
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Write { volume, first, count, byte } => self.fill(volume, first, count, byte),
            Command::Zeroes { volume, first, count } | Command::Discard { volume, first, count } => {
                self.fill(volume, first, count, 0);
            }
            Command::Size { volume, sectors } => {
                self.volumes[volume].as_mut().expect("it is there").resize(sectors as usize, 0);
            }
            Command::Snapshot(snapshot) => drop(self.snapshots.insert(snapshot, self.volumes.clone())),
            Command::SnapshotDeleted(snapshot) => drop(self.snapshots.remove(&snapshot)),
            Command::RollBack { volume, snapshot, left } => {
                let before = self.snapshots[&snapshot][volume].clone();
                let before = std::mem::replace(&mut self.volumes[volume], before);
                self.left.insert(left, before.expect("it is there"));
            }
            Command::Deleted { volume } => {
                self.volumes[volume] = None;
                self.snapshots.values_mut().for_each(|of| of[volume] = None);
            }
        }
    }
}

/// Commands that a source could have had, and what they leave.
fn commands(random: &mut Random, count: u8) -> (Vec<Command>, Oracle) {
    let mut oracle = Oracle::new();
    let mut all = Vec::new();
    let mut rollbacks = 0;
    for number in 1..=count {
        let volume = random.below(2) as usize;
        let blocks = oracle.sectors(volume) / 8;
        let first = random.below(blocks);
        let length = |random: &mut Random, most: u64| 1 + random.below(most.min(blocks - first));
        let known: Vec<u8> = oracle.snapshots.keys().copied().collect();
        let any = |random: &mut Random| known[random.below(known.len() as u64) as usize];
        let command = match random.below(20) {
            0..=7 => Command::Write { volume, first, count: length(random, 90), byte: number },
            8 | 9 => Command::Zeroes { volume, first, count: length(random, 128) },
            10..=12 => Command::Discard { volume, first, count: length(random, 128) },
            13 | 14 => Command::Size { volume, sectors: 9 + random.below(BLOCKS * 8) },
            15 | 16 if known.is_empty() || random.below(2) == 0 => Command::Snapshot(number),
            17 if known.len() > 2 => Command::SnapshotDeleted(any(random)),
            18 | 19 if !known.is_empty() && rollbacks < 10 => {
                rollbacks += 1;
                Command::RollBack { volume, snapshot: any(random), left: 200 - rollbacks }
            }
            _ => Command::Snapshot(number),
        };
        oracle.apply(command);
        all.push(command);
    }
    let last = Command::Deleted { volume: 1 };
    oracle.apply(last);
    all.push(last);
    (all, oracle)
}

fn given(name: &str, snapshot: u8, stamp: u64) -> GivenSnapshot<'_> {
    let new = NewSnapshot { name, snapshot: SnapshotId([snapshot; 16]), note: b"noted" };
    GivenSnapshot { new, created_at: WallNanoseconds(77), stamp: Stamp(stamp) }
}

fn handle(pool: &Rc<Pool>, volume: usize) -> Option<Rc<Volume>> {
    pool.volume(IDS[volume]).ok()
}

/// Applies a command. True if anything was done.
async fn ensure(pool: &Rc<Pool>, command: Command, stamp: u64) -> bool {
    let at = Stamp(stamp);
    match command {
        Command::Write { volume, first, count, byte } => {
            let Some(volume) = handle(pool, volume) else { return false };
            // A smaller size may have come since.
            if (first + count) * 4096 > volume.size_bytes() {
                return false;
            }
            let data: Vec<_> = (0..count).map(|_| Arc::new(Buffer::copy_of(&[byte; 4096]))).collect();
            volume.ensure_write(ByteOffset(first * 4096), &data, at).await.expect("a write") > 0
        }
        Command::Zeroes { volume, first, count } | Command::Discard { volume, first, count } => {
            let Some(volume) = handle(pool, volume) else { return false };
            if (first + count) * 4096 > volume.size_bytes() {
                return false;
            }
            let (first, count) = (BlockIndex(first), BlockCount(count));
            let done = match command {
                Command::Zeroes { .. } => volume.ensure_zeroes(first, count, at).await,
                _ => volume.ensure_discard(first, count, at).await,
            };
            done.expect("it is of this history")
        }
        Command::Size { volume, sectors } => {
            pool.ensure_size(IDS[volume], sectors, at).await.expect("it is of this history")
        }
        Command::Snapshot(snapshot) => {
            let name = format!("s{snapshot}");
            pool.ensure_snapshot(&IDS, &given(&name, snapshot, stamp)).await.expect("a snapshot") > 0
        }
        Command::SnapshotDeleted(snapshot) => {
            let id = SnapshotId([snapshot; 16]);
            pool.ensure_snapshot_deleted(&IDS, id, at).await.expect("a deletion") > 0
        }
        Command::RollBack { volume, snapshot, left } => {
            let (snapshot, left) = (SnapshotId([snapshot; 16]), VolumeId([left; 16]));
            pool.ensure_rolled_back(IDS[volume], snapshot, left, at).await.expect("a rollback")
        }
        Command::Deleted { volume } => pool.ensure_volume_deleted(IDS[volume], at).await.expect("a deletion"),
    }
}

async fn content(device: &impl BlockDevice) -> Content {
    let bytes = read(device, 0, device.geometry().size.0 as usize).await;
    let sectors = bytes.chunks(512).map(|sector| {
        assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector has one byte");
        sector[0]
    });
    sectors.collect()
}

async fn check(pool: &Rc<Pool>, oracle: &Oracle) {
    for (index, expected) in oracle.volumes.iter().enumerate() {
        let Some(expected) = expected else {
            assert!(pool.volume(IDS[index]).is_err(), "volume {index} was deleted");
            continue;
        };
        let device = VolumeDevice(pool.volume(IDS[index]).expect("it is there"));
        assert!(content(&device).await == *expected, "volume {index}");
        let mut shown = pool.snapshots(IDS[index]).expect("it is there");
        // Each rollback leaves a point of its own.
        let is_left = |name: &str| name.starts_with("~rollback-");
        let left = shown.iter().filter(|one| is_left(&one.name)).count();
        assert_eq!(left, pool.rollbacks_above(IDS[index], Stamp(0)).expect("it is there").len());
        shown.retain(|one| !is_left(&one.name));
        assert_eq!(shown.len(), oracle.snapshots.values().filter(|of| of[index].is_some()).count());
        assert!(shown.iter().all(|one| one.created_at == WallNanoseconds(77) && one.note == b"noted"));
        for (snapshot, of) in &oracle.snapshots {
            let id = SnapshotId([*snapshot; 16]);
            let device = pool.snapshot_device(IDS[index], id).expect("it is there");
            assert!(Some(content(&device).await) == of[index], "snapshot {snapshot} of {index}");
        }
    }
    for (left, expected) in &oracle.left {
        let device = VolumeDevice(pool.volume(VolumeId([*left; 16])).expect("it was left"));
        assert!(content(&device).await == *expected, "what rollback {left} left");
    }
}

#[test]
fn a_follower_that_crashes_anywhere_and_repeats_commands_of_any_kind_becomes_equal() {
    let mut random = Random::new(764, "commands");
    let mut crashes = 0;
    for seed in 0..20 {
        let mut scene = Scene::new(7640 + seed, 3);
        let (all, oracle) = commands(&mut random, 70);
        let all = Rc::new(all);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_replicas(&pool).await;
            pool.close().await.expect("it closes");
        });
        let (confirmed, mut attempts) = (Rc::new(Cell::new(0)), 0);
        loop {
            let devices =
                scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect::<Vec<_>>();
            // An opening needs more and more of them.
            let polls = 100 + random.below(200) + 40 * attempts;
            attempts += 1;
            let limits = SimLimits { polls: Some(polls), ..SimLimits::generous() };
            let (commands, done) = (Rc::clone(&all), Rc::clone(&confirmed));
            let from = done.get() - random.below(done.get() as u64 + 1).min(9) as usize;
            let outcome = scene.simulation.run(limits, move |world| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                for (index, &command) in commands.iter().enumerate().skip(from) {
                    let did = ensure(&pool, command, 100 * index as u64 + 100).await;
                    assert!(index >= done.get() || !did, "{command:?} at {index} was confirmed");
                    done.set(done.get().max(index + 1));
                }
                pool.close().await.expect("it closes");
            });
            if !matches!(outcome, SimOutcome::Crashed) {
                break;
            }
            scene.simulation.cut_power();
            crashes += 1;
        }
        assert_eq!(confirmed.get(), all.len(), "seed {seed}: the commands ended");
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            check(&pool, &oracle).await;
            assert!(pool.is_replica(IDS[0]).expect("it is there"), "after rollbacks, too");
        });
    }
    println!("note: {crashes} crashes");
    assert!(crashes > 40, "{crashes} crashes");
}

#[test]
fn a_command_that_contradicts_what_is_there_changes_nothing() {
    let mut scene = Scene::new(765, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_replicas(&pool).await;
        let a = handle(&pool, 0).expect("it is there");
        assert!(ensure(&pool, Command::Write { volume: 0, first: 0, count: 4, byte: 1 }, 100).await);
        let discard = a.ensure_discard(BlockIndex(2), BlockCount(1), Stamp(100)).await;
        assert!(discard.expect_err("a write has the stamp").to_string().contains("is not above"));
        let taken = |result: Result<bool, Error>| assert!(matches!(result, Err(Error::StampTaken { .. })));
        taken(pool.ensure_size(IDS[0], 64, Stamp(100)).await);
        taken(pool.ensure_volume_deleted(IDS[0], Stamp(100)).await);
        taken(pool.ensure_snapshot(&IDS, &given("s", 1, 100)).await.map(|count| count > 0));
        assert!(ensure(&pool, Command::Snapshot(1), 200).await);
        let differs = |result: Result<usize, Error>| {
            assert!(matches!(result, Err(Error::Contradiction { .. })), "{result:?}");
        };
        differs(pool.ensure_snapshot(&IDS, &given("s1", 1, 300)).await);
        differs(pool.ensure_snapshot(&IDS, &given("other", 1, 200)).await);
        let same_name = pool.ensure_snapshot(&IDS, &given("s1", 2, 300)).await;
        assert!(matches!(same_name, Err(Error::NameTaken(_))), "{same_name:?}");
        let wrong = pool.ensure_rolled_back(IDS[0], SnapshotId([1; 16]), IDS[1], Stamp(300)).await;
        differs(wrong.map(usize::from));
        let none = pool.ensure_rolled_back(IDS[0], SnapshotId([9; 16]), VolumeId([9; 16]), Stamp(300)).await;
        assert!(matches!(none, Err(Error::NoSnapshot { .. })), "{none:?}");
        let mut oracle = Oracle::new();
        oracle.apply(Command::Write { volume: 0, first: 0, count: 4, byte: 1 });
        oracle.apply(Command::Snapshot(1));
        check(&pool, &oracle).await;
        assert!(ensure(&pool, Command::Discard { volume: 0, first: 1, count: 2 }, 300).await, "300 is free");
        oracle.apply(Command::Discard { volume: 0, first: 1, count: 2 });
        check(&pool, &oracle).await;
    });
}

#[test]
fn hosts_and_people_change_no_replica() {
    let mut scene = Scene::new(766, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_replicas(&pool).await;
        let volume = handle(&pool, 0).expect("it is there");
        let device = VolumeDevice(Rc::clone(&volume));
        assert!(ensure(&pool, Command::Write { volume: 0, first: 0, count: 8, byte: 1 }, 100).await);
        assert!(ensure(&pool, Command::Snapshot(1), 200).await);
        assert!(volume.is_read_only());
        let data = vec![Arc::new(Buffer::zeroed(4096))];
        let refused =
            device.write(ByteOffset(0), data, Stability::Stable).await.expect_err("it is a replica");
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly, "{refused}");
        let refused = device.discard(ByteOffset(0), ByteCount(4096)).await.expect_err("it is a replica");
        assert_eq!(refused.kind(), IoErrorKind::ReadOnly, "{refused}");
        let (snapshot, goal) = (SnapshotId([7; 16]), RollbackGoal::Snapshot("s1".into()));
        let new = array::pool::NewClone {
            name: "clone".to_owned(),
            volume: VolumeId([8; 16]),
            is_independent: false,
        };
        let refusals = [
            pool.resize_volume("a", MIB).await.err(),
            pool.delete_volume("a", true).await.err(),
            pool.delete_snapshot("a", "s1").await.err(),
            pool.snapshot(&["a"], "own", snapshot).await.err(),
            pool.roll_back("a", goal, VolumeId([9; 16]), true).await.err(),
            pool.clone_volume("a", None, &new).await.err(),
            pool.difference("a", "s1".into(), None).await.err(),
        ];
        for (index, refusal) in refusals.into_iter().enumerate() {
            assert!(matches!(refusal, Some(Error::Replica(_))), "{index}: {refusal:?}");
        }
        // Changes beside its branch are allowed.
        pool.rename_volume("a", "a2").await.expect("a name is local");
        pool.clone_volume("a2", Some("s1".into()), &new).await.expect("it reads a snapshot");
        write(&VolumeDevice(pool.volume("clone").expect("it is there")), 0, 9, 4096).await;
        assert!(ensure(&pool, Command::Write { volume: 0, first: 3, count: 1, byte: 2 }, 300).await);
        pool.set_replica(&[IDS[0]], false).await.expect("it is promoted");
        write(&device, 0, 3, 4096).await;
        pool.set_replica(&[IDS[0]], true).await.expect("it stands down");
        let refused = device.write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(4096))], Stability::Stable);
        assert!(refused.await.is_err());
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert!(pool.is_replica(IDS[0]).expect("it is there") && pool.is_replica(IDS[1]).expect("there"));
        let found = read(&VolumeDevice(pool.volume("a2").expect("it is there")), 0, 16384).await;
        assert_eq!([found[0], found[4096], found[12288]], [3, 1, 2]);
    });
}
