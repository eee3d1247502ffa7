//! Volumes.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    orders::{
        ChangeEnd, ChangeGuard, MeantVolume, change, has_stopped_pools, made_before, order, pool_of, row_of,
        volume_of,
    },
    problem::ApiProblem,
    rows::{RollbackRow, VolumeEntry, VolumePage},
};
use crate::{
    journal::tokens::CallerRole,
    site::{file_merge::served_names, handle::PoolHandle, moved_volumes::follow_known, server::parse},
    view::{PoolView, VolumeView},
};
use array::format::VolumeId;
use axum::{
    Json,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use plan::site::Site;
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::{
    export::readers_clone_of,
    pool::{
        limits::LimitChange,
        volume_change::{RollbackTo, SnapshotRef, VolumeChange, VolumeDone, VolumeOutcome, VolumeRef},
        withholding::{ReadmissionAnswer, ReadmittedClients, WithholdingStatus},
    },
};
use utoipa::{IntoParams, ToSchema};
use world::ByteCount;

/// Most rows of a page.
pub(super) const PAGE_ROWS_MAX: usize = 5000;
const PAGE_ROWS_USUAL: usize = 1000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct VolumeFilter {
    /// UUID of the pool.
    pool: Option<String>,
    /// Name of the volume.
    name: Option<String>,
    /// Part of `POOL/VOLUME`, in letters of either case.
    search: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Most rows of the page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
}

/// A volume to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolumeBody {
    pub name: String,
    /// A multiple of 512.
    #[schema(minimum = 512)]
    pub size_bytes: u64,
    /// Writes are acknowledged before they are stable.
    #[serde(default)]
    pub write_cache: bool,
    /// Older data has one copy.
    #[serde(default)]
    pub raid0: bool,
    /// Most space of the volume and its snapshots, a multiple of 4096; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(multiple_of = 4096)]
    pub limit_bytes: Option<u64>,
    /// Space that is kept for the volume, a multiple of 4096; 0 is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(multiple_of = 4096)]
    pub reserve_bytes: Option<u64>,
    /// Most operations a second; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u32>,
    /// Most KiB a second; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kib_per_second_max: Option<u32>,
}

/// One change of a volume: another name, another size, or settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumePatch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A multiple of 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The new size may be smaller: what lies behind it is lost.
    #[serde(default)]
    pub may_shrink: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Most space of the volume and its snapshots, a multiple of 4096; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(multiple_of = 4096)]
    pub limit_bytes: Option<u64>,
    /// Space that is kept for the volume, a multiple of 4096; 0 is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(multiple_of = 4096)]
    pub reserve_bytes: Option<u64>,
    /// Most operations a second; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u32>,
    /// Most KiB a second; 0 is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kib_per_second_max: Option<u32>,
}

/// A clone to make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCloneBody {
    pub name: String,
    /// Name of the snapshot; without it, the volume as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// It gets a copy of all data, and shares nothing afterwards.
    #[serde(default)]
    pub independent: bool,
}

/// The goal of a rollback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollbackBody {
    /// Name of the snapshot. Without one, or another volume, the path names what an earlier rollback left, and its volume is
    /// rolled back to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Name of another volume of the pool, such as a clone, which takes the place of this one, and is no volume of its own any
    /// more then. It has no snapshots, and is not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_volume: Option<String>,
    /// Although it is served: it is withheld from its clients until they have let go of what they cached.
    #[serde(default)]
    pub force: bool,
}

/// Clients to be readmitted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadmissionBody {
    /// iSCSI names.
    #[serde(default)]
    pub initiators: Vec<String>,
    /// All NBD clients.
    #[serde(default)]
    pub nbd: bool,
    /// All clients.
    #[serde(default)]
    pub all: bool,
}

/// Clients that were readmitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadmissionRow {
    pub initiators: Vec<String>,
    pub nbd: bool,
}

/// Bounds in bytes, limit and reserve; and rates, operations and KiB a second.
fn limit_change(
    (limit, reserve): (Option<u64>, Option<u64>),
    (iops_max, kib_per_second_max): (Option<u32>, Option<u32>),
) -> LimitChange {
    let (limit, reserve) = (limit.map(ByteCount), reserve.map(ByteCount));
    LimitChange { limit, reserve, iops_max, kib_per_second_max }
}

impl NewVolumeBody {
    fn limits(&self) -> LimitChange {
        limit_change((self.limit_bytes, self.reserve_bytes), (self.iops_max, self.kib_per_second_max))
    }

