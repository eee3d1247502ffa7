//! Subscribers of the log: a follower that replays all records has the content of the volumes.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{BlockIndex, Position, Stamp, VolumeId},
    pool::{DeliveredChange, DeliveredRecord, LogSubscriber, open},
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use world::{BlockDevice, ByteCount, ByteOffset, World};

/// Content of volumes, as replayed from delivered records.
#[derive(Default)]
struct Follower {
    blocks: RefCell<BTreeMap<(VolumeId, BlockIndex), (Stamp, Vec<u8>)>>,
    positions: RefCell<Vec<Position>>,
}

impl LogSubscriber for Follower {
    fn take(&self, record: &DeliveredRecord) {
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
