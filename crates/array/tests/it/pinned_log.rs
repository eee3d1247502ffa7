//! Pinned log is read back as it was delivered, each record once, also after batches that were written twice; a bound
//! gives it up. Records are offered before the drives have them.

use crate::scene::{MIB, Scene, dead, make_volume, read, small, write};
use array::{
    error::Error,
    format::{Position, SnapshotId, Stamp},
    pool::{AnswerHold, DeliveredChange, DeliveredRecord, LogPin, LogSubscriber, open},
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use world::{BlockDevice, ByteCount, ByteOffset, Moment, World};

/// A change in a form that can be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Write(Stamp, u64, Vec<u8>),
    Interval(Stamp, u64, u64, bool),
    Row(Vec<u8>),
    Removal,
}

fn changes(record: &DeliveredRecord) -> (Position, Vec<Change>) {
    let change = |change: &DeliveredChange| match change {
        DeliveredChange::Write { key, data, .. } => Change::Write(key.stamp, key.block.0, data.to_vec()),
        DeliveredChange::Zeroes { interval, .. } => {
            Change::Interval(interval.stamp, interval.first.0, interval.count.0, true)
        }
        DeliveredChange::Discard { interval, .. } => {
            Change::Interval(interval.stamp, interval.first.0, interval.count.0, false)
        }
        DeliveredChange::Put { bytes, .. } => Change::Row(bytes.clone()),
        DeliveredChange::Remove(_) => Change::Removal,
    };
    (record.position, record.changes.iter().map(change).collect())
}

/// All records, as they were offered and taken.
struct Keeper {
    world: World,
    taken: RefCell<Vec<(Position, Vec<Change>)>>,
    /// The moment at which a record was last offered, by position.
    offered: RefCell<BTreeMap<Position, Moment>>,
    offers: Cell<usize>,
    /// Records that were taken some time after their offer.
    early: Cell<usize>,
}

impl Keeper {
    fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            taken: RefCell::default(),
            offered: RefCell::default(),
            offers: Cell::new(0),
            early: Cell::new(0),
        })
    }
}

impl LogSubscriber for Keeper {
    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        let offered = self.offered.borrow_mut().remove(&record.position).expect("it was offered before");
        self.early.set(self.early.get() + usize::from(offered < self.world.now()));
        self.taken.borrow_mut().push(changes(record));
    }

    fn offer(&self, record: &Rc<DeliveredRecord>) {
        self.offers.set(self.offers.get() + 1);
        self.offered.borrow_mut().insert(record.position, self.world.now());
    }
}

async fn load(world: World, device: VolumeDevice, name: String, commands: usize) {
    let mut random = world.random(&name);
    for _ in 0..commands {
        let (block, count) = (random.below(200), 1 + random.below(40));
        if random.below(6) == 0 {
            let (at, length) = (ByteOffset(block * 4096), ByteCount(count * 4096));
            device.discard(at, length).await.expect("it is discarded");
        } else {
            write(&device, block * 4096, random.below(256) as u8, count as usize * 4096).await;
        }
    }
}

/// Reads all pinned records.
async fn read_all(pin: &LogPin, from: Position) -> Vec<(Position, Vec<Change>)> {
    let (mut next, mut all) = (from, Vec::new());
    loop {
        let records = pin.read(next).await.expect("it is pinned");
        let Some(last) = records.last() else { return all };
        next = Position(last.position.0 + 1);
        all.extend(records.iter().map(|record| changes(record)));
    }
}

