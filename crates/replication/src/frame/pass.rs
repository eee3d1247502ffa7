//! Frames of a pass: blocks that differ between two cuts, in the order of blocks.

use super::{
    BodyCodec, FRAME_BLOCKS_MAX, FrameError, FrameFault,
    body::{BodyReader, BodyWriter},
    stream::{
        SentSnapshot, check_used, read_block, read_data, read_range, read_sectors, read_snapshot, read_volume,
    },
    without_blocks,
};
use crate::{connect::TransferWay, cut::GroupCut};
use array::format::{BlockCount, BlockIndex, Fence, SnapshotId, Stamp, VolumeId};
use std::sync::Arc;
use world::Buffer;

/// The lowest version of the protocol in which a receiver names what passes that were not finished brought.
pub const BROUGHT_VERSION: u16 = 10;

/// A pass begins. Its blocks get the stamps of the cut `until`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassBeginFrame {
    /// Counted up by the sender.
    pub number: u64,
    pub fence: Fence,
    /// The way that the outcome named; never the log.
    pub way: TransferWay,
    pub since: GroupCut,
    /// Not below `since`.
    pub until: GroupCut,
    /// Bytes that will be sent, as far as they are known; for people.
    pub expected_bytes: u64,
}

impl BodyCodec for PassBeginFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        let way = match self.way {
            TransferWay::Log => unreachable!("records are no pass"),
            TransferWay::Point => 2,
            TransferWay::BornSince => 3,
            TransferWay::Everything => 4,
        };
        writer.u64(self.number).u64(self.fence.0).u8(way).cut(&self.since).cut(&self.until);
        writer.u64(self.expected_bytes);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let (number, fence) = (reader.u64()?, Fence(reader.u64()?));
        let way = match reader.u8()? {
            2 => TransferWay::Point,
            3 => TransferWay::BornSince,
            4 => TransferWay::Everything,
            _ => return Err(reader.fault(FrameFault::Value("the way"))),
        };
        let (since, until) = (reader.cut()?, reader.cut()?);
        if since.parts() != until.parts() || !since.is_within(&until) {
            return Err(reader.fault(FrameFault::Value("the end of the pass")));
        }
        Ok(Self { number, fence, way, since, until, expected_bytes: reader.u64()? })
    }
}

/// A block of a pass.
#[derive(Clone, Debug)]
pub struct PassBlock {
    pub block: BlockIndex,
    pub data: Arc<Buffer>,
}

/// Blocks of one volume, ascending.
#[derive(Clone, Debug)]
pub struct PassBlocksFrame {
    pub volume: VolumeId,
    pub blocks: Vec<PassBlock>,
}

impl BodyCodec for PassBlocksFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        assert!(self.blocks.len() <= FRAME_BLOCKS_MAX, "a frame has at most {FRAME_BLOCKS_MAX} blocks");
        writer.bytes(&self.volume.0).count(self.blocks.len());
        self.blocks.iter().for_each(|sent| {
            writer.u64(sent.block.0).u32(world::crc32c::crc32c(&[&sent.data]));
        });
        self.blocks.iter().map(|sent| Arc::clone(&sent.data)).collect()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        let mut blocks = blocks.into_iter();
        let volume = read_volume(reader)?;
        let count = reader.count(12)?;
        let mut sent: Vec<PassBlock> = Vec::with_capacity(count);
        for _ in 0..count {
            let block = read_block(reader)?;
            if sent.last().is_some_and(|last| last.block >= block) {
                return Err(reader.fault(FrameFault::Value("the order of blocks")));
            }
            sent.push(PassBlock { block, data: read_data(reader, &mut blocks)? });
        }
        if sent.is_empty() {
            return Err(reader.fault(FrameFault::Value("the number of blocks")));
        }
        check_used(reader, blocks)?;
        Ok(Self { volume, blocks: sent })
    }
}

/// Adjacent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentRange {
    pub first: BlockIndex,
    /// At least one.
    pub count: BlockCount,
}

/// State of ranges at the end of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeState {
    Zeroes,
    Discarded,
    /// It has data. Of a volume of which mapped ranges are sent, everything between them was discarded.
    Mapped,
}

/// Ranges of one volume, ascending and apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassRangesFrame {
    pub volume: VolumeId,
    pub state: RangeState,
    /// The blocks of which the ranges speak: nothing of the same state lies in them beside.
    pub within: SentRange,
    pub ranges: Vec<SentRange>,
}

fn write_ranges(writer: &mut BodyWriter, ranges: &[SentRange]) {
    writer.count(ranges.len());
    ranges.iter().for_each(|range| {
        writer.u64(range.first.0).u64(range.count.0);
    });
}

fn read_ranges(reader: &mut BodyReader<'_>) -> Result<Vec<SentRange>, FrameError> {
    let count = reader.count(16)?;
    let mut ranges: Vec<SentRange> = Vec::with_capacity(count);
    for _ in 0..count {
        let (first, count) = read_range(reader)?;
        if ranges.last().is_some_and(|last| last.first.0 + last.count.0 >= first.0) {
            return Err(reader.fault(FrameFault::Value("the order of ranges")));
        }
        ranges.push(SentRange { first, count });
    }
    Ok(ranges)
}

