//! Frames of the stream: records in the order of the primary's log, cuts, confirmations, and the change of the
//! primary.

use super::{
    BodyCodec, FRAME_BLOCKS_MAX, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks,
};
use crate::{
    cut::{GroupCut, PARTS_MAX},
    lineage::GroupEpoch,
};
use array::format::{
    BlockCount, BlockIndex, EpochId, Fence, SnapshotId, Stamp, VolumeId, WallNanoseconds, row::NAME_BYTES_MAX,
};
use std::sync::Arc;
use world::{Buffer, crc32c::crc32c};

/// Bytes of a snapshot's note at most.
const NOTE_BYTES_MAX: usize = 768;
/// Sectors of a volume at most: 64 TiB.
const SECTORS_MAX: u64 = 1 << 37;
const BLOCK_SECTORS: u64 = 8;
/// Blocks have numbers below.
const BLOCKS_END: u64 = 1 << 48;

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentSnapshot {
    pub snapshot: SnapshotId,
    pub created_at: WallNanoseconds,
    pub name: String,
    pub note: Vec<u8>,
    /// The volumes of this part that it is of; at least one.
    pub volumes: Vec<VolumeId>,
}

/// A change of a record. All changes of one stamp are one command of a host.
#[derive(Clone, Debug)]
pub enum SentChange {
    Write {
        volume: VolumeId,
        block: BlockIndex,
        data: Arc<Buffer>,
    },
    Zeroes {
        volume: VolumeId,
        first: BlockIndex,
        count: BlockCount,
    },
    Discard {
        volume: VolumeId,
        first: BlockIndex,
        count: BlockCount,
    },
    Resize {
        volume: VolumeId,
        sectors: u64,
    },
    Snapshot(SentSnapshot),
    SnapshotDeleted {
        snapshot: SnapshotId,
        /// The volumes of this part that lose it; at least one.
        volumes: Vec<VolumeId>,
    },
    /// The volume goes back to a snapshot; what it had goes on under `left`.
    RollBack {
        volume: VolumeId,
        snapshot: SnapshotId,
        left: VolumeId,
    },
    VolumeDeleted {
        volume: VolumeId,
    },
}

/// Changes in the order of the log of one part.
#[derive(Clone, Debug)]
pub struct RecordFrame {
    /// Index of the part.
    pub part: u8,
    pub fence: Fence,
    pub epoch: EpochId,
    /// Hosts were answered up to this stamp of the part.
    pub told: Stamp,
    pub accepted_at: WallNanoseconds,
    /// The command of the last change goes on in the next frame: its stamp is not complete yet.
    pub goes_on: bool,
    /// In ascending order of stamps; at least one.
    pub changes: Vec<(Stamp, SentChange)>,
}

fn read_part(reader: &mut BodyReader<'_>) -> Result<u8, FrameError> {
    let part = reader.u8()?;
    if usize::from(part) < PARTS_MAX {
        Ok(part)
    } else {
        Err(reader.fault(FrameFault::Value("the index of the part")))
    }
}

pub(super) fn read_volume(reader: &mut BodyReader<'_>) -> Result<VolumeId, FrameError> {
    let volume = VolumeId(reader.array()?);
    if volume == VolumeId::NONE {
        return Err(reader.fault(FrameFault::Value("the volume's UUID")));
    }
    Ok(volume)
}

pub(super) fn read_block(reader: &mut BodyReader<'_>) -> Result<BlockIndex, FrameError> {
    let block = reader.u64()?;
    if block >= BLOCKS_END {
        return Err(reader.fault(FrameFault::Value("the number of a block")));
    }
    Ok(BlockIndex(block))
}

pub(super) fn read_range(reader: &mut BodyReader<'_>) -> Result<(BlockIndex, BlockCount), FrameError> {
    let first = read_block(reader)?;
    let count = reader.u64()?;
    if count == 0 || count > BLOCKS_END - first.0 {
        return Err(reader.fault(FrameFault::Value("the length of a range")));
    }
    Ok((first, BlockCount(count)))
}

/// Sectors of a volume: whole blocks, and no more than a volume may have.
pub(super) fn read_sectors(reader: &mut BodyReader<'_>) -> Result<u64, FrameError> {
    let sectors = reader.u64()?;
    let is_size = (1..=SECTORS_MAX).contains(&sectors) && sectors.is_multiple_of(BLOCK_SECTORS);
    if is_size { Ok(sectors) } else { Err(reader.fault(FrameFault::Value("the size"))) }
}

fn write_volumes(writer: &mut BodyWriter, volumes: &[VolumeId]) {
    writer.count(volumes.len());
    volumes.iter().for_each(|volume| {
        writer.bytes(&volume.0);
    });
}

fn read_volumes(reader: &mut BodyReader<'_>) -> Result<Vec<VolumeId>, FrameError> {
    let count = reader.count(16)?;
    if count == 0 {
        return Err(reader.fault(FrameFault::Value("the volumes of the snapshot")));
    }
    (0..count).map(|_| read_volume(reader)).collect()
}

