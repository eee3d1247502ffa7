//! Answers in sync over a line with a round trip, from one pool to another: each write waits for the peer once, the
//! drives work while the line does, and many writes at once are no slower than the drives.

use array::{
    format::{BLOCK_BYTES, DriveId, PoolId, SparingLevel, Stamp, VolumeId},
    pool::{
        AnswerHold, DeliveredChange, DeliveredRecord, LogSubscriber, NewDrive, NewPool, NewVolume,
        OpenSetting, Pool, VolumeSetting, create, open,
    },
    volume::{Volume, VolumeDevice},
};
use replication::{
    cut::GroupCut,
    held_answers::HeldAnswers,
    session::{GroupSession, ReplicationMode},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Moment, Stability, World,
    sim::{DriveOptions, SimLimits, Simulation},
};

const MIB: u64 = 1 << 20;
const VOLUME: VolumeId = VolumeId([b'a'; 16]);
const OTHER: VolumeId = VolumeId([b'b'; 16]);

/// Blocks on the line, with their stamps, and the moment at which they arrive.
type Transit = (Moment, Vec<(ByteOffset, Arc<Buffer>, Stamp)>);

/// The primary's end: blocks go to the replica when they are offered, answers wait.
struct SyncSender {
    world: World,
    round_trip: Duration,
    session: RefCell<GroupSession>,
    held: RefCell<HeldAnswers>,
    /// The last stamp that was sent; what is offered twice is sent once.
    sent: Cell<Stamp>,
    /// Writes on the line, in order.
    line: UnboundedSender<Transit>,
}

impl SyncSender {
    fn release(&self) {
        let now = self.world.now();
        let cut = self.session.borrow().answerable(now);
        self.session.borrow_mut().note_answers(&cut, now);
        self.held.borrow_mut().release(cut.stamps()[0]);
    }
}

impl LogSubscriber for SyncSender {
    fn offer(&self, record: &Rc<DeliveredRecord>) {
        let sent = self.sent.get();
        let blocks = record.changes.iter().filter_map(|change| match change {
            DeliveredChange::Write { volume: VOLUME, key, data } if key.stamp > sent => {
                Some((ByteOffset(key.block.0 * BLOCK_BYTES as u64), Arc::clone(data), key.stamp))
            }
            _ => None,
        });
        let blocks: Vec<_> = blocks.collect();
        if let Some((_, _, last)) = blocks.last() {
            self.sent.set(*last);
            let there = self.world.now() + self.round_trip / 2;
            assert!(self.line.send((there, blocks)).is_ok(), "the replica is there");
        }
    }

    fn take(&self, record: &Rc<DeliveredRecord>, hold: AnswerHold) {
        let stamp = self.held.borrow().stamp_of(record);
        if let Some(stamp) = stamp {
            let now = self.world.now();
            self.session.borrow_mut().note_write(0, stamp, BLOCK_BYTES as u64, now);
            self.held.borrow_mut().hold(stamp, hold);
            self.release();
        }
    }
}

async fn make_pool(world: &World, number: u8, devices: &[Rc<dyn BlockDevice>]) -> Rc<Pool> {
    let new = NewPool {
        pool: PoolId([number; 16]),
        name: format!("pool{number}"),
        slot_bytes: MIB as u32,
        sparing: SparingLevel::None,
    };
    let drives = devices.iter().enumerate().map(|(index, device)| NewDrive {
        drive: DriveId([16 * number + index as u8; 16]),
        serial: format!("S{index}"),
        device: Rc::clone(device),
        domain: None,
    });
    create(world, &new, &drives.collect::<Vec<_>>()).await.expect("it is made");
    open(world, devices, OpenSetting::default()).await.expect("it opens")
}

async fn make_volume(pool: &Rc<Pool>, name: &str, volume: VolumeId) -> Rc<Volume> {
    let setting = VolumeSetting::default();
    let new = NewVolume { name: name.to_owned(), volume, size_bytes: MIB, setting };
    pool.create_volume(&new).await.expect("it is made");
    pool.volume(name).expect("it is there")
}

async fn write(volume: &Rc<Volume>, block: u64, byte: u8) {
    let data = Arc::new(Buffer::copy_of(&[byte; BLOCK_BYTES]));
    let at = ByteOffset(block * BLOCK_BYTES as u64);
    VolumeDevice(Rc::clone(volume)).write(at, vec![data], Stability::Stable).await.expect("it is written");
}

async fn content(volume: &Rc<Volume>) -> Vec<u8> {
    let device = VolumeDevice(Rc::clone(volume));
    let read = device.read(ByteOffset(0), vec![Buffer::zeroed(MIB as usize)]).await.expect("it is read");
    read[0].to_vec()
}

