//! The client: an export of a server as a block device.
//!
//! When the connection breaks, it connects again and sends every unanswered request again. A request that is
//! not answered within `answer_max` fails; the server may or may not have executed it.
//!
//! Reading order: `uri`, `handshake`, `pending` (outstanding requests), `connection` (sessions with the server), `device`.

mod connection;
mod device;
mod handshake;
mod pending;
mod uri;

pub use device::Client;
pub use uri::{NbdUri, NbdUriError, UriTls};

use std::time::Duration;
use tls::ClientTls;

/// Time limits and TLS settings of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Time limit for connecting and the handshake.
    pub connect_max: Duration,
    /// Time limit of a request, reconnections included.
    pub answer_max: Duration,
    /// Required if the URI asks for TLS.
    pub tls: Option<ClientTls>,
}

impl Default for ClientOptions {
    /// 10 s to connect, 60 s for an answer, no TLS.
    fn default() -> Self {
        Self { connect_max: Duration::from_secs(10), answer_max: Duration::from_secs(60), tls: None }
    }
}
