//! Subscribers of the log: a follower that replays all records has the content of the volumes, answers
//! wait while a subscriber holds them, and pinned log outlives checkpoints.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{BlockIndex, Position, Stamp, VolumeId},
    pool::{AnswerHold, DeliveredChange, DeliveredRecord, LogSubscriber, events::EventKind, open},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World};

type StampedBlock = (Stamp, Vec<u8>);

/// Content of volumes, as replayed from delivered records.
#[derive(Default)]
struct Follower {
    blocks: RefCell<BTreeMap<(VolumeId, BlockIndex), StampedBlock>>,
    positions: RefCell<Vec<Position>>,
}

impl LogSubscriber for Follower {
    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        assert!(self.positions.borrow().last().is_none_or(|&last| last < record.position));
        self.positions.borrow_mut().push(record.position);
        let mut blocks = self.blocks.borrow_mut();
        for change in &record.changes {
            match change {
                DeliveredChange::Write { volume, key, data } => {
                    let before = blocks.insert((*volume, key.block), (key.stamp, data.to_vec()));
                    assert!(before.is_none_or(|(stamp, _)| stamp < key.stamp), "stamps of a block ascend");
                }
                DeliveredChange::Zeroes { volume, interval }
                | DeliveredChange::Discard { volume, interval } => blocks.retain(|(of, block), _| {
                    let is_in = interval.first <= *block && block.0 < interval.first.0 + interval.count.0;
                    *of != *volume || !is_in
                }),
                DeliveredChange::Put { .. } | DeliveredChange::Remove(_) => {}
            }
        }
    }
}

impl Follower {
    fn block(&self, volume: u8, block: u64) -> Vec<u8> {
        let blocks = self.blocks.borrow();
        let key = (VolumeId([volume; 16]), BlockIndex(block));
        blocks.get(&key).map_or(vec![0; 4096], |(_, data)| data.clone())
    }
}

/// Writes and discards at random, some sectors and some blocks at a time.
async fn load(world: World, device: impl BlockDevice, name: String, commands: usize) {
    let mut random = world.random(&name);
    for _ in 0..commands {
        let (sector, sectors) = (random.below(1500), 1 + random.below(40));
        if random.below(5) == 0 {
            let (at, length) = (ByteOffset(sector * 512), ByteCount(sectors * 512));
            device.discard(at, length).await.expect("it is discarded");
        } else {
            write(&device, sector * 512, random.below(256) as u8, (sectors * 512) as usize).await;
        }
    }
}

#[test]
fn a_subscriber_that_replays_all_records_has_the_content_of_the_volumes() {
    let mut scene = Scene::new(71, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let follower = Rc::new(Follower::default());
        let subscription = pool.subscribe(Rc::clone(&follower) as Rc<dyn LogSubscriber>);
        let mut tasks = Vec::new();
        let mut volumes = Vec::new();
        for name in ["a", "b"] {
            let volume = make_volume(&pool, name, MIB).await.expect("it is made");
            for host in 0..3 {
                let work = load(world.clone(), volume.clone(), format!("{name} {host}"), 60);
                tasks.push(world.spawn("host", work));
            }
            volumes.push((name.as_bytes()[0], volume));
        }
        for task in tasks {
            task.await;
        }
        assert!(pool.checkpoint_number() > 2, "checkpoints and moves change nothing for a subscriber");
        for (name, volume) in &volumes {
            for block in 0..256 {
                assert!(
                    read(volume, block * 4096, 4096).await == follower.block(*name, block),
                    "block {block}"
                );
            }
        }
        drop(subscription);
        let count = follower.positions.borrow().len();
        write(&volumes[0].1, 0, 1, 4096).await;
        assert_eq!(follower.positions.borrow().len(), count, "it gets nothing more");
    });
}

/// Keeps the holds of all records.
#[derive(Default)]
struct Holder {
    holds: RefCell<VecDeque<AnswerHold>>,
    records: Cell<usize>,
}

impl LogSubscriber for Holder {
    fn take(&self, _record: &Rc<DeliveredRecord>, hold: AnswerHold) {
        self.holds.borrow_mut().push_back(hold);
        self.records.set(self.records.get() + 1);
    }
}