#[test]
fn pinned_records_are_read_back_as_they_were_delivered() {
    let mut scene = Scene::new(751, 4);
    let drive = Rc::clone(&scene.drives[0]);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        write(&volume, 0, 1, 65536).await;
        let keeper = Keeper::new(&world);
        let subscription = pool.subscribe(Rc::clone(&keeper) as Rc<dyn LogSubscriber>);
        let pin = subscription.pin();
        let first = pin.position().expect("it is pinned");
        assert!(pin.read(first).await.expect("it is pinned").is_empty(), "nothing was taken yet");
        for (round, failing) in [(0, false), (1, true), (2, false)] {
            if failing {
                drive.set_faults(dead());
            }
            let tasks: Vec<_> = (0..3)
                .map(|host| {
                    let work = load(world.clone(), volume.clone(), format!("host {host} of {round}"), 40);
                    world.spawn("host", work)
                })
                .collect();
            for task in tasks {
                task.await;
            }
            let name = format!("round {round}");
            pool.snapshot(&["a"], &name, SnapshotId([round + 1; 16])).await.expect("it is taken");
        }
        assert!(pool.checkpoint_number() > 2, "checkpoints do not free it");
        let taken = keeper.taken.borrow().clone();
        assert!(taken.iter().flat_map(|(_, changes)| changes).any(|change| matches!(change, Change::Row(_))));
        assert!(read_all(&pin, first).await == taken, "all of it");
        assert!(keeper.offers.get() > taken.len(), "a batch was written twice");
        assert!(keeper.early.get() == taken.len(), "offers come before the drives are done");
        let (middle, _) = taken[taken.len() / 2];
        assert!(read_all(&pin, middle).await == taken[taken.len() / 2..], "from the middle on");
        pin.move_to(middle);
        pool.checkpoint().await.expect("it is made");
        assert!(read_all(&pin, middle).await == taken[taken.len() / 2..], "after a part was given back");
    });
}

#[test]
fn records_are_read_while_hosts_write_and_the_pin_follows() {
    let mut scene = Scene::new(752, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let keeper = Keeper::new(&world);
        let subscription = pool.subscribe(Rc::clone(&keeper) as Rc<dyn LogSubscriber>);
        let pin = subscription.pin();
        let is_over = Rc::new(Cell::new(false));
        let (over, reader_world) = (Rc::clone(&is_over), world.clone());
        let reader = world.spawn("reader", async move {
            let (mut next, mut all) = (pin.position().expect("it is pinned"), Vec::new());
            loop {
                let was_over = over.get();
                let records = pin.read(next).await.expect("it is pinned");
                if let Some(last) = records.last() {
                    next = Position(last.position.0 + 1);
                    pin.move_to(next);
                    all.extend(records.iter().map(|record| changes(record)));
                } else if was_over {
                    return all;
                }
                reader_world.sleep(Duration::from_millis(3)).await;
            }
        });
        load(world.clone(), volume, "host".to_owned(), 200).await;
        is_over.set(true);
        assert!(reader.await == *keeper.taken.borrow());
    });
}

#[test]
fn a_pin_that_passes_its_bound_is_lost_and_the_log_is_free() {
    let mut scene = Scene::new(753, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let subscription = pool.subscribe(Keeper::new(&world));
        let (bounded, other) = (subscription.pin(), subscription.pin());
        bounded.set_bound(6 * MIB);
        let first = bounded.position().expect("it is pinned");
        let overwrite = async |rounds: u8| {
            for round in 0..rounds {
                for at in (0..MIB).step_by(64 << 10) {
                    write(&volume, at, round, 64 << 10).await;
                }
            }
        };
        overwrite(4).await;
        assert!(bounded.position().is_some(), "within its bound");
        assert!(!bounded.read(first).await.expect("it is pinned").is_empty());
        overwrite(4).await;
        bounded.loss().await;
        assert_eq!(bounded.position(), None);
        assert!(matches!(bounded.read(first).await, Err(Error::LogPinLost)));
        assert!(other.position().is_some(), "one without a bound is kept");
        pool.checkpoint().await.expect("it is made");
        let before = pool.space().free;
        drop(other);
        pool.checkpoint().await.expect("it is made");
        assert!(pool.space().free >= before + 6, "{} and {before} free", pool.space().free);
        let late = subscription.pin();
        late.set_bound(0);
        write(&volume, 0, 9, 4096).await;
        assert!(late.position().is_some(), "the segment that is written is kept");
        assert_eq!(read(&volume, 0, 4096).await, [9; 4096]);
    });
}
