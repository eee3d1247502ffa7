//! The power of the machine, as NUT and the like tell it.

use super::{ApiState, caller::Caller, problem::ApiProblem, site::ask};
use crate::{
    journal::tokens::CallerRole,
    site::{handle::WantedAnswer, power::SitePower},
};
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The power of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerBody {
    pub power: SitePower,
    /// In an answer: what could not be done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Shows the power as it was told.
#[utoipa::path(get, path = "/v1/power", tag = "site",
    responses((status = 200, description = "The power", body = PowerBody), (status = "default", response = ApiProblem)))]
pub(super) async fn show(State(api): State<ApiState>, caller: Caller) -> Result<Json<PowerBody>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(PowerBody { power: api.site.look().power, notes: Vec::new() }))
}

/// Tells the power: on a battery write caches are off and flushed; when it is low nothing is served; on line all is as before.
#[utoipa::path(post, path = "/v1/power", tag = "site", request_body = PowerBody,
    responses((status = 200, description = "It was done, but for the notes", body = PowerBody), (status = "default", response = ApiProblem)))]
pub(super) async fn tell(
    State(api): State<ApiState>,
    caller: Caller,
    Json(PowerBody { power, .. }): Json<PowerBody>,
) -> Result<Json<PowerBody>, ApiProblem> {
    // NUT's user tells it, and should not be able to destroy anything.
    caller.need(CallerRole::Operate)?;
    caller.need_all_pools()?;
    let answer = ask(&api, WantedAnswer::Power(power)).await?;
    Ok(Json(PowerBody { power: api.site.look().power, notes: answer.notes }))
}