    /// True if a volume is as this one would be.
    pub(super) fn is(&self, row: &VolumeEntry) -> bool {
        let limits = (self.limit_bytes, self.reserve_bytes, self.iops_max, self.kib_per_second_max);
        let (limit, reserve, iops, kib_per_second) = limits;
        (row.size_bytes, row.write_cache, row.raid0) == (self.size_bytes, self.write_cache, self.raid0)
            && (row.limit_bytes, row.reserve_bytes) == (limit.unwrap_or(0), reserve.unwrap_or(0))
            && (row.iops_max, row.kib_per_second_max) == (iops.unwrap_or(0), kib_per_second.unwrap_or(0))
    }
}

impl VolumePatch {
    /// True if a volume is already as this asks for.
    fn is_done(&self, row: &VolumeEntry) -> bool {
        let is = |wanted: Option<u64>, now| wanted.is_none_or(|wanted| wanted == now);
        self.name.as_ref().is_none_or(|name| *name == row.name)
            && is(self.size_bytes, row.size_bytes)
            && self.write_cache.is_none_or(|is_on| is_on == row.write_cache)
            && is(self.limit_bytes, row.limit_bytes)
            && is(self.reserve_bytes, row.reserve_bytes)
            && is(self.iops_max.map(u64::from), row.iops_max.into())
            && is(self.kib_per_second_max.map(u64::from), row.kib_per_second_max.into())
    }

    /// The change of a volume; `None` if it is none, or several.
    fn change(self, volume: VolumeRef) -> Option<VolumeChange> {
        let limits =
            limit_change((self.limit_bytes, self.reserve_bytes), (self.iops_max, self.kib_per_second_max));
        let Self { name, size_bytes, may_shrink, write_cache, .. } = self;
        let has_settings = write_cache.is_some() || limits != LimitChange::default();
        match (name, size_bytes, has_settings) {
            (Some(name), None, false) if !may_shrink => Some(VolumeChange::Rename { volume, name }),
            (None, Some(size_bytes), false) => Some(VolumeChange::Resize { volume, size_bytes, may_shrink }),
            (None, None, true) if !may_shrink => Some(VolumeChange::Set { volume, limits, write_cache }),
            _ => None,
        }
    }
}

/// Lists volumes, by pool and name.
#[utoipa::path(get, path = "/v1/volumes", tag = "volumes", params(VolumeFilter),
    responses((status = 200, description = "A page", body = VolumePage), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<VolumeFilter>,
) -> Result<Json<VolumePage>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let limit = page_rows(filter.limit)?;
    let only = filter.pool.as_deref().map(|pool| pool_of(&api, &caller, pool)).transpose()?;
    let site = api.site.look();
    let search = filter.search.as_ref().map(|search| search.trim().to_lowercase());
    let mut volumes = Vec::new();
    let wanted =
        |pool: &&PoolHandle| caller.sees(&pool.name) && only.as_ref().is_none_or(|only| only.id == pool.id);
    for pool in site.pools.values().filter(wanted) {
        let (view, id) = (pool.last_view(), pool.id.to_string());
        let rows =
            view.volumes.iter().filter(|volume| filter.name.as_ref().is_none_or(|name| volume.name == *name));
        let rows =
            rows.filter(|volume| search.as_ref().is_none_or(|search| has(&pool.name, &volume.name, search)));
        // Pools and volumes are in the order of their names.
        let rows = rows.filter(|volume| {
            filter
                .after
                .as_ref()
                .is_none_or(|after| (pool.name.as_str(), volume.name.as_str()) > split(after))
        });
        volumes.extend(rows.take(limit + 1 - volumes.len()).map(|volume| VolumeEntry {
            shows_replica_of: shown_replica(&view, volume.volume),
            ..VolumeEntry::of((&pool.name, &id), volume)
        }));
        if volumes.len() > limit {
            break;
        }
    }
    let has_more = volumes.len() > limit;
    volumes.truncate(limit);
    let last = volumes.last().filter(|_| has_more);
    let next = last.map(|row| format!("{}/{}", row.pool, row.name));
    let is_incomplete = only.is_none() && has_stopped_pools(&site);
    Ok(Json(VolumePage { volumes, is_incomplete, next }))
}

/// True if the whole name of a volume has a part in small letters.
fn has(pool: &str, volume: &str, search: &str) -> bool {
    format!("{pool}/{volume}").to_lowercase().contains(search)
}

