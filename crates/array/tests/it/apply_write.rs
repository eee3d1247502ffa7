//! Writes with given stamps, as the follower of a replication applies them.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{BlockIndex, SnapshotId, Stamp},
    pool::{AnswerHold, DeliveredChange, DeliveredRecord, LogSubscriber, open},
    volume::VolumeDevice,
};
use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset};

/// Writes of volume "a", to be sent to volume "b".
#[derive(Default)]
struct Sender(RefCell<VecDeque<(BlockIndex, Stamp, Arc<Buffer>)>>);

impl LogSubscriber for Sender {
    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        for change in &record.changes {
            if let DeliveredChange::Write { volume, key, data } = change
                && volume.0[0] == b'a'
            {
                self.0.borrow_mut().push_back((key.block, key.stamp, Arc::clone(data)));
            }
        }
    }
}

#[test]
fn writes_with_the_stamps_of_another_volume_make_a_replica_of_it() {
    let mut scene = Scene::new(81, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let source = make_volume(&pool, "a", MIB).await.expect("it is made");
        let VolumeDevice(replica) = make_volume(&pool, "b", MIB).await.expect("it is made");
        let sender = Rc::new(Sender::default());
        let _subscription = pool.subscribe(Rc::clone(&sender) as Rc<dyn LogSubscriber>);
        let mut random = world.random("source");
        for round in 0..200_u64 {
            write(&source, random.below(250) * 4096, round as u8, 4096 * (1 + random.below(6)) as usize)
                .await;
        }
        let mut last = Stamp(0);
        loop {
            let Some((block, stamp, data)) = sender.0.borrow_mut().pop_front() else { break };
            let at = ByteOffset(block.0 * 4096);
            // The blocks of one command have one stamp: this follower sends each stamp once.
            let mut blocks = vec![data];
            loop {
                let next = sender.0.borrow_mut().pop_front_if(|(_, next, _)| *next == stamp);
                let Some((_, _, data)) = next else { break };
                blocks.push(data);
            }
            replica.apply_write(at, &blocks, stamp).await.expect("it is applied");
            last = stamp;
        }
        let content = read(&source, 0, MIB as usize).await;
        assert!(read(&VolumeDevice(Rc::clone(&replica)), 0, MIB as usize).await == content, "they are equal");
        let again = |stamp| replica.apply_write(ByteOffset(0), &[], stamp);
        again(last).await.expect("no block is written");
        let block = [Arc::new(Buffer::zeroed(4096))];
        for late in [Stamp(0), Stamp(1), last] {
            let refused = replica.apply_write(ByteOffset(0), &block, late).await;
            assert!(refused.expect_err("it comes too late").to_string().contains("is not above"));
        }
        // A snapshot has a stamp, too: nothing earlier may get into it.
        pool.snapshot(&["b"], "kept", SnapshotId([1; 16])).await.expect("it is taken");
        assert!(replica.apply_write(ByteOffset(0), &block, Stamp(last.0 + 1)).await.is_err());
        let far = Stamp(1 << 40);
        replica.apply_write(ByteOffset(0), &block, far).await.expect("it is above all");
        write(&VolumeDevice(Rc::clone(&replica)), 4096, 1, 4096).await;
        assert!(
            replica.apply_write(ByteOffset(0), &block, Stamp(far.0 + 1)).await.is_err(),
            "the host had it"
        );
        let kept = pool.snapshot_device("b", "kept").expect("it is there");
        assert!(read(&kept, 0, MIB as usize).await == content, "it has what was there");
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        let replica = pool.volume("b").expect("it is there");
        assert_eq!(read(&VolumeDevice(Rc::clone(&replica)), 0, 4096).await, vec![0; 4096]);
        let block = [Arc::new(Buffer::zeroed(4096))];
        assert!(replica.apply_write(ByteOffset(0), &block, Stamp((1 << 40) + 1)).await.is_err());
        replica.apply_write(ByteOffset(0), &block, Stamp(1 << 41)).await.expect("it is above all");
    });
}
