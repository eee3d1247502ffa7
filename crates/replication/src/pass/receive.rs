//! The receiving side of a pass.

use super::{BlockRanges, block_ranges::blocks_of};
use crate::{
    connect::UnfinishedPass,
    cut::GroupCut,
    frame::{
        PassBeginFrame, PassBlock, PassBlocksFrame, PassEndFrame, PassRangesFrame, RangeState, SentRange,
    },
    group_state::GroupState,
    lineage::Lineage,
    member::GroupMember,
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, BlockCount, BlockIndex, SnapshotId, Stamp, VolumeId},
    pool::{Pool, RangeChange, SnapshotKey, VolumeKey},
    volume::Volume,
};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, crc32c::crc32c};

/// Blocks of zeroes that are written at once, at most.
const ZEROES_AT_ONCE: u64 = 256;

/// A frame of a pass that cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassFault {
    /// The sender broke a rule.
    #[error("{0}")]
    Frame(String),
    /// The pool or the records of this side failed.
    #[error(transparent)]
    Pool(#[from] Error),
}

fn fault(text: impl Into<String>) -> PassFault {
    PassFault::Frame(text.into())
}

/// A pass that is being received.
pub(crate) struct PassReceiver {
    member: Rc<GroupMember>,
    number: u64,
    until: Stamp,
    blocks: u64,
    digest: u64,
}

impl PassReceiver {
    /// Begins a pass at a side that has everything up to `has`: it will be shown as it is now until the pass has ended. One
    /// that was not finished, and began where this one does, stays: this one covers what it brought.
    pub async fn begin(
        member: &Rc<GroupMember>,
        begin: &PassBeginFrame,
        has: Stamp,
    ) -> Result<Self, PassFault> {
        if begin.fence < member.fence() {
            return Err(fault(format!("the sender's right ended: its fence is {}", begin.fence)));
        }
        if begin.until.parts() != 1 {
            return Err(fault("a pass of another number of parts"));
        }
        let unfinished = member.state().unfinished;
        if unfinished.as_ref().is_some_and(|pass| pass.since.stamps()[0] != has) {
            return Err(fault("a pass that begins elsewhere than the one that was not finished"));
        }
        let (until, ids) = (begin.until.stamps()[0], member.ids());
        for &volume in &ids {
            let last = member.pool.last_stamp(VolumeKey::Id(volume))?;
            if until <= last {
                return Err(fault(format!("a pass ends at stamp {until}, and {last} is here")));
            }
        }
        if unfinished.is_none() {
            member.pool.take_cut_of_replica(&ids, member.shown_cut()).await?;
        }
        let pass = UnfinishedPass { since: GroupCut::new(vec![has]), until: begin.until.clone() };
        member.change(|state| state.unfinished = Some(pass)).await?;
        member.meter.begin_pass(begin.since.stamps()[0] == Stamp(0), begin.expected_bytes);
        Ok(Self { member: Rc::clone(member), number: begin.number, until, blocks: 0, digest: 0 })
    }

    pub fn until(&self) -> Stamp {
        self.until
    }

    fn volume(&self, id: VolumeId) -> Result<Rc<Volume>, PassFault> {
        if !self.member.volumes.contains(&id) {
            return Err(fault("a pass of a volume that is not in this part of the group"));
        }
        Ok(self.member.pool.volume(VolumeKey::Id(id))?)
    }

    pub async fn take_blocks(&mut self, frame: PassBlocksFrame) -> Result<(), PassFault> {
        let volume = self.volume(frame.volume)?;
        let count = frame.blocks.len() as u64;
        self.blocks += count;
        frame.blocks.iter().for_each(|sent| {
            self.digest = self.digest.wrapping_add(u64::from(crc32c(&[&sent.data])));
        });
        for run in frame.blocks.chunk_by(|one, next| one.block.0 + 1 == next.block.0) {
            let data = run.iter().map(|sent: &PassBlock| Arc::clone(&sent.data)).collect();
            self.write(&volume, run[0].block.0, data).await?;
        }
        self.member.meter.note_pass_blocks(count * BLOCK_BYTES as u64, false);
        Ok(())
    }

    async fn write(&self, volume: &Volume, first: u64, data: Vec<Arc<Buffer>>) -> Result<(), PassFault> {
        let at = ByteOffset(first * BLOCK_BYTES as u64);
        volume.ensure_write(at, &data, self.until).await.map_err(Error::Copy)?;
        Ok(())
    }