/// Name of the volume of a DR group whose readers a clone is kept for.
fn shown_replica(view: &PoolView, clone: VolumeId) -> Option<String> {
    let volume = readers_clone_of(clone);
    let is_of_group = view.dr.groups.iter().any(|group| group.volumes.contains(&volume));
    let found = view.volumes.iter().find(|known| is_of_group && known.volume == volume);
    found.map(|known| known.name.clone())
}

fn split(after: &str) -> (&str, &str) {
    after.split_once('/').unwrap_or((after, ""))
}

/// The rows of a page that asked for `limit`.
pub(super) fn page_rows(limit: Option<usize>) -> Result<usize, ApiProblem> {
    match limit.unwrap_or(PAGE_ROWS_USUAL) {
        rows @ 1..=PAGE_ROWS_MAX => Ok(rows),
        _ => Err(ApiProblem::bad_request(format!("limit is from 1 to {PAGE_ROWS_MAX}"), "ask for pages")),
    }
}

/// Shows a volume, with its ETag.
#[utoipa::path(get, path = "/v1/volumes/{volume}", tag = "volumes", params(("volume" = String, Path, description = "UUID")),
    responses((status = 200, description = "The volume", body = VolumeEntry), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(volume): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(volume_of(&api, &caller, &volume)?.row().tagged(StatusCode::OK))
}

/// Creates a volume. If there is one of this name, size and settings, that is the answer.
#[utoipa::path(post, path = "/v1/pools/{pool}/volumes", tag = "volumes", request_body = NewVolumeBody,
    params(("pool" = String, Path, description = "UUID")),
    responses((status = 201, description = "It was created", body = VolumeEntry), (status = 200, description = "It was there", body = VolumeEntry),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
    Json(body): Json<NewVolumeBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    if let Some(made) = made_before(&api, &caller, identity) {
        return Ok(made.row().tagged(StatusCode::CREATED));
    }
    let pool = pool_of(&api, &caller, &pool)?;
    let (limits, guard) = (body.limits(), ChangeGuard::of_new(identity, &body));
    let NewVolumeBody { name, size_bytes, write_cache, raid0, .. } = body;
    let wanted = VolumeChange::Create { name, size_bytes, write_cache, raid0, limits };
    let end = change(&api, &pool, "create volume", (wanted, guard)).await?;
    let status = match &end {
        ChangeEnd::Before(volume) if volume.volume != VolumeId(identity.uuid) => StatusCode::OK,
        _ => StatusCode::CREATED,
    };
    Ok(end.row(&pool).tagged(status))
}

/// Renames a volume, changes its size, or its settings: one of these at a time.
#[utoipa::path(patch, path = "/v1/volumes/{volume}", tag = "volumes", request_body = VolumePatch,
    params(("volume" = String, Path, description = "UUID"), ("If-Match" = Option<String>, Header, description = "ETag that it must have")),
    responses((status = 200, description = "The volume afterwards", body = VolumeEntry), (status = "default", response = ApiProblem)))]
pub(super) async fn patch(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(volume): Path<String>,
    Json(body): Json<VolumePatch>,
) -> Result<Response, ApiProblem> {
    caller.need(if body.may_shrink { CallerRole::Admin } else { CallerRole::Operate })?;
    let meant = volume_of(&api, &caller, &volume)?;
    // An earlier request with this key may have done it, and the tag is another since; or it has the name that it is to get.
    if (identity.may_be_done || body.name.is_some()) && body.is_done(&meant.row()) {
        return Ok(meant.row().tagged(StatusCode::OK));
    }
    let is_rename = body.name.is_some();
    let wanted = body.change(VolumeRef::Id(meant.id())).ok_or_else(|| {
        let problem = "a request changes the name, the size (with may_shrink) or settings: one of these";
        ApiProblem::bad_request(problem, "send a request for each")
    })?;
    if is_rename {
        check_file_lacks(&api, &meant)?;
    }
    let guard = ChangeGuard::of((identity, first_seen), &headers, meant.id())?;
    let end = change(&api, &meant.pool, "change volume", (wanted, guard)).await?;
    Ok(end.row(&meant.pool).tagged(StatusCode::OK))
}

