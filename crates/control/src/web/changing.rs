//! The audit and the keys around each change.
//!
//! A caller may send `Idempotency-Key`: the same request with the same key is done once, and answered again, for 24 hours and
//! over restarts. If the server was killed in between, the request is done again with the identities of the first time, so
//! what it had made is found.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::journal::{
    audit::AuditEvent,
    replies::{KeptReply, KeyedRequest},
};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use report::Refusal;
use ring::digest::{SHA256, digest};
use std::convert::Infallible;

/// Most bytes of a request's body.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// Bytes of a body that the audit keeps.
const AUDITED_BYTES: usize = 4096;
const KEY: &str = "idempotency-key";
const KEY_BYTES_MAX: usize = 255;

/// The identity of what a change makes, and whether the change may have been done before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChangeIdentity {
    pub uuid: [u8; 16],
    /// An earlier request with the same key did not end.
    pub may_be_done: bool,
}

impl<S: Sync> FromRequestParts<S> for ChangeIdentity {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(*parts.extensions.get::<Self>().expect("every change has an identity"))
    }
}

/// Runs a request; one that changes something with its audit and its key.
pub(super) async fn run(
    State(api): State<ApiState>,
    caller: Caller,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiProblem> {
    if !api.site.look().is_open {
        // What it has would seem to be missing.
        let refusal = Refusal::new("the server is starting", "try again when /readyz answers 200");
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", &refusal));
    }
    request.extensions_mut().insert(caller.clone());
    if request.method().is_safe() || request.uri().path() == super::site::PLAN_PATH {
        return Ok(next.run(request).await);
    }
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| {
        let refusal =
            Refusal::new(format!("the body is broken off, or has more than {BODY_BYTES_MAX} bytes"), "");
        ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", &refusal)
    })?;
    let what = match parts.uri.path_and_query() {
        Some(path) => format!("{} {path}", parts.method),
        None => parts.method.to_string(),
    };
    let uuid = api.world.random_uuid();
    let keyed = keyed_request(&api, &parts.headers, (&caller, &what, &body), uuid)?;
    if let Some((_, KeyedRequest { reply: Some(reply), .. })) = &keyed {
        return Ok(repeated(reply));
    }
    let identity = match &keyed {
        Some((_, request)) => ChangeIdentity { uuid: request.seed, may_be_done: request.seed != uuid },
        None => ChangeIdentity { uuid, may_be_done: false },
    };
    parts.extensions.insert(identity);
    let announced = announce(&api, &caller, &what, &body)?;
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let (response, reply) = kept(response).await;
    let event = AuditEvent { of: Some(announced.0), outcome: outcome_of(&response), ..announced.1 };
    if let Err(error) = api.journal.append_audit(api.world.unix_s(), &event) {
        // The change is done; the announcement stands without its outcome.
        api.notices.warn(format!("{what}: its outcome is not in the audit: {}", error.refusal()));
    }
    if let Some((key, request)) = keyed
        && is_final(response.status())
    {
        let ended = KeyedRequest { reply: Some(reply), ..request };
        if let Err(error) = api.journal.set_reply(&key, &ended) {
            api.notices.warn(format!("{what}: its reply is not kept: {}", error.refusal()));
        }
    }
    Ok(response)
}

/// Records that a change begins. Returns the number of the line, and its event.
fn announce(
    api: &ApiState,
    caller: &Caller,
    what: &str,
    body: &Bytes,
) -> Result<(u64, AuditEvent), ApiProblem> {
    let mut wanted = String::from_utf8_lossy(body).into_owned();
    if wanted.len() > AUDITED_BYTES {
        let end = wanted.floor_char_boundary(AUDITED_BYTES);
        wanted.truncate(end);
        wanted.push('…');
    }
    let event = AuditEvent {
        who: caller.name.clone(),
        whence: caller.whence.clone(),
        what: what.to_owned(),
        wanted,
        of: None,
        outcome: "begun".to_owned(),
    };
    Ok((api.journal.append_audit(api.world.unix_s(), &event)?, event))
}

/// The request that the key of this one stands for; `None` without a key.
fn keyed_request(
    api: &ApiState,
    headers: &HeaderMap,
    (caller, what, body): (&Caller, &str, &Bytes),
    seed: [u8; 16],
) -> Result<Option<(String, KeyedRequest)>, ApiProblem> {
    // The reply to a new token has its secret, and secrets are not kept.
    let is_kept = !what.ends_with(super::tokens::PATH);
    let Some(key) = headers.get(KEY).filter(|_| is_kept) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or_else(|| {
        ApiProblem::bad_request(format!("Idempotency-Key has 1 to {KEY_BYTES_MAX} ASCII characters"), "")
    })?;
    let key = format!("{}\n{key}", caller.name);
    let mut whole = what.as_bytes().to_vec();
    whole.push(0);
    whole.extend_from_slice(body);
    let hash = digest(&SHA256, &whole).as_ref().try_into().expect("SHA-256 has 32 bytes");
    let new = KeyedRequest { request_hash: hash, seed, unix_s: api.world.unix_s(), reply: None };
    let known = api.journal.keyed_request(&key, &new)?;
    if known.request_hash != hash {
        let refusal = Refusal::new("this Idempotency-Key was used for another request", "use a new key");
        return Err(ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", &refusal));
    }
    Ok(Some((key, known)))
}

/// The response again, and what is kept of it.
async fn kept(response: Response) -> (Response, KeptReply) {
    let (parts, body) = response.into_parts();
    // Answers to changes are small, and in memory.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let reply = KeptReply { status: parts.status.as_u16(), body: text };
    (Response::from_parts(parts, Body::from(body)), reply)
}

fn repeated(reply: &KeptReply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::OK);
    let mut response = (status, reply.body.clone()).into_response();
    let kind = match status.is_success() {
        true => "application/json",
        false => "application/problem+json",
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    response
}

/// False for a reply after which the same request may have another one.
fn is_final(status: StatusCode) -> bool {
    !status.is_server_error() && status != StatusCode::TOO_MANY_REQUESTS
}

fn outcome_of(response: &Response) -> String {
    let status = response.status().as_u16();
    match response.extensions().get::<ApiProblem>() {
        Some(problem) => format!("{status}: {}", problem.detail),
        None => status.to_string(),
    }
}