/// Waits long enough for any command that nothing holds.
async fn pause(world: &World) {
    world.sleep(Duration::from_millis(200)).await;
}

#[test]
fn answers_wait_for_their_holds_in_order_while_the_log_goes_on() {
    let mut scene = Scene::new(72, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let holder = Rc::new(Holder::default());
        let subscription = pool.subscribe(Rc::clone(&holder) as Rc<dyn LogSubscriber>);
        let answered = Rc::new(RefCell::new(Vec::new()));
        for block in 0..4_u64 {
            let (volume, answered) = (volume.clone(), Rc::clone(&answered));
            drop(world.spawn("host", async move {
                write(&volume, block * 4096, block as u8 + 1, 4096).await;
                answered.borrow_mut().push(block);
            }));
            pause(&world).await;
            assert_eq!(holder.records.get(), block as usize + 1, "each batch is written at once");
        }
        assert!(answered.borrow().is_empty(), "nothing is answered");
        assert_eq!(read(&volume, 3 * 4096, 4096).await[0], 4, "reads go on");
        // The third record is released before the first: its answer waits for that.
        let third = holder.holds.borrow_mut().remove(2);
        drop(third);
        pause(&world).await;
        assert!(answered.borrow().is_empty(), "the first is held");
        let first = holder.holds.borrow_mut().pop_front();
        drop(first);
        pause(&world).await;
        assert_eq!(*answered.borrow(), [0]);
        let second = holder.holds.borrow_mut().pop_front();
        drop(second);
        pause(&world).await;
        // Two commands were released at the same moment: the executor runs them in any order.
        answered.borrow_mut().sort_unstable();
        assert_eq!(*answered.borrow(), [0, 1, 2]);
        // A checkpoint needs nobody's leave, nor does a flush get an answer before the write.
        pool.checkpoint().await.expect("it is made");
        let flushed = volume.flush();
        let is_flushed = Rc::new(Cell::new(false));
        let flag = Rc::clone(&is_flushed);
        drop(world.spawn("flush", async move {
            flushed.await.expect("it is flushed");
            flag.set(true);
        }));
        pause(&world).await;
        assert!(!is_flushed.get() && answered.borrow().len() == 3);
        drop(subscription);
        pause(&world).await;
        assert!(is_flushed.get(), "a subscriber that goes away releases");
        assert_eq!(*answered.borrow(), [0, 1, 2, 3]);
        write(&volume, 0, 9, 4096).await;
        assert_eq!(holder.records.get(), 4, "it gets nothing more");
    });
}

#[test]
fn holds_that_are_limited_to_a_volume_keep_no_other_waiting() {
    let mut scene = Scene::new(77, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let held = make_volume(&pool, "a", MIB).await.expect("it is made");
        let other = make_volume(&pool, "b", MIB).await.expect("it is made");
        let holder = Rc::new(Holder::default());
        let subscription = pool.subscribe(Rc::clone(&holder) as Rc<dyn LogSubscriber>);
        subscription.limit_holds([VolumeId([b'a'; 16])]);
        let answered = Rc::new(Cell::new(false));
        let (flag, volume) = (Rc::clone(&answered), held.clone());
        let writing = world.spawn("host", async move {
            write(&volume, 0, 1, 4096).await;
            flag.set(true);
        });
        pause(&world).await;
        for byte in 0..9 {
            write(&other, 0, byte, 4096).await;
        }
        other.flush().await.expect("it is flushed");
        assert_eq!(read(&held, 0, 4096).await, [1; 4096], "reads see it");
        assert!(!answered.get(), "its own volume waits");
        let snapshot = pool.snapshot(&["b"], "one", array::format::SnapshotId([1; 16]));
        let is_taken =
            world::with_deadline(world.sleep(Duration::from_millis(200)), snapshot).await.is_some();
        assert!(!is_taken, "a verb waits for all holds");
        holder.holds.borrow_mut().clear();
        writing.await;
        assert!(answered.get());
    });
}

