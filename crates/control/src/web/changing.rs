//! The audit and the keys around each change.
//!
//! A caller may send `Idempotency-Key`: the same request with the same key succeeds once, and is answered again, for 24 hours
//! and over restarts. If the server was killed in between, the request is done again with the identities of the first time, so
//! what it had made is found.
//!
//! Invariants:
//!
//! 1. A change that was announced in the audit goes on to its outcome there, whether its caller waits or not; only the end of
//!    the process ends it.
//! 2. Of requests with one key, one is under way at a time.
//! 3. Only the reply to a success is kept.

use super::{
    ApiState, caller::Caller, group_orders::find, health_rows::DriveRow, problem::ApiProblem,
    row_changes::AuditedChanges, rows::VolumeEntry, site::SiteBody,
};
use crate::{
    hexadecimal::hexadecimal,
    journal::{
        audit::AuditEvent,
        replies::{KeptReply, KeyedRequest, NamedBefore},
        tokens::CallerRole,
    },
    order::ANSWER_WITHIN,
    site::row_change::{SiteRow, find_initiator, find_target},
};
use array::format::{DriveId, GroupId, PoolId, VolumeId};
use axum::{
    body::{Body, Bytes, to_bytes},
    extract::{FromRequestParts, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use report::Refusal;
use ring::digest::{SHA256, digest};
use serving::uuid::parse_uuid;
use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::oneshot;
use world::with_deadline;

/// Most bytes of a request's body.
pub(super) const BODY_BYTES_MAX: usize = 1 << 20;
/// The same of a request with a site file, or a report: as of a file on the command line.
pub(super) const SITE_BYTES_MAX: usize = 16 << 20;
/// Bytes of method and path that the audit keeps.
const WHAT_BYTES: usize = 1024;
/// Bytes of a body that the audit keeps.
const AUDITED_BYTES: usize = 4096;
/// Fields of requests about initiators that the audit keeps.
const INITIATOR_FIELDS: [&str; 6] = ["name", "user", "secret_file", "without_chap", "uses", "reads"];
/// The same of requests that pair sites.
const PAIRING_FIELDS: [&str; 2] = ["name", "address"];
const KEY: &str = "idempotency-key";
/// Most characters of a key.
pub(super) const KEY_BYTES_MAX: usize = 255;

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

/// The volume or drive that a path names, as it was before the first request with the same key; none without a key.
#[derive(Clone, Debug)]
pub(super) struct FirstSeen(pub Option<NamedBefore>);

impl<S: Sync> FromRequestParts<S> for FirstSeen {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().expect("every change has one").clone())
    }
}

/// Keys of requests that are under way.
#[derive(Default)]
pub(super) struct KeysUnderWay(Mutex<BTreeSet<String>>);

/// A key that is under way until this is dropped.
struct KeyUnderWay {
    api: ApiState,
    key: String,
}

impl KeyUnderWay {
    fn begin(api: &ApiState, key: &str) -> Result<Self, ApiProblem> {
        if !api.keys.keys().insert(key.to_owned()) {
            let refusal =
                Refusal::new("a request with this Idempotency-Key is under way", "repeat it in a while");
            return Err(ApiProblem::new(StatusCode::CONFLICT, "under-way", &refusal));
        }
        Ok(Self { api: Arc::clone(api), key: key.to_owned() })
    }
}

impl KeysUnderWay {
    fn keys(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

impl Drop for KeyUnderWay {
    fn drop(&mut self) {
        self.api.keys.keys().remove(&self.key);
    }
}

/// Runs a request. One that changes something goes on without its caller, to its outcome in the audit.
pub(super) async fn run(
    State(api): State<ApiState>,
    caller: Caller,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiProblem> {
    if !api.site.look().is_open {
        // Its volumes would seem to be missing.
        let refusal = Refusal::new("the server is starting", "try again when /readyz answers 200");
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "starting", &refusal));
    }
    request.extensions_mut().insert(caller.clone());
    let path = request.uri().path();
    if request.method().is_safe() || path == super::site::PLAN_PATH {
        return Ok(next.run(request).await);
    }
    // Before anything is recorded.
    caller.need(CallerRole::Operate)?;
    let is_large = path.starts_with("/v1/site/") || path.starts_with(super::reports::PATH);
    let bytes_max = if is_large { SITE_BYTES_MAX } else { BODY_BYTES_MAX };
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, bytes_max).await.map_err(|_| {
        let refusal = Refusal::new(format!("the body is broken off, or has more than {bytes_max} bytes"), "");
        ApiProblem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", &refusal)
    })?;
    let (tell, told) = oneshot::channel();
    let changing = change(Arc::clone(&api), caller, (parts, body), next);
    // The caller may be gone.
    api.world.spawn("api change", async move { drop(tell.send(changing.await)) });
    match with_deadline(api.world.sleep(ANSWER_WITHIN), told).await {
        Some(Ok(response)) => response,
        Some(Err(_)) => {
            let refusal = Refusal::new("the change has ended without an answer", "look whether it is done");
            Err(ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "not-known", &refusal))
        }
        None => {
            let problem =
                format!("no answer within {} s; what was asked for goes on", ANSWER_WITHIN.as_secs());
            let refusal =
                Refusal::new(problem, "look whether it is done, or repeat it with its Idempotency-Key");
            Err(ApiProblem::new(StatusCode::GATEWAY_TIMEOUT, "goes-on", &refusal))
        }
    }
}

