//! Frames of a comparison of both sites: one cut at each, and digests of its ranges.

use super::{
    BodyCodec, FrameError, FrameFault, SentRange, body::BodyReader, body::BodyWriter, without_blocks,
};
use array::format::{BlockCount, BlockIndex, VolumeId};
use std::sync::Arc;
use world::Buffer;

/// The version of the protocol from which on there are these frames.
pub const VERIFY_VERSION: u16 = 3;
/// Bytes of a digest.
pub const RANGE_DIGEST_BYTES: usize = 16;
/// Digests of one frame at most.
pub const DIGESTS_MAX: usize = 1024;
/// Blocks of one digest at most: 1 MiB.
pub const DIGEST_BLOCKS_MAX: u64 = 256;

/// SHA-256 of the bytes of a range, the first half of it. What was never written reads as zero.
pub type RangeDigest = [u8; RANGE_DIGEST_BYTES];

/// The primary took a cut behind all that it has sent: the secondary is to take its own now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyCutFrame {
    /// Number of the comparison, from 1 on.
    pub number: u64,
}

/// The secondary has its cut, or says why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReadyFrame {
    pub number: u64,
    /// One line for a person; empty if it has the cut.
    pub refused: String,
}

/// Digests that the primary wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyRangeFrame {
    pub number: u64,
    pub volume: VolumeId,
    pub within: SentRange,
    /// Blocks of each digest but the last one, from 1 to [`DIGEST_BLOCKS_MAX`].
    pub grain: u64,
}

impl VerifyRangeFrame {
    /// The number of digests.
    pub fn digests(&self) -> u64 {
        self.within.count.0.div_ceil(self.grain)
    }
}

/// Digests of a range, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyDigestsFrame {
    pub number: u64,
    /// As it was asked for; none if the cut was deleted, or a block cannot be read.
    pub digests: Vec<RangeDigest>,
    /// One line for a person; empty if there are digests.
    pub failed: String,
}

/// The primary wants nothing more: the secondary deletes its cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifyEndFrame {
    pub number: u64,
}

/// Bytes of a text.
const TEXT_BYTES_MAX: usize = 1024;

fn number(reader: &mut BodyReader<'_>) -> Result<u64, FrameError> {
    match reader.u64()? {
        0 => Err(reader.fault(FrameFault::Value("the number of the comparison"))),
        number => Ok(number),
    }
}

impl BodyCodec for VerifyCutFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: number(reader)? })
    }
}

impl BodyCodec for VerifyReadyFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).text(&self.refused);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: number(reader)?, refused: reader.text(TEXT_BYTES_MAX)? })
    }
}

impl BodyCodec for VerifyRangeFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).bytes(&self.volume.0);
        writer.u64(self.within.first.0).u64(self.within.count.0).u64(self.grain);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let (number, volume) = (number(reader)?, VolumeId(reader.array()?));
        let (first, count) = (BlockIndex(reader.u64()?), BlockCount(reader.u64()?));
        let frame = Self { number, volume, within: SentRange { first, count }, grain: reader.u64()? };
        let is_grain = (1..=DIGEST_BLOCKS_MAX).contains(&frame.grain);
        if !is_grain || count.0 == 0 || first.0.checked_add(count.0).is_none() {
            return Err(reader.fault(FrameFault::Value("the range of a comparison")));
        }
        match frame.digests() <= DIGESTS_MAX as u64 {
            true => Ok(frame),
            false => Err(reader.fault(FrameFault::Value("the number of digests"))),
        }
    }
}

impl BodyCodec for VerifyDigestsFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number).text(&self.failed).count(self.digests.len());
        self.digests.iter().for_each(|digest| {
            writer.bytes(digest);
        });
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        let (number, failed) = (number(reader)?, reader.text(TEXT_BYTES_MAX)?);
        let count = reader.count(RANGE_DIGEST_BYTES)?;
        if count > DIGESTS_MAX || failed.is_empty() != (count > 0) {
            return Err(reader.fault(FrameFault::Value("the number of digests")));
        }
        let digests = (0..count).map(|_| reader.array()).collect::<Result<_, _>>()?;
        Ok(Self { number, digests, failed })
    }
}

impl BodyCodec for VerifyEndFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.u64(self.number);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { number: number(reader)? })
    }
}