    pub async fn take_ranges(&mut self, frame: PassRangesFrame) -> Result<(), PassFault> {
        let volume = self.volume(frame.volume)?;
        let SentRange { first, count } = frame.within;
        let within = first.0..first.0 + count.0;
        let size = volume.size_bytes() / BLOCK_BYTES as u64;
        if within.end > size {
            return Err(fault(format!("ranges up to block {} of a volume of {size}", within.end)));
        }
        let ranges = BlockRanges::received(&frame.ranges);
        match frame.state {
            RangeState::Mapped => {
                let (at, length) = bytes_of(&within);
                let own = mapped(&volume, at, length).await?;
                for range in own.common(&ranges.others_within(within)).ranges() {
                    self.discard((&volume, frame.volume), range.clone()).await?;
                }
            }
            RangeState::Discarded => {
                for range in ranges.ranges() {
                    self.discard((&volume, frame.volume), range.clone()).await?;
                }
            }
            RangeState::Zeroes => {
                for range in ranges.ranges() {
                    self.write_zeroes(&volume, range.clone()).await?;
                }
            }
        }
        Ok(())
    }

    /// Discards get stamps of their own, below that of the pass: a checkpoint knows a discard by its stamp. If none are
    /// left, zeroes are written.
    async fn discard(&self, (volume, id): (&Volume, VolumeId), blocks: Range<u64>) -> Result<(), PassFault> {
        let last = self.member.pool.last_stamp(VolumeKey::Id(id))?;
        let stamp = Stamp(last.0 + 1);
        if stamp >= self.until {
            return self.write_zeroes(volume, blocks).await;
        }
        let count = BlockCount(blocks.end - blocks.start);
        volume.ensure_discard(BlockIndex(blocks.start), count, stamp).await.map_err(Error::Copy)?;
        Ok(())
    }

    async fn write_zeroes(&self, volume: &Volume, blocks: Range<u64>) -> Result<(), PassFault> {
        let zeroes = Arc::new(Buffer::zeroed(BLOCK_BYTES));
        let mut first = blocks.start;
        while first < blocks.end {
            let count = ZEROES_AT_ONCE.min(blocks.end - first);
            self.write(volume, first, vec![Arc::clone(&zeroes); count as usize]).await?;
            first += count;
        }
        Ok(())
    }

    /// Ends the pass: everything up to its cut is here, and stable. `lineage`: the sender's, as of that cut.
    pub async fn end(self, frame: &PassEndFrame, lineage: Lineage) -> Result<Stamp, PassFault> {
        let got = PassEndFrame { number: self.number, blocks: self.blocks, digest: self.digest };
        if *frame != got {
            let text = format!("pass {} was not received whole: {got:?} instead of {frame:?}", self.number);
            return Err(fault(text));
        }
        let member = &self.member;
        let ended = |state: &mut GroupState| {
            // Its own history is a fork by now.
            (state.unfinished, state.lineage, state.told) = (None, Some(lineage), Stamp(0));
        };
        member.change(ended).await?;
        member.pool.delete_cut(&member.ids(), member.shown_cut()).await?;
        member.meter.end_pass();
        Ok(self.until)
    }
}

fn bytes_of(blocks: &Range<u64>) -> (ByteOffset, ByteCount) {
    let block_bytes = BLOCK_BYTES as u64;
    (ByteOffset(blocks.start * block_bytes), ByteCount((blocks.end - blocks.start) * block_bytes))
}

/// Blocks with data in a range of a volume.
async fn mapped(volume: &Volume, at: ByteOffset, length: ByteCount) -> Result<BlockRanges, Error> {
    let (mut at, end, mut all) = (at.0, at.0 + length.0, BlockRanges::default());
    while at < end {
        let extents = volume.extents(ByteOffset(at), ByteCount(end - at)).await.map_err(Error::Copy)?;
        let some = BlockRanges::mapped(at / BLOCK_BYTES as u64, &extents);
        some.ranges().iter().for_each(|range| all.push(range.clone()));
        at += extents.iter().map(|extent| extent.length.0).sum::<u64>();
    }
    Ok(all)
}

/// The blocks of a volume that a receiver needs beside what the sender changed: those that it changed itself above a
/// stamp; and, if it has a history of its own, those it does not have, since it may have discarded them.
pub(crate) async fn changed_ranges(
    pool: &Pool,
    (volume, cut): (VolumeId, SnapshotId),
    common: Stamp,
    has_history: bool,
) -> Result<BlockRanges, Error> {
    let device = pool.volume(VolumeKey::Id(volume))?;
    let size = device.size_bytes() / BLOCK_BYTES as u64;
    let mut walk =
        pool.born_since(VolumeKey::Id(volume), common, SnapshotKey::Id(cut)).await?.in_small_steps();
    let mut born = BlockRanges::default();
    let walked: Result<(), Error> = async {
        while let Some(ranges) = walk.next().await? {
            for range in ranges.into_iter().filter(|range| range.change != RangeChange::BeyondSize) {
                born.push(blocks_of(&range));
            }
        }
        Ok(())
    }
    .await;
    walk.end().await?;
    walked?;
    if !has_history {
        return Ok(born);
    }
    let (at, length) = bytes_of(&(0..size));
    Ok(born.union(&mapped(&device, at, length).await?.others_within(0..size)))
}
