//! Callers of the API: who they are and what they may do.
//!
//! Invariants:
//!
//! 1. On the Unix socket the kernel says who calls: root and the server's own user may do everything. Everybody else, and
//!    everybody elsewhere, has what a token gives, or the session of a browser that was begun with one.
//! 2. Wrong tokens alone are throttled, by source: a caller with a right one never waits for others.

use super::{ApiState, browser_sessions::token_of_session, problem::ApiProblem};
use crate::{
    hexadecimal::hexadecimal,
    journal::tokens::{CallerRole, TokenRecord},
};
use axum::{
    extract::FromRequestParts,
    http::{StatusCode, header, request::Parts},
};
use report::Refusal;
use ring::digest::{SHA256, digest};
use std::{collections::BTreeMap, sync::Mutex};

/// Failures of a source in [`WINDOW_SECONDS`] after which it has to wait.
const FAILURES_MAX: u32 = 10;
const WINDOW_SECONDS: i64 = 60;
/// Sources that are remembered; then all are forgotten.
const SOURCES_MAX: usize = 4096;

/// The other end of a connection: an extension of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiPeer {
    /// Address without its port, `loopback`, or `socket`.
    pub(super) source: String,
    /// User of the process at the other end of the Unix socket.
    pub(super) user: Option<u32>,
    /// Nobody else reads the connection.
    pub(super) is_encrypted: bool,
}

/// A caller who may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// For the audit: `user 0`, or `token NAME`.
    pub name: String,
    pub whence: String,
    pub role: CallerRole,
    /// Hash of its token, if it has one.
    token: Option<[u8; 32]>,
    /// Names of the pools that it may see; all if empty.
    pools: Vec<String>,
}

/// Failures by their sources.
#[derive(Default)]
pub(super) struct FailedLogins(Mutex<BTreeMap<String, FailureCount>>);

#[derive(Clone, Copy)]
struct FailureCount {
    since: i64,
    failures: u32,
}

impl Caller {
    fn with(TokenRecord { name, role, pools, hash, .. }: TokenRecord, peer: ApiPeer) -> Self {
        Self { name: format!("token {name}"), whence: peer.source, role, token: Some(hash), pools }
    }

    /// Names of the pools that it may see; all if empty.
    pub fn pools(&self) -> &[String] {
        &self.pools
    }

    /// Refuses a caller that has not the rights of `role`.
    pub fn need(&self, role: CallerRole) -> Result<(), ApiProblem> {
        if self.role >= role {
            return Ok(());
        }
        let role = match role {
            CallerRole::Read => "read",
            CallerRole::Operate => "operate",
            CallerRole::Admin => "admin",
        };
        let refusal = Refusal::new(
            format!("{} may not do this: it takes the role {role}", self.name),
            "use a token with that role",
        );
        Err(ApiProblem::new(StatusCode::FORBIDDEN, "forbidden", &refusal))
    }

    /// Refuses a caller that may not see all of the site.
    pub fn need_all_pools(&self) -> Result<(), ApiProblem> {
        if self.pools.is_empty() {
            return Ok(());
        }
        let refusal = Refusal::new(
            format!("{} is for the pools {} alone", self.name, self.pools.join(", ")),
            "use a token for all pools",
        );
        Err(ApiProblem::new(StatusCode::FORBIDDEN, "forbidden", &refusal))
    }

    /// Space of its keys of requests: a new token of an old name is another caller.
    pub fn key_space(&self) -> String {
        self.token.map_or_else(|| self.name.clone(), |hash| format!("token {}", hexadecimal(&hash)))
    }

    /// False once its token was deleted, or has expired.
    pub fn is_valid(&self, api: &ApiState) -> bool {
        let Some(hash) = &self.token else { return true };
        let now = api.world.unix_s();
        // A journal that cannot be read has said so; nothing is given away then.
        let tokens = api.journal.tokens().unwrap_or_default();
        tokens.iter().any(|token| token.is_valid(hash, now))
    }

    /// False for a pool that is not there for this caller.
    pub fn sees(&self, pool: &str) -> bool {
        self.pools.is_empty() || self.pools.iter().any(|name| name == pool)
    }
}

impl FailedLogins {
    pub fn is_throttled(&self, source: &str, now: i64) -> bool {
        let known = self.0.lock().expect("nothing panics with the lock held");
        known
            .get(source)
            .is_some_and(|count| now - count.since < WINDOW_SECONDS && count.failures >= FAILURES_MAX)
    }

