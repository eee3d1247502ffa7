//! Connections of the API: accepted within bounds, and given to the handlers.
//!
//! Invariants:
//!
//! 1. At most [`CONNECTIONS_MAX`] are open; more wait in the listener's queue.
//! 2. A request's headers have [`HEADERS_WITHIN`], the request as a whole [`REQUEST_WITHIN`]; a client that takes nothing of
//!    its answer is closed (`patient_stream`).

use super::{
    ApiState, caller::ApiPeer, local_world::LocalWorld, patient_stream::PatientStream, problem::ApiProblem,
};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use report::Refusal;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, Ipv6Addr},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use tls::{EncryptedStream, ServerTls, tls_failure};
use tokio::sync::Semaphore;
use world::{
    Address, IncomingConnection, Listener, World,
    network::{accept_next, handover::MovableStream},
    with_deadline,
};

/// Most connections at the same time.
pub const CONNECTIONS_MAX: usize = 256;
/// Most bytes of a request's headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// More than an order may take until it is answered that it goes on.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);

/// A way in: the handlers behind it, and the certificates that it shows.
#[derive(Clone)]
pub(super) struct Entrance {
    pub api: ApiState,
    pub router: Router,
    /// `None` in the clear; not for sockets.
    pub tls: Option<ServerTls>,
}

/// Serves connections until the future is dropped.
pub(super) async fn serve(world: World, listener: Rc<dyn Listener>, entrance: Entrance) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        // The next one may be better; nobody asked for this one.
        let accepted = accept_next(&world, &*listener, drop).await;
        let (own, entrance) = (world.clone(), entrance.clone());
        world.spawn("api connection", async move {
            serve_connection(&own, accepted, entrance).await;
            drop(place);
        });
    }
}

async fn serve_connection(world: &World, accepted: IncomingConnection, entrance: Entrance) {
    let Entrance { api, router, tls } = entrance;
    let IncomingConnection { stream, peer, local, user } = accepted;
    let (source, tls) = match local {
        Address::Unix(_) => ("socket".to_owned(), None),
        Address::Tcp { .. } => (source_of(&peer), tls),
    };
    let is_encrypted = tls.is_some();
    let stream = match tls {
        None => stream,
        Some(tls) => {
            let handshake = tls.accept(world, MovableStream::new(stream));
            match with_deadline(world.sleep(HEADERS_WITHIN), handshake).await {
                Some(Ok(stream)) => Box::new(EncryptedStream(stream)),
                Some(Err(error)) => return say_refused(&api, &source, &error),
                None => return,
            }
        }
    };
    let peer = ApiPeer { source, user, is_encrypted };
    let world = LocalWorld::new(world);
    let (timer, own) = (world.clone(), world.clone());
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let (router, world) = (router.clone(), own.clone());
        async move { Ok::<_, Infallible>(answer(router, world, request.map(Body::new)).await) }
    });
    let served = http1::Builder::new()
        .timer(timer)
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(TokioIo::new(PatientStream::new(stream, world)), answer);
    // A client that breaks off is no news.
    let _ = served.await;
}

/// A client that did not agree on TLS: an administrator whose certificate is not trusted looks for the reason. A client that
/// breaks off, or speaks no TLS, is no news.
fn say_refused(api: &ApiState, source: &str, error: &io::Error) {
    let now = api.world.unix_s();
    if let Some(why) = tls_failure(error)
        && !api.failed_logins.is_throttled(source, now)
    {
        api.failed_logins.add(source, now);
        api.notices.warn(format!("{source}: no TLS: {why}"));
    }
}

/// The machine at the other end: its address without the port. All of loopback is one machine, and so is the half of an IPv6
/// address that a provider gives to one.
fn source_of(peer: &str) -> String {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>().map(|number| number.to_canonical()) {
        Ok(number) if number.is_loopback() => "loopback".to_owned(),
        Ok(IpAddr::V6(number)) => {
            let [a, b, c, d, ..] = number.segments();
            format!("{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        Ok(IpAddr::V4(number)) => number.to_string(),
        Err(_) => host.to_owned(),
    }
}

async fn answer(router: Router, world: LocalWorld, request: Request<Body>) -> Response {
    use hyper_util::service::TowerToHyperService;
    let service = TowerToHyperService::new(router);
    let answering = hyper::service::Service::call(&service, request);
    match with_deadline(world.sleep(REQUEST_WITHIN), answering).await {
        Some(Ok(response)) => response,
        Some(Err(never)) => match never {},
        None => {
            // Changes are answered sooner, and go on: it is the body that did not come.
            let refusal = Refusal::new("the request did not come as a whole", "send it again");
            ApiProblem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", &refusal).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_one_source_whatever_address_it_takes() {
        for (peer, source) in [
            ("127.0.0.1:4000", "loopback"),
            ("127.9.8.7:1", "loopback"),
            ("[::1]:1", "loopback"),
            ("192.0.2.1:4000", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:4000", "192.0.2.1"),
            ("[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
            ("caller-7", "caller-7"),
        ] {
            assert_eq!(source_of(peer), source);
        }
    }
}
