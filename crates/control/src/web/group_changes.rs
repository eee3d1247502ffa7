//! Snapshots, clones and rollbacks of groups: in all pools of a group, or in none.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    group_orders::{HeldGroup, group_of},
    group_rows::{GroupSnapshotRow, MadeByGroup, MadeVolumeRow, TakenGroupSnapshot},
    groups::gone_before,
    orders::order,
    problem::ApiProblem,
    snapshots::check_note,
};
use crate::journal::tokens::CallerRole;
use array::{
    error::Error,
    format::{SnapshotId, VolumeId, row::IdSeed},
};
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serving::{
    pool::{
        group::HELP,
        group_change::{GroupChange, GroupChangeDone, check_unserved},
        withholding::WithholdingStatus,
    },
    uuid::parse_uuid,
};
use std::time::Duration;
use utoipa::ToSchema;

/// A snapshot of a group to take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupSnapshotBody {
    pub name: String,
    /// Text to keep with it: at most 768 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// Clones of all volumes of a group to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupClonesBody {
    /// Name of the snapshot.
    pub snapshot: String,
    /// Follows the name of each volume, to make that of its clone.
    #[schema(min_length = 1)]
    pub suffix: String,
    /// They get a copy of all data, and share nothing afterwards.
    #[serde(default)]
    pub independent: bool,
}

/// The goal of a rollback of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GroupRollbackBody {
    /// Name of the snapshot.
    pub snapshot: String,
    /// Although volumes are served: they are withheld from their clients until they have let go of what they cached.
    #[serde(default)]
    pub force: bool,
}

/// Takes a snapshot of all volumes of a group at one moment. If there is one of this name and note, that is the answer.
#[utoipa::path(post, path = "/v1/groups/{group}/snapshots", tag = "groups", request_body = NewGroupSnapshotBody,
    params(("group" = String, Path, description = "UUID")),
    responses((status = 201, description = "It was taken", body = TakenGroupSnapshot),
    (status = 200, description = "It was there", body = TakenGroupSnapshot), (status = "default", response = ApiProblem)))]
pub(super) async fn take_snapshot(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(group): Path<String>,
    Json(NewGroupSnapshotBody { name, note }): Json<NewGroupSnapshotBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    check_note(&note)?;
    let meant = group_of(&api, &caller, &group)?;
    let mut held = meant.hold(&api, &caller, identity).await?;
    if held.has_happened(identity.uuid) {
        return Ok((StatusCode::CREATED, Json(taken(&held, identity, Duration::ZERO)?)).into_response());
    }
    if let Some(id) = same_snapshot(&held, &name, &note) {
        let known = ChangeIdentity { uuid: id.0, ..identity };
        return Ok((StatusCode::OK, Json(taken(&held, known, Duration::ZERO)?)).into_response());
    }
    let done = held.change(&api, ("snapshot group", identity), GroupChange::Snapshot { name, note }).await?;
    let held_for = done.iter().flatten().map(|done| done.held).max().unwrap_or_default();
    Ok((StatusCode::CREATED, Json(taken(&held, identity, held_for)?)).into_response())
}

/// The snapshot of this name and note, if all pools have it.
fn same_snapshot(held: &HeldGroup, name: &str, note: &str) -> Option<SnapshotId> {
    let of_part = |snapshots: &[array::pool::GroupSnapshot]| {
        let same = |known: &&array::pool::GroupSnapshot| {
            known.name == name && known.note == note.as_bytes() && known.cut.is_none()
        };
        snapshots.iter().find(same).map(|known| known.snapshot)
    };
    let mut all = held.parts.iter().map(|(_, sighting)| of_part(&sighting.info.snapshots));
    let first = all.next()??;
    all.all(|other| other == Some(first)).then_some(first)
}

fn taken(
    held: &HeldGroup,
    identity: ChangeIdentity,
    held_for: Duration,
) -> Result<TakenGroupSnapshot, ApiProblem> {
    let mut all = held.parts.iter().flat_map(|(_, sighting)| &sighting.info.snapshots);
    let found = all.find(|known| known.snapshot == SnapshotId(identity.uuid));
    let found = found.ok_or_else(|| ApiProblem::not_found("the snapshot was taken, and is gone already"))?;
    Ok(TakenGroupSnapshot {
        snapshot: GroupSnapshotRow::of(found),
        volumes: held.parts.iter().map(|(_, sighting)| sighting.members.len()).sum(),
        held_ms: held_for.as_secs_f64() * 1e3,
    })
}

