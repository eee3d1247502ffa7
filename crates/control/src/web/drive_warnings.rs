//! Warnings of drives by others, such as smartd: a condition until the drive has left its pool.

use super::{ApiState, caller::Caller, conditions::ConditionRow, drives::drive_of, problem::ApiProblem};
use crate::{
    conditions::{ConditionClaim, condition_id},
    journal::tokens::CallerRole,
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const TEXT_CHARS_MAX: usize = 500;

/// A warning about a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DriveWarningBody {
    /// One line; at most 500 characters.
    #[schema(min_length = 1, max_length = 500)]
    pub text: String,
}

/// Records a warning about a drive, as smartd gives it.
#[utoipa::path(post, path = "/v1/pools/{pool}/drives/{drive}/warning", tag = "drives", request_body = DriveWarningBody,
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 200, description = "The condition, with the command that takes the drive out in advance", body = ConditionRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn warn(
    State(api): State<ApiState>,
    caller: Caller,
    Path((pool, drive)): Path<(String, String)>,
    Json(DriveWarningBody { text }): Json<DriveWarningBody>,
) -> Result<Json<ConditionRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = drive_of(&api, &caller, (&pool, &drive))?;
    let line: String = text.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    if line.trim().is_empty() || line.chars().count() > TEXT_CHARS_MAX {
        let next = format!("say it in a line of at most {TEXT_CHARS_MAX} characters");
        return Err(ApiProblem::bad_request("the warning says nothing, or too much", &next));
    }
    let (pool, name) = (&meant.pool.name, &meant.row.name);
    let next = format!(
        "take it out in advance: 'spindle pool retire {pool} {}', once the others have room for what lies on it \
         ('spindle pool show {pool}')",
        meant.id
    );
    let claim = ConditionClaim::new("drive_warned", pool, format!("drive {name}: {}", line.trim()));
    let claim = claim.of(&*meant.id).with_next(next);
    api.events.raise(&claim, api.world.wall()).iter().for_each(|event| api.notices.print(event));
    let open = api.events.condition(&claim.id()).expect("it was raised");
    Ok(Json(ConditionRow::of(open)))
}

/// Withdraws the warning about a drive.
#[utoipa::path(delete, path = "/v1/pools/{pool}/drives/{drive}/warning", tag = "drives",
    params(("pool" = String, Path, description = "UUID"), ("drive" = String, Path, description = "UUID")),
    responses((status = 204, description = "There is none any more"), (status = "default", response = ApiProblem)))]
pub(super) async fn withdraw(
    State(api): State<ApiState>,
    caller: Caller,
    Path((pool, drive)): Path<(String, String)>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = drive_of(&api, &caller, (&pool, &drive))?;
    let id = condition_id("warned", &meant.pool.name, &meant.id);
    api.events.clear(&id, api.world.wall()).iter().for_each(|event| api.notices.print(event));
    Ok(StatusCode::NO_CONTENT)
}
