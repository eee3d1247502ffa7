//! The server: handshake, option haggling, then transmission.
//!
//! Reading order: `haggling` (a state machine without I/O), `contexts` (metadata contexts), `handshake`, `requests` (execution of one
//! request), `session` (a connection in the transmission phase), `client_slots` (the connection limit), `client_stream` and [`portal`]
//! (several threads).

mod client_slots;
mod client_stream;
mod contexts;
pub mod haggling;
mod handshake;
pub mod portal;
mod requests;
mod session;

use self::client_slots::ClientSlots;
use crate::export::Exports;
use std::{cell::Cell, rc::Rc, time::Duration};
use thiserror::Error;
use tls::ServerTls;
use world::{IncomingConnection, Listener, World, network::accept_next};

/// A server's TLS policy, by the protocol's names.
#[derive(Clone, Debug, Default)]
pub enum TlsMode {
    /// NOTLS.
    #[default]
    Off,
    /// SELECTIVETLS, with no export that requires TLS.
    Allowed(ServerTls),
    /// FORCEDTLS.
    Required(ServerTls),
}

/// Limits and TLS policy of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Most clients in the transmission phase; another one gets an error reply. As many again may be in the
    /// handshake; more are disconnected.
    pub connections_max: usize,
    /// Time limit of the handshake.
    pub greeting_max: Duration,
    /// A client that has sent no request for this long may be disconnected for a new one.
    pub idle_max: Duration,
    /// Most outstanding requests of a connection.
    pub requests_max: usize,
    /// Most bytes of outstanding reads and writes of a connection; at least one request of the largest size.
    pub bytes_max: usize,
    pub tls: TlsMode,
}

impl Default for ServerOptions {
    /// 256 connections, 10 s for the handshake, 60 s idle, 256 requests and 64 MiB for each connection, no
    /// TLS.
    fn default() -> Self {
        Self {
            connections_max: 256,
            greeting_max: Duration::from_secs(10),
            idle_max: Duration::from_secs(60),
            requests_max: 256,
            bytes_max: 64 << 20,
            tls: TlsMode::Off,
        }
    }
}

/// The reason a connection ended without a disconnect request.
#[derive(Debug, Error)]
pub enum ConnectionEnd {
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    #[error("protocol error: {0}")]
    Protocol(&'static str),
    #[error("no TLS: {0}")]
    Tls(String),
    /// An option without an error reply was refused.
    #[error("refused: {0}")]
    Refused(&'static str),
    #[error("the export is withheld: its contents changed under its clients")]
    Withheld,
    #[error("the export has changed or is closed; the client finds it as it is over its next connection")]
    ExportChanged,
    #[error("disconnected by the operator")]
    EndedByOperator,
    #[error("the handshake timed out")]
    Slow,
    #[error("refused: {0} clients are connected, the limit of this server")]
    Full(usize),
    #[error("sent no request for {} s and was disconnected for another client", .0.as_secs())]
    Idle(Duration),
}

/// An event of a server, for the operator. [`EventLog`](world::EventLog) keeps events for readers.
#[derive(Debug)]
pub enum ServerEvent {
    /// A client entered the transmission phase.
    Connected {
        peer: String,
        export: String,
        is_encrypted: bool,
    },
    Disconnected {
        peer: String,
        /// `None` after a disconnect request.
        why: Option<ConnectionEnd>,
    },
    NotAccepted(world::IoError),
}

/// Serves `exports` until the future is dropped; open connections end with their world.
pub async fn serve(
    world: World,
    listener: Rc<dyn Listener>,
    exports: Exports,
    options: ServerOptions,
    tell: Rc<dyn Fn(ServerEvent)>,
) {
    let slots = ClientSlots::new(&world, options.connections_max, options.idle_max);
    // A client in the handshake has no slot yet: idle connections cannot exhaust the slots.
    let greetings = Rc::new(Cell::new(0));
    loop {
        let IncomingConnection { stream, peer, .. } =
            accept_next(&world, &*listener, |error| tell(ServerEvent::NotAccepted(error))).await;
        let Some(greeting) = HandshakeSlot::begin(&greetings, options.connections_max) else {
            let why = Some(ConnectionEnd::Full(options.connections_max));
            tell(ServerEvent::Disconnected { peer, why });
            continue;
        };
        let (own, exports, tell) = (world.clone(), exports.clone(), Rc::clone(&tell));
        let (options, slots) = (options.clone(), Rc::clone(&slots));
        world.spawn("nbd connection", async move {
            let connected = |export: &str, is_encrypted| {
                let (peer, export) = (peer.clone(), export.to_owned());
                drop(greeting);
                tell(ServerEvent::Connected { peer, export, is_encrypted });
            };
            let why = session::run(&own, stream, &exports, (options, &slots), connected).await.err();
            tell(ServerEvent::Disconnected { peer, why });
        });
    }
}

/// A connection in the handshake.
struct HandshakeSlot(Rc<Cell<usize>>);

impl HandshakeSlot {
    fn begin(all: &Rc<Cell<usize>>, count_max: usize) -> Option<Self> {
        if all.get() >= count_max {
            return None;
        }
        all.set(all.get() + 1);
        Some(Self(Rc::clone(all)))
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
