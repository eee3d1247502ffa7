//! The initiator: a logical unit of a target as a block device.
//!
//! It has one session of one connection. When the connection breaks, it connects again and sends every
//! unanswered command again. A command that is not answered within `answer_max` fails; the unit may or may
//! not have executed it. A flush fails if another target, or the same one after a reset, may have lost an
//! earlier write.
//!
//! Reading order: `uri`, `login`, `commands` (CDBs and their answers), `tasks` (outstanding commands; no
//! I/O), `probe` (properties of the unit), `connection` (sessions with the target), `device`, `discovery`.

mod commands;
mod connection;
mod device;
mod discovery;
mod login;
mod probe;
mod receive;
mod tasks;
mod uri;

pub use device::Initiator;
pub use discovery::{DiscoveredTarget, discover};
pub use probe::DiskInfo;
pub use uri::{IscsiUri, IscsiUriError};

use crate::{session::chap::Credentials, wire::pdu::Digests};
use std::time::Duration;

/// Identity, credentials and time limits of an initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorOptions {
    /// InitiatorName, for example `iqn.2026-11.org.spindle:host`.
    pub name: String,
    /// Credentials for a target that demands CHAP.
    pub credentials: Option<Credentials>,
    /// Credentials by which the target must authenticate itself (mutual CHAP). Requires `credentials`.
    pub target_credentials: Option<Credentials>,
    /// Digests to ask for. A target that does not support them goes without.
    pub digests: Digests,
    /// Time limit for connecting, logging in and probing the unit.
    pub connect_max: Duration,
    /// Time limit of a command, reconnections included.
    pub answer_max: Duration,
}

impl Default for InitiatorOptions {
    /// Without credentials and digests; 10 s to connect, 60 s for an answer.
    fn default() -> Self {
        Self {
            name: "iqn.2026-11.org.spindle:initiator".to_owned(),
            credentials: None,
            target_credentials: None,
            digests: Digests::default(),
            connect_max: Duration::from_secs(10),
            answer_max: Duration::from_secs(60),
        }
    }
}