/// Deletes a snapshot of a group in all its pools, if it is not served.
#[utoipa::path(delete, path = "/v1/groups/{group}/snapshots/{snapshot}", tag = "groups",
    params(("group" = String, Path, description = "UUID"), ("snapshot" = String, Path, description = "UUID")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete_snapshot(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    Path((group, snapshot)): Path<(String, String)>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = match group_of(&api, &caller, &group) {
        Ok(meant) => meant,
        Err(problem) => return gone_before(&api, (identity, &first_seen), problem),
    };
    let held = meant.hold(&api, &caller, identity).await?;
    let wanted = parse_uuid(&snapshot).ok().map(SnapshotId);
    let mut all = held.parts.iter().flat_map(|(_, sighting)| &sighting.info.snapshots);
    let Some(known) = all.find(|known| Some(known.snapshot) == wanted) else {
        let missing = ApiProblem::not_found(format!("group {:?} has no snapshot {snapshot}", held.name()));
        return gone_before(&api, (identity, &first_seen), missing);
    };
    let (group, id, name) = (held.id, known.snapshot, known.name.clone());
    // In all pools before the first is changed.
    for (pool, sighting) in &held.parts {
        let (sighting, name) = (sighting.clone(), name.clone());
        order(pool, "look at snapshot", move |served| {
            Box::pin(async move { Ok(check_unserved(&served.exports.changeable(), &sighting, (&name, id))?) })
        })
        .await?;
    }
    held.in_each_pool(&api, "delete group snapshot", move |served| {
        Box::pin(async move {
            match served.pool.delete_group_snapshot(group, id).await {
                Ok(()) | Err(Error::NoGroupSnapshot { .. } | Error::NoGroup(_)) => Ok(()),
                Err(error) => Err(served.exports.changeable().refusal(&error, HELP).into()),
            }
        })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes a clone of each volume of a group, from a snapshot.
#[utoipa::path(post, path = "/v1/groups/{group}/clones", tag = "groups", request_body = NewGroupClonesBody,
    params(("group" = String, Path, description = "UUID")),
    responses((status = 201, description = "The clones; those that are to be independent are being filled", body = MadeByGroup),
    (status = "default", response = ApiProblem)))]
pub(super) async fn clone(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(group): Path<String>,
    Json(NewGroupClonesBody { snapshot, suffix, independent }): Json<NewGroupClonesBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = group_of(&api, &caller, &group)?;
    let mut held = meant.hold(&api, &caller, identity).await?;
    let done = match held.has_happened(identity.uuid) {
        true => None,
        false => {
            let snapshot = held.snapshot_named(&snapshot)?;
            let wanted = GroupChange::Clone { snapshot, suffix, is_independent: independent };
            held.change(&api, ("clone group", identity), wanted).await?
        }
    };
    Ok((StatusCode::CREATED, Json(made(&held, identity, done))).into_response())
}

/// Takes all volumes of a group back to a snapshot, and keeps their present state as other volumes.
#[utoipa::path(post, path = "/v1/groups/{group}/rollback", tag = "groups", request_body = GroupRollbackBody,
    params(("group" = String, Path, description = "UUID"), ("If-Match" = Option<String>, Header, description = "ETag that it must have")),
    responses((status = 200, description = "What was done, and what undoes it", body = MadeByGroup),
    (status = "default", response = ApiProblem)))]
pub(super) async fn roll_back(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(group): Path<String>,
    Json(GroupRollbackBody { snapshot, force }): Json<GroupRollbackBody>,
) -> Result<Json<MadeByGroup>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = group_of(&api, &caller, &group)?;
    let mut held = meant.hold(&api, &caller, identity).await?;
    if held.has_happened(identity.uuid) {
        return Ok(Json(made(&held, identity, None)));
    }
    held.check_expected(&headers, (identity, &first_seen))?;
    let snapshot = held.snapshot_named(&snapshot)?;
    let wanted = GroupChange::RollBack { snapshot, is_forced: force };
    let done = held.change(&api, ("roll back group", identity), wanted).await?;
    Ok(Json(made(&held, identity, done)))
}

/// Volumes that a change has made, as it said, or as the pools have it since.
fn made(held: &HeldGroup, identity: ChangeIdentity, done: Option<Vec<GroupChangeDone>>) -> MadeByGroup {
    let mut rows = Vec::new();
    for (index, (pool, sighting)) in held.parts.iter().enumerate() {
        let done = done.as_ref().map(|done| &done[index]);
        let row = |volume: &str, made: &str| {
            let id = held.volume_named(pool.id, volume).unwrap_or(VolumeId([0; 16]));
            MadeVolumeRow {
                pool: pool.name.clone(),
                pool_id: pool.id.to_string(),
                volume: volume.to_owned(),
                volume_id: id.to_string(),
                made: made.to_owned(),
                made_id: IdSeed(identity.uuid).volume_of(id).to_string(),
                withheld_from: Vec::new(),
                withheld_from_nbd: false,
            }
        };
        match done {
            Some(done) => rows.extend(done.made.iter().map(|one| MadeVolumeRow {
                withheld_from: one.withheld.initiators.clone(),
                withheld_from_nbd: one.withheld.nbd,
                ..row(&one.volume, &one.made)
            })),
            None => rows.extend(sighting.made.iter().map(|one| {
                let member = sighting.members.iter().find(|member| member.name == one.volume);
                let withheld = member.and_then(|member| WithholdingStatus::of(&member.withheld_from));
                MadeVolumeRow {
                    withheld_from: withheld.as_ref().map(|one| one.initiators.clone()).unwrap_or_default(),
                    withheld_from_nbd: withheld.is_some_and(|one| one.nbd),
                    ..row(&one.volume, &one.made)
                }
            })),
        }
    }
    MadeByGroup { made: rows }
}
