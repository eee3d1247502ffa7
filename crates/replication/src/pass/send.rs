//! The sending side of a pass.

use super::{
    BlockRanges,
    block_ranges::blocks_of,
    brought::{BroughtBlocks, StepBrought, data_born_since},
    gathered::GatheredBlocks,
    pace::PassPace,
    steps::{PassStep, ReceiverState, kept_snapshots, steps_of, way_to},
};
use crate::{
    channel::{ChannelEnd, FrameChannel},
    connect::{Introduction, TransferWay},
    cut::GroupCut,
    frame::{
        FRAME_BLOCKS_MAX, FrameBody, PassBeginFrame, PassBlocksFrame, PassEndFrame, PassPointFrame,
        PassRangesFrame, PassSnapshotFrame, PassSnapshotsFrame, RangeState, SentRange,
    },
    member::GroupMember,
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, BlockCount, BlockIndex, SECTOR_BYTES, SnapshotId, Stamp, VolumeId},
    pool::{Difference, Pool, RangeChange, SnapshotKey, VolumeKey},
    volume::SnapshotDevice,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Range,
};
use world::{BlockDevice, ByteCount, ByteOffset, World, crc32c::crc32c};

/// Stamps that a receiver may use below that of a cut.
const STAMPS_LEFT: u64 = 4096;
/// Blocks of one list of what is mapped.
const MAPPED_AT_ONCE: u64 = 16_384;

/// Contents of a pass.
#[derive(Clone, Debug)]
pub(crate) struct PassGoal {
    /// Identity of its cut.
    pub cut: SnapshotId,
    /// Counted up by the sender.
    pub number: u64,
    /// The receiver has everything up to here; 0 for the first copy.
    pub since: Stamp,
    /// Stamp of the cut.
    pub until: Stamp,
    pub way: TransferWay,
    /// Blocks that the receiver needs beside.
    pub beside: BTreeMap<VolumeId, BlockRanges>,
    /// Blocks that it has of passes that were not finished.
    pub brought: BTreeMap<VolumeId, Vec<BroughtBlocks>>,
    /// Hosts do not wait for it: it keeps to the plan of the group, and gives way to them.
    pub is_merge: bool,
    /// Snapshots that the receiver has of each volume; `None` if they are all up to `since`.
    pub receiver_has: Option<BTreeMap<VolumeId, BTreeSet<SnapshotId>>>,
}

impl PassGoal {
    fn brought_of(&self, volume: VolumeId) -> &[BroughtBlocks] {
        self.brought.get(&volume).map_or(&[], Vec::as_slice)
    }
}

/// A pass that was sent; the receiver has not confirmed it yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentPass {
    pub until: Stamp,
    pub bytes: u64,
}

/// End of a pass that was not sent whole.
#[derive(Debug)]
pub(crate) enum PassEnd {
    Channel(ChannelEnd),
    Pool(Error),
}

impl From<ChannelEnd> for PassEnd {
    fn from(end: ChannelEnd) -> Self {
        Self::Channel(end)
    }
}

impl From<Error> for PassEnd {
    fn from(error: Error) -> Self {
        Self::Pool(error)
    }
}

struct PassSender<'p, C> {
    member: &'p GroupMember,
    channel: &'p C,
    blocks: u64,
    digest: u64,
    /// Of the step under way: blocks that are not sent yet.
    gathered: GatheredBlocks,
    world: &'p World,
    /// `None` of a pass that hosts wait for.
    pace: Option<PassPace>,
}

/// Takes a cut of the group's volumes, above every stamp that the receiver of its pass may have. It stays until the caller
/// deletes it.
pub(crate) async fn take_cut(
    member: &GroupMember,
    cut: SnapshotId,
    receiver: &Introduction,
) -> Result<Stamp, Error> {
    // The receiver's own cuts take some, and so do its points between them.
    member.pool.raise_stamps(Stamp(highest_of(receiver).0 + STAMPS_LEFT));
    member.pool.skip_stamps(STAMPS_LEFT);
    member.pool.take_cut(&member.ids(), cut).await
}

