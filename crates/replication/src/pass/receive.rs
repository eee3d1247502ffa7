//! The receiving side of a pass.

use super::{BlockRanges, brought};
use crate::{
    connect::UnfinishedPass,
    cut::GroupCut,
    frame::{
        PassBeginFrame, PassBlock, PassBlocksFrame, PassEndFrame, PassPointFrame, PassRangesFrame,
        PassSnapshotFrame, PassSnapshotsFrame, RangeState, SentRange,
    },
    group_state::{BroughtStamp, GroupState},
    lineage::Lineage,
    member::GroupMember,
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{BLOCK_BYTES, BlockCount, BlockIndex, SECTOR_BYTES, SnapshotId, Stamp, VolumeId},
    pool::{GivenSnapshot, NewSnapshot, Pool, RangeChange, SnapshotKey, VolumeKey},
    volume::{GivenContent, Volume},
};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, crc32c::crc32c};

/// Blocks have numbers below.
const BLOCKS_END: u64 = 1 << 48;
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
    has: Stamp,
    until: Stamp,
    /// The sender's.
    lineage: Option<Lineage>,
    blocks: u64,
    digest: u64,
    point: Option<ReceivedPoint>,
}

/// The point of a volume that is being received.
struct ReceivedPoint {
    volume: VolumeId,
    /// Of the blocks that come. That of the sender, or one above if this side has used it for a cut.
    stamp: Stamp,
    snapshot: Option<SnapshotId>,
    /// This side has the snapshot: what was sent of it is here, and more.
    is_here: bool,
}