/// Writes one after the other, on some tasks at once. Returns the time of all.
async fn run_load(world: &World, volume: &Rc<Volume>, (depth, count): (u64, u64)) -> Duration {
    let begun = world.now();
    let tasks: Vec<_> = (0..depth)
        .map(|task| {
            let volume = Rc::clone(volume);
            world.spawn("host", async move {
                for number in 0..count {
                    write(&volume, task * 8 + number % 8, (task + number) as u8).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    world.now().since(begun)
}

/// The replica's end: applies what arrives, several of them while the next are on the line, and confirms.
async fn follow(
    world: World,
    replica: Rc<Volume>,
    sender: std::rc::Weak<SyncSender>,
    mut line: UnboundedReceiver<Transit>,
) {
    while let Some((there, blocks)) = line.recv().await {
        world.sleep_until(there).await;
        let (_, _, last) = *blocks.last().expect("something was sent");
        for (at, data, stamp) in blocks {
            replica.ensure_write(at, &[data], stamp).await.expect("it is applied");
        }
        let Some(sender) = sender.upgrade() else { return };
        let (at, back) = (world.clone(), sender.round_trip / 2);
        drop(world.spawn("confirmation", async move {
            at.sleep(back).await;
            sender.session.borrow_mut().note_confirmed(&GroupCut::new(vec![last]), at.now());
            sender.release();
        }));
    }
}

#[test]
fn answers_wait_a_round_trip_and_the_log_does_not() {
    let mut simulation = Simulation::new(771);
    let drives: Vec<_> =
        (0..4).map(|_| simulation.add_drive(DriveOptions::new(ByteCount(65 * MIB)))).collect();
    let devices: Vec<_> = drives.into_iter().map(|drive| drive as Rc<dyn BlockDevice>).collect();
    let run = |world: World| async move {
        let [source, target] =
            [make_pool(&world, 1, &devices[..2]).await, make_pool(&world, 2, &devices[2..]).await];
        let volume = make_volume(&source, "a", VOLUME).await;
        let beside = make_volume(&source, "b", OTHER).await;
        let replica = make_volume(&target, "a", VOLUME).await;
        let local = run_load(&world, &volume, (1, 100)).await / 100;
        let local_rate = run_load(&world, &volume, (16, 50)).await;
        for block in 0..256 {
            write(&volume, block, 0).await;
        }
        let round_trip = Duration::from_millis(10);
        let (line, arrivals) = unbounded_channel();
        let mode = ReplicationMode::Sync { hold: Duration::from_secs(15), is_failsafe: false };
        let begun = world.now();
        let sender = Rc::new(SyncSender {
            world: world.clone(),
            round_trip,
            session: RefCell::new(GroupSession::new(mode, GroupCut::zero(1), (false, false), begun)),
            held: RefCell::new(HeldAnswers::new([VOLUME])),
            sent: Cell::new(Stamp(0)),
            line,
        });
        let subscription = source.subscribe(Rc::clone(&sender) as Rc<dyn LogSubscriber>);
        subscription.limit_holds([VOLUME]);
        let follower = follow(world.clone(), Rc::clone(&replica), Rc::downgrade(&sender), arrivals);
        drop(world.spawn("replica", follower));

        let one = run_load(&world, &volume, (1, 100)).await / 100;
        println!("note: {local:?} local, {one:?} with a round trip of {round_trip:?}");
        assert!(one >= round_trip, "an answer waits for the peer");
        assert!(one <= (round_trip + local).mul_f64(1.1), "and for no more: {one:?}, {local:?} local");
        let many = run_load(&world, &volume, (16, 50)).await;
        println!("note: 800 writes, 16 at once: {many:?}, {local_rate:?} local");
        assert!(many <= (round_trip + local) * 50 * 2, "a round trip is paid once for 16 writes: {many:?}");
        let alone = world.now();
        let waiting = world.spawn("host", {
            let volume = Rc::clone(&volume);
            async move { write(&volume, 0, 77).await }
        });
        for byte in 0..9 {
            write(&beside, 0, byte).await;
        }
        assert!(world.now().since(alone) < round_trip, "another volume of the pool does not wait");
        waiting.await;
        assert_eq!(sender.held.borrow().count(), 0);
        assert_eq!(sender.session.borrow().exposure(world.now()).bytes, 0);
        assert!(content(&volume).await == content(&replica).await, "both are alike");
        drop(subscription);
        // The replica's task ends with the sender.
        drop(sender);
    };
    simulation.run(SimLimits::generous(), run).completed();
}