    pub fn add(&self, source: &str, now: i64) {
        let mut known = self.0.lock().expect("nothing panics with the lock held");
        if known.len() >= SOURCES_MAX {
            known.clear();
        }
        let count = known.entry(source.to_owned()).or_insert(FailureCount { since: now, failures: 0 });
        if now - count.since >= WINDOW_SECONDS {
            *count = FailureCount { since: now, failures: 0 };
        }
        count.failures += 1;
    }
}

impl FromRequestParts<ApiState> for Caller {
    type Rejection = ApiProblem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, ApiProblem> {
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }
        let peer = parts.extensions.get::<ApiPeer>().expect("each connection has a peer").clone();
        let given = parts.headers.get(header::AUTHORIZATION);
        if given.is_none()
            && let Some(user) = peer.user.filter(|&user| user == 0 || user == api.own_user)
        {
            return Ok(Self {
                name: format!("user {user}"),
                whence: peer.source,
                role: CallerRole::Admin,
                token: None,
                pools: Vec::new(),
            });
        }
        if given.is_none()
            && let Some(token) = token_of_session(api, parts, api.world.unix_s())?
        {
            return Ok(Self::with(token, peer));
        }
        let token = given
            .and_then(|given| given.to_str().ok())
            .and_then(|given| given.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"))
            .map(|(_, token)| token.trim());
        Ok(Self::with(proven_token(api, &peer, token)?, peer))
    }
}

/// The record of a token that a peer has sent.
///
/// # Errors
///
/// It sent none, or a wrong one, or too many wrong ones.
pub(super) fn proven_token(
    api: &ApiState,
    peer: &ApiPeer,
    token: Option<&str>,
) -> Result<TokenRecord, ApiProblem> {
    let now = api.world.unix_s();
    let next = "send it as 'Authorization: Bearer TOKEN'; 'spindle token create' makes one";
    let refused = |problem: &str| {
        ApiProblem::new(StatusCode::UNAUTHORIZED, "unauthorized", &Refusal::new(problem, next))
    };
    let Some(token) = token else { return Err(refused("this needs a token")) };
    if let Some(known) = known_token(api, token, now)? {
        return Ok(known);
    }
    if api.failed_logins.is_throttled(&peer.source, now) {
        let refusal = Refusal::new(
            format!("{FAILURES_MAX} wrong tokens from {} within a minute", peer.source),
            "wait a minute, and use a token that is valid",
        );
        return Err(ApiProblem::new(StatusCode::TOO_MANY_REQUESTS, "throttled", &refusal));
    }
    api.failed_logins.add(&peer.source, now);
    let text = format!("{}: a token that is unknown or has expired", peer.source);
    api.notices.login_failed(&peer.source, text);
    Err(refused("the token is unknown or has expired"))
}

/// The record of a token that is valid.
fn known_token(api: &ApiState, token: &str, now: i64) -> Result<Option<TokenRecord>, ApiProblem> {
    let hash = digest(&SHA256, token.as_bytes());
    // Hashes of secrets that nobody can guess may be compared in any time.
    Ok(api.journal.tokens()?.into_iter().find(|known| known.is_valid(hash.as_ref(), now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_of_a_source_within_a_minute_make_it_wait_alone() {
        let failed = FailedLogins::default();
        for second in 0..10 {
            assert!(!failed.is_throttled("192.0.2.1", second));
            failed.add("192.0.2.1", second);
        }
        assert!(failed.is_throttled("192.0.2.1", 59));
        assert!(!failed.is_throttled("192.0.2.2", 59));
        assert!(!failed.is_throttled("192.0.2.1", 60));
        failed.add("192.0.2.1", 60);
        assert!(!failed.is_throttled("192.0.2.1", 61));
    }

    #[test]
    fn a_role_has_the_rights_of_those_before_it() {
        let caller = |role| Caller {
            name: "token x".to_owned(),
            whence: "socket".to_owned(),
            role,
            token: None,
            pools: vec![],
        };
        let roles = [CallerRole::Read, CallerRole::Operate, CallerRole::Admin];
        let allowed: Vec<usize> = roles
            .into_iter()
            .map(|role| roles.into_iter().filter(|&needed| caller(role).need(needed).is_ok()).count())
            .collect();
        assert_eq!(allowed, [1, 2, 3]);
        let limited = Caller { pools: vec!["mail".to_owned()], ..caller(CallerRole::Admin) };
        assert!(limited.sees("mail") && !limited.sees("logs") && limited.need_all_pools().is_err());
        assert!(caller(CallerRole::Read).sees("logs") && caller(CallerRole::Read).need_all_pools().is_ok());
    }
}
