//! A host and an administrator of a group in one: each command, a write, a discard, a resize, a snapshot, a deletion of one
//! or a rollback, follows the one before. So what a side has is at any cut the state after one of them, and each snapshot has
//! the bytes that it had where it was taken.

use crate::sites::{HostLedger, Stop, VOLUMES};
use array::{
    error::Result,
    format::{BLOCK_BYTES, SnapshotId, VolumeId},
    pool::{NewSnapshot, Pool, RollbackGoal, Snapshot, SnapshotKey, VolumeKey},
    volume::VolumeDevice,
};
use futures_util::future::{Either, select};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, LocalFuture, Random, Stability, World, crc32c::crc32c,
};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks of a write at most: they are one record.
const WRITE_BLOCKS_MAX: u64 = 16;
/// Sizes of volumes, in blocks.
const BLOCKS: std::ops::Range<u64> = 64..700;
/// Rollbacks of one service at most: each makes branches deeper.
const ROLLBACKS_MAX: u32 = 3;

/// Snapshots of people.
pub fn shown(snapshots: Vec<Snapshot>) -> impl Iterator<Item = Snapshot> {
    snapshots.into_iter().filter(|snapshot| !snapshot.name.contains('~'))
}

/// One byte of each block: all of them have that one.
type BlockBytes = Vec<u8>;

#[derive(Clone, Default, PartialEq, Eq)]
struct RowModel {
    volumes: [BlockBytes; 2],
    snapshots: BTreeMap<SnapshotId, (String, BTreeMap<VolumeId, BlockBytes>)>,
}

impl RowModel {
    fn digest(&self) -> (u32, u32) {
        let [one, other] = &self.volumes;
        (crc32c(&[one]), crc32c(&[other]))
    }
}

#[derive(Clone, Debug)]
enum RowStep {
    Write { volume: usize, first: u64, count: u64, byte: u8 },
    Discard { volume: usize, first: u64, count: u64 },
    Resize { volume: usize, blocks: u64 },
    Snapshot { id: SnapshotId, name: String, volumes: Vec<usize> },
    SnapshotDeleted { id: SnapshotId, volume: usize },
    RollBack { volume: usize, id: SnapshotId, left: VolumeId },
}

impl RowStep {
    fn apply(&self, model: &mut RowModel) {
        match self {
            Self::Write { volume, first, count, byte } => {
                model.volumes[*volume][*first as usize..(first + count) as usize].fill(*byte);
            }
            Self::Discard { volume, first, count } => {
                model.volumes[*volume][*first as usize..(first + count) as usize].fill(0);
            }
            Self::Resize { volume, blocks } => model.volumes[*volume].resize(*blocks as usize, 0),
            Self::Snapshot { id, name, volumes } => {
                let of = volumes.iter().map(|&volume| (VOLUMES[volume], model.volumes[volume].clone()));
                model.snapshots.insert(*id, (name.clone(), of.collect()));
            }
            Self::SnapshotDeleted { id, volume } => {
                let (_, of) = model.snapshots.get_mut(id).unwrap();
                of.remove(&VOLUMES[*volume]);
                if of.is_empty() {
                    model.snapshots.remove(id);
                }
            }
            Self::RollBack { volume, id, .. } => {
                model.volumes[*volume] = model.snapshots[id].1[&VOLUMES[*volume]].clone();
            }
        }
    }

    fn run(self, pool: &Rc<Pool>) -> LocalFuture<Result<()>> {
        let pool = Rc::clone(pool);
        Box::pin(async move {
            let device = |volume: usize| VolumeDevice(pool.volume(VolumeKey::Id(VOLUMES[volume])).unwrap());
            match self {
                Self::Write { volume, first, count, byte } => {
                    let block = Arc::new(Buffer::copy_of(&[byte; BLOCK_BYTES]));
                    let data = (0..count).map(|_| Arc::clone(&block)).collect();
                    device(volume).write(ByteOffset(first * BLOCK), data, Stability::Stable).await.unwrap();
                }
                Self::Discard { volume, first, count } => {
                    let (at, length) = (ByteOffset(first * BLOCK), ByteCount(count * BLOCK));
                    device(volume).discard(at, length).await.unwrap();
                }
                Self::Resize { volume, blocks } => {
                    pool.resize_volume(VolumeKey::Id(VOLUMES[volume]), blocks * BLOCK).await?;
                }
                Self::Snapshot { id, name, volumes } => {
                    let keys: Vec<_> = volumes.iter().map(|&volume| VolumeKey::Id(VOLUMES[volume])).collect();
                    let new = NewSnapshot { name: &name, snapshot: id, note: name.as_bytes() };
                    pool.take_snapshot(&keys, &new).await?;
                }
                Self::SnapshotDeleted { id, volume } => {
                    pool.delete_snapshot(VolumeKey::Id(VOLUMES[volume]), SnapshotKey::Id(id)).await?;
                }
                Self::RollBack { volume, id, left } => {
                    let goal = RollbackGoal::Snapshot(SnapshotKey::Id(id));
                    pool.roll_back(VolumeKey::Id(VOLUMES[volume]), goal, left, true).await?;
                }
            }
            Ok(())
        })
    }
}