/// Deletes a volume without snapshots that is not served.
#[utoipa::path(delete, path = "/v1/volumes/{volume}", tag = "volumes",
    params(("volume" = String, Path, description = "UUID"), ("If-Match" = Option<String>, Header, description = "ETag that it must have")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(volume): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = match volume_of(&api, &caller, &volume) {
        Ok(meant) => meant,
        Err(problem) => return gone_before(&api, (identity, &first_seen), problem),
    };
    check_file_lacks(&api, &meant)?;
    let guard = ChangeGuard::of((identity, first_seen), &headers, meant.id())?;
    let wanted = VolumeChange::Delete { volume: VolumeRef::Id(meant.id()) };
    change(&api, &meant.pool, "delete volume", (wanted, guard)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a volume that verbs have unserved, and that the site file serves: a start with that file would make an empty one.
fn check_file_lacks(api: &ApiState, meant: &MeantVolume) -> Result<(), ApiProblem> {
    let file = api.journal.applied_file()?;
    // One that cannot be read is refused at the next start.
    let Some(mut site) = file.and_then(|text| parse(&text).ok()) else { return Ok(()) };
    follow_known(&mut site, &api.journal.moved_volumes()?);
    let is_meant =
        |volume: &plan::site::Volume| volume.group == meant.pool.name && volume.name == meant.volume.name;
    let serves =
        |site: &Site| served_names(site).iter().any(|name| site.served_volume(name).is_some_and(is_meant));
    // The pool refuses what is served still.
    if serves(&api.site.look().site) || !serves(&site) {
        return Ok(());
    }
    let problem = format!("the site file serves {}/{}", meant.pool.name, meant.volume.name);
    let next =
        "apply a file without it first: once verbs have taken away what serves it, 'spindle site' prints one";
    Err(ApiProblem::new(StatusCode::CONFLICT, "refused", &Refusal::new(problem, next)))
}

/// The answer for something that is not there: an earlier request with the same key may have deleted it.
pub(super) fn gone_before(
    api: &ApiState,
    (identity, FirstSeen(first)): (ChangeIdentity, &FirstSeen),
    problem: ApiProblem,
) -> Result<StatusCode, ApiProblem> {
    let Some(first) = first.as_ref().filter(|_| identity.may_be_done) else { return Err(problem) };
    let site = api.site.look();
    let pool = site.pools.values().find(|pool| pool.id.to_string() == first.pool);
    if pool.is_some_and(|pool| pool.view().is_some()) {
        return Ok(StatusCode::NO_CONTENT);
    }
    let refusal = Refusal::new("its pool is not open: it may be there still", "try again when it is open");
    Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "pool-stopped", &refusal))
}

/// Makes a clone of a volume or of one of its snapshots.
#[utoipa::path(post, path = "/v1/volumes/{volume}/clones", tag = "volumes", request_body = NewCloneBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 201, description = "The clone; one that is to be independent is being filled", body = VolumeEntry),
    (status = "default", response = ApiProblem)))]
pub(super) async fn clone(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<NewCloneBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    if let Some(made) = made_before(&api, &caller, identity) {
        return Ok(made.row().tagged(StatusCode::CREATED));
    }
    let meant = volume_of(&api, &caller, &volume)?;
    let NewCloneBody { name, snapshot, independent } = body;
    let (source, snapshot) = (VolumeRef::Id(meant.id()), snapshot.map(SnapshotRef::Name));
    let wanted = VolumeChange::Clone { source, snapshot, name, is_independent: independent };
    let end = change(&api, &meant.pool, "clone volume", (wanted, ChangeGuard::new(identity))).await?;
    Ok(end.row(&meant.pool).tagged(StatusCode::CREATED))
}

