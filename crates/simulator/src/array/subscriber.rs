//! A subscriber of the pool's log that replays all records, holds answers for a while and pins log.
//!
//! After the work its copy of each block equals the volume's, and no write is answered before its hold has
//! ended. It draws from a random stream of its own, so hosts and drives do the same as without it, apart from
//! the time that answers take.

use super::{
    content::{OperationNumber, SECTOR_BYTES, SectorContent, VolumeKey, content_of},
    fixture::{PoolFixture, volume_id},
    violation::{PoolRefusal, PoolRunError, PoolViolation},
};
use array::{
    format::{BLOCK_BYTES, BlockIndex, Position, Stamp, VolumeId},
    pool::{
        AnswerHold, DeliveredChange, DeliveredRecord, LogPin, LogSubscriber, LogSubscription, Pool,
        VolumeKey as PoolVolumeKey,
    },
    volume::VolumeDevice,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use world::{BlockDevice, Buffer, ByteOffset, Random, World};

const BLOCK_SECTORS: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;
/// Percentage of records whose answers are held, and the longest hold.
const HELD_PERCENT: f64 = 40.0;
const HOLD_MAX_MICROSECONDS: u64 = 20_000;
/// Percentage of records at which the pin moves on.
const PIN_MOVES_PERCENT: f64 = 5.0;

/// The last version of a block; without data after a discard.
type FollowedBlock = (Stamp, Option<Arc<Buffer>>);

/// A block of a record whose answers are held.
struct WrittenBlock {
    place: (VolumeId, BlockIndex),
    data: Arc<Buffer>,
    /// Its data before the record, if that is known.
    before: Option<Arc<Buffer>>,
}

impl WrittenBlock {
    /// True if the record wrote sectors of an operation here, rather than kept them.
    fn is_of(&self, volume: VolumeKey, sectors: &Range<u64>, operation: OperationNumber) -> bool {
        let first = self.place.1.0 * BLOCK_SECTORS;
        let mut within = first.max(sectors.start)..sectors.end.min(first + BLOCK_SECTORS);
        let writers = BTreeSet::from([volume]);
        let has = |data: &Buffer, sector: u64| {
            let at = (sector - first) as usize * SECTOR_BYTES;
            let content = content_of(&data[at..at + SECTOR_BYTES], &writers, sector);
            content == Ok(SectorContent::Of(operation))
        };
        self.place.0 == volume_id(volume)
            && within.any(|sector| {
                has(&self.data, sector) && !self.before.as_ref().is_some_and(|before| has(before, sector))
            })
    }
}

/// The content of the volumes as records have it.
pub struct Follower {
    world: World,
    random: RefCell<Random>,
    blocks: RefCell<BTreeMap<(VolumeId, BlockIndex), FollowedBlock>>,
    /// Records whose answers are held.
    held: RefCell<BTreeMap<Position, Vec<WrittenBlock>>>,
    pin: RefCell<Option<LogPin>>,
    /// For tasks that end holds.
    own: Weak<Self>,
}

/// A subscriber at work.
pub struct PoolFollower {
    follower: Rc<Follower>,
    subscription: LogSubscription,
}

impl LogSubscriber for Follower {
    fn take(&self, record: &Rc<DeliveredRecord>, hold: AnswerHold) {
        let mut written = Vec::new();
        for change in &record.changes {
            match change {
                DeliveredChange::Write { volume, key, data } => {
                    let place = (*volume, key.block);
                    let before = self.set(place, (key.stamp, Some(Arc::clone(data))));
                    written.push(WrittenBlock { place, data: Arc::clone(data), before });
                }
                DeliveredChange::Zeroes { volume, interval }
                | DeliveredChange::Discard { volume, interval } => {
                    let end = BlockIndex(interval.first.0 + interval.count.0);
                    let blocks = self.blocks.borrow();
                    let known = blocks.range((*volume, interval.first)..(*volume, end));
                    let known: Vec<_> = known.map(|(&key, _)| key).collect();
                    drop(blocks);
                    known.into_iter().for_each(|key| drop(self.set(key, (interval.stamp, None))));
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
            let time = Duration::from_micros(random.below(HOLD_MAX_MICROSECONDS));
            let (world, own, position) = (self.world.clone(), Weak::clone(&self.own), record.position);
            self.held.borrow_mut().insert(position, written);
            drop(self.world.spawn("hold of an answer", async move {
                world.sleep(time).await;
                if let Some(follower) = own.upgrade() {
                    follower.held.borrow_mut().remove(&position);
                }
                drop(hold);
            }));
        }
    }
}

impl Follower {
    /// Sets a block, and returns the data that it had.
    fn set(&self, key: (VolumeId, BlockIndex), block: FollowedBlock) -> Option<Arc<Buffer>> {
        let stamp = block.0;
        let (before, data) = self.blocks.borrow_mut().insert(key, block)?;
        assert!(before < stamp, "stamps of a block ascend");
        data
    }

    /// Fails if a write was just answered although the answers of its record are held.
    pub fn check_answered(
        &self,
        (volume, sectors): (VolumeKey, &Range<u64>),
        operation: OperationNumber,
    ) -> Result<(), PoolViolation> {
        let held = self.held.borrow();
        let is_of = |block: &WrittenBlock| block.is_of(volume, sectors, operation);
        match held.iter().find(|(_, blocks)| blocks.iter().any(is_of)) {
            Some((position, _)) => {
                Err(PoolViolation::Subscriber(format!("record {position} is answered, and was held")))
            }
            None => Ok(()),
        }
    }
}

impl PoolFollower {
    /// Subscribes to the log of a pool, and pins it.
    pub fn begin(world: &World, pool: &Rc<Pool>) -> Self {
        let follower = Rc::new_cyclic(|own| Follower {
            world: world.clone(),
            random: RefCell::new(world.random("subscriber")),
            blocks: RefCell::default(),
            held: RefCell::default(),
            pin: RefCell::new(None),
            own: Weak::clone(own),
        });
        let subscription = pool.subscribe(Rc::clone(&follower) as Rc<dyn LogSubscriber>);
        *follower.pin.borrow_mut() = Some(subscription.pin());
        Self { follower, subscription }
    }

    /// The subscriber, for hosts to check their answers.
    pub fn follower(&self) -> Rc<Follower> {
        Rc::clone(&self.follower)
    }

    /// Compares all blocks that were written since the beginning with the volumes. Ends the subscription.
    pub async fn end(self, fixture: &PoolFixture, pool: &Rc<Pool>) -> Result<(), PoolRunError> {
        let keys: Vec<_> = self.follower.blocks.borrow().keys().copied().collect();
        for (volume, block) in keys {
            let Ok(device) = pool.volume(PoolVolumeKey::Id(volume)).map(VolumeDevice) else { continue };
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
        fixture.follower.take();
        drop(self.subscription);
        Ok(())
    }
}