/// All that the host has done at any site.
#[derive(Default)]
pub struct RowLedger {
    /// States that a side may serve: after each command, also one that was never answered.
    states: RefCell<BTreeSet<(u32, u32)>>,
    /// Content of each snapshot.
    snapshots: RefCell<BTreeMap<(SnapshotId, VolumeId), BlockBytes>>,
    number_next: Cell<u64>,
    /// Commands of each kind.
    pub counts: RefCell<[u64; 6]>,
    pub compared: Cell<u64>,
    /// Promotions do not write, whatever is lost.
    pub promotes_bare: Cell<bool>,
}

async fn bytes_of(device: &impl BlockDevice) -> BlockBytes {
    let size = device.geometry().size.0 as usize;
    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(size)]).await.unwrap().remove(0);
    let block = |block: &[u8]| {
        assert!(block.iter().all(|byte| *byte == block[0]), "a block has one byte");
        block[0]
    };
    read.chunks(BLOCK_BYTES).map(block).collect()
}

impl RowLedger {
    async fn model_of(&self, pool: &Rc<Pool>) -> RowModel {
        let mut model = RowModel::default();
        for (index, volume) in VOLUMES.into_iter().enumerate() {
            model.volumes[index] = bytes_of(&VolumeDevice(pool.volume(VolumeKey::Id(volume)).unwrap())).await;
            for snapshot in shown(pool.snapshots(VolumeKey::Id(volume)).unwrap()) {
                let device = pool.snapshot_device(VolumeKey::Id(volume), snapshot.snapshot).unwrap();
                let bytes = bytes_of(&device).await;
                let of = model.snapshots.entry(snapshot.snapshot).or_insert((snapshot.name, BTreeMap::new()));
                of.1.insert(volume, bytes);
            }
        }
        model
    }

    /// Checks that each snapshot of a side, or `some` of them, has the bytes that it had where it was taken.
    pub async fn check_snapshots(&self, pool: &Rc<Pool>, some: Option<&mut Random>) {
        let mut all = Vec::new();
        for volume in VOLUMES {
            let snapshots = shown(pool.snapshots(VolumeKey::Id(volume)).unwrap());
            all.extend(snapshots.map(|snapshot| (volume, snapshot)));
        }
        if let Some(random) = some {
            while all.len() > 2 {
                all.remove(random.below(all.len() as u64) as usize);
            }
        }
        for (volume, snapshot) in all {
            let Ok(device) = pool.snapshot_device(VolumeKey::Id(volume), snapshot.snapshot) else { continue };
            let size = device.geometry().size.0 as usize;
            // It may be deleted meanwhile.
            let Ok(read) = device.read(ByteOffset(0), vec![Buffer::zeroed(size)]).await else { continue };
            let bytes: BlockBytes = read[0].chunks(BLOCK_BYTES).map(|block| block[0]).collect();
            let known = self.snapshots.borrow();
            let expected = known.get(&(snapshot.snapshot, volume)).expect("it was taken somewhere");
            let differs = bytes.iter().zip(expected).position(|(one, other)| one != other);
            assert_eq!(bytes.len(), expected.len(), "blocks of snapshot {}", snapshot.name);
            assert_eq!(differs, None, "block of snapshot {} that differs first", snapshot.name);
            assert_eq!(snapshot.note, snapshot.name.as_bytes(), "its note");
            self.compared.set(self.compared.get() + 1);
        }
    }

