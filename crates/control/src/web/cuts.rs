//! Snapshots of volumes in several pools at one moment, and the settlement of what ended early.

use super::{
    ApiState,
    caller::Caller,
    changing::ChangeIdentity,
    group_orders::{hold, settle_now},
    group_rows::{SettledRow, Settlement},
    orders::{ChangeGuard, MeantVolume, SHOWN_WITHIN, order, pool_of, volume_of},
    problem::ApiProblem,
    rows::SnapshotRow,
    snapshots::{NewSnapshotsBody, check_note, moment_within, take},
};
use crate::{
    journal::tokens::CallerRole,
    several_pools::{SettledOnline, SharedCut, SharedCutPart, is_in_all, settle, show_settled, take_in_all},
    site::handle::PoolHandle,
};
use array::{
    format::{PoolId, SnapshotId, VolumeId},
    pool::Snapshot,
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// A snapshot of volumes of several pools that was taken, or was there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TakenCut {
    /// One for each volume, in the order of the request.
    pub snapshots: Vec<SnapshotRow>,
    /// Answers to hosts waited so long, in the pool where they waited longest; 0 if it was there, or lies in one pool.
    pub held_ms: f64,
}

/// Work that is to be settled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SettlementBody {
    /// UUIDs of the pools to ask; all that this caller may see if empty.
    #[serde(default)]
    pub pools: Vec<String>,
    /// Name of a snapshot, or of a group and a snapshot, that is not to wait for other pools: if it is pending it is removed from
    /// these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub give_up: Option<String>,
}

/// Takes a snapshot of volumes, of one pool or several, at one moment: in all pools or in none.
#[utoipa::path(post, path = "/v1/snapshots", tag = "snapshots", request_body = NewSnapshotsBody,
    responses((status = 201, description = "It was taken: a row for each volume", body = TakenCut),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Json(NewSnapshotsBody { name, note, volumes, within_ms }): Json<NewSnapshotsBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    check_note(&note)?;
    let not_after = moment_within(&api, within_ms);
    let mut meant = Vec::new();
    let mut parts: Vec<SharedCutPart> = Vec::new();
    for volume in &volumes {
        let found = volume_of(&api, &caller, volume)?;
        match parts.iter_mut().find(|part| part.pool.id == found.pool.id) {
            Some(part) => part.volumes.push(found.id()),
            None => parts.push(SharedCutPart { pool: found.pool.clone(), volumes: vec![found.id()] }),
        }
        meant.push(found);
    }
    let held_for = match &parts[..] {
        [] => return Err(ApiProblem::bad_request("volumes is empty", "name one or more")),
        [part] => {
            let guard = ChangeGuard::new(identity).by(not_after);
            take(&api, &part.pool, (part.volumes.clone(), name, note), guard).await?;
            Duration::ZERO
        }
        parts => {
            let wanted = SharedCut { name, note, uuid: identity.uuid, not_after };
            take_once_in_all(&api, parts, wanted, identity).await?
        }
    };
    let mut snapshots = Vec::new();
    for volume in &meant {
        snapshots.extend(row_of(volume, SnapshotId(identity.uuid)).await?);
    }
    let held_ms = held_for.as_secs_f64() * 1e3;
    Ok((StatusCode::CREATED, Json(TakenCut { snapshots, held_ms })).into_response())
}

/// Returns how long answers to hosts waited.
async fn take_once_in_all(
    api: &ApiState,
    parts: &[SharedCutPart],
    wanted: SharedCut,
    identity: ChangeIdentity,
) -> Result<Duration, ApiProblem> {
    let pools: Vec<PoolHandle> = parts.iter().map(|part| part.pool.clone()).collect();
    let places = hold(api, &pools).await?;
    if identity.may_be_done {
        settle_now(api, &pools).await?;
        if is_in_all(parts, identity.uuid).await? {
            return Ok(Duration::ZERO);
        }
    }
    Ok(take_in_all(parts, wanted, &places, |time| api.world.sleep(time)).await?)
}

async fn row_of(volume: &MeantVolume, snapshot: SnapshotId) -> Result<Option<SnapshotRow>, ApiProblem> {
    let found = find(&volume.pool, volume.id(), snapshot).await?;
    Ok(found.map(|found| SnapshotRow::of(&volume.id().to_string(), &found)))
}

async fn find(
    pool: &PoolHandle,
    volume: VolumeId,
    snapshot: SnapshotId,
) -> Result<Option<Snapshot>, ApiProblem> {
    order(pool, "look at snapshot", move |served| {
        Box::pin(async move {
            let snapshots = served.pool.snapshots(volume).unwrap_or_default();
            Ok(snapshots.into_iter().find(|known| known.snapshot == snapshot))
        })
    })
    .await
}

/// Finds out what became of snapshots, clones and rollbacks in several pools that ended early, and does it in all of them or in
/// none. The server does so itself when it opens pools.
#[utoipa::path(post, path = "/v1/settlement", tag = "pools", request_body = SettlementBody,
    responses((status = 200, description = "What became of each; empty if nothing waits", body = Settlement),
    (status = "default", response = ApiProblem)))]
pub(super) async fn settle_pools(
    State(api): State<ApiState>,
    caller: Caller,
    Json(SettlementBody { pools, give_up }): Json<SettlementBody>,
) -> Result<Json<Settlement>, ApiProblem> {
    caller.need(if give_up.is_some() { CallerRole::Admin } else { CallerRole::Operate })?;
    let mut asked: Vec<PoolHandle> = Vec::new();
    for pool in &pools {
        let pool = pool_of(&api, &caller, pool)?;
        if asked.iter().all(|known| known.id != pool.id) {
            asked.push(pool);
        }
    }
    if pools.is_empty() {
        let site = api.site.look();
        let seen = site.pools.values().filter(|pool| caller.sees(&pool.name) && pool.view().is_some());
        asked = seen.cloned().collect();
    }
    let _places = hold(&api, &asked).await?;
    let outcomes = settle(&asked, give_up.as_deref()).await?;
    show_settled(&asked, api.world.sleep(SHOWN_WITHIN)).await;
    Ok(Json(Settlement { settled: outcomes.into_values().map(SettledRow::from).collect() }))
}

impl From<SettledOnline> for SettledRow {
    fn from(settled: SettledOnline) -> Self {
        let SettledOnline { name, operation, outcome, waits_for } = settled;
        Self {
            name,
            operation: operation.map(Into::into),
            outcome: outcome.into(),
            waits_for: waits_for.iter().map(PoolId::to_string).collect(),
        }
    }
}
