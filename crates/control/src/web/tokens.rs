//! Tokens for programs.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::{
    hexadecimal::hexadecimal,
    journal::{
        DaemonJournal, JournalError,
        tokens::{CallerRole, TokenRecord},
    },
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use report::{Refusal, calendar::utc_time};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Path of the request that makes a token.
pub(super) const PATH: &str = "/v1/tokens";
/// Random bytes of a token: 256 bits.
const SECRET_BYTES: usize = 32;
/// So that people, and programs that look for leaked secrets, recognise one.
const PREFIX: &str = "spindle_";
const NAME_BYTES_MAX: usize = 64;
const DAY_SECONDS: i64 = 86_400;
/// Ten years.
const DAYS_MAX: u32 = 3650;

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Letters, digits, `.`, `-` and `_`; at most 64.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub name: String,
    pub role: CallerRole,
    /// Names of the pools that it may see and change; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<String>,
    /// Days for which it is valid; without it, until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 3650)]
    pub days: Option<u32>,
}

/// A token, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenRow {
    pub name: String,
    pub role: CallerRole,
    pub pools: Vec<String>,
    pub made_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// A token that was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    #[serde(flatten)]
    pub row: TokenRow,
    /// Shown now and never again.
    pub token: String,
}

impl TokenRow {
    fn of(TokenRecord { name, role, pools, made_unix_s, expires_unix_s, .. }: &TokenRecord) -> Self {
        Self {
            name: name.clone(),
            role: *role,
            pools: pools.clone(),
            made_at: utc_time(*made_unix_s),
            expires_at: expires_unix_s.map(utc_time),
        }
    }
}

/// A token of these random bytes.
pub fn token_text(secret: [u8; SECRET_BYTES]) -> String {
    format!("{PREFIX}{}", hexadecimal(&secret))
}

/// Records a token of these random bytes. `None` if there is one of its name.
///
/// # Errors
///
/// The journal could not record it.
pub fn make_token(
    journal: &DaemonJournal,
    new: &NewToken,
    (now, secret): (i64, [u8; SECRET_BYTES]),
) -> Result<Option<MadeToken>, JournalError> {
    let token = token_text(secret);
    let hash = digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("SHA-256 has 32 bytes");
    let record = TokenRecord {
        name: new.name.clone(),
        role: new.role,
        pools: new.pools.clone(),
        hash,
        made_unix_s: now,
        expires_unix_s: new.days.map(|days| now + i64::from(days) * DAY_SECONDS),
    };
    let is_new = journal.add_token(&record)?;
    Ok(is_new.then(|| MadeToken { row: TokenRow::of(&record), token }))
}

/// Lists the tokens, without their secrets.
#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, description = "All tokens, by name", body = Vec<TokenRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<TokenRow>>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    Ok(Json(api.journal.tokens()?.iter().map(TokenRow::of).collect()))
}

/// Makes a token, and shows it once.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = NewToken,
    responses((status = 201, description = "The token", body = MadeToken), (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    Json(new): Json<NewToken>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    let is_plain = |char: char| char.is_ascii_alphanumeric() || ".-_".contains(char);
    if new.name.is_empty() || new.name.len() > NAME_BYTES_MAX || !new.name.chars().all(is_plain) {
        let next = format!("use letters, digits, '.', '-' and '_', at most {NAME_BYTES_MAX}");
        return Err(ApiProblem::bad_request(format!("{:?} is no name of a token", new.name), &next));
    }
    if new.days.is_some_and(|days| !(1..=DAYS_MAX).contains(&days)) {
        return Err(ApiProblem::bad_request(
            format!("days is from 1 to {DAYS_MAX}"),
            "leave it out for no end",
        ));
    }
    let site = api.site.look();
    let is_known = |name: &&String| site.pools.contains_key(*name) || site.stopped.contains_key(*name);
    if let Some(stranger) = new.pools.iter().find(|name| !is_known(name)) {
        return Err(ApiProblem::bad_request(
            format!("there is no pool {stranger:?}"),
            "name pools of the site",
        ));
    }
    let mut secret = [0; SECRET_BYTES];
    api.world.fill_secret(&mut secret);
    match make_token(&api.journal, &new, (api.world.unix_s(), secret))? {
        Some(made) => Ok((StatusCode::CREATED, Json(made)).into_response()),
        None => {
            let refusal =
                Refusal::new(format!("there is a token {:?}", new.name), "delete it, or use another name");
            Err(ApiProblem::new(StatusCode::CONFLICT, "exists", &refusal))
        }
    }
}

/// Deletes a token: it is refused from then on.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "tokens", params(("name" = String, Path, description = "Name of the token")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    match api.journal.remove_token(&name)? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(ApiProblem::not_found(format!("there is no token {name:?}"))),
    }
}
