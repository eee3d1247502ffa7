//! The initiator: a unit of some target as a block device.
//!
//! One connection, kept up: when it breaks another one is made, and what was not answered is asked again. A command that is
//! not answered in time fails; whether it was done cannot be said. A flush does not claim what another target, or the same
//! one after a reset, may have lost.
//!
//! Reading order: `uri`, `logging_in` (who we are, and the terms), `commands` (what is asked of a unit, and read from its
//! answers), `tasks` (commands on their way, without any I/O), `probe` (what a unit is), `link` (the connection), `device`,
//! `finding` (which targets there are).

mod commands;
mod device;
mod finding;
mod link;
mod logging_in;
mod probe;
mod receiving;
mod tasks;
mod uri;

pub use device::Initiator;
pub use finding::{Found, find};
pub use probe::Facts;
pub use uri::{Uri, UriError};

use crate::{session::chap::Credentials, wire::frame::Digests};
use std::time::Duration;

/// Who one is, what one wants, and how patient one is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitiatorOptions {
    /// Our name: `iqn.2026-11.org.spindle:host`.
    pub name: String,
    /// What shows the target who we are, if it wants to know.
    pub credentials: Option<Credentials>,
    /// What must show us who the target is. Only with credentials of our own.
    pub target_credentials: Option<Credentials>,
    /// Which digests are wanted; a target that does not know them goes without, unless it must not.
    pub digests: Digests,
    /// Connecting, logging in and looking at the unit may take so long.
    pub connect_max: Duration,
    /// A command may take so long, with all the connections it takes.
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