#[test]
fn a_held_command_fails_when_the_pool_closes() {
    let mut scene = Scene::new(73, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let holder = Rc::new(Holder::default());
        let _subscription = pool.subscribe(Rc::clone(&holder) as Rc<dyn LogSubscriber>);
        let written = volume.discard(ByteOffset(0), ByteCount(8192));
        pause(&world).await;
        pool.close().await.expect("it closes");
        assert_eq!(written.await.expect_err("it was held").kind(), IoErrorKind::ReadOnly);
    });
}

#[test]
fn held_commands_of_a_subscriber_that_refuses_fail_also_after_its_end_and_no_others() {
    let mut scene = Scene::new(78, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let held = make_volume(&pool, "a", MIB).await.expect("it is made");
        let other = make_volume(&pool, "b", MIB).await.expect("it is made");
        for ends_before_they_look in [true, false] {
            let holder = Rc::new(Holder::default());
            let subscription = pool.subscribe(Rc::clone(&holder) as Rc<dyn LogSubscriber>);
            subscription.limit_holds([VolumeId([b'a'; 16])]);
            let written = held.discard(ByteOffset(0), ByteCount(8192));
            let mut written = Box::pin(written);
            let is_answered =
                world::with_deadline(world.sleep(Duration::from_millis(200)), &mut written).await.is_some();
            assert!(!is_answered, "it is held");
            subscription.refuse_held();
            if ends_before_they_look {
                holder.holds.borrow_mut().clear();
                drop(subscription);
                assert!(written.await.is_err(), "it was refused");
            } else {
                assert!(written.await.is_err(), "it was refused");
                drop(subscription);
            }
            write(&other, 0, 7, 4096).await;
            other.flush().await.expect("others are answered");
            held.flush().await.expect("it concerns what was answered");
        }
    });
}

#[test]
fn commands_on_their_way_fail_too_when_a_subscriber_that_refuses_ends_and_later_ones_wait_for_the_next() {
    let mut scene = Scene::new(79, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let of_group = make_volume(&pool, "a", MIB).await.expect("it is made");
        let other = make_volume(&pool, "b", MIB).await.expect("it is made");
        let id = VolumeId([b'a'; 16]);
        for next_is_follower in [true, false, true] {
            let holder = Rc::new(Holder::default());
            let subscription = pool.subscribe(Rc::clone(&holder) as Rc<dyn LogSubscriber>);
            subscription.limit_holds([id]);
            let buffer = || vec![Arc::new(Buffer::zeroed(4096))];
            let written = of_group.write(ByteOffset(0), buffer(), Stability::Stable);
            let read_there = of_group.read(ByteOffset(0), vec![Buffer::zeroed(4096)]);
            let written_beside = other.write(ByteOffset(0), buffer(), Stability::Stable);
            // They have begun, and no record of theirs is there.
            world.yield_now().await;
            assert_eq!(holder.records.get(), 0);
            subscription.refuse_held();
            drop(subscription);
            assert!(written.await.is_err(), "nobody held it, and nobody else has it");
            assert!(read_there.await.is_err(), "what it read may be taken back");
            written_beside.await.expect("others are answered");
            assert_eq!(holder.records.get(), 0, "the subscriber had ended");
            let later = of_group.write(ByteOffset(0), buffer(), Stability::Stable);
            assert!(later.await.is_err(), "nobody has the right to answer it");
            if next_is_follower {
                pool.set_replica(&[id], true).await.expect("it becomes a replica");
                read(&of_group, 0, 4096).await;
                pool.set_replica(&[id], false).await.expect("it is none any more");
            } else {
                let next = Rc::new(Holder::default());
                let subscription = pool.subscribe(Rc::clone(&next) as Rc<dyn LogSubscriber>);
                subscription.limit_holds([id]);
                read(&of_group, 0, 4096).await;
                drop(subscription);
            }
            write(&of_group, 0, 3, 4096).await;
        }
    });
}

/// Overwrites a volume of 1 MiB.
async fn overwrite(volume: &impl BlockDevice, byte: u8) {
    for at in (0..MIB).step_by(64 << 10) {
        write(volume, at, byte, 64 << 10).await;
    }
}

