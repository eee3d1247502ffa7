//! Writes with given stamps that come again: after a checkpoint, after a crash, and when a crash left a part of a
//! command.

use crate::scene::{MIB, Scene, make_volume, read, small};
use array::{
    format::{SnapshotId, Stamp},
    pool::{Pool, open},
    volume::{GivenContent, Volume, VolumeDevice},
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random,
    sim::{SimLimits, SimOutcome},
};

fn blocks(byte: u8, count: usize) -> Vec<Arc<Buffer>> {
    (0..count).map(|_| Arc::new(Buffer::copy_of(&[byte; 4096]))).collect()
}

async fn ensure(volume: &Volume, block: u64, (byte, count): (u8, usize), stamp: u64) -> u64 {
    let written = volume.ensure_write(ByteOffset(block * 4096), &blocks(byte, count), Stamp(stamp)).await;
    written.expect("it is a write of this history")
}

fn replica(pool: &Rc<Pool>) -> Rc<Volume> {
    pool.volume("a").expect("it is there")
}

#[test]
fn a_write_that_is_there_is_known_as_such_after_a_checkpoint_and_a_crash() {
    let mut scene = Scene::new(761, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let VolumeDevice(volume) = make_volume(&pool, "a", MIB).await.expect("it is made");
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 3);
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 0, "the same again");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 0, "after a checkpoint");
        assert_eq!(ensure(&volume, 10, (2, 2), 2000).await, 2);
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 0, "before the last one");
        // A crash left the first two of five blocks.
        assert_eq!(ensure(&volume, 20, (3, 2), 3000).await, 2);
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        let volume = replica(&pool);
        let device = VolumeDevice(Rc::clone(&volume));
        for (block, what, stamp) in [(0, (1, 3), 1000), (10, (2, 2), 2000)] {
            assert_eq!(ensure(&volume, block, what, stamp).await, 0, "from the log");
        }
        pool.checkpoint().await.expect("it is made");
        assert_eq!(ensure(&volume, 20, (3, 5), 3000).await, 3, "the rest of the command");
        assert_eq!(ensure(&volume, 20, (3, 5), 3000).await, 0);
        assert!(read(&device, 20 * 4096, 5 * 4096).await.iter().all(|&byte| byte == 3));
        // Overwritten and discarded since.
        assert_eq!(ensure(&volume, 21, (4, 1), 4000).await, 1);
        device.discard(ByteOffset(22 * 4096), ByteCount(4096)).await.expect("it is discarded");
        assert_eq!(ensure(&volume, 20, (3, 5), 3000).await, 0);
        let found = read(&device, 21 * 4096, 3 * 4096).await;
        assert_eq!([found[0], found[4096], found[8192]], [4, 0, 3], "and nothing came back");
    });
}

#[test]
fn a_write_of_another_history_is_refused() {
    let mut scene = Scene::new(762, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let VolumeDevice(volume) = make_volume(&pool, "a", MIB).await.expect("it is made");
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 3);
        assert_eq!(ensure(&volume, 9, (1, 1), 2000).await, 1);
        let late = volume.ensure_write(ByteOffset(0), &blocks(9, 1), Stamp(1500)).await;
        assert!(
            late.expect_err("the block is older, the branch is not").to_string().contains("is not above")
        );
        pool.snapshot(&["a"], "kept", SnapshotId([1; 16])).await.expect("it is taken");
        // The next stamp of the pool.
        let into = volume.ensure_write(ByteOffset(0), &blocks(9, 1), Stamp(2001)).await;
        assert!(into.is_err(), "nothing gets into a snapshot");
        let kept = pool.snapshot_device("a", "kept").expect("it is there");
        assert_eq!(read(&kept, 0, 4096).await, [1; 4096]);
        assert_eq!(ensure(&volume, 0, (1, 3), 1000).await, 0, "what is there still is");
    });
}

/// The commands of a source: place, byte, blocks. The command at index n has stamp 100 n + 100.
fn commands(random: &mut Random) -> Vec<(u64, u8, usize)> {
    (0..60).map(|number| (random.below(140), number as u8 + 1, 1 + random.below(115) as usize)).collect()
}

