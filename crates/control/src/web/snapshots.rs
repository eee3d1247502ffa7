//! Snapshots of volumes.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    orders::{ChangeGuard, MeantVolume, change, pool_of, read_order, volume_of},
    problem::ApiProblem,
    rows::{SnapshotPage, SnapshotRow},
    space::{AGE_USUAL, as_of, counted_space},
    volumes::{gone_before, page_rows},
};
use crate::{
    journal::tokens::CallerRole, order::map_rows, sets::locks::check_unlocked, site::handle::PoolHandle,
    space_counter::CountedSpace,
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::Snapshot,
};
use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use protect::{ScheduleMark, catalogue::PointNote};
use serde::{Deserialize, Serialize};
use serving::{
    pool::volume_change::{SnapshotRef, VolumeChange, VolumeRef},
    uuid::parse_uuid,
};
use std::{collections::BTreeMap, time::Duration};
use utoipa::{IntoParams, ToSchema};
use world::Moment;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotFilter {
    /// Name of the snapshot.
    name: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Most rows of the page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
    /// Count what deleting each snapshot would free; see `space` of a volume.
    exact_space: Option<bool>,
    /// Give an earlier count again if it is younger than this; 60 if left out, 0 counts anew.
    #[param(minimum = 0)]
    max_age_seconds: Option<u32>,
}

/// A snapshot to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshotBody {
    pub name: String,
    /// Text to keep with it: at most 768 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A snapshot of several volumes of a pool, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshotsBody {
    pub name: String,
    /// Text to keep with it: at most 768 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// UUIDs of the volumes.
    #[schema(min_items = 1)]
    pub volumes: Vec<String>,
    /// Milliseconds, from the request's arrival on, within which the pools must begin: an application waits. None begins
    /// later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub within_ms: Option<u64>,
}

/// Lists the snapshots of a volume, oldest first.
#[utoipa::path(get, path = "/v1/volumes/{volume}/snapshots", tag = "snapshots",
    params(("volume" = String, Path, description = "UUID"), SnapshotFilter),
    responses((status = 200, description = "A page", body = SnapshotPage), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Path(volume): Path<String>,
    Query(filter): Query<SnapshotFilter>,
) -> Result<Json<SnapshotPage>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let limit = page_rows(filter.limit)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let mut all = rows(&api, &meant).await?;
    all.retain(|row| filter.name.as_ref().is_none_or(|name| row.name == *name));
    let first = match &filter.after {
        // One that is gone meanwhile: the page begins again, rather than to leave rows out.
        Some(after) => all.iter().position(|row| row.id == *after).map_or(0, |index| index + 1),
        None => 0,
    };
    let has_more = all.len() - first > limit;
    let mut snapshots: Vec<SnapshotRow> = all.into_iter().skip(first).take(limit).collect();
    let last = snapshots.last().filter(|_| has_more);
    let next = last.map(|row| row.id.clone());
    let space_as_of = match filter.exact_space {
        Some(true) => Some(add_space(&api, &meant, filter.max_age_seconds, &mut snapshots).await?),
        _ => None,
    };
    Ok(Json(SnapshotPage { snapshots, space_as_of, next }))
}

/// Adds to rows what deleting each snapshot would free. Returns when that was counted.
async fn add_space(
    api: &ApiState,
    meant: &MeantVolume,
    max_age_seconds: Option<u32>,
    rows: &mut [SnapshotRow],
) -> Result<String, ApiProblem> {
    let age_max = max_age_seconds.map_or(AGE_USUAL, |seconds| Duration::from_secs(seconds.into()));
    let mut counted = counted_space(api, meant, age_max).await?;
    let by_id = |counted: &CountedSpace| -> BTreeMap<String, u64> {
        let snapshots = counted.space.snapshots.iter();
        snapshots.map(|space| (space.snapshot.to_string(), space.reclaimable_bytes)).collect()
    };
    let mut known = by_id(&counted);
    // The earlier count may be from before a snapshot that is listed.
    if rows.iter().any(|row| !known.contains_key(&row.id)) {
        counted = counted_space(api, meant, Duration::ZERO).await?;
        known = by_id(&counted);
    }
    rows.iter_mut().for_each(|row| row.reclaimable_bytes = known.get(&row.id).copied());
    Ok(as_of(&counted))
}

/// All snapshots of a volume, asked of its pool.
async fn rows(api: &ApiState, meant: &MeantVolume) -> Result<Vec<SnapshotRow>, ApiProblem> {
    let id = meant.id();
    let missing = ApiProblem::not_found(format!("there is no volume {id}"));
    read_order(api, &meant.pool, "list snapshots", move |served| {
        Box::pin(async move {
            let snapshots = served.pool.snapshots(id).map_err(|_| missing)?;
            let volume = id.to_string();
            Ok(map_rows(&served.world, snapshots, |snapshot: Snapshot| SnapshotRow::of(&volume, &snapshot))
                .await)
        })
    })
    .await
}

/// Takes a snapshot of a volume. If there is one of this name and note, that is the answer.
#[utoipa::path(post, path = "/v1/volumes/{volume}/snapshots", tag = "snapshots", request_body = NewSnapshotBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 201, description = "It was taken", body = SnapshotRow), (status = 200, description = "It was there", body = SnapshotRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<NewSnapshotBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    check_note(&body.note)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let known = rows(&api, &meant).await?.into_iter().find(|row| row.name == body.name);
    if let Some(row) = known
        && row.note.clone().unwrap_or_default() == body.note
    {
        let is_own = row.id == SnapshotId(identity.uuid).to_string();
        let status = if is_own { StatusCode::CREATED } else { StatusCode::OK };
        return Ok((status, Json(row)).into_response());
    }
    let taken =
        take(&api, &meant.pool, (vec![meant.id()], body.name, body.note), ChangeGuard::new(identity)).await?;
    let row = rows(&api, &meant).await?.into_iter().find(|row| row.id == taken);
    let row = row.ok_or_else(|| ApiProblem::not_found("the snapshot was taken, and is gone already"))?;
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