    /// Works until it is over, or its site stops serving.
    pub async fn work(
        self: Rc<Self>,
        (world, stop, ledger): (World, Rc<Stop>, Rc<HostLedger>),
        pool: Rc<Pool>,
        mut random: Random,
    ) {
        let _writing = stop.begin_writing();
        let mut model = self.model_of(&pool).await;
        let is_first = self.states.borrow().is_empty();
        assert!(
            is_first || self.states.borrow().contains(&model.digest()),
            "it serves a state that never was"
        );
        self.check_snapshots(&pool, None).await;
        self.states.borrow_mut().insert(model.digest());
        let mut rollbacks = 0;
        while !ledger.is_over.get() && !stop.is_set.get() && !stop.is_draining.get() {
            let Some((kind, step)) = self.next(&model, &mut random, rollbacks < ROLLBACKS_MAX) else {
                continue;
            };
            rollbacks += u32::from(kind == 5);
            step.apply(&mut model);
            // It may be there although it is never answered.
            self.states.borrow_mut().insert(model.digest());
            for (id, (_, of)) in &model.snapshots {
                let of = of.iter().map(|(volume, bytes)| ((*id, *volume), bytes.clone()));
                self.snapshots.borrow_mut().extend(of);
            }
            match select(step.clone().run(&pool), Box::pin(stop.stopped())).await {
                Either::Left((done, _)) => done.unwrap_or_else(|error| panic!("{step:?}: {error}")),
                Either::Right(_) => return,
            }
            self.counts.borrow_mut()[kind] += 1;
            world.sleep(Duration::from_micros(random.below(6_000))).await;
        }
    }

    fn next(&self, model: &RowModel, random: &mut Random, may_roll_back: bool) -> Option<(usize, RowStep)> {
        let number = self.number_next.get() + 1;
        self.number_next.set(number);
        let mut id = [0; 16];
        random.fill(&mut id);
        let volume = random.below(2) as usize;
        let blocks = model.volumes[volume].len() as u64;
        let first = random.below(blocks);
        let count = |random: &mut Random, most: u64| 1 + random.below(most.min(blocks - first));
        let of_volume = model
            .snapshots
            .iter()
            .filter(|(_, (_, of))| of.contains_key(&VOLUMES[volume]))
            .map(|(id, _)| *id);
        let known: Vec<SnapshotId> = of_volume.collect();
        let any = |random: &mut Random| known[random.below(known.len() as u64) as usize];
        Some(match random.below(40) {
            0..20 => {
                let byte = 1 + (number % 255) as u8;
                (0, RowStep::Write { volume, first, count: count(random, WRITE_BLOCKS_MAX), byte })
            }
            20..26 => (1, RowStep::Discard { volume, first, count: count(random, 60) }),
            26..29 => {
                let blocks = BLOCKS.start + random.below(BLOCKS.end - BLOCKS.start);
                (2, RowStep::Resize { volume, blocks })
            }
            29..34 if known.len() < 4 => {
                let volumes = if random.percent(50.0) { vec![0, 1] } else { vec![volume] };
                // Names come again after a deletion.
                let name = format!("s{}", number % 7);
                let is_taken = model.snapshots.values().any(|(taken, _)| *taken == name);
                if is_taken {
                    return None;
                }
                (3, RowStep::Snapshot { id: SnapshotId(id), name, volumes })
            }
            34..37 if known.len() > 1 => (4, RowStep::SnapshotDeleted { id: any(random), volume }),
            37..39 if may_roll_back && !known.is_empty() => {
                (5, RowStep::RollBack { volume, id: any(random), left: VolumeId(id) })
            }
            _ => return None,
        })
    }
}

/// Checks that both pools have the same volumes, sizes and snapshots.
pub async fn check_alike(ledger: &RowLedger, pools: [&Rc<Pool>; 2]) {
    let [one, other] = [ledger.model_of(pools[0]).await, ledger.model_of(pools[1]).await];
    for (volume, (one, other)) in one.volumes.iter().zip(&other.volumes).enumerate() {
        assert_eq!(one.len(), other.len(), "blocks of volume {volume}");
        let differs = one.iter().zip(other).position(|(one, other)| one != other);
        assert_eq!(differs, None, "the block of volume {volume} that differs first");
    }
    let names = |model: &RowModel| {
        let all = model
            .snapshots
            .iter()
            .flat_map(|(id, (name, of))| of.keys().map(move |volume| (*id, *volume, name.clone())));
        all.collect::<Vec<_>>()
    };
    assert_eq!(names(&one), names(&other), "snapshots of both sides");
    assert!(one == other, "bytes of snapshots of both sides");
    for volume in VOLUMES {
        let of = pools.map(|pool| shown(pool.snapshots(VolumeKey::Id(volume)).unwrap()).collect::<Vec<_>>());
        let times = of.map(|all| {
            let mut times: Vec<_> = all.iter().map(|one| (one.snapshot, one.created_at)).collect();
            times.sort_unstable();
            times
        });
        assert_eq!(times[0], times[1], "times of snapshots");
    }
}