/// Runs a request that changes something, with its audit and its key.
async fn change(
    api: ApiState,
    caller: Caller,
    (mut parts, body): (Parts, Bytes),
    next: Next,
) -> Result<Response, ApiProblem> {
    let path = parts.uri.path_and_query().map_or(parts.uri.path(), |path| path.as_str());
    let what = shortened(&format!("{} {path}", parts.method), WHAT_BYTES);
    // The reply to a new token has its secret, and secrets are not kept.
    let has_kept_reply = ![super::tokens::PATH, super::dr_sites::TOKENS_PATH].contains(&parts.uri.path());
    let key = key_of(&parts.headers, &caller)?.filter(|_| has_kept_reply);
    let _under_way = key.as_ref().map(|key| KeyUnderWay::begin(&api, key)).transpose()?;
    let uuid = api.world.random_uuid();
    let keyed = match key {
        Some(key) => {
            let known = keyed_request(&api, &key, (&parts, &body), uuid)?;
            Some((key, known))
        }
        None => None,
    };
    if let Some((_, KeyedRequest { reply: Some(reply), .. })) = &keyed {
        return Ok(repeated(reply));
    }
    let (identity, first_seen) = match &keyed {
        Some((_, request)) => {
            let identity = ChangeIdentity { uuid: request.seed, may_be_done: request.seed != uuid };
            (identity, request.before.clone())
        }
        None => (ChangeIdentity { uuid, may_be_done: false }, None),
    };
    parts.extensions.insert(identity);
    parts.extensions.insert(FirstSeen(first_seen));
    let wanted = wanted_of(parts.uri.path(), &body);
    let announced = announce(&api, &caller, &what, wanted)?;
    let response = next.run(Request::from_parts(parts, Body::from(body))).await;
    let (response, reply) = kept(response).await;
    let event = AuditEvent { of: Some(announced.0), outcome: outcome_of(&response), ..announced.1 };
    if let Err(error) = api.journal.append_audit(api.world.unix_s(), &event) {
        // The change is done; the announcement stands without its outcome.
        api.notices.warn(format!("{what}: its outcome is not in the audit: {}", error.refusal()));
    }
    // A refused request may succeed when it is repeated.
    if let Some((key, request)) = keyed
        && response.status().is_success()
    {
        let ended = KeyedRequest { reply: Some(reply), ..request };
        if let Err(error) = api.journal.set_reply(&key, &ended) {
            api.notices.warn(format!("{what}: its reply is not kept: {}", error.refusal()));
        }
    }
    Ok(response)
}

/// The volume, drive or row of the site that a path names, if there is one.
fn named_before(api: &ApiState, path: &str) -> Option<NamedBefore> {
    let site = api.site.look();
    let parts: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
    match parts[..] {
        ["volumes", id, ..] => {
            let id = VolumeId(parse_uuid(id).ok()?);
            site.pools.values().find_map(|pool| {
                let view = pool.last_view();
                let volume = view.volumes.iter().find(|volume| volume.volume == id)?;
                let row = VolumeEntry::of((&pool.name, &pool.id.to_string()), volume);
                Some(NamedBefore { pool: pool.id.to_string(), tag: row.tag() })
            })
        }
        ["groups", id, ..] => {
            let group = find(&site, GroupId(parse_uuid(id).ok()?), |_| true)?;
            let pool = group.parts[0].0.id.to_string();
            Some(NamedBefore { pool, tag: group.row().tag() })
        }
        ["pools", pool, "drives", drive, ..] => {
            let (pool, drive) =
                (PoolId(parse_uuid(pool).ok()?), DriveId(parse_uuid(drive).ok()?).to_string());
            let pool = site.pools.values().find(|known| known.id == pool)?;
            let rows = DriveRow::all(&pool.last_view());
            let is_there = rows.iter().any(|row| row.id.as_ref() == Some(&drive));
            is_there.then(|| NamedBefore { pool: pool.id.to_string(), tag: String::new() })
        }
        ["targets", ref row @ ..] => {
            let target = find_target(&site.site, &percent_decoded(row.first()?))?;
            let is_there = match row {
                [_, "units", number] => {
                    let number = number.parse::<u64>().ok()?;
                    target.units.iter().any(|unit| unit.number == number)
                }
                _ => true,
            };
            is_there.then(|| row_before(SiteRow::Target(target)))
        }
        ["initiators", name] => {
            find_initiator(&site.site, &percent_decoded(name)).map(|row| row_before(SiteRow::Initiator(row)))
        }
        ["exports", name] => {
            let name = percent_decoded(name);
            site.site.exports.iter().find(|row| row.name == name).map(|row| row_before(SiteRow::Export(row)))
        }
        ["schedules", name] => {
            let name = percent_decoded(name);
            let row = site.site.snapshots.iter().find(|row| row.name == name);
            row.map(|row| row_before(SiteRow::Schedule(row)))
        }
        _ => None,
    }
}