impl PassReceiver {
    /// Begins a pass at a side that has everything up to `has`: it will be shown as it is now until the pass has ended. One
    /// that was not finished, and began where this one does, stays: this one covers what it brought. `lineage`: the sender's.
    pub async fn begin(
        member: &Rc<GroupMember>,
        begin: &PassBeginFrame,
        (has, lineage): (Stamp, Option<&Lineage>),
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
        let epoch = lineage.and_then(|lineage| lineage.epoch_of(0, until)).map(|epoch| epoch.epoch);
        let change = |state: &mut GroupState| {
            state.unfinished = Some(pass);
            if let Some(epoch) = epoch {
                let stamp = BroughtStamp { volume: None, stamp: until, as_of: until, epoch };
                brought::note_stamp(&mut state.brought, stamp);
            }
        };
        member.change(change).await?;
        member.meter.begin_pass(begin.since.stamps()[0] == Stamp(0), begin.expected_bytes);
        let (member, number, lineage) = (Rc::clone(member), begin.number, lineage.cloned());
        Ok(Self { member, number, has, until, lineage, blocks: 0, digest: 0, point: None })
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

    /// Deletes the snapshots of a volume that the sender has no more, but for locked ones. Those that come may have their names.
    pub async fn take_snapshots(&mut self, frame: PassSnapshotsFrame) -> Result<(), PassFault> {
        self.volume(frame.volume)?;
        if !planted::is(ReplicationBug::DeletedSnapshotsStay) {
            self.member.delete_other_snapshots(frame.volume, frame.kept).await?;
        }
        Ok(())
    }

    /// Begins with a point of a volume: gives it the size that it has there.
    pub async fn take_point(&mut self, frame: PassPointFrame) -> Result<(), PassFault> {
        let volume = self.volume(frame.volume)?;
        let PassPointFrame { volume: id, stamp, sectors, snapshot } = frame;
        let pool = &self.member.pool;
        let is_here = snapshot.is_some_and(|snapshot| pool.has_snapshot(id, snapshot));
        if !is_here
            && volume.size_bytes() != sectors * SECTOR_BYTES
            && !planted::is(ReplicationBug::SizeNotPassed)
        {
            let next = self.next_stamp(id)?;
            pool.ensure_size(id, sectors, next).await?;
        }
        let as_of = stamp;
        let stamp = match snapshot {
            Some(_) if stamp < self.until => stamp.max(self.next_stamp(id)?),
            None if stamp == self.until => stamp,
            _ => return Err(fault(format!("a point at stamp {stamp} in a pass to {}", self.until))),
        };
        if snapshot.is_some() && !is_here {
            self.note_step(id, (stamp, as_of)).await?;
        }
        self.point = Some(ReceivedPoint { volume: id, stamp, snapshot, is_here });
        Ok(())
    }

    /// Records of which state of the sender the blocks of a step to a snapshot are. Of a step that goes back nothing is
    /// recorded: its state may be of a history that both have left.
    async fn note_step(&self, volume: VolumeId, (stamp, as_of): (Stamp, Stamp)) -> Result<(), PassFault> {
        let epoch = self.lineage.as_ref().and_then(|lineage| lineage.epoch_of(0, as_of));
        let Some(epoch) = epoch.filter(|_| as_of > self.has).map(|epoch| epoch.epoch) else { return Ok(()) };
        let as_of = if planted::is(ReplicationBug::BroughtAsOfEnd) { stamp.max(self.until) } else { as_of };
        let noted = BroughtStamp { volume: Some(volume), stamp, as_of, epoch };
        Ok(self.member.change(|state| brought::note_stamp(&mut state.brought, noted)).await?)
    }

    /// The next stamp of a volume, below that of the pass.
    fn next_stamp(&self, volume: VolumeId) -> Result<Stamp, PassFault> {
        let next = Stamp(self.member.pool.last_stamp(VolumeKey::Id(volume))?.0 + 1);
        match next < self.until {
            true => Ok(next),
            false => Err(fault(format!("no stamp is left for a point below {}", self.until))),
        }
    }

    /// Takes the snapshot that the volume is at.
    pub async fn take_snapshot(&mut self, frame: PassSnapshotFrame) -> Result<(), PassFault> {
        let taken = frame.taken;
        let volume = taken.volumes[0];
        let point = self.point.as_ref();
        let point = point.filter(|point| point.volume == volume && point.snapshot == Some(taken.snapshot));
        let point = point.ok_or_else(|| fault("a snapshot of a pass that is not its point"))?;
        if point.is_here {
            return Ok(());
        }
        self.member.free_name(volume, (&taken.name, taken.snapshot)).await?;
        let new = NewSnapshot { name: &taken.name, snapshot: taken.snapshot, note: &taken.note };
        let given = GivenSnapshot { new, created_at: taken.created_at, stamp: point.stamp };
        Ok(self.member.pool.ensure_snapshot_of_pass(volume, &given).await?)
    }

    /// The stamp for what comes of a volume; `None` if this side has it.
    fn stamp_of(&self, volume: VolumeId) -> Result<Option<Stamp>, PassFault> {
        let point = self.point.as_ref().filter(|point| point.volume == volume);
        let point = point.ok_or_else(|| fault("a part of a volume without a point"))?;
        Ok((!point.is_here).then_some(point.stamp))
    }

    pub async fn take_blocks(&mut self, frame: PassBlocksFrame) -> Result<(), PassFault> {
        let volume = self.volume(frame.volume)?;
        let stamp = self.stamp_of(frame.volume)?;
        let count = frame.blocks.len() as u64;
        self.blocks += count;
        frame.blocks.iter().for_each(|sent| {
            self.digest = self.digest.wrapping_add(u64::from(crc32c(&[&sent.data])));
        });
        if let Some(stamp) = stamp {
            write_runs(&volume, &frame.blocks, stamp).await?;
        }
        self.member.meter.note_pass_blocks(count * BLOCK_BYTES as u64, false);
        Ok(())
    }

    pub async fn take_ranges(&mut self, frame: PassRangesFrame) -> Result<(), PassFault> {
        let volume = self.volume(frame.volume)?;
        let SentRange { first, count } = frame.within;
        let within = first.0..first.0 + count.0;
        let Some(stamp) = self.stamp_of(frame.volume)? else { return Ok(()) };
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
                    self.discard((&volume, frame.volume), range.clone(), stamp).await?;
                }
            }
            RangeState::Discarded => {
                for range in ranges.ranges() {
                    self.discard((&volume, frame.volume), range.clone(), stamp).await?;
                }
            }
            RangeState::Zeroes => {
                for range in ranges.ranges() {
                    write_zeroes(&volume, range.clone(), stamp).await?;
                }
            }
        }
        Ok(())
    }

    /// Discards get stamps of their own, below that of the point: a checkpoint knows a discard by its stamp. If none are
    /// left, zeroes are written.
    async fn discard(
        &self,
        (volume, id): (&Volume, VolumeId),
        blocks: Range<u64>,
        before: Stamp,
    ) -> Result<(), PassFault> {
        let last = self.member.pool.last_stamp(VolumeKey::Id(id))?;
        let stamp = Stamp(last.0 + 1);
        if stamp >= before {
            return write_zeroes(volume, blocks, before).await;
        }
        let count = BlockCount(blocks.end - blocks.start);
        volume.ensure_discard(BlockIndex(blocks.start), count, stamp).await.map_err(Error::Copy)?;
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
        // Both sides are alike, whatever was undone before.
        member.pool.delete_rollback_points(&member.ids(), self.until).await?;
        member.meter.end_pass();
        Ok(self.until)
    }
}