impl BodyCodec for PassRangesFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        let state = match self.state {
            RangeState::Zeroes => 1,
            RangeState::Discarded => 2,
            RangeState::Mapped => 3,
        };
        writer.bytes(&self.volume.0).u8(state).u64(self.within.first.0).u64(self.within.count.0);
        write_ranges(writer, &self.ranges);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let volume = read_volume(reader)?;
        let state = match reader.u8()? {
            1 => RangeState::Zeroes,
            2 => RangeState::Discarded,
            3 => RangeState::Mapped,
            _ => return Err(reader.fault(FrameFault::Value("the state of ranges"))),
        };
        let (first, count) = read_range(reader)?;
        let within = SentRange { first, count };
        let ranges = read_ranges(reader)?;
        let is_within =
            |range: &SentRange| range.first >= first && range.first.0 + range.count.0 <= first.0 + count.0;
        if !ranges.iter().all(is_within) {
            return Err(reader.fault(FrameFault::Value("the bounds of the ranges")));
        }
        Ok(Self { volume, state, within, ranges })
    }
}

/// The snapshots that people took of a volume and that the sender has: the receiver deletes all others of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassSnapshotsFrame {
    pub volume: VolumeId,
    /// Ascending.
    pub kept: Vec<SnapshotId>,
}

impl BodyCodec for PassSnapshotsFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.volume.0).count(self.kept.len());
        self.kept.iter().for_each(|snapshot| {
            writer.bytes(&snapshot.0);
        });
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let volume = read_volume(reader)?;
        let count = reader.count(16)?;
        let kept = (0..count).map(|_| read_snapshot(reader)).collect::<Result<Vec<_>, _>>()?;
        if !kept.is_sorted_by(|one, next| one < next) {
            return Err(reader.fault(FrameFault::Value("the order of snapshots")));
        }
        Ok(Self { volume, kept })
    }
}

/// The frames of a volume behind this one bring it to a point of its history: a snapshot, or the end of the pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassPointFrame {
    pub volume: VolumeId,
    pub stamp: Stamp,
    /// Size of the volume there, in sectors: whole blocks.
    pub sectors: u64,
    /// `None`: the end of the pass.
    pub snapshot: Option<SnapshotId>,
}

impl BodyCodec for PassPointFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.volume.0).u64(self.stamp.0).u64(self.sectors).u8(self.snapshot.is_some().into());
        if let Some(snapshot) = self.snapshot {
            writer.bytes(&snapshot.0);
        }
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let (volume, stamp, sectors) = (read_volume(reader)?, Stamp(reader.u64()?), read_sectors(reader)?);
        let snapshot = if reader.flag()? { Some(read_snapshot(reader)?) } else { None };
        Ok(Self { volume, stamp, sectors, snapshot })
    }
}

/// The volume is at the last point that was named, which is this snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassSnapshotFrame {
    /// Of one volume.
    pub taken: SentSnapshot,
}

impl BodyCodec for PassSnapshotFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        self.taken.write(writer);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let taken = SentSnapshot::read(reader)?;
        if taken.volumes.len() != 1 {
            return Err(reader.fault(FrameFault::Value("the volumes of the snapshot")));
        }
        Ok(Self { taken })
    }
}

/// All of a pass was sent. The receiver shows its cut if it got exactly this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassEndFrame {
    pub number: u64,
    pub blocks: u64,
    /// Sum of the CRC-32C of all blocks, modulo 2^64.
    pub digest: u64,
}

impl BodyCodec for PassEndFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).u64(self.blocks).u64(self.digest);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: reader.u64()?, blocks: reader.u64()?, digest: reader.u64()? })
    }
}

/// Blocks that the receiver of a pass changed above the common cut: the sender sends them, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRangesFrame {
    pub volume: VolumeId,
    pub ranges: Vec<SentRange>,
    /// Nothing of any volume follows.
    pub is_last: bool,
}

impl BodyCodec for ChangedRangesFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.volume.0);
        write_ranges(writer, &self.ranges);
        writer.u8(self.is_last.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let volume = read_volume(reader)?;
        let ranges = read_ranges(reader)?;
        Ok(Self { volume, ranges, is_last: reader.flag()? })
    }
}

/// Blocks that the receiver has from passes which were not finished: they are as the sender had them at a stamp, and come
/// again only if they changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BroughtRangesFrame {
    pub volume: VolumeId,
    pub as_of: Stamp,
    pub ranges: Vec<SentRange>,
    /// Nothing of any volume follows.
    pub is_last: bool,
}

impl BodyCodec for BroughtRangesFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.volume.0).u64(self.as_of.0);
        write_ranges(writer, &self.ranges);
        writer.u8(self.is_last.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let (volume, as_of) = (read_volume(reader)?, Stamp(reader.u64()?));
        let ranges = read_ranges(reader)?;
        Ok(Self { volume, as_of, ranges, is_last: reader.flag()? })
    }
}
