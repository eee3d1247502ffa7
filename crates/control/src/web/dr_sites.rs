//! Sites that this one is paired with.

use super::{
    ApiState,
    caller::Caller,
    dr_rows::{DrSiteRow, DrSites, no_link},
    problem::ApiProblem,
};
use crate::{
    dr::{LinkHandle, LinkView},
    journal::tokens::CallerRole,
};
use array::format::SiteId;
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// Path of the request that makes a token.
pub(super) const TOKENS_PATH: &str = "/v1/dr/tokens";
/// Path of the request that pairs.
pub(super) const SITES_PATH: &str = "/v1/dr/sites";
/// A day.
const VALID_S_MAX: u64 = 86_400;
/// Interval of looking whether a change is shown, and looks at most: 3 s.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SHOWN_LOOKS: usize = 150;

/// A pairing to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPairingBody {
    /// Name of the other site here.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._-]+$")]
    pub name: String,
    /// HOST or HOST:PORT: the address at which it listens.
    pub address: String,
    /// The token that was made there.
    #[schema(pattern = "^[0-9a-fA-F]{32}$")]
    pub token: String,
}

/// A pairing token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPairingTokenBody {
    /// Seconds for which one site can pair with it.
    #[schema(minimum = 1, maximum = 86400)]
    pub valid_s: u64,
}

/// A pairing token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadePairingToken {
    /// Shown now and never again.
    pub token: String,
    /// The address at which this site listens.
    pub address: String,
}

pub(super) fn link_of(api: &ApiState) -> Result<&LinkHandle, ApiProblem> {
    api.link.as_ref().ok_or_else(no_link)
}

/// The paired site of a name.
pub(super) fn site_of(view: &LinkView, name: &str) -> Result<SiteId, ApiProblem> {
    let found = view.peers.iter().find(|peer| peer.name == name);
    found.map(|peer| peer.site).ok_or_else(|| {
        let known: Vec<&str> = view.peers.iter().map(|peer| peer.name.as_str()).collect();
        let next = match known.is_empty() {
            true => "pair with it first: 'spindle dr pair'".to_owned(),
            false => format!("paired are: {}", known.join(", ")),
        };
        let refusal = Refusal::new(format!("this site is not paired with {name:?}"), next);
        ApiProblem::new(StatusCode::NOT_FOUND, "not-found", &refusal)
    })
}

/// Shows this site, and those that it is paired with.
#[utoipa::path(get, path = "/v1/dr/sites", tag = "dr",
    responses((status = 200, description = "This site and its peers", body = DrSites), (status = "default", response = ApiProblem)))]
pub(super) async fn list(State(api): State<ApiState>, caller: Caller) -> Result<Json<DrSites>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    Ok(Json(DrSites::of(&link_of(&api)?.look())))
}

/// Makes a token with which one other site can pair.
#[utoipa::path(post, path = "/v1/dr/tokens", tag = "dr", request_body = NewPairingTokenBody,
    responses((status = 201, description = "The token", body = MadePairingToken), (status = "default", response = ApiProblem)))]
pub(super) async fn make_token(
    State(api): State<ApiState>,
    caller: Caller,
    Json(NewPairingTokenBody { valid_s }): Json<NewPairingTokenBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    if !(1..=VALID_S_MAX).contains(&valid_s) {
        return Err(ApiProblem::bad_request(format!("a token is valid for 1 to {VALID_S_MAX} seconds"), ""));
    }
    let link = link_of(&api)?;
    let token = link.make_token(Duration::from_secs(valid_s)).await?;
    let made = MadePairingToken { token, address: link.look().address.clone() };
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Waits until the view shows a change of the paired sites, for a bounded time: a list that is asked for next has it.
async fn shown(api: &ApiState, link: &LinkHandle, is_shown: impl Fn(&LinkView) -> bool) {
    for _ in 0..SHOWN_LOOKS {
        if is_shown(&link.look()) {
            return;
        }
        api.world.sleep(LOOK_EVERY).await;
    }
}

/// Pairs with a site that made a token. From then on this site keeps a connection to it.
#[utoipa::path(post, path = "/v1/dr/sites", tag = "dr", request_body = NewPairingBody,
    responses((status = 201, description = "The site", body = DrSiteRow), (status = "default", response = ApiProblem)))]
pub(super) async fn pair(
    State(api): State<ApiState>,
    caller: Caller,
    Json(NewPairingBody { name, address, token }): Json<NewPairingBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    let link = link_of(&api)?;
    let site = link.pair(&name, &address, &token).await?;
    shown(&api, link, |view| view.peers.iter().any(|peer| peer.site == site)).await;
    let row = DrSiteRow {
        site: site.to_string(),
        name,
        addresses: vec![address],
        connected_since: None,
        lost_since: None,
        connections: Vec::new(),
        last_error_at: None,
        last_error: None,
    };
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

/// Ends the pairing with a site. Groups with it stay, and are not connected any more.
#[utoipa::path(delete, path = "/v1/dr/sites/{name}", tag = "dr", params(("name" = String, Path, description = "Name of the site")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn unpair(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    let link = link_of(&api)?;
    let site = site_of(&link.look(), &name)?;
    link.unpair(site).await?;
    shown(&api, link, |view| view.peers.iter().all(|peer| peer.site != site)).await;
    Ok(StatusCode::NO_CONTENT)
}
