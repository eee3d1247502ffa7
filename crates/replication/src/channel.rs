//! The way of one group's frames to the other side, as the flows of a group need it.

use crate::frame::{FrameBody, RefusalFrame, VersionRange};
use std::time::Duration;

/// Reason for which a channel ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelEnd {
    /// No connection is left.
    #[error("the line is lost: {0}")]
    Lost(String),
    /// The other side refused.
    #[error("the other side refused: {}", .0.text)]
    Refused(RefusalFrame),
    /// This side refused what came, or what was to be sent.
    #[error("{}", .0.text)]
    RefusedHere(RefusalFrame),
}

/// Frames of one group, both ways. Ordered frames arrive once each, in order, up to the end of the channel.
#[expect(async_fn_in_trait, reason = "flows of a group stay on the thread of their pool")]
pub trait FrameChannel {
    /// Sends a frame. Returns when the channel has room for the next one, not when it has arrived.
    async fn send(&self, body: FrameBody) -> Result<(), ChannelEnd>;

    /// The version of the protocol that both sides use.
    fn version(&self) -> u16 {
        VersionRange::OURS.highest()
    }

    /// The shortest round trip of the line, once it is known.
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    /// The next frame. One at a time waits for it.
    async fn receive(&self) -> Result<FrameBody, ChannelEnd>;
}
