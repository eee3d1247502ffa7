//! The link between two sites: sessions of several connections, and the channels of groups in them.
//!
//! A [`LinkSession`] is one or more connections between two sites. A [`LinkChannel`] of it carries the frames of one
//! group, or of a part of one. Frames of ordered kinds are delivered exactly once and in order while the session
//! lives, over whichever connections; when the last connection is lost the session ends, and with it all channels.
//! `docs/replication.md` has the design.
//!
//! Reading order: [`LinkFault`] and the options here, `send_queue`, `receive_queue`, `channel_table`, `alive_watch`,
//! `packing`, `connection`, `pairing`, `security`, `hello`, `session`, `dialer`, `listener`; `test_flow`, `test_answer`, `test_run`.

mod alive_watch;
pub mod canary;
mod channel_table;
mod connection;
mod dialer;
mod hello;
mod listener;
mod packing;
mod pairing;
mod receive_queue;
mod security;
mod send_queue;
mod session;
mod test_answer;
mod test_flow;
mod test_run;

pub use alive_watch::RoundTrips;
pub use dialer::pair;
pub use listener::{LinkListener, RejectedConnection};
pub use packing::{PACKED_VERSION, unpack_blocks};
pub use pairing::{PairedSites, PairingToken};
pub use security::LinkSecurity;
pub use session::{ConnectionStatus, LinkChannel, LinkEvent, LinkSession};
pub use test_run::{
    LinkPathFigures, LinkTestSize, PathMeasurement, RateFigures, RoundTripFigures, test_link,
};

use crate::frame::{FrameError, RefusalCode, RefusalFrame, VersionRange};
use array::format::SiteId;
use std::time::Duration;
use world::Address;

/// Window of a channel in each direction: bytes that were sent and that the other owner has not taken. A gigabit per
/// second needs 1.25 MB at 10 ms.
pub const WINDOW_BYTES: u64 = 8 << 20;
/// Charge of the smallest frame: what it takes in memory.
pub const FRAME_CHARGE_MIN: u64 = 256;

/// Bytes that a frame takes of its channel's window.
fn charge(encoded_bytes: usize) -> u64 {
    (encoded_bytes as u64).max(FRAME_CHARGE_MIN)
}

/// A connection of a session; never used again for another one.
type ConnectionNumber = u64;

/// Bytes of frames, before blocks are packed and as they went over the line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineBytes {
    pub plain: u64,
    pub on_line: u64,
}

/// A rule of the link that the other side has broken. It ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    #[error("more was sent than the channel's window allows")]
    Window,
    #[error("a receipt for frames that were not sent, or for a larger window than is allowed")]
    Receipt,
    #[error("a frame for a channel that was not attached")]
    UnknownChannel,
    #[error("more channels than are allowed")]
    Channels,
    #[error("a channel begins with another frame than attach, or has a second one")]
    Attach,
    #[error("hello within a session")]
    Hello,
    #[error("{0}")]
    Frame(FrameError),
}

/// Reason for which there is no session, or no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("no address of the other site can be reached: {0}")]
    Unreachable(String),
    #[error("the other site refused: {}", .0.text)]
    Refused(RefusalFrame),
    /// The last connection was lost.
    #[error("the last connection to the other site was lost: {address}: {reason}")]
    Lost { address: String, reason: String },
    #[error("the other site broke the protocol: {0}")]
    Fault(LinkFault),
    /// By its owner here.
    #[error("the session was closed")]
    Closed,
}

/// Reason for which a channel sends and receives no more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelError {
    #[error("the other site ended the channel: {}", .0.text)]
    Refused(RefusalFrame),
    #[error("{0}")]
    Session(LinkError),
}

/// Settings of this side.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    pub site: SiteId,
    /// Name and version of the program, for people.
    pub program: String,
    pub versions: VersionRange,
    pub security: LinkSecurity,
    /// Connections of a session that this side begins: 1 to 16, and at least one for each address.
    pub connections: u16,
    /// Interval of *alive* frames on each connection.
    pub alive_interval: Duration,
    /// A connection from which nothing came for so long after an *alive* is lost.
    pub silence_max: Duration,
    /// Limit of connecting, TLS and *hello*.
    pub handshake_max: Duration,
    /// First and longest pause before a lost connection is dialled again.
    pub redial: (Duration, Duration),
    /// Sessions of a listener, and handshakes at one time.
    pub sessions_max: usize,
    pub handshakes_max: usize,
    /// Channels of a session.
    pub channels_max: u32,
}

impl LinkSettings {
    /// The defaults for a site.
    pub fn new(site: SiteId, program: &str, security: LinkSecurity) -> Self {
        Self {
            site,
            program: program.to_owned(),
            versions: VersionRange::OURS,
            security,
            connections: 2,
            alive_interval: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            handshake_max: Duration::from_secs(10),
            redial: (Duration::from_millis(100), Duration::from_secs(10)),
            sessions_max: 64,
            handshakes_max: 64,
            channels_max: 4096,
        }
    }
}

/// The other side, as the side that connects knows it.
#[derive(Clone, Debug)]
pub struct LinkPeer {
    /// At least one. Connections are spread over them, and each is watched.
    pub addresses: Vec<Address>,
    /// Another site that answers is refused; `None` to take any.
    pub site: Option<SiteId>,
}

fn refusal(code: RefusalCode, text: impl Into<String>) -> RefusalFrame {
    RefusalFrame { code, text: text.into() }
}
