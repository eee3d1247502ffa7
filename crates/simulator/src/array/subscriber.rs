//! A subscriber of the pool's log that replays all records, holds answers for a while and pins log.
//!
//! After the work its copy of each block equals the volume's. It draws from a random stream of its own, so
//! hosts and drives do the same as without it, apart from the time that answers take.

use super::{
    fixture::PoolFixture,
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    format::{BLOCK_BYTES, BlockIndex, Stamp, VolumeId},
    pool::{
        AnswerHold, DeliveredChange, DeliveredRecord, LogPin, LogSubscriber, LogSubscription, Pool, VolumeKey,
    },
    volume::VolumeDevice,
};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, Random, World};

/// Percentage of records whose answers are held, and the longest hold.
const HELD_PERCENT: f64 = 40.0;
const HOLD_MAX_MICROSECONDS: u64 = 20_000;
/// Percentage of records at which the pin moves on.
const PIN_MOVES_PERCENT: f64 = 5.0;

/// The last version of a block; without data after a discard.
type FollowedBlock = (Stamp, Option<Arc<Buffer>>);

struct Follower {
    world: World,
    random: RefCell<Random>,
    blocks: RefCell<BTreeMap<(VolumeId, BlockIndex), FollowedBlock>>,
    pin: RefCell<Option<LogPin>>,
}

/// A subscriber at work.
pub struct PoolFollower {
    follower: Rc<Follower>,
    subscription: LogSubscription,
}

impl LogSubscriber for Follower {
    fn take(&self, record: &Rc<DeliveredRecord>, hold: AnswerHold) {
        for change in &record.changes {
            match change {
                DeliveredChange::Write { volume, key, data } => {
                    self.set((*volume, key.block), (key.stamp, Some(Arc::clone(data))));
                }
                DeliveredChange::Zeroes { volume, interval }
                | DeliveredChange::Discard { volume, interval } => {
                    let end = BlockIndex(interval.first.0 + interval.count.0);
                    let blocks = self.blocks.borrow();
                    let known = blocks.range((*volume, interval.first)..(*volume, end));
                    let known: Vec<_> = known.map(|(&key, _)| key).collect();
                    drop(blocks);
                    known.into_iter().for_each(|key| self.set(key, (interval.stamp, None)));
                }
                DeliveredChange::Put { .. } | DeliveredChange::Remove(_) => {}
            }
        }
        let mut random = self.random.borrow_mut();
        if random.percent(PIN_MOVES_PERCENT)
            && let Some(pin) = &*self.pin.borrow()
        {
            pin.move_to(record.position);
        }
        if random.percent(HELD_PERCENT) {
            let (world, time) =
                (self.world.clone(), Duration::from_micros(random.below(HOLD_MAX_MICROSECONDS)));
            drop(self.world.spawn("hold of an answer", async move {
                world.sleep(time).await;
                drop(hold);
            }));
        }
    }
}

impl Follower {
    fn set(&self, key: (VolumeId, BlockIndex), block: FollowedBlock) {
        let stamp = block.0;
        let before = self.blocks.borrow_mut().insert(key, block);
        assert!(before.is_none_or(|(before, _)| before < stamp), "stamps of a block ascend");
    }
}

impl PoolFollower {
    /// Subscribes to the log of a pool, and pins it.
    pub fn begin(world: &World, pool: &Rc<Pool>) -> Self {
        let follower = Rc::new(Follower {
            world: world.clone(),
            random: RefCell::new(world.random("subscriber")),
            blocks: RefCell::default(),
            pin: RefCell::new(None),
        });
        let subscription = pool.subscribe(Rc::clone(&follower) as Rc<dyn LogSubscriber>);
        *follower.pin.borrow_mut() = Some(subscription.pin());
        Self { follower, subscription }
    }

    /// Compares all blocks that were written since the beginning with the volumes. Ends the subscription.
    pub async fn end(self, fixture: &PoolFixture, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        let keys: Vec<_> = self.follower.blocks.borrow().keys().copied().collect();
        for (volume, block) in keys {
            let Ok(device) = pool.volume(VolumeKey::Id(volume)).map(VolumeDevice) else { continue };
            let at = ByteOffset(block.0 * BLOCK_BYTES as u64);
            let length = device.geometry().size.0.saturating_sub(at.0).min(BLOCK_BYTES as u64) as usize;
            if length == 0 {
                continue;
            }
            let version =
                || self.follower.blocks.borrow().get(&(volume, block)).cloned().expect("blocks stay");
            let (stamp, data) = version();
            let read = device.read(at, vec![Buffer::zeroed(length)]).await;
            let read = read.map_err(|error| PoolRefusal::of_volume("reading what was followed", &error))?;
            let is_right = data
                .map_or_else(|| read[0].iter().all(|&byte| byte == 0), |data| data[..length] == read[0][..]);
            // A command that a host gave up on may still be written.
            if !is_right && version().0 == stamp {
                let what = format!("block {block} of volume {volume} differs, as of stamp {stamp}");
                return Err(PoolViolation::Subscriber(what).into());
            }
            fixture.tally.borrow_mut().blocks_followed += 1;
        }
        drop(self.subscription);
        Ok(())
    }
}
