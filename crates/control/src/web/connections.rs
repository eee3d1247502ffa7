//! Connections of the API: accepted within bounds, and given to the handlers.
//!
//! Invariants:
//!
//! 1. At most [`CONNECTIONS_MAX`] are open; more wait in the listener's queue.
//! 2. A request's headers have [`HEADERS_WITHIN`], the request as a whole [`REQUEST_WITHIN`]; a client that takes nothing of
//!    its answer is closed (`patient_stream`).

use super::{caller::ApiPeer, local_world::LocalWorld, patient_stream::PatientStream, problem::ApiProblem};
use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use report::Refusal;
use std::{convert::Infallible, rc::Rc, sync::Arc, time::Duration};
use tokio::sync::Semaphore;
use world::{Address, IncomingConnection, Listener, World, network::accept_next, with_deadline};

/// Most connections at the same time.
pub const CONNECTIONS_MAX: usize = 256;
/// Most bytes of a request's headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// More than an order may take until it is answered that it goes on.
const REQUEST_WITHIN: Duration = Duration::from_secs(60);

/// Serves connections until the future is dropped.
pub(super) async fn serve(world: World, listener: Rc<dyn Listener>, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = places.clone().acquire_owned().await.expect("it is never closed");
        // The next one may be better; nobody asked for this one.
        let accepted = accept_next(&world, &*listener, drop).await;
        let (local, router) = (LocalWorld::new(&world), router.clone());
        world.spawn("api connection", async move {
            serve_connection(local, accepted, router).await;
            drop(place);
        });
    }
}

async fn serve_connection(world: LocalWorld, accepted: IncomingConnection, router: Router) {
    let IncomingConnection { stream, peer, local, user } = accepted;
    let source = match local {
        Address::Unix(_) => "socket".to_owned(),
        Address::Tcp { .. } => peer.rsplit_once(':').map_or(peer.clone(), |(host, _)| host.to_owned()),
    };
    let peer = ApiPeer { source, user };
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