impl SentSnapshot {
    pub(super) fn write(&self, writer: &mut BodyWriter) {
        writer.bytes(&self.snapshot.0).u64(self.created_at.0).text(&self.name);
        writer.u16(self.note.len() as u16).bytes(&self.note);
        write_volumes(writer, &self.volumes);
    }

    pub(super) fn read(reader: &mut BodyReader<'_>) -> Result<Self, FrameError> {
        let snapshot = read_snapshot(reader)?;
        let created_at = WallNanoseconds(reader.u64()?);
        let name = reader.text(NAME_BYTES_MAX)?;
        let note_bytes = usize::from(reader.u16()?);
        if note_bytes > NOTE_BYTES_MAX {
            return Err(reader.fault(FrameFault::Value("the length of the note")));
        }
        let note = reader.bytes(note_bytes)?.to_vec();
        Ok(Self { snapshot, created_at, name, note, volumes: read_volumes(reader)? })
    }
}

pub(super) fn read_snapshot(reader: &mut BodyReader<'_>) -> Result<SnapshotId, FrameError> {
    let snapshot = SnapshotId(reader.array()?);
    if snapshot == SnapshotId::NONE {
        return Err(reader.fault(FrameFault::Value("the snapshot's UUID")));
    }
    Ok(snapshot)
}

/// Takes the next block, and checks it.
pub(super) fn read_data(
    reader: &mut BodyReader<'_>,
    blocks: &mut std::vec::IntoIter<Arc<Buffer>>,
) -> Result<Arc<Buffer>, FrameError> {
    let checksum = reader.u32()?;
    let data = blocks.next().ok_or_else(|| reader.fault(FrameFault::Value("the number of blocks")))?;
    if crc32c(&[&data]) != checksum {
        return Err(reader.fault(FrameFault::BlockChecksum));
    }
    Ok(data)
}

/// Fails if blocks are left.
pub(super) fn check_used(
    reader: &BodyReader<'_>,
    blocks: std::vec::IntoIter<Arc<Buffer>>,
) -> Result<(), FrameError> {
    if blocks.len() == 0 { Ok(()) } else { Err(reader.fault(FrameFault::Value("the number of blocks"))) }
}

impl SentChange {
    /// The volumes that it changes.
    pub fn volumes(&self) -> &[VolumeId] {
        match self {
            Self::Write { volume, .. }
            | Self::Zeroes { volume, .. }
            | Self::Discard { volume, .. }
            | Self::Resize { volume, .. }
            | Self::RollBack { volume, .. }
            | Self::VolumeDeleted { volume } => std::slice::from_ref(volume),
            Self::Snapshot(snapshot) => &snapshot.volumes,
            Self::SnapshotDeleted { volumes, .. } => volumes,
        }
    }

    fn write(&self, writer: &mut BodyWriter, blocks: &mut Vec<Arc<Buffer>>) {
        match self {
            Self::Write { volume, block, data } => {
                writer.u8(1).bytes(&volume.0).u64(block.0).u32(crc32c(&[data]));
                blocks.push(Arc::clone(data));
            }
            Self::Zeroes { volume, first, count } => {
                writer.u8(2).bytes(&volume.0).u64(first.0).u64(count.0);
            }
            Self::Discard { volume, first, count } => {
                writer.u8(3).bytes(&volume.0).u64(first.0).u64(count.0);
            }
            Self::Resize { volume, sectors } => {
                writer.u8(4).bytes(&volume.0).u64(*sectors);
            }
            Self::Snapshot(taken) => {
                writer.u8(5);
                taken.write(writer);
            }
            Self::SnapshotDeleted { snapshot, volumes } => {
                writer.u8(9).bytes(&snapshot.0);
                write_volumes(writer, volumes);
            }
            Self::RollBack { volume, snapshot, left } => {
                writer.u8(7).bytes(&volume.0).bytes(&snapshot.0).bytes(&left.0);
            }
            Self::VolumeDeleted { volume } => {
                writer.u8(8).bytes(&volume.0);
            }
        }
    }

    fn read(
        reader: &mut BodyReader<'_>,
        blocks: &mut std::vec::IntoIter<Arc<Buffer>>,
    ) -> Result<Self, FrameError> {
        Ok(match reader.u8()? {
            1 => {
                let (volume, block) = (read_volume(reader)?, read_block(reader)?);
                Self::Write { volume, block, data: read_data(reader, blocks)? }
            }
            kind @ (2 | 3) => {
                let volume = read_volume(reader)?;
                let (first, count) = read_range(reader)?;
                match kind {
                    2 => Self::Zeroes { volume, first, count },
                    _ => Self::Discard { volume, first, count },
                }
            }
            4 => {
                let volume = read_volume(reader)?;
                Self::Resize { volume, sectors: read_sectors(reader)? }
            }
            5 => Self::Snapshot(SentSnapshot::read(reader)?),
            7 => {
                let (volume, snapshot) = (read_volume(reader)?, read_snapshot(reader)?);
                Self::RollBack { volume, snapshot, left: read_volume(reader)? }
            }
            8 => Self::VolumeDeleted { volume: read_volume(reader)? },
            // 6 was the deletion of a snapshot of all volumes, up to version 2.
            9 => {
                let snapshot = read_snapshot(reader)?;
                Self::SnapshotDeleted { snapshot, volumes: read_volumes(reader)? }
            }
            _ => return Err(reader.fault(FrameFault::Value("the kind of a change"))),
        })
    }
}

