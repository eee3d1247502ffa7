//! Frames by which the parts of a group with volumes in several pools join, or show one moment after the other.

use super::{BodyCodec, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks};
use crate::joint_group::JoinId;
use array::format::WallNanoseconds;
use std::sync::Arc;
use world::Buffer;

/// The version of the protocol from which on there are these frames.
pub const JOINT_VERSION: u16 = 6;
/// The version from which on there are those of marks.
pub const MARK_VERSION: u16 = 9;

/// The parts come apart at the primary: the secondary is to keep the state in which they fit, and its volumes go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinBeginFrame {
    pub join: JoinId,
}

/// The secondary keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinReadyFrame {
    pub join: JoinId,
    /// It took the stamp behind its last command: records cannot go on there, and a pass can.
    pub took_stamp: bool,
}

/// All parts stream, and hosts are answered what was confirmed: the volumes of the secondary fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinedFrame {
    pub join: JoinId,
}

/// The secondary has recorded that its volumes fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinNotedFrame {
    pub join: JoinId,
}

/// All records up to a mark were sent, and none behind it: the secondary is to keep what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkFrame {
    pub join: JoinId,
    /// Everything that hosts were answered until then lies before the mark, by the clock of the primary.
    pub at: WallNanoseconds,
}

/// The secondary keeps it, or cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkReadyFrame {
    pub join: JoinId,
    /// It has a part of the last command alone, or a point at the stamp of that: a pass ends this.
    pub is_refused: bool,
}

/// The secondaries of all parts keep the mark: it is what the group shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkKeptFrame {
    pub join: JoinId,
}

/// The secondary has recorded that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkNotedFrame {
    pub join: JoinId,
}

impl BodyCodec for MarkFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.join.0).u64(self.at.0);
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { join: join_of(reader)?, at: WallNanoseconds(reader.u64()?) })
    }
}

impl BodyCodec for MarkReadyFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.join.0).u8(self.is_refused.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { join: join_of(reader)?, is_refused: reader.flag()? })
    }
}

fn join_of(reader: &mut BodyReader<'_>) -> Result<JoinId, FrameError> {
    let join = JoinId(reader.array()?);
    if join == JoinId::NONE {
        return Err(reader.fault(FrameFault::Value("the identity of the join")));
    }
    Ok(join)
}

impl BodyCodec for JoinReadyFrame {
    fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
        writer.bytes(&self.join.0).u8(self.took_stamp.into());
        Vec::new()
    }

    fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
        without_blocks(&blocks);
        Ok(Self { join: join_of(reader)?, took_stamp: reader.flag()? })
    }
}

/// Frames that have an identity alone.
macro_rules! of_identity {
    ($($frame:ident)*) => {
        $(impl BodyCodec for $frame {
            fn write(&self, writer: &mut BodyWriter) -> Vec<Arc<Buffer>> {
                writer.bytes(&self.join.0);
                Vec::new()
            }

            fn read(reader: &mut BodyReader<'_>, blocks: Vec<Arc<Buffer>>) -> Result<Self, FrameError> {
                without_blocks(&blocks);
                Ok(Self { join: join_of(reader)? })
            }
        })*
    };
}

of_identity! { JoinBeginFrame JoinedFrame JoinNotedFrame MarkKeptFrame MarkNotedFrame }
