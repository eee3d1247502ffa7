//! The client: an export of some server as a block device.
//!
//! The connection is kept up: when it breaks another one is made, and what was not answered is asked again. A request
//! that is not answered in time fails; whether it was done cannot be said.
//!
//! Reading order: `uri`, `greeting`, `pending` (what is on its way), `link` (the connection), `device`.

mod device;
mod greeting;
mod link;
mod pending;
mod uri;

pub use device::Client;
pub use uri::{Uri, UriError, UriTls};

use crate::tls::ClientTls;
use std::time::Duration;

/// How patient a client is, and whom it believes.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Connecting and agreeing may take so long.
    pub connect_max: Duration,
    /// A request may take so long, with all the connections it takes.
    pub answer_max: Duration,
    /// For TLS, which is used if the URI says so.
    pub tls: Option<ClientTls>,
}

impl Default for ClientOptions {
    /// 10 s to connect, 60 s for an answer, no TLS.
    fn default() -> Self {
        Self { connect_max: Duration::from_secs(10), answer_max: Duration::from_secs(60), tls: None }
    }
}