/// Takes a snapshot of several volumes of a pool, at one moment.
#[utoipa::path(post, path = "/v1/pools/{pool}/snapshots", tag = "snapshots", request_body = NewSnapshotsBody,
    params(("pool" = String, Path, description = "UUID")),
    responses((status = 201, description = "It was taken: a row for each volume", body = SnapshotPage),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create_of_volumes(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
    Json(NewSnapshotsBody { name, note, volumes, within_ms }): Json<NewSnapshotsBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    check_note(&note)?;
    let not_after = moment_within(&api, within_ms);
    let pool = pool_of(&api, &caller, &pool)?;
    let mut meant = Vec::new();
    for volume in &volumes {
        let found = volume_of(&api, &caller, volume)?;
        if found.pool.id != pool.id {
            let problem = format!("volume {volume} is in pool {}", found.pool.name);
            return Err(ApiProblem::bad_request(problem, "name volumes of this pool"));
        }
        meant.push(found);
    }
    if meant.is_empty() {
        return Err(ApiProblem::bad_request("volumes is empty", "name one or more"));
    }
    let ids = meant.iter().map(MeantVolume::id).collect();
    let guard = ChangeGuard::new(identity).by(not_after);
    let taken = take(&api, &pool, (ids, name, note), guard).await?;
    let mut snapshots = Vec::new();
    for volume in &meant {
        snapshots.extend(rows(&api, volume).await?.into_iter().filter(|row| row.id == taken));
    }
    Ok((StatusCode::CREATED, Json(SnapshotPage { snapshots, space_as_of: None, next: None })).into_response())
}

/// A snapshot of a volume, asked of its pool; `None` if there is none of this identity.
async fn find(
    api: &ApiState,
    meant: &MeantVolume,
    snapshot: Option<SnapshotId>,
) -> Result<Option<Snapshot>, ApiProblem> {
    let volume = meant.id();
    read_order(api, &meant.pool, "look at snapshot", move |served| {
        Box::pin(async move {
            let snapshots = served.pool.snapshots(volume).unwrap_or_default();
            Ok(snapshots.into_iter().find(|known| Some(known.snapshot) == snapshot))
        })
    })
    .await
}

/// Refuses a note by which a schedule knows its own snapshots: it would prune this one, and count it.
pub(super) fn check_note(note: &str) -> Result<(), ApiProblem> {
    match ScheduleMark::of_note(note.as_bytes()) {
        None => Ok(()),
        Some(_) => Err(ApiProblem::bad_request(
            format!("note {note:?} is that of a schedule, which prunes snapshots with it"),
            "send another note",
        )),
    }
}

/// The moment until which pools may begin.
pub(super) fn moment_within(api: &ApiState, within_ms: Option<u64>) -> Option<Moment> {
    // Nobody waits for a year.
    within_ms.map(|ms| api.world.now() + Duration::from_millis(ms.min(366 * 86_400_000)))
}

/// Returns the UUID of the snapshot.
pub(super) async fn take(
    api: &ApiState,
    pool: &PoolHandle,
    (volumes, name, note): (Vec<VolumeId>, String, String),
    guard: ChangeGuard,
) -> Result<String, ApiProblem> {
    let volumes = volumes.into_iter().map(VolumeRef::Id).collect();
    let wanted = VolumeChange::Snapshot { volumes, name, note };
    let uuid = guard.uuid();
    change(api, pool, "take snapshot", (wanted, guard)).await?;
    Ok(SnapshotId(uuid).to_string())
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SnapshotOwner {
    /// Identity of a set, as in the notes of its backups: a snapshot that is none of this set's is not deleted.
    set: Option<String>,
}

/// Deletes a snapshot that is not served. Takes the role admin; operate if it is of the backups of the set that is named.
#[utoipa::path(delete, path = "/v1/volumes/{volume}/snapshots/{snapshot}", tag = "snapshots",
    params(("volume" = String, Path, description = "UUID"), ("snapshot" = String, Path, description = "UUID"), SnapshotOwner),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    Path((volume, snapshot)): Path<(String, String)>,
    Query(SnapshotOwner { set }): Query<SnapshotOwner>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(if set.is_some() { CallerRole::Operate } else { CallerRole::Admin })?;
    let meant = volume_of(&api, &caller, &volume)?;
    let wanted = parse_uuid(&snapshot).ok().map(SnapshotId);
    let Some(found) = find(&api, &meant, wanted).await? else {
        let missing = ApiProblem::not_found(format!("volume {volume} has no snapshot {snapshot}"));
        return gone_before(&api, (identity, &first_seen), missing);
    };
    let note = PointNote::decode(&found.note).ok().flatten();
    if let Some(set) = &set
        && note.as_ref().is_none_or(|note| note.set.to_string() != *set)
    {
        let problem = format!("snapshot {} is of no backup of the set {set}", found.name);
        return Err(ApiProblem::bad_request(problem, "leave set out, as an administrator"));
    }
    check_unlocked(&api.site.sets(), (meant.id(), &found), api.world.unix_s())
        .map_err(|refusal| ApiProblem::refused(&refusal))?;
    let (volume, snapshot) = (VolumeRef::Id(meant.id()), SnapshotRef::Id(found.snapshot));
    let wanted = VolumeChange::DeleteSnapshot { volume, snapshot };
    change(&api, &meant.pool, "delete snapshot", (wanted, ChangeGuard::new(identity))).await?;
    Ok(StatusCode::NO_CONTENT)
}
