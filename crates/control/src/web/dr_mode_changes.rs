//! Changes of the modes of DR groups that live.

use super::{
    ApiState,
    caller::Caller,
    dr_groups::{change, group_of, shown_when},
    dr_parts::{check_whole, parts_of},
    dr_rows::DrGroupRow,
    problem::ApiProblem,
};
use crate::{dr::mode::DrMode, journal::tokens::CallerRole};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A change of a DR group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrGroupPatch {
    /// Its whole mode from now on.
    pub mode: DrMode,
}

/// Gives a group that is primary here another mode. Hosts go on; both sites connect again, and nothing is copied again. The other
/// site follows once it is connected.
#[utoipa::path(patch, path = "/v1/dr/groups/{group}", tag = "dr", request_body = DrGroupPatch,
    params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It has this mode", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn change_mode(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
    Json(DrGroupPatch { mode }): Json<DrGroupPatch>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let checked = mode.checked()?;
    let parts = parts_of(&api, &caller, group_of(&api, &caller, &group)?);
    check_whole(&parts)?;
    let was_connected = parts.iter().all(|(_, part)| part.connected_since.is_some());
    // One that was cut short between two parts is ended by the same request.
    for (pool, part) in parts {
        let id = part.group;
        let changed = change(&pool, "change mode of DR group", move |dr| {
            Box::pin(async move { dr.change_mode(id, checked).await })
        });
        changed.await?;
    }
    let is_shown = |row: &DrGroupRow| row.mode == mode && (row.connected_since.is_some() || !was_connected);
    shown_when(&api, &caller, &group, is_shown).await.map(Json)
}
