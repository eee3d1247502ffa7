//! Comparisons of DR groups with their copies at the other site.

use super::{
    ApiState, caller::Caller, changing::ChangeIdentity, dr_groups::group_of, orders::order,
    problem::ApiProblem,
};
use crate::{dr::verification::VerificationView, journal::tokens::CallerRole, site::handle::PoolHandle};
use array::format::{GroupId, VolumeId};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrVerifyOutcome {
    /// It is under way.
    Running,
    /// Both sites have the same blocks.
    Equal,
    /// Some blocks differ.
    Different,
    /// It ended before all was compared.
    Failed,
}

/// A comparison of a group with its copy, as of one cut that both sites took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DrVerificationRow {
    /// UUID.
    pub verification: String,
    /// UUID of the group.
    pub group: String,
    pub name: String,
    pub outcome: DrVerifyOutcome,
    pub began: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    pub compared_bytes: u64,
    pub total_bytes: u64,
    /// At the rate so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds_left: Option<u64>,
    /// Blocks of 4 KiB that differ.
    pub different_blocks: u64,
    /// Their places: the first 1000 ranges.
    pub different: Vec<DrDifferentRange>,
    /// The reason for which it has no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A range that differs, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrDifferentRange {
    /// Name of the volume.
    pub volume: String,
    pub offset: u64,
    pub length: u64,
}

fn row(pool: &PoolHandle, (id, name): (GroupId, &str), view: &VerificationView) -> DrVerificationRow {
    let pool = pool.last_view();
    let name_of = |id: VolumeId| {
        let known = pool.volumes.iter().find(|volume| volume.volume == id);
        known.map_or_else(|| id.to_string(), |volume| volume.name.clone())
    };
    let range = |&(volume, offset, length): &(VolumeId, u64, u64)| DrDifferentRange {
        volume: name_of(volume),
        offset,
        length,
    };
    let outcome = match view {
        VerificationView { ended: None, .. } => DrVerifyOutcome::Running,
        VerificationView { different_blocks: 1.., .. } => DrVerifyOutcome::Different,
        VerificationView { problem: Some(_), .. } => DrVerifyOutcome::Failed,
        _ => DrVerifyOutcome::Equal,
    };
    DrVerificationRow {
        verification: VolumeId(view.verification).to_string(),
        group: id.to_string(),
        name: name.to_owned(),
        outcome,
        began: utc_time(view.began.seconds),
        ended: view.ended.map(|ended| utc_time(ended.seconds)),
        compared_bytes: view.compared_bytes,
        total_bytes: view.total_bytes,
        seconds_left: view.left.map(|left| left.as_secs()),
        different_blocks: view.different_blocks,
        different: view.different.iter().map(range).collect(),
        problem: view.problem.clone(),
    }
}

/// Begins to compare a group that is primary here with its copy at the other site, as of one cut of both. Hosts write and the
/// stream goes on meanwhile; nothing is changed.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/verifications", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 202, description = "It has begun", body = DrVerificationRow), (status = "default", response = ApiProblem)))]
pub(super) async fn begin(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(group): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let (id, verification) = (view.group, identity.uuid);
    let begun = order(&pool, "compare DR group", move |served| {
        Box::pin(async move {
            served.dr.begin_verification(id, verification).map_err(ApiProblem::from)?;
            served.dr.verification(id).map_err(ApiProblem::from)
        })
    });
    let begun = begun.await?.ok_or_else(|| ApiProblem::not_found("it has not begun"))?;
    Ok((StatusCode::ACCEPTED, Json(row(&pool, (id, &view.name), &begun))).into_response())
}

/// Shows the comparison of a group that is under way, or the last one since its pool was opened.
#[utoipa::path(get, path = "/v1/dr/groups/{group}/verifications", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "The comparison", body = DrVerificationRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<DrVerificationRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let id = view.group;
    let last = order(&pool, "look at comparison", move |served| {
        Box::pin(async move { served.dr.verification(id).map_err(ApiProblem::from) })
    });
    let missing =
        || ApiProblem::not_found(format!("{} was not compared since its pool was opened", view.name));
    let last = last.await?.ok_or_else(missing)?;
    Ok(Json(row(&pool, (id, &view.name), &last)))
}

/// Gives a comparison up that is under way.
#[utoipa::path(delete, path = "/v1/dr/groups/{group}/verifications", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 204, description = "It ends"), (status = "default", response = ApiProblem)))]
pub(super) async fn give_up(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let id = view.group;
    let given_up = order(&pool, "give comparison up", move |served| {
        Box::pin(async move { served.dr.give_up_verification(id).map_err(ApiProblem::from) })
    });
    given_up.await?;
    Ok(StatusCode::NO_CONTENT)
}
