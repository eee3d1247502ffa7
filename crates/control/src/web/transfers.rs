//! Copies, refreshes and moves of volumes between pools: jobs of the pool that gets the volume.
//!
//! Invariant: a volume moves only if all that serves it can follow ([`crate::site::volume_following`]).

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    health_rows::{JobName, JobRow},
    orders::{MeantVolume, change_job, moved_volume_of, pool_of, read_order, volume_of},
    problem::ApiProblem,
};
use crate::{
    job_request::{RequestedJob, TransferRequest},
    journal::tokens::CallerRole,
    site::{handle::PoolHandle, moved_volumes::obstacle, server::parse},
};
use array::{
    pool::{INCOMPLETE_END, is_moved},
    volume::MOVED_END,
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A copy to make in another pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCopyBody {
    /// UUID of the pool that gets the copy.
    pub pool: String,
    /// Name of the copy.
    pub name: String,
    /// Name of the snapshot to copy.
    pub snapshot: String,
}

/// The state that a copy is to be brought up to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RefreshBody {
    /// UUID of the source, a volume in another pool.
    pub source: String,
    /// Name of its snapshot.
    pub snapshot: String,
}

/// The new place of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveBody {
    /// UUID of the pool.
    pub pool: String,
    /// Its name there; without it, the name that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Copies a snapshot into a new volume of another pool, with the snapshot; or goes on with a copy that was interrupted.
#[utoipa::path(post, path = "/v1/volumes/{volume}/copies", tag = "volumes", request_body = NewCopyBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is the job copy of the other pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn copy(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<NewCopyBody>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let source = volume_of(&api, &caller, &volume)?;
    let pool = pool_of(&api, &caller, &body.pool)?;
    check_pools((&source, &pool), "a copy in the pool of its source is a clone", "POST its clones")?;
    let snapshot = snapshot_of(&api, &source, &body.snapshot).await?;
    let transfer = TransferRequest {
        from: format!("{}/{}@{}", source.pool.name, source.volume.name, body.snapshot),
        snapshot: Some(snapshot),
        name: body.name,
        ..transfer_of(&source)
    };
    begin((&api, &pool), (RequestedJob::Copy, transfer), identity).await
}