/// As [`take_cut`], at a secondary that returns to its primary what it has: not above the cuts which the primary takes from
/// now on, as the stamps of this pool may be, for a primary that serves passes over this one.
pub(crate) async fn take_cut_to_return(
    member: &GroupMember,
    cut: SnapshotId,
    receiver: &Introduction,
) -> Result<Stamp, Error> {
    let until = Stamp(highest_of(receiver).max(member.last_stamp()?).0 + STAMPS_LEFT);
    member.pool.take_cut_of_replica_at(&member.ids(), cut, until).await?;
    Ok(until)
}

/// The highest stamp that the receiver of a pass says it has.
fn highest_of(receiver: &Introduction) -> Stamp {
    let of_pass = receiver.unfinished.iter().map(|pass| pass.until.stamps()[0]).max();
    receiver.has.stamps()[0].max(of_pass.unwrap_or_default())
}

/// Sends what the receiver lacks of a cut of the group's volumes.
pub(crate) async fn send(
    (world, member): (&World, &GroupMember),
    channel: &impl FrameChannel,
    goal: &PassGoal,
) -> Result<SentPass, PassEnd> {
    let (until, expected_bytes) = (goal.until, expected_bytes(member, goal).await?);
    member.meter.begin_pass(goal.since == Stamp(0), expected_bytes);
    let begin = PassBeginFrame {
        number: goal.number,
        fence: member.fence(),
        way: goal.way,
        since: GroupCut::new(vec![goal.since]),
        until: GroupCut::new(vec![until]),
        expected_bytes,
    };
    channel.send(FrameBody::PassBegin(begin)).await?;
    let pace = goal.is_merge.then(|| PassPace::new(world, &member.pool));
    let gathered = GatheredBlocks::default();
    let mut sender = PassSender { member, channel, blocks: 0, digest: 0, gathered, world, pace };
    for &volume in &member.volumes {
        sender.send_volume(volume, goal).await?;
    }
    let (blocks, digest) = (sender.blocks, sender.digest);
    channel.send(FrameBody::PassEnd(PassEndFrame { number: goal.number, blocks, digest })).await?;
    Ok(SentPass { until, bytes: blocks * BLOCK_BYTES as u64 })
}

