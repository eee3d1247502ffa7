//! The server: a connection is greeted, haggles over what it gets, then sends requests until it ends.
//!
//! Reading order: `haggling` (what is asked for and answered, without any I/O), `greeting` (the same over a stream),
//! `requests` (one request, done), `session` (all of a connection, many at once), `client_slots` (how many connections).

mod client_slots;
mod greeting;
pub mod haggling;
mod requests;
mod session;

use self::client_slots::ClientSlots;
use crate::{export::Exports, tls::TlsMode};
use std::{cell::Cell, rc::Rc, time::Duration};
use thiserror::Error;
use world::{Accepted, Listener, World, network::accept_next};

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Clients at once that have chosen an export; one more is refused in words. As many again may be at their greeting;
    /// more are hung up on.
    pub connections_max: usize,
    /// How long a client may take over its greeting.
    pub greeting_max: Duration,
    /// A client that sends no request for so long gives its place to one that comes when there is no other.
    pub idle_max: Duration,
    /// Requests of a connection under way at once.
    pub requests_max: usize,
    /// Bytes of data of a connection under way at once; at least what one request may have.
    pub bytes_max: usize,
    /// Whether connections are TLS.
    pub tls: TlsMode,
}

impl Default for ServerOptions {
    /// 256 connections, 10 s to greet, 60 s without a request, 256 requests and 64 MiB of a connection, no TLS.
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

/// Why a connection ended that did not say so.
#[derive(Debug, Error)]
pub enum Ended {
    /// It broke, or was closed in the middle of something.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
    /// It did not keep to the protocol.
    #[error("it is no NBD client: {0}")]
    Protocol(&'static str),
    /// TLS came to nothing: no certificate, or one that is not believed.
    #[error("no TLS: {0}")]
    Tls(String),
    /// It took too long over its greeting.
    #[error("it took too long over its greeting")]
    Slow,
    /// There are as many clients as the server takes.
    #[error("refused: {0} clients are connected, as many as this server takes")]
    Full(usize),
    /// It never sent a request, and another client has its place.
    #[error("it sent no request for {} s, and another client wanted its place", .0.as_secs())]
    Idle(Duration),
}

/// Something worth telling an operator.
#[derive(Debug)]
pub enum Event {
    /// A client has chosen an export.
    Connected {
        /// Who.
        peer: String,
        /// Which.
        export: String,
        /// Over TLS.
        is_encrypted: bool,
    },
    /// A connection ended.
    Disconnected {
        /// Who.
        peer: String,
        /// Why, if it did not say so.
        why: Option<Ended>,
    },
    /// A connection could not be accepted.
    NotAccepted(world::IoError),
}

/// Serves `exports` to all who connect, until it is dropped; connections that are under way end with their world.
pub async fn serve(
    world: World,
    listener: Rc<dyn Listener>,
    exports: Exports,
    options: ServerOptions,
    tell: Rc<dyn Fn(Event)>,
) {
    let slots = ClientSlots::new(&world, options.connections_max, options.idle_max);
    // Who is at its greeting has no place yet: nobody keeps another one out by saying nothing.
    let greetings = Rc::new(Cell::new(0));
    loop {
        let Accepted { stream, peer, .. } =
            accept_next(&world, &*listener, |error| tell(Event::NotAccepted(error))).await;
        let Some(greeting) = Greeting::begin(&greetings, options.connections_max) else {
            let why = Some(Ended::Full(options.connections_max));
            tell(Event::Disconnected { peer, why });
            continue;
        };
        let (own, exports, tell) = (world.clone(), exports.clone(), Rc::clone(&tell));
        let (options, slots) = (options.clone(), Rc::clone(&slots));
        world.spawn("nbd connection", async move {
            let connected = |export: &str, is_encrypted| {
                let (peer, export) = (peer.clone(), export.to_owned());
                drop(greeting);
                tell(Event::Connected { peer, export, is_encrypted });
            };
            let why = session::run(&own, stream, &exports, (options, &slots), connected).await.err();
            tell(Event::Disconnected { peer, why });
        });
    }
}

/// A connection that has not chosen an export yet.
struct Greeting(Rc<Cell<usize>>);

impl Greeting {
    fn begin(all: &Rc<Cell<usize>>, count_max: usize) -> Option<Self> {
        if all.get() >= count_max {
            return None;
        }
        all.set(all.get() + 1);
        Some(Self(Rc::clone(all)))
    }
}

impl Drop for Greeting {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