/// Brings a copy up to another snapshot of its source in another pool. The copy is not used meanwhile.
#[utoipa::path(post, path = "/v1/volumes/{volume}/refresh", tag = "volumes", request_body = RefreshBody,
    params(("volume" = String, Path, description = "UUID of the copy")),
    responses((status = 202, description = "It is the job refresh of its pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn refresh(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<RefreshBody>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let copy = volume_of(&api, &caller, &volume)?;
    let source = volume_of(&api, &caller, &body.source)?;
    check_pools(
        (&source, &copy.pool),
        "the source is in the pool of the copy",
        "name a volume of another pool",
    )?;
    let snapshot = snapshot_of(&api, &source, &body.snapshot).await?;
    let name = copy.volume.name.strip_suffix(INCOMPLETE_END).unwrap_or(&copy.volume.name);
    let transfer = TransferRequest {
        from: format!("{}/{}@{}", source.pool.name, source.volume.name, body.snapshot),
        snapshot: Some(snapshot),
        name: name.to_owned(),
        ..transfer_of(&source)
    };
    begin((&api, &copy.pool), (RequestedJob::Refresh, transfer), identity).await
}

/// Moves a volume to another pool, with its snapshots and its identity, also while hosts use it; or goes on with that. What serves
/// it follows: hosts log in again once, and find it with the same names.
#[utoipa::path(post, path = "/v1/volumes/{volume}/move", tag = "volumes", request_body = MoveBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is the job move of the other pool", body = JobRow), (status = "default", response = ApiProblem)))]
pub(super) async fn relocate(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    Path(volume): Path<String>,
    Json(body): Json<MoveBody>,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let source = moved_volume_of(&api, &caller, &volume)?;
    let pool = pool_of(&api, &caller, &body.pool)?;
    let name = source.volume.name.trim_end_matches(MOVED_END);
    let mut transfer = TransferRequest {
        from: format!("{}/{name}", source.pool.name),
        name: body.name.unwrap_or_else(|| name.to_owned()),
        ..transfer_of(&source)
    };
    // A request that is repeated may find the volume where it was to go.
    match first_seen.0.filter(|_| identity.may_be_done && source.pool.id == pool.id) {
        Some(before) => transfer.pool = before.pool,
        None if !is_moved(&source.volume.name) => {
            api.site.presentations.check_volume_not_held(source.id())?;
            check_can_follow(&api, &source)?;
        }
        None => {}
    }
    if transfer.pool == pool.id.to_string() {
        return Err(ApiProblem::bad_request("the volume is in that pool", "name another one"));
    }
    begin((&api, &pool), (RequestedJob::Move, transfer), identity).await
}

fn transfer_of(source: &MeantVolume) -> TransferRequest {
    let (pool, volume) = (source.pool.id.to_string(), source.id().to_string());
    TransferRequest { pool, volume, ..TransferRequest::default() }
}

fn check_pools(
    (source, pool): (&MeantVolume, &PoolHandle),
    problem: &str,
    next: &str,
) -> Result<(), ApiProblem> {
    if source.pool.id == pool.id { Err(ApiProblem::bad_request(problem, next)) } else { Ok(()) }
}

/// UUID of a snapshot.
async fn snapshot_of(api: &ApiState, source: &MeantVolume, name: &str) -> Result<String, ApiProblem> {
    let (volume, shown, name) = (source.id(), source.volume.name.clone(), name.to_owned());
    read_order(api, &source.pool, "find snapshot", move |served| {
        Box::pin(async move {
            let snapshots = served.pool.snapshots(volume).unwrap_or_default();
            let found = snapshots.into_iter().find(|snapshot| snapshot.name == name);
            let missing = || ApiProblem::not_found(format!("volume {shown} has no snapshot {name}"));
            found.map(|snapshot| snapshot.snapshot.to_string()).ok_or_else(missing)
        })
    })
    .await
}

/// Refuses a volume of which something cannot follow, and any while a site file is applied to a part that names it.
fn check_can_follow(api: &ApiState, meant: &MeantVolume) -> Result<(), ApiProblem> {
    let place = format!("{}/{}", meant.pool.name, meant.volume.name);
    let refused = |problem: String, next: String| {
        Err(ApiProblem::new(StatusCode::CONFLICT, "refused", &Refusal::new(problem, next)))
    };
    if let Some((problem, next)) = obstacle(&api.site.look().site, &place) {
        return refused(problem, next);
    }
    let under_way = api.journal.apply_under_way()?.filter(|apply| apply.online.is_none());
    let mut texts = under_way.into_iter().flat_map(|apply| [Some(apply.text), apply.file]).flatten();
    if texts.any(|text| parse(&text).is_ok_and(|site| site.volume(&place).is_some())) {
        return refused(
            format!("a site file that names {place} is applied to a part"),
            "bring that to its end first: 'spindle apply' of the file goes on with it".to_owned(),
        );
    }
    Ok(())
}

pub(super) async fn begin(
    (api, pool): (&ApiState, &PoolHandle),
    (job, transfer): (RequestedJob, TransferRequest),
    identity: ChangeIdentity,
) -> Result<(StatusCode, Json<JobRow>), ApiProblem> {
    let begun = change_job(api, pool, "begin transfer", async move |changes| {
        let begun = changes.jobs.begin_transfer(job, transfer, (identity.uuid, identity.may_be_done)).await;
        begun.map_err(|refusal| ApiProblem::new(StatusCode::CONFLICT, "under-way", &refusal))
    });
    begun.await?;
    let row = JobRow::all(&pool.last_view()).into_iter().find(|row| row.kind == JobName::of(job.kind()));
    let row = row.ok_or_else(|| ApiProblem::not_found(format!("pool {} has stopped", pool.name)))?;
    Ok((StatusCode::ACCEPTED, Json(row)))
}

/// Cancels a copy, a refresh, a move or an import. What is copied stays, under a name that says so: the same request goes on from
/// there. A volume that was being imported stays, and needs its source.
#[utoipa::path(delete, path = "/v1/pools/{pool}/jobs/{job}", tag = "jobs",
    params(("pool" = String, Path, description = "UUID"), ("job" = String, Path, description = "copy, refresh, move or import")),
    responses((status = 204, description = "It ends"), (status = "default", response = ApiProblem)))]
pub(super) async fn cancel(
    State(api): State<ApiState>,
    caller: Caller,
    Path((pool, job)): Path<(String, String)>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let pool = pool_of(&api, &caller, &pool)?;
    let jobs = [RequestedJob::Copy, RequestedJob::Refresh, RequestedJob::Move, RequestedJob::Import];
    let Some(meant) = jobs.into_iter().find(|meant| meant.kind().name() == job) else {
        let problem = format!("{job} is not cancelled here");
        return Err(ApiProblem::bad_request(problem, "this is for copy, refresh, move and import"));
    };
    change_job(&api, &pool, "cancel transfer", async move |changes| Ok(changes.jobs.cancel(meant.kind())))
        .await?;
    Ok(StatusCode::NO_CONTENT)
}