/// Bytes of the blocks that a pass is about to send. Those that the receiver wants beside may be counted twice.
async fn expected_bytes(member: &GroupMember, goal: &PassGoal) -> Result<u64, Error> {
    let mut blocks = 0;
    for &volume in &member.volumes {
        if let Some(beside) = goal.beside.get(&volume) {
            let size = member.pool.volume(VolumeKey::Id(volume))?.size_bytes() / BLOCK_BYTES as u64;
            let mut within = BlockRanges::default();
            within.push(0..size);
            blocks += beside.common(&within).count();
        }
        let (mut before, mut named) = (goal.since, goal.brought_of(volume));
        for step in steps_of(&member.pool, volume, goal)? {
            match count_left(&member.pool, (volume, &step), (before, named)).await {
                Ok(count) => (blocks, before, named) = (blocks + count, step.stamp, &[]),
                // It was deleted meanwhile.
                Err(_) if step.snapshot.is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(blocks * BLOCK_BYTES as u64)
}

/// Blocks that a step has to send to a receiver that has everything up to a stamp, and what was named.
async fn count_left(
    pool: &Pool,
    (volume, step): (VolumeId, &PassStep),
    (since, named): (Stamp, &[BroughtBlocks]),
) -> Result<u64, Error> {
    let brought = StepBrought::of(pool, (volume, step), (named, &[])).await?;
    if brought.is_empty() {
        return count_born_since(pool, (volume, step.point), since).await;
    }
    let born = data_born_since(pool, (volume, step.point), since).await?;
    Ok(brought.left_of(&born, &born).count())
}

/// Blocks with data in a point of a volume that were born above a stamp.
pub(crate) async fn count_born_since(
    pool: &Pool,
    (volume, point): (VolumeId, SnapshotId),
    since: Stamp,
) -> Result<u64, Error> {
    let mut walk =
        pool.born_since(VolumeKey::Id(volume), since, SnapshotKey::Id(point)).await?.in_small_steps();
    let counted = count_data(&mut walk).await;
    walk.end().await?;
    counted
}

async fn count_data(walk: &mut Difference) -> Result<u64, Error> {
    let mut blocks = 0;
    while let Some(ranges) = walk.next().await? {
        let data = ranges.iter().filter(|range| range.change == RangeChange::Data).map(blocks_of);
        blocks += data.map(|range| range.end - range.start).sum::<u64>();
    }
    Ok(blocks)
}

impl<C: FrameChannel> PassSender<'_, C> {
    /// Sends a volume: step by step, each snapshot that the receiver lacks, and then the cut.
    async fn send_volume(&mut self, volume: VolumeId, goal: &PassGoal) -> Result<(), PassEnd> {
        let pool = &self.member.pool;
        let kept = kept_snapshots(pool, volume, goal.until)?;
        self.channel.send(FrameBody::PassSnapshots(PassSnapshotsFrame { volume, kept })).await?;
        let mut receiver = ReceiverState { since: goal.since, at: None };
        let mut named = goal.brought_of(volume);
        for step in steps_of(pool, volume, goal)? {
            let sent = self.send_step((volume, &step), (goal, receiver), mem::take(&mut named)).await;
            match sent {
                Ok(since) => receiver = ReceiverState { since, at: Some((step.point, step.stamp)) },
                // People deleted the snapshot meanwhile: the next step brings what belongs to it, too.
                Err(PassEnd::Pool(_))
                    if step.snapshot.is_some() && !pool.has_snapshot(volume, step.point) => {}
                Err(end) => return Err(end),
            }
        }
        Ok(())
    }

    /// Sends a step, but for what the receiver has `named`. Returns the stamp up to which its state and that of the next point
    /// are one.
    async fn send_step(
        &mut self,
        (volume, step): (VolumeId, &PassStep),
        (goal, receiver): (&PassGoal, ReceiverState),
        named: &[BroughtBlocks],
    ) -> Result<Stamp, PassEnd> {
        // Those of a step that came to no end belong to this one, and its walk finds them.
        self.gathered = GatheredBlocks::default();
        let key = (VolumeKey::Id(volume), SnapshotKey::Id(step.point));
        let point = self.member.pool.snapshot_device(key.0, key.1)?;
        let way = way_to(&self.member.pool, (volume, step), (goal, receiver)).await?;
        let sectors = point.geometry().size.0 / SECTOR_BYTES;
        let snapshot = step.snapshot.as_ref().map(|taken| taken.snapshot);
        let frame = PassPointFrame { volume, stamp: step.stamp, sectors, snapshot };
        self.channel.send(FrameBody::PassPoint(frame)).await?;
        let mapped = self.send_mapped(volume, &point).await?;
        let brought = StepBrought::of(&self.member.pool, (volume, step), (named, &way.undone)).await?;
        let mut walk = self.member.pool.born_since(key.0, way.since, key.1).await?.in_small_steps();
        let beside = goal.beside.get(&volume).cloned().unwrap_or_default();
        let sent = match beside.ranges().is_empty() && brought.is_empty() {
            true => self.send_born(volume, &point, &mut walk).await,
            false => {
                let wanted = beside.common(&mapped);
                self.send_born_and((volume, &point), (&mut walk, &wanted), (&brought, &mapped)).await
            }
        };
        walk.end().await?;
        sent?;
        self.send_gathered(volume, &point).await?;
        match step.snapshot.clone() {
            Some(taken) if self.member.pool.has_snapshot(volume, step.point) => {
                self.channel.send(FrameBody::PassSnapshot(PassSnapshotFrame { taken })).await?;
                Ok(if step.goes_back { way.since } else { step.stamp })
            }
            Some(_) => Err(PassEnd::Pool(Error::NoSnapshot {
                volume: volume.to_string(),
                snapshot: step.point.to_string(),
            })),
            None => Ok(step.stamp),
        }
    }

    /// Sends blocks as the walk finds them.
    async fn send_born(
        &mut self,
        volume: VolumeId,
        point: &SnapshotDevice,
        walk: &mut Difference,
    ) -> Result<(), PassEnd> {
        while let Some(ranges) = walk.next().await? {
            for range in ranges {
                match range.change {
                    RangeChange::Data => self.send_blocks(volume, point, blocks_of(&range)).await?,
                    RangeChange::Zeroes => self.send_zeroes(volume, blocks_of(&range)).await?,
                    // The list of what is mapped shows it.
                    RangeChange::Discarded | RangeChange::BeyondSize => {}
                }
            }
        }
        Ok(())
    }

    /// Sends what the walk finds and what the receiver wants, without what was brought, and what rollbacks undid; each block
    /// once.
    async fn send_born_and(
        &mut self,
        (volume, point): (VolumeId, &SnapshotDevice),
        (walk, wanted): (&mut Difference, &BlockRanges),
        (brought, mapped): (&StepBrought, &BlockRanges),
    ) -> Result<(), PassEnd> {
        let mut born = BlockRanges::default();
        while let Some(ranges) = walk.next().await? {
            for range in ranges {
                match range.change {
                    RangeChange::Data => born.push(blocks_of(&range)),
                    RangeChange::Zeroes => self.send_zeroes(volume, blocks_of(&range)).await?,
                    RangeChange::Discarded | RangeChange::BeyondSize => {}
                }
            }
        }
        for range in brought.left_of(&born.union(wanted), mapped).ranges() {
            self.send_blocks(volume, point, range.clone()).await?;
        }
        Ok(())
    }

    /// The blocks with data; sends them as a list, so that the receiver finds what was discarded.
    async fn send_mapped(&self, volume: VolumeId, point: &SnapshotDevice) -> Result<BlockRanges, PassEnd> {
        let size = point.geometry().size.0 / BLOCK_BYTES as u64;
        let (mut first, mut all) = (0, BlockRanges::default());
        while first < size {
            let end = size.min(first + MAPPED_AT_ONCE);
            let (mut at, mut some) = (first, BlockRanges::default());
            while at < end {
                let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
                let extents = point.extents(ByteOffset(bytes(at)), ByteCount(bytes(end - at))).await;
                let extents = extents.map_err(Error::Copy)?;
                BlockRanges::mapped(at, &extents).ranges().iter().for_each(|range| some.push(range.clone()));
                at += extents.iter().map(|extent| extent.length.0).sum::<u64>() / BLOCK_BYTES as u64;
            }
            let within = SentRange { first: BlockIndex(first), count: BlockCount(end - first) };
            let frame = PassRangesFrame { volume, state: RangeState::Mapped, within, ranges: some.sent() };
            self.channel.send(FrameBody::PassRanges(frame)).await?;
            some.ranges().iter().for_each(|range| all.push(range.clone()));
            first = end;
        }
        Ok(all)
    }

    async fn send_zeroes(&self, volume: VolumeId, blocks: Range<u64>) -> Result<(), PassEnd> {
        let within =
            SentRange { first: BlockIndex(blocks.start), count: BlockCount(blocks.end - blocks.start) };
        let frame = PassRangesFrame { volume, state: RangeState::Zeroes, within, ranges: vec![within] };
        Ok(self.channel.send(FrameBody::PassRanges(frame)).await?)
    }

    async fn send_blocks(
        &mut self,
        volume: VolumeId,
        point: &SnapshotDevice,
        mut blocks: Range<u64>,
    ) -> Result<(), PassEnd> {
        loop {
            let most = self.pace.as_ref().map_or(FRAME_BLOCKS_MAX as u64, PassPace::piece_blocks);
            let is_taken = self.gathered.take_from(&mut blocks, most);
            if is_taken && self.gathered.count() < most {
                assert!(blocks.is_empty(), "there was room for more");
                return Ok(());
            }
            self.send_gathered(volume, point).await?;
        }
    }

    /// Reads and sends what is gathered, as one frame.
    async fn send_gathered(&mut self, volume: VolumeId, point: &SnapshotDevice) -> Result<(), PassEnd> {
        let gathered = mem::take(&mut self.gathered);
        let count = gathered.count();
        if count == 0 {
            return Ok(());
        }
        let begun = self.world.now();
        let blocks = gathered.read(point).await?;
        blocks.iter().for_each(|block| {
            self.digest = self.digest.wrapping_add(u64::from(crc32c(&[&block.data])));
        });
        self.blocks += count;
        self.channel.send(FrameBody::PassBlocks(PassBlocksFrame { volume, blocks })).await?;
        let bytes = count * BLOCK_BYTES as u64;
        self.member.meter.note_pass_blocks(bytes, true);
        let took = self.world.now().since(begun);
        if let Some(pace) = &mut self.pace {
            pace.rest((bytes, took), self.member).await;
        }
        Ok(())
    }
}
