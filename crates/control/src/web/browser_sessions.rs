//! Sessions of browsers: a cookie in place of the token, which a page could not keep safe.
//!
//! Invariants:
//!
//! 1. A session has the rights that its token has now; it ends with the token, after [`SESSION_SECONDS`], and with the server.
//! 2. Only the hash of a cookie is kept.
//! 3. A cookie counts on the host on which the session was begun. What another page has a browser send does not count: the
//!    cookie is SameSite=Strict, and a change names the origin of its page.

use super::{
    ApiState,
    caller::{ApiPeer, Caller, proven_token},
    problem::ApiProblem,
};
use crate::{
    hexadecimal::hexadecimal,
    journal::tokens::{CallerRole, TokenRecord},
};
use axum::{
    Extension, Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use report::{Refusal, calendar::utc_time};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard},
};
use utoipa::ToSchema;

/// A working day: somebody who watches need not log in twice.
pub(super) const SESSION_SECONDS: i64 = 12 * 3600;
/// Most sessions; the oldest goes first.
const SESSIONS_MAX: usize = 1000;
const COOKIE: &str = "spindle_session";

type CookieHash = [u8; 32];

/// Sessions by the hashes of their cookies.
#[derive(Default)]
pub(super) struct BrowserSessions(Mutex<BTreeMap<CookieHash, BrowserSession>>);

#[derive(Clone)]
struct BrowserSession {
    token: [u8; 32],
    /// The Host header of its first request.
    host: String,
    begun_unix_s: i64,
}

/// A token, to begin a session with.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// The token's secret, as it was shown once.
    #[schema(write_only)]
    pub token: String,
}

/// The caller, as the server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerRow {
    /// `user NUMBER`, or `token NAME`.
    pub name: String,
    pub role: CallerRole,
    /// Names of the pools that it may see; all if empty.
    pub pools: Vec<String>,
    /// End of a browser's session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<String>,
}

impl BrowserSessions {
    /// Keeps a session.
    fn begin(&self, cookie: &str, session: BrowserSession) {
        let mut known = self.known();
        known.retain(|_, known| session.begun_unix_s - known.begun_unix_s < SESSION_SECONDS);
        while known.len() >= SESSIONS_MAX {
            let oldest = known.iter().min_by_key(|(_, known)| known.begun_unix_s).map(|(hash, _)| *hash);
            known.remove(&oldest.expect("there are some"));
        }
        known.insert(hash_of(cookie), session);
    }

    fn of(&self, cookie: &str, now: i64) -> Option<BrowserSession> {
        let session = self.known().get(&hash_of(cookie)).cloned()?;
        // A clock that goes back does not lengthen it for ever.
        (session.begun_unix_s..session.begun_unix_s + SESSION_SECONDS).contains(&now).then_some(session)
    }

    fn end(&self, cookie: &str) {
        self.known().remove(&hash_of(cookie));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<CookieHash, BrowserSession>> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

/// The token of the session that a request belongs to; `None` if it belongs to none that goes on.
///
/// # Errors
///
/// The request comes from another page than those of this server.
pub(super) fn token_of_session(
    api: &ApiState,
    parts: &Parts,
    now: i64,
) -> Result<Option<TokenRecord>, ApiProblem> {
    let Some(session) = cookie_of(&parts.headers).and_then(|cookie| api.sessions.of(cookie, now)) else {
        return Ok(None);
    };
    if text_of(&parts.headers, "host") != Some(&session.host) {
        return Err(cross_origin("the session was begun under another host name"));
    }
    check_origin(&parts.headers, parts.method.is_safe())?;
    Ok(api.journal.tokens()?.into_iter().find(|token| token.is_valid(&session.token, now)))
}

/// Refuses what a page of another server has a browser send.
fn check_origin(headers: &HeaderMap, is_safe: bool) -> Result<(), ApiProblem> {
    let host = text_of(headers, "host").unwrap_or_default();
    let site = text_of(headers, "sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && (site != "none" || !is_safe)) {
        return Err(cross_origin("it comes from a page of another server"));
    }
    match text_of(headers, "origin") {
        Some(origin) if origin.split_once("://").map(|(_, host)| host) == Some(host) => Ok(()),
        Some(_) => Err(cross_origin("it comes from a page of another server")),
        None if is_safe => Ok(()),
        None => Err(cross_origin("a change with a cookie says the Origin of its page")),
    }
}

fn cross_origin(problem: &str) -> ApiProblem {
    let refusal = Refusal::new(problem, "open the server's own pages, or send a token");
    ApiProblem::new(StatusCode::FORBIDDEN, "cross-origin", &refusal)
}

/// The cookie of a session, if a request has one.
fn cookie_of(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, value)| value)
}

fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn hash_of(cookie: &str) -> CookieHash {
    digest(&SHA256, cookie.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn set_cookie(value: &str, seconds: i64, is_encrypted: bool) -> HeaderValue {
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).expect("hexadecimal digits")
}

/// Begins a session of a browser with a token, and sets its cookie.
#[utoipa::path(post, path = "/v1/session", tag = "session", request_body = LoginBody, security(()),
    responses((status = 201, description = "The session; its cookie is set", body = CallerRow), (status = "default", response = ApiProblem)))]
