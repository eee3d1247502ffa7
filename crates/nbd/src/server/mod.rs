//! The server: a connection is greeted, haggles over what it gets, then sends requests until it ends.
//!
//! Reading order: `haggling` (what is asked for and answered, without any I/O), `greeting` (the same over a stream),
//! `requests` (one request, done), `session` (all of a connection, many at once).

mod greeting;
pub mod haggling;
mod requests;
mod session;

use crate::{export::Exports, tls::TlsMode};
use std::{rc::Rc, time::Duration};
use thiserror::Error;
use tokio::sync::Semaphore;
use world::{Accepted, Listener, World, network::accept_next};

/// How much a server takes on.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Connections at once; who comes then waits.
    pub connections_max: usize,
    /// How long a client may take over its greeting.
    pub greeting_max: Duration,
    /// Requests of a connection under way at once.
    pub requests_max: usize,
    /// Bytes of data of a connection under way at once; at least what one request may have.
    pub bytes_max: usize,
    /// Whether connections are TLS.
    pub tls: TlsMode,
}

impl Default for ServerOptions {
    /// 256 connections, 10 s to greet, 256 requests and 64 MiB of a connection, no TLS.
    fn default() -> Self {
        Self {
            connections_max: 256,
            greeting_max: Duration::from_secs(10),
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
    let places = Rc::new(Semaphore::new(options.connections_max));
    loop {
        let place = Place::among(&places).await;
        let Accepted { stream, peer, .. } =
            accept_next(&world, &*listener, |error| tell(Event::NotAccepted(error))).await;
        let (own, exports, tell) = (world.clone(), exports.clone(), Rc::clone(&tell));
        let options = options.clone();
        world.spawn("nbd connection", async move {
            let connected = |export: &str, is_encrypted| {
                let (peer, export) = (peer.clone(), export.to_owned());
                tell(Event::Connected { peer, export, is_encrypted });
            };
            let why = session::run(&own, stream, &exports, options, connected).await.err();
            tell(Event::Disconnected { peer, why });
            drop(place);
        });
    }
}

/// A place among the connections.
struct Place(Rc<Semaphore>);

impl Place {
    async fn among(places: &Rc<Semaphore>) -> Self {
        places.acquire().await.expect("it is never closed").forget();
        Self(Rc::clone(places))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}