impl BodyCodec for RecordFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        let mut blocks = Vec::new();
        writer.u8(self.part).u64(self.fence.0).bytes(&self.epoch.0).u64(self.told.0);
        writer.u64(self.accepted_at.0).u8(self.goes_on.into()).count(self.changes.len());
        for (stamp, change) in &self.changes {
            writer.u64(stamp.0);
            change.write(writer, &mut blocks);
        }
        assert!(blocks.len() <= FRAME_BLOCKS_MAX, "a frame has at most {FRAME_BLOCKS_MAX} blocks");
        blocks
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        let mut blocks = blocks.into_iter();
        let part = read_part(reader)?;
        let fence = Fence(reader.u64()?);
        let epoch = EpochId(reader.array()?);
        let told = Stamp(reader.u64()?);
        let (accepted_at, goes_on) = (WallNanoseconds(reader.u64()?), reader.flag()?);
        // A stamp, a kind and the UUID of a volume or a snapshot.
        let count = reader.count(25)?;
        if count == 0 {
            return Err(reader.fault(FrameFault::Value("the number of changes")));
        }
        let mut changes: Vec<(Stamp, SentChange)> = Vec::with_capacity(count);
        for _ in 0..count {
            let stamp = Stamp(reader.u64()?);
            if stamp.0 == 0 || changes.last().is_some_and(|(last, _)| *last > stamp) {
                return Err(reader.fault(FrameFault::Value("the order of stamps")));
            }
            changes.push((stamp, SentChange::read(reader, &mut blocks)?));
        }
        check_used(reader, blocks)?;
        Ok(Self { part, fence, epoch, told, accepted_at, goes_on, changes })
    }
}

/// Everything up to these stamps is a state of the group that the secondary may show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFrame {
    /// Counted up by the primary.
    pub number: u64,
    pub cut: GroupCut,
}

impl BodyCodec for CutFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).cut(&self.cut);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: reader.u64()?, cut: reader.cut()? })
    }
}

/// The primary's word on its state, from which the secondary says what a disaster would cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordFrame {
    /// Counted up from 1 by the primary.
    pub number: u64,
    /// Time of day at the primary.
    pub said_at: WallNanoseconds,
    pub told: GroupCut,
    /// Answered writes that were not sent or not confirmed.
    pub unconfirmed_bytes: u64,
    /// Age of the oldest of them, in milliseconds.
    pub unconfirmed_ms: u64,
    /// Hosts are answered only what the secondary confirmed.
    pub is_in_sync: bool,
}

impl BodyCodec for WordFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer
            .u64(self.number)
            .u64(self.said_at.0)
            .cut(&self.told)
            .u64(self.unconfirmed_bytes)
            .u64(self.unconfirmed_ms);
        writer.u8(self.is_in_sync.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self {
            number: reader.u64()?,
            said_at: WallNanoseconds(reader.u64()?),
            told: reader.cut()?,
            unconfirmed_bytes: reader.u64()?,
            unconfirmed_ms: reader.u64()?,
            is_in_sync: reader.flag()?,
        })
    }
}

/// The secondary's answer: what it has stable, what it shows, and how much more it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationFrame {
    pub confirmed: GroupCut,
    /// Number of the newest cut that it shows; 0 before the first.
    pub shown: u64,
    /// Bytes of ordered frames that the primary may send on this channel since it was attached.
    pub window_end: u64,
    /// Number of the last word that it heard on this channel; 0 before the first. It does not take over before a lease has
    /// passed since it heard that.
    pub heard: u64,
}

impl BodyCodec for ConfirmationFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.cut(&self.confirmed).u64(self.shown).u64(self.window_end).u64(self.heard);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self {
            confirmed: reader.cut()?,
            shown: reader.u64()?,
            window_end: reader.u64()?,
            heard: reader.u64()?,
        })
    }
}

/// A planned change of the primary: hosts wait, and nothing follows this on the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandOverFrame {
    pub cut: GroupCut,
    /// Of the other side from then on.
    pub fence: Fence,
}

impl BodyCodec for HandOverFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.cut(&self.cut).u64(self.fence.0);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { cut: reader.cut()?, fence: Fence(reader.u64()?) })
    }
}

/// The new primary has the cut and its fence stable, and will write this epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOverFrame {
    pub fence: Fence,
    pub epoch: GroupEpoch,
}

impl BodyCodec for TakenOverFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.fence.0).epoch(&self.epoch);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { fence: Fence(reader.u64()?), epoch: reader.epoch()? })
    }
}