pub(super) async fn begin(
    State(api): State<ApiState>,
    Extension(peer): Extension<ApiPeer>,
    headers: HeaderMap,
    Json(LoginBody { token }): Json<LoginBody>,
) -> Result<Response, ApiProblem> {
    // Another page could otherwise have a browser work under a name that is not its user's.
    if headers.contains_key(header::ORIGIN) {
        check_origin(&headers, false)?;
    }
    let token = proven_token(&api, &peer, Some(token.trim()))?;
    let mut secret = [0; 32];
    api.world.fill_secret(&mut secret);
    let (cookie, now) = (hexadecimal(&secret), api.world.unix_s());
    let host = text_of(&headers, "host").unwrap_or_default().to_owned();
    api.sessions.begin(&cookie, BrowserSession { token: token.hash, host, begun_unix_s: now });
    api.notices.note(format!("{}: token {} has begun a session", peer.source, token.name));
    let row = CallerRow {
        name: format!("token {}", token.name),
        role: token.role,
        pools: token.pools,
        ends_at: Some(utc_time(now + SESSION_SECONDS)),
    };
    let cookie = [(header::SET_COOKIE, set_cookie(&cookie, SESSION_SECONDS, peer.is_encrypted))];
    Ok((StatusCode::CREATED, cookie, Json(row)).into_response())
}

/// Shows who the caller is, and what it may do.
#[utoipa::path(get, path = "/v1/session", tag = "session",
    responses((status = 200, description = "The caller", body = CallerRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(State(api): State<ApiState>, caller: Caller, headers: HeaderMap) -> Json<CallerRow> {
    let now = api.world.unix_s();
    let session = match headers.contains_key(header::AUTHORIZATION) {
        true => None,
        false => cookie_of(&headers).and_then(|cookie| api.sessions.of(cookie, now)),
    };
    Json(CallerRow {
        name: caller.name.clone(),
        role: caller.role,
        pools: caller.pools().to_vec(),
        ends_at: session.map(|session| utc_time(session.begun_unix_s + SESSION_SECONDS)),
    })
}

/// Ends the session of the browser that asks, if it has one.
#[utoipa::path(delete, path = "/v1/session", tag = "session", security(()),
    responses((status = 204, description = "It has ended"), (status = "default", response = ApiProblem)))]
pub(super) async fn end(
    State(api): State<ApiState>,
    Extension(peer): Extension<ApiPeer>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    if let Some(cookie) = cookie_of(&headers) {
        check_origin(&headers, false)?;
        api.sessions.end(cookie);
    }
    let cookie = [(header::SET_COOKIE, set_cookie("", 0, peer.is_encrypted))];
    Ok((StatusCode::NO_CONTENT, cookie).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(begun_unix_s: i64) -> BrowserSession {
        BrowserSession { token: [7; 32], host: "mail:7780".to_owned(), begun_unix_s }
    }

    #[test]
    fn a_session_ends_after_its_time_and_when_its_browser_says_so() {
        let sessions = BrowserSessions::default();
        sessions.begin("a", session(1000));
        sessions.begin("b", session(1000));
        assert!(sessions.of("a", 1000 + SESSION_SECONDS - 1).is_some());
        assert!(sessions.of("a", 1000 + SESSION_SECONDS).is_none());
        assert!(sessions.of("a", 999).is_none(), "the clock went back");
        sessions.end("b");
        assert!(sessions.of("b", 1000).is_none() && sessions.of("c", 1000).is_none());
    }

    #[test]
    fn the_oldest_session_goes_when_there_are_too_many() {
        let sessions = BrowserSessions::default();
        for number in 0..=SESSIONS_MAX {
            sessions.begin(&number.to_string(), session(1000 + number as i64));
        }
        assert_eq!(sessions.known().len(), SESSIONS_MAX);
        assert!(sessions.of("0", 2500).is_none() && sessions.of("1", 2500).is_some());
    }

    #[test]
    fn a_change_comes_from_a_page_of_the_server() {
        let checked = |lines: &[(&'static str, &'static str)], is_safe| {
            let mut headers = HeaderMap::new();
            headers.insert("host", HeaderValue::from_static("mail:7780"));
            for (name, value) in lines {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            check_origin(&headers, is_safe).is_ok()
        };
        assert!(checked(&[], true) && !checked(&[], false));
        assert!(checked(&[("origin", "https://mail:7780"), ("sec-fetch-site", "same-origin")], false));
        assert!(!checked(&[("origin", "https://mail.example:7780")], true));
        assert!(!checked(&[("origin", "null")], false));
        assert!(checked(&[("sec-fetch-site", "none")], true), "typed by a person");
        assert!(!checked(&[("sec-fetch-site", "none")], false));
        for other in ["cross-site", "same-site"] {
            assert!(!checked(&[("origin", "https://mail:7780"), ("sec-fetch-site", other)], false));
        }
    }

    #[test]
    fn one_cookie_of_many_is_the_session() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("theme=dark; spindle_session=abc"));
        assert_eq!(cookie_of(&headers), Some("abc"));
        headers.insert(header::COOKIE, HeaderValue::from_static("spindle_session2=abc; x"));
        assert_eq!(cookie_of(&headers), None);
        let text = set_cookie("abc", 60, true);
        assert_eq!(text, "spindle_session=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure");
    }
}
