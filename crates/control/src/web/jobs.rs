//! Jobs of pools.

use super::{
    ApiState,
    caller::Caller,
    health_rows::JobRow,
    orders::{change_job, pool_of},
    problem::ApiProblem,
};
use crate::journal::tokens::CallerRole;
use array::mover::JobKind;
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};

/// Lists the jobs of a pool, one of each kind.
#[utoipa::path(get, path = "/v1/pools/{pool}/jobs", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "All jobs", body = Vec<JobRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<Vec<JobRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(JobRow::all(&pool_of(&api, &caller, &pool)?.last_view())))
}

/// Checks everything once, from the beginning. One that was asked for and has not ended goes on.
#[utoipa::path(put, path = "/v1/pools/{pool}/scrub", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is a job of the pool"), (status = "default", response = ApiProblem)))]
pub(super) async fn begin_scrub(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    change_job(&api, &pool, "begin scrub", async |changes| changes.begin_scrub().await).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Ends a scrub: the pool goes on with it when the next one is due.
#[utoipa::path(delete, path = "/v1/pools/{pool}/scrub", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 204, description = "It ends"), (status = "default", response = ApiProblem)))]
pub(super) async fn cancel_scrub(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    change_job(&api, &pool, "cancel scrub", async |changes| changes.cancel(JobKind::Scrub)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes copies that are missing, and moves data until the drives are equally full.
#[utoipa::path(put, path = "/v1/pools/{pool}/levelling", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is a job of the pool"), (status = "default", response = ApiProblem)))]
pub(super) async fn begin_levelling(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    change_job(&api, &pool, "begin levelling", async |changes| changes.begin_levelling().await).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Ends the levelling, until drives come or go.
#[utoipa::path(delete, path = "/v1/pools/{pool}/levelling", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 204, description = "It ends"), (status = "default", response = ApiProblem)))]
pub(super) async fn cancel_levelling(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    change_job(&api, &pool, "cancel levelling", async |changes| changes.cancel(JobKind::Level)).await?;
    Ok(StatusCode::NO_CONTENT)
}
