//! Jobs of pools.

use super::{
    ApiState,
    caller::Caller,
    changing::ChangeIdentity,
    health_rows::{JobName, JobRow},
    orders::{change_job, pool_of},
    problem::ApiProblem,
};
use crate::{job_request::RequestedJob, journal::tokens::CallerRole, site::handle::PoolHandle};
use array::mover::JobKind;
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use std::time::Duration;
use world::with_deadline;

/// Time for the jobs of before a start to be shown again.
const RESUMED_WITHIN: Duration = Duration::from_secs(5);

/// Lists the jobs of a pool, one of each kind.
#[utoipa::path(get, path = "/v1/pools/{pool}/jobs", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "All jobs", body = Vec<JobRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<Vec<JobRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let pool = pool_of(&api, &caller, &pool)?;
    resumed(&api, &pool).await;
    Ok(Json(JobRow::all(&pool.last_view())))
}

/// Shows a job of a pool.
#[utoipa::path(get, path = "/v1/pools/{pool}/jobs/{job}", tag = "jobs",
    params(("pool" = String, Path, description = "UUID"), ("job" = String, Path, description = "Its kind")),
    responses((status = 200, description = "The job", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path((pool, job)): Path<(String, String)>,
) -> Result<Json<JobRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let pool = pool_of(&api, &caller, &pool)?;
    resumed(&api, &pool).await;
    let row = JobRow::all(&pool.last_view()).into_iter().find(|row| row.kind.name() == job);
    row.map(Json).ok_or_else(|| ApiProblem::not_found(format!("pool {} has no job {job}", pool.name)))
}

/// Right after a start: waits for the jobs that go on. One that cannot be waited for is shown later.
async fn resumed(api: &ApiState, pool: &PoolHandle) {
    let _ = with_deadline(api.world.sleep(RESUMED_WITHIN), api.jobs.keep(pool, 0)).await;
}

/// Begins a job, which goes on over restarts, and shows it.
async fn begin(
    (api, pool): (&ApiState, &PoolHandle),
    (name, job): (&'static str, RequestedJob),
    identity: ChangeIdentity,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    change_job(api, pool, name, async move |changes| Ok(changes.jobs.begin(job, identity.uuid).await))
        .await?;
    let row = JobRow::all(&pool.last_view()).into_iter().find(|row| row.kind == JobName::of(job.kind()));
    let row = row.ok_or_else(|| ApiProblem::not_found(format!("pool {} has stopped", pool.name)))?;
    Ok((StatusCode::ACCEPTED, Json(row)))
}

/// Checks everything once, from the beginning. One that was asked for and has not ended goes on.
#[utoipa::path(put, path = "/v1/pools/{pool}/scrub", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is a job of the pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn begin_scrub(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    begin((&api, &pool), ("begin scrub", RequestedJob::Scrub), identity).await
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
    change_job(&api, &pool, "cancel scrub", async |changes| Ok(changes.jobs.cancel(JobKind::Scrub))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes copies that are missing, and moves data until the drives are equally full.
#[utoipa::path(put, path = "/v1/pools/{pool}/levelling", tag = "jobs", params(("pool" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is a job of the pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn begin_levelling(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    begin((&api, &pool), ("begin levelling", RequestedJob::Level), identity).await
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
    change_job(&api, &pool, "cancel levelling", async |changes| Ok(changes.jobs.cancel(JobKind::Level)))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
