//! Frames by which the parts of a group with volumes in several pools join.

use super::{BodyCodec, FrameError, FrameFault, body::BodyReader, body::BodyWriter, without_blocks};
use crate::joint_group::JoinId;
use std::sync::Arc;
use world::Buffer;

/// The version of the protocol from which on there are these frames.
pub const JOINT_VERSION: u16 = 6;

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

of_identity! { JoinBeginFrame JoinedFrame JoinNotedFrame }