#[test]
fn a_follower_that_crashes_anywhere_and_begins_again_becomes_equal() {
    let mut random = Random::new(763, "follower");
    let (mut crashes, mut completed) = (0, 0);
    for seed in 0..24 {
        let mut scene = Scene::new(7630 + seed, 3);
        let all = Rc::new(commands(&mut random));
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "a", MIB).await.expect("it is made");
            pool.close().await.expect("it closes");
        });
        // Commands that the follower has confirmed.
        let confirmed = Rc::new(Cell::new(0));
        let parts = Rc::new(Cell::new(0));
        loop {
            let devices =
                scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect::<Vec<_>>();
            let limits = SimLimits { polls: Some(30 + random.below(300)), ..SimLimits::generous() };
            let (commands, done, seen) = (Rc::clone(&all), Rc::clone(&confirmed), Rc::clone(&parts));
            // The source does not know the last confirmations.
            let from = done.get() - random.below(done.get() as u64 + 1).min(7) as usize;
            let outcome = scene.simulation.run(limits, move |world| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                let volume = replica(&pool);
                for (index, &(block, byte, count)) in commands.iter().enumerate().skip(from) {
                    let written = ensure(&volume, block, (byte, count), 100 * index as u64 + 100).await;
                    assert!(index >= done.get() || written == 0, "command {index} was confirmed");
                    let is_part = written > 0 && written < count as u64;
                    seen.set(seen.get() + usize::from(is_part));
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
        completed += parts.get();
        let all = Rc::clone(&all);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let device = VolumeDevice(replica(&pool));
            let mut wanted = vec![0; MIB as usize];
            for &(block, byte, count) in all.iter() {
                wanted[block as usize * 4096..][..count * 4096].fill(byte);
            }
            assert!(read(&device, 0, MIB as usize).await == wanted, "seed {seed}");
        });
    }
    println!("note: {crashes} crashes, {completed} commands were completed from a part");
    assert!(crashes > 24 && completed > 0, "{crashes} crashes, {completed} parts");
}

/// Checks that a volume has all of each command below its last stamp, and of that one a part at most.
async fn check_prefix(pool: &Rc<Pool>, commands: &[(u64, u8, usize)], confirmed: usize) -> usize {
    let last = pool.last_stamp("a").expect("it is there").0;
    let count = commands.iter().enumerate().filter(|(index, _)| 100 * *index as u64 + 100 <= last).count();
    assert!(count >= confirmed, "{confirmed} commands were confirmed, and {count} are there");
    let device = VolumeDevice(replica(pool));
    let found = read(&device, 0, MIB as usize).await;
    let mut wanted = vec![0; MIB as usize];
    let fill = |wanted: &mut [u8], &(block, byte, count): &(u64, u8, usize)| {
        wanted[block as usize * 4096..][..count * 4096].fill(byte);
    };
    commands[..count.saturating_sub(1)].iter().for_each(|command| fill(&mut wanted, command));
    let before = wanted.clone();
    commands[..count].iter().for_each(|command| fill(&mut wanted, command));
    for (index, block) in found.chunks(4096).enumerate() {
        let at = index * 4096..(index + 1) * 4096;
        assert!(block == &wanted[at.clone()] || block == &before[at], "block {index} after {count} commands");
    }
    count
}

#[test]
fn a_crash_leaves_a_prefix_of_commands_that_were_begun_together() {
    let mut random = Random::new(764, "batches");
    let (mut crashes, mut within) = (0, 0);
    for seed in 0..24 {
        let mut scene = Scene::new(7640 + seed, 3);
        let all = Rc::new(commands(&mut random));
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "a", MIB).await.expect("it is made");
            pool.close().await.expect("it closes");
        });
        let (confirmed, begun) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        loop {
            let devices =
                scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect::<Vec<_>>();
            let limits = SimLimits { polls: Some(60 + random.below(300)), ..SimLimits::generous() };
            let (commands, done, started) = (Rc::clone(&all), Rc::clone(&confirmed), Rc::clone(&begun));
            let at_once = 1 + random.below(12) as usize;
            let outcome = scene.simulation.run(limits, move |world| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                let volume = replica(&pool);
                let there = check_prefix(&pool, &commands, done.get()).await;
                // The last one may be there in part.
                let mut next = there.saturating_sub(1);
                started.set(next);
                while next < commands.len() {
                    let mut under_way = Vec::new();
                    for (index, &(block, byte, count)) in commands.iter().enumerate().skip(next).take(at_once)
                    {
                        let content = GivenContent::Write(ByteOffset(block * 4096), blocks(byte, count));
                        let stamp = Stamp(100 * index as u64 + 100);
                        let (entry, done) = volume.begin_given(content, stamp).await;
                        let mut done = Some(done);
                        if !entry.is_entered().await {
                            done.take().expect("it is begun").await.expect("it is there");
                        }
                        under_way.push(done);
                        started.set(started.get().max(index + 1));
                    }
                    for command in under_way {
                        if let Some(command) = command {
                            command.await.expect("it is stable");
                        }
                        next += 1;
                        done.set(done.get().max(next));
                    }
                }
                pool.close().await.expect("it closes");
            });
            if !matches!(outcome, SimOutcome::Crashed) {
                break;
            }
            scene.simulation.cut_power();
            crashes += 1;
            within += usize::from(begun.get() > confirmed.get() + 1);
        }
        let all = Rc::clone(&all);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            assert_eq!(check_prefix(&pool, &all, all.len()).await, all.len());
        });
    }
    println!("note: {crashes} crashes, {within} with more than one command under way");
    assert!(crashes > 24 && within > 12, "{crashes} crashes, {within} within a batch");
}