#[test]
fn pinned_log_outlives_checkpoints_until_the_pin_moves_on_or_is_dropped() {
    let mut scene = Scene::new(74, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let follower = Rc::new(Follower::default());
        let subscription = pool.subscribe(Rc::clone(&follower) as Rc<dyn LogSubscriber>);
        let free = async || {
            pool.checkpoint().await.expect("it is made");
            pool.space().free
        };
        overwrite(&volume, 0).await;
        let before = free().await;
        let pin = subscription.pin();
        let first = pin.position().expect("it is pinned");
        let mut middle = first;
        for round in 0..12 {
            overwrite(&volume, round).await;
            if round == 5 {
                middle = *follower.positions.borrow().last().expect("it got records");
            }
        }
        assert!(first <= follower.positions.borrow()[follower.positions.borrow().len() - 12 * 16]);
        let all_pinned = free().await;
        assert!(before - all_pinned >= 10, "12 MiB of log are kept: {before} and {all_pinned} free");
        assert_eq!(free().await, all_pinned, "no checkpoint gives them back");
        pin.move_to(middle);
        let half_pinned = free().await;
        assert!(half_pinned - all_pinned >= 4, "half of it is given back: {half_pinned} free");
        assert!(before - half_pinned >= 4, "and half is not: {half_pinned} free");
        drop(pin);
        let after = free().await;
        assert!(after.abs_diff(before) <= 2, "all of it is given back: {before} and {after} free");
    });
}

#[test]
fn a_pin_is_lost_before_hosts_lack_space() {
    let mut scene = Scene::new(75, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let subscription = pool.subscribe(Rc::new(Follower::default()));
        let pin = subscription.pin();
        let lost = Rc::new(Cell::new(false));
        let flag = Rc::clone(&lost);
        let segments = pool.space().segments;
        let mut events = pool.events();
        let watched = world.spawn("subscriber", async move {
            pin.loss().await;
            flag.set(true);
            pin
        });
        for round in 0..2 * segments {
            overwrite(&volume, round as u8).await;
            let used = segments - pool.space().free;
            assert!(lost.get() || round < 10 || used >= round / 2, "it is pinned: {used} after {round}");
        }
        assert!(lost.get() && watched.await.position().is_none(), "the subscriber learns it");
        let mut bytes = 0;
        while let Some(event) = events.try_next() {
            if let EventKind::LogPinLoss { bytes: freed } = event.kind {
                assert_eq!(bytes, 0, "it is reported once");
                bytes = freed;
            }
        }
        assert!(bytes > segments / 4 * MIB, "{bytes} bytes were kept");
        pool.checkpoint().await.expect("it is made");
        assert!(pool.space().free > segments * 3 / 4, "and are free now");
    });
}

#[test]
fn the_oldest_pin_is_lost_first_and_a_younger_one_only_when_space_is_short_again() {
    let mut scene = Scene::new(76, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "a", MIB).await.expect("it is made");
        let subscription = pool.subscribe(Rc::new(Follower::default()));
        let old = subscription.pin();
        let (segments, mut events) = (pool.space().segments, pool.events());
        let mut losses = || {
            let mut bytes = Vec::new();
            while let Some(event) = events.try_next() {
                if let EventKind::LogPinLoss { bytes: kept } = event.kind {
                    bytes.push(kept);
                }
            }
            bytes
        };
        for round in 0..segments / 3 {
            overwrite(&volume, round as u8).await;
        }
        let young = subscription.pin();
        for (pin, other) in [(&old, Some(&young)), (&young, None)] {
            let mut rounds = 0;
            while pin.position().is_some() {
                overwrite(&volume, rounds as u8).await;
                rounds += 1;
                assert!(rounds < 2 * segments, "hosts go short of space");
            }
            assert!(rounds > segments / 8, "{rounds} rounds until the next loss");
            assert!(other.is_none_or(|other| other.position().is_some()), "one loss is enough");
            let losses = losses();
            assert!(losses.len() == 1 && losses[0] > segments / 4 * MIB, "{losses:?} were kept");
        }
    });
}