/// Takes a volume back to a snapshot, and keeps its present state as another volume.
#[utoipa::path(post, path = "/v1/volumes/{volume}/rollback", tag = "volumes", request_body = RollbackBody,
    params(("volume" = String, Path, description = "UUID"), ("If-Match" = Option<String>, Header, description = "ETag that it must have")),
    responses((status = 200, description = "What was done, and what undoes it", body = RollbackRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn roll_back(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(volume): Path<String>,
    Json(body): Json<RollbackBody>,
) -> Result<Json<RollbackRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    if let Some(left) = made_before(&api, &caller, identity) {
        return rolled_back_before(&left).await;
    }
    let meant = volume_of(&api, &caller, &volume)?;
    let to = match (body.snapshot, body.to_volume) {
        (Some(_), Some(_)) => {
            let problem = "a rollback goes to a snapshot or to a volume, not to both";
            return Err(ApiProblem::bad_request(problem, "leave one of them out"));
        }
        (Some(snapshot), None) => RollbackTo::Snapshot(SnapshotRef::Name(snapshot)),
        (None, Some(other)) => RollbackTo::Volume(VolumeRef::Name(other)),
        (None, None) => RollbackTo::Left,
    };
    let volume = VolumeRef::Id(meant.id());
    let wanted = VolumeChange::RollBack { volume, to, is_forced: body.force };
    let guard = ChangeGuard::of((identity, first_seen), &headers, meant.id())?;
    let done = match change(&api, &meant.pool, "roll back volume", (wanted, guard)).await? {
        ChangeEnd::Now(done) => done,
        ChangeEnd::Before(left) => {
            let left = MeantVolume { pool: meant.pool, volume: VolumeView::of(left) };
            return rolled_back_before(&left).await;
        }
    };
    let VolumeOutcome::RolledBack(outcome) = done.outcome else { unreachable!("a rollback was asked for") };
    Ok(Json(RollbackRow {
        volume: VolumeEntry { notes: done.notes, ..row_of(&meant.pool, done.volume) },
        size_before_bytes: outcome.bytes_before,
        left: outcome.left_name,
        left_id: outcome.left.to_string(),
        withheld_from: outcome.withheld.initiators,
        withheld_from_nbd: outcome.withheld.nbd,
    }))
}

/// The answer to a rollback that an earlier request with the same key has done, and which left this volume.
async fn rolled_back_before(left: &MeantVolume) -> Result<Json<RollbackRow>, ApiProblem> {
    let row = left.row();
    let now =
        left.pool.last_view().volumes.iter().find(|known| Some(&known.name) == row.left_by.as_ref()).cloned();
    let now = now.ok_or_else(|| ApiProblem::not_found(format!("the volume that left {}", row.name)))?;
    let id = now.volume;
    let withheld = order(&left.pool, "look at withholding", move |served| {
        Box::pin(async move {
            let rows = served.pool.withheld_from(id).unwrap_or_default();
            Ok(WithholdingStatus::of(&rows))
        })
    });
    let withheld = withheld.await?;
    Ok(Json(RollbackRow {
        volume: MeantVolume { pool: left.pool.clone(), volume: now }.row(),
        size_before_bytes: row.size_bytes,
        left: row.name,
        left_id: row.id,
        withheld_from: withheld.as_ref().map(|withheld| withheld.initiators.clone()).unwrap_or_default(),
        withheld_from_nbd: withheld.is_some_and(|withheld| withheld.nbd),
    }))
}

/// Copies what a clone shares with its source, in the background.
#[utoipa::path(put, path = "/v1/volumes/{volume}/filling", tag = "volumes", params(("volume" = String, Path, description = "UUID")),
    responses((status = 202, description = "It is being filled, or shares nothing"), (status = "default", response = ApiProblem)))]
pub(super) async fn fill(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let wanted = VolumeChange::Fill { volume: VolumeRef::Id(meant.id()) };
    change(&api, &meant.pool, "fill volume", (wanted, ChangeGuard::new(identity))).await?;
    Ok(StatusCode::ACCEPTED)
}

/// Gives the filling up: the clone goes on sharing data.
#[utoipa::path(delete, path = "/v1/volumes/{volume}/filling", tag = "volumes", params(("volume" = String, Path, description = "UUID")),
    responses((status = 204, description = "It is not being filled"), (status = "default", response = ApiProblem)))]
pub(super) async fn cancel_filling(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let wanted = VolumeChange::CancelFilling { volume: VolumeRef::Id(meant.id()) };
    change(&api, &meant.pool, "cancel filling", (wanted, ChangeGuard::new(identity))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a volume to clients again from which a rollback or a failover withholds it.
#[utoipa::path(post, path = "/v1/volumes/{volume}/readmission", tag = "volumes", request_body = ReadmissionBody,
    params(("volume" = String, Path, description = "UUID")),
    responses((status = 200, description = "The clients that were readmitted", body = ReadmissionRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn readmit(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(volume): Path<String>,
    Json(body): Json<ReadmissionBody>,
) -> Result<Json<ReadmissionRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let ReadmissionBody { initiators, nbd, all } = body;
    if !all && !nbd && initiators.is_empty() {
        return Err(ApiProblem::bad_request("nobody is named", "name initiators, nbd or all"));
    }
    let clients = match all {
        true => ReadmittedClients::All,
        false => ReadmittedClients::Named { initiators, nbd },
    };
    let wanted = VolumeChange::Readmit { volume: VolumeRef::Id(meant.id()), clients };
    let done = change(&api, &meant.pool, "readmit clients", (wanted, ChangeGuard::new(identity))).await?;
    let ChangeEnd::Now(VolumeDone {
        outcome: VolumeOutcome::Readmitted(ReadmissionAnswer { initiators, nbd }),
        ..
    }) = done
    else {
        unreachable!("a readmission was asked for, and makes nothing")
    };
    Ok(Json(ReadmissionRow { initiators, nbd }))
}