/// A part of a path as its handler sees it; as it is if it is no such text.
fn percent_decoded(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, others @ ..] = rest {
        let coded = match others {
            [high, low, ..] if *first == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        bytes.push(coded.unwrap_or(*first));
        rest = if coded.is_some() { &others[2..] } else { others };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| part.to_owned())
}

/// A row of the site belongs to no pool.
fn row_before(row: SiteRow<'_>) -> NamedBefore {
    NamedBefore { pool: String::new(), tag: row.tag() }
}

/// The wish of a body, as the audit keeps it. Of a site file, what it destroys comes first, and its text is known by its hash.
fn wanted_of(path: &str, body: &Bytes) -> String {
    let text = String::from_utf8_lossy(body);
    match serde_json::from_slice::<SiteBody>(body) {
        Ok(SiteBody { text, destroy }) if path.starts_with("/v1/site/") => {
            let hash = hexadecimal(digest(&SHA256, text.as_bytes()).as_ref());
            let destroy = shortened(&destroy.join(", "), AUDITED_BYTES);
            shortened(&format!("destroy [{destroy}]; SHA-256 of the text {hash}; {text}"), 2 * AUDITED_BYTES)
        }
        _ if path.starts_with(super::initiators::PATH) => {
            shortened(&without_secret(body, &INITIATOR_FIELDS), AUDITED_BYTES)
        }
        _ if path.starts_with(super::reports::PATH) => {
            let hash = hexadecimal(digest(&SHA256, body).as_ref());
            format!("{} bytes with SHA-256 {hash}", body.len())
        }
        _ if path == super::dr_sites::SITES_PATH => {
            shortened(&without_secret(body, &PAIRING_FIELDS), AUDITED_BYTES)
        }
        _ => shortened(&text, AUDITED_BYTES),
    }
}

/// The body of a request with a secret, with the fields alone that hold none.
fn without_secret(body: &Bytes, kept: &[&str]) -> String {
    if body.is_empty() {
        return String::new();
    }
    match serde_json::from_slice::<serde_json::Value>(body) {
        Ok(serde_json::Value::Object(mut fields)) => {
            // One that is misspelled, too.
            for (_, value) in fields.iter_mut().filter(|(name, _)| !kept.contains(&name.as_str())) {
                *value = "(not recorded)".into();
            }
            serde_json::Value::Object(fields).to_string()
        }
        _ => format!("{} bytes that are no JSON object", body.len()),
    }
}

fn shortened(text: &str, bytes_max: usize) -> String {
    match text.len() <= bytes_max {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(bytes_max)]),
    }
}

/// Records that a change begins. Returns the number of the line, and its event.
fn announce(
    api: &ApiState,
    caller: &Caller,
    what: &str,
    wanted: String,
) -> Result<(u64, AuditEvent), ApiProblem> {
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

/// The key of a request, apart from those of other callers.
fn key_of(headers: &HeaderMap, caller: &Caller) -> Result<Option<String>, ApiProblem> {
    let Some(key) = headers.get(KEY) else { return Ok(None) };
    match key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX) {
        Some(key) => Ok(Some(format!("{}\n{key}", caller.key_space()))),
        None => {
            let problem = format!("Idempotency-Key has 1 to {KEY_BYTES_MAX} ASCII characters");
            Err(ApiProblem::bad_request(problem, ""))
        }
    }
}

/// The request that a key stands for: this one, or the one that came first.
fn keyed_request(
    api: &ApiState,
    key: &str,
    (parts, body): (&Parts, &Bytes),
    seed: [u8; 16],
) -> Result<KeyedRequest, ApiProblem> {
    let mut whole = format!("{} {}\0", parts.method, parts.uri).into_bytes();
    whole.extend_from_slice(body);
    let request_hash = digest(&SHA256, &whole).as_ref().try_into().expect("SHA-256 has 32 bytes");
    let before = named_before(api, parts.uri.path());
    let new = KeyedRequest { request_hash, seed, unix_s: api.world.unix_s(), before, reply: None };
    let known = api.journal.keyed_request(key, &new)?;
    if known.request_hash == request_hash {
        return Ok(known);
    }
    let refusal = Refusal::new("this Idempotency-Key was used for another request", "use a new key");
    Err(ApiProblem::new(StatusCode::UNPROCESSABLE_ENTITY, "key-reused", &refusal))
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

fn outcome_of(response: &Response) -> String {
    let status = response.status().as_u16();
    let changes = response.extensions().get::<AuditedChanges>().filter(|changes| !changes.0.is_empty());
    match (response.extensions().get::<ApiProblem>(), changes) {
        (Some(problem), _) => format!("{status}: {}", problem.detail),
        (None, Some(AuditedChanges(changes))) => shortened(&format!("{status}: {changes}"), AUDITED_BYTES),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        for (part, name) in
            [("iqn.x%3Aa", "iqn.x:a"), ("a%2Fb", "a/b"), ("%", "%"), ("%zz%41", "%zzA"), ("%ff", "%ff")]
        {
            assert_eq!(percent_decoded(part), name);
        }
    }
}