/// Writes blocks of one stamp. Run by run they enter the log's queue, so that a round of the drives serves all of a frame.
async fn write_runs(volume: &Rc<Volume>, blocks: &[PassBlock], stamp: Stamp) -> Result<(), PassFault> {
    let (mut under_way, mut failed) = (Vec::new(), None);
    for run in blocks.chunk_by(|one, next| one.block.0 + 1 == next.block.0) {
        let at = ByteOffset(run[0].block.0 * BLOCK_BYTES as u64);
        let data = run.iter().map(|sent| Arc::clone(&sent.data)).collect();
        let (entry, done) = volume.begin_given(GivenContent::Write(at, data), stamp).await;
        if entry.is_entered().await {
            under_way.push(done);
        } else if let Err(error) = done.await {
            failed = Some(error);
            break;
        }
    }
    // Also after a failure: nothing of this frame is under way when the next pass begins.
    for done in under_way {
        failed = failed.or(done.await.err());
    }
    failed.map_or(Ok(()), |error| Err(Error::Copy(error).into()))
}

async fn write(volume: &Volume, first: u64, data: Vec<Arc<Buffer>>, stamp: Stamp) -> Result<(), PassFault> {
    let at = ByteOffset(first * BLOCK_BYTES as u64);
    volume.ensure_write(at, &data, stamp).await.map_err(Error::Copy)?;
    Ok(())
}

async fn write_zeroes(volume: &Volume, blocks: Range<u64>, stamp: Stamp) -> Result<(), PassFault> {
    let zeroes = Arc::new(Buffer::zeroed(BLOCK_BYTES));
    let mut first = blocks.start;
    while first < blocks.end {
        let count = ZEROES_AT_ONCE.min(blocks.end - first);
        write(volume, first, vec![Arc::clone(&zeroes); count as usize], stamp).await?;
        first += count;
    }
    Ok(())
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
/// stamp, also those that its rollbacks took back; and, if it has a history of its own, those it does not have, since it
/// may have discarded them.
pub(crate) async fn changed_ranges(
    pool: &Pool,
    (volume, cut): (VolumeId, SnapshotId),
    common: Stamp,
    has_history: bool,
) -> Result<BlockRanges, Error> {
    let mut changed = changed_ranges_of(pool, (volume, cut), common, has_history).await?;
    for rollback in pool.rollbacks_above(volume, common)? {
        let undone = rollback.snapshot.snapshot;
        let shared = pool.common_stamp(volume, undone, cut)?;
        changed = changed.union(&changed_ranges_of(pool, (volume, undone), shared, true).await?);
        changed = changed.union(&changed_ranges_of(pool, (volume, cut), shared, false).await?);
    }
    Ok(changed)
}

/// The blocks of a volume that a pass which was not finished changed on its way to the snapshots that it brought: all of
/// them are above `has`. Such a snapshot may be older than what was there, or of a way that a rollback left, and then what
/// the sender changed since does not cover it.
pub(crate) async fn changed_by_pass(pool: &Pool, volume: VolumeId, has: Stamp) -> Result<BlockRanges, Error> {
    let mut changed = BlockRanges::default();
    for brought in pool.snapshots_above(volume, has)? {
        let on_way = changed_ranges_of(pool, (volume, brought.snapshot.snapshot), has, true).await?;
        changed = changed.union(&on_way);
    }
    Ok(changed)
}

/// The blocks that were born on the way to a point above a stamp; and, if `with_holes`, those that it does not have.
pub(super) async fn changed_ranges_of(
    pool: &Pool,
    (volume, point): (VolumeId, SnapshotId),
    since: Stamp,
    with_holes: bool,
) -> Result<BlockRanges, Error> {
    let device = pool.snapshot_device(VolumeKey::Id(volume), SnapshotKey::Id(point))?;
    let size = device.geometry().size.0 / BLOCK_BYTES as u64;
    let is_within = |change| change != RangeChange::BeyondSize;
    let born = BlockRanges::born_since(pool, (volume, point), since, is_within).await?;
    if !with_holes {
        return Ok(born);
    }
    let (mut at, mut mapped) = (0, BlockRanges::default());
    while at < size {
        let (from, length) = bytes_of(&(at..size));
        let extents = device.extents(from, length).await.map_err(Error::Copy)?;
        BlockRanges::mapped(at, &extents).ranges().iter().for_each(|range| mapped.push(range.clone()));
        at += extents.iter().map(|extent| extent.length.0).sum::<u64>() / BLOCK_BYTES as u64;
    }
    // A larger volume may have had blocks behind this end, too.
    Ok(born.union(&mapped.others_within(0..BLOCKS_END)))
}
