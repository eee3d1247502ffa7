//! Pools.

use super::{
    ApiState, CountedRoom,
    caller::Caller,
    changing::ChangeIdentity,
    drives::domain_name,
    orders::{change_pool, goes_on, pool_of, read_order},
    problem::ApiProblem,
    rows::PoolRow,
};
use crate::{
    journal::tokens::CallerRole,
    order::{ANSWER_WITHIN, OrderRefusal},
};
use array::format::{FormatLevel, SparingLevel};
use axum::{
    Json,
    extract::{Path, Query, State},
};
use report::{Refusal, settings};
use serde::{Deserialize, Serialize};
use serving::pool::{
    domains::NamedDomain,
    folder::cause_of,
    pool_change::{PoolChange, PoolSettingChange},
    room::RoomStatus,
    room_history::RoomHistory,
    status::PoolStatus,
};
use std::{rc::Rc, sync::Arc};
use tokio::sync::oneshot;
use utoipa::{IntoParams, ToSchema};
use world::with_deadline;

/// Seconds for which a count of room is given again.
const ROOM_KEPT_S: i64 = 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolFilter {
    /// Name of the pool.
    name: Option<String>,
}

/// One change of a pool's settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolPatch {
    /// Drives that may be lost, and for which room is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sparing: Option<SparingChoice>,
    /// Failure domains and the drives that they get.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domains: Vec<DomainBody>,
    /// UUIDs of drives that fail alone from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_domain: Vec<String>,
    /// Drives are divided into failure sets, from 12 drives on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_sets: Option<bool>,
    /// The format level of new pools: the pool is upgraded. Programs from before cannot open it once it uses what is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format_level: Option<u8>,
}

/// Drives that may be lost, and for which room is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SparingChoice {
    None,
    Single,
    Double,
}

/// A failure domain, and drives that it gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DomainBody {
    /// 1 to 12 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// UUIDs.
    pub drives: Vec<String>,
}

impl PoolPatch {
    /// The change; a problem if it is none, or several.
    fn change(self) -> Result<PoolChange, ApiProblem> {
        let Self { sparing, domains, without_domain, failure_sets, format_level } = self;
        let has_domains = !domains.is_empty() || !without_domain.is_empty();
        let changes = [sparing.is_some(), has_domains, failure_sets.is_some(), format_level.is_some()];
        if changes.iter().filter(|&&is| is).count() != 1 {
            let problem = "a request changes sparing, domains, failure_sets or format_level: one of these";
            return Err(ApiProblem::bad_request(problem, "send a request for each"));
        }
        match format_level.map(FormatLevel) {
            Some(FormatLevel::NEWEST) => return Ok(PoolChange::Upgrade),
            Some(level) => {
                let problem = format!("a pool is not brought to format level {level}");
                let next = "say that of new pools, which health.format.newest of the pool has";
                return Err(ApiProblem::bad_request(problem, next));
            }
            None => {}
        }
        let domain = |DomainBody { name, drives }| Ok(NamedDomain { name: domain_name(&name)?, drives });
        Ok(PoolChange::Set(PoolSettingChange {
            sparing: sparing.map(|choice| match choice {
                SparingChoice::None => SparingLevel::None,
                SparingChoice::Single => SparingLevel::Single,
                SparingChoice::Double => SparingLevel::Double,
            }),
            domains: domains.into_iter().map(domain).collect::<Result<_, ApiProblem>>()?,
            without_domain,
            failure_sets,
        }))
    }
}

/// Lists the pools, those that did not open included.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", params(PoolFilter),
    responses((status = 200, description = "All pools, by name", body = Vec<PoolRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<PoolFilter>,
) -> Result<Json<Vec<PoolRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let mut rows: Vec<PoolRow> = site.pools.values().map(PoolRow::of).collect();
    for (name, refusal) in &site.stopped {
        match rows.iter_mut().find(|row| row.name == *name) {
            Some(row) => drop(row.reason.get_or_insert(refusal.to_string())),
            None => rows.push(PoolRow::stopped(
                name,
                settings::spelled(&refusal.to_string(), |name| format!("--{name}")).into_owned(),
            )),
        }
    }
    rows.retain(|row| caller.sees(&row.name) && filter.name.as_ref().is_none_or(|name| row.name == *name));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(rows))
}

/// Shows a pool.
#[utoipa::path(get, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "The pool", body = PoolRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<PoolRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(PoolRow::of(&pool_of(&api, &caller, &pool)?)))
}

/// Shows all of a pool as it is now, with its volumes and snapshots, as `spindle pool show --json` does.
#[utoipa::path(get, path = "/v1/pools/{pool}/status", tag = "pools", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "The status", body = Object), (status = "default", response = ApiProblem)))]
pub(super) async fn status(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<PoolStatus>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let pool = pool_of(&api, &caller, &pool)?;
    let _place = api.counts.acquire().await.expect("it is never closed");
    let status = read_order(&api, &pool, "show pool", |served| {
        Box::pin(async move {
            let (tell, told) = oneshot::channel();
            let status = PoolStatus::of(&served.pool, &served.changes.drive_statuses());
            let on = Rc::clone(&served.pool);
            // What snapshots keep takes long to count: other orders go on beside it.
            served
                .world
                .spawn("show pool", async move { drop(tell.send(status.and_snapshot_room(&on).await)) });
            Ok(told)
        })
    });
    match with_deadline(api.world.sleep(ANSWER_WITHIN), status.await?).await {
        Some(Ok(status)) => Ok(Json(status)),
        Some(Err(_)) => Err(OrderRefusal::Stopped.into()),
        None => Err(goes_on(&pool)),
    }
}

/// Shows when a pool is full at this week's rate, what takes its room, and what would give some back. The first time, that
/// reads the map of all volumes.
#[utoipa::path(get, path = "/v1/pools/{pool}/room", tag = "pools", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "The room", body = Object), (status = "default", response = ApiProblem)))]
pub(super) async fn room(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<RoomStatus>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let pool = pool_of(&api, &caller, &pool)?;
    let counting = async {
        // One count at a time: it reads the maps of all volumes.
        let place = Arc::clone(&api.room_places).acquire_owned().await.expect("it is never closed");
        let revision = pool.last_view().catalogue_revision;
        if let Some(known) = api.rooms.lock().expect("nothing panics with the lock held").get(&pool.id)
            && known.revision == revision
            && api.world.unix_s() - known.ended_unix_s < ROOM_KEPT_S
        {
            return Ok(known.room.clone());
        }
        let (history, now_unix_s) = (RoomHistory::read(&pool.folder), api.world.unix_s());
        let rooms = Arc::clone(&api.rooms);
        let id = pool.id;
        let counted = read_order(&api, &pool, "count room", move |served| {
            Box::pin(async move {
                let (tell, counted) = oneshot::channel();
                let drives = served.changes.drive_statuses();
                let (on, on_world) = (Rc::clone(&served.pool), served.world.clone());
                // The order begins the count, and other orders go on beside it; who asks again finds the result.
                served.world.spawn("count room", async move {
                    let _place = place;
                    let room = RoomStatus::count(&on, (&drives, &history), now_unix_s).await;
                    if let Ok(room) = &room {
                        let (ended_unix_s, room) = (on_world.wall().seconds, room.clone());
                        let counted = CountedRoom { revision, ended_unix_s, room };
                        rooms.lock().expect("nothing panics with the lock held").insert(id, counted);
                    }
                    // The caller may be gone.
                    let _ = tell.send(room);
                });
                Ok(counted)
            })
        });
        match counted.await?.await {
            Ok(Ok(room)) => Ok(room),
            Ok(Err(error)) => {
                let refusal = Refusal::new(format!("pool {}: {error}", pool.name), "see its events");
                Err(refusal.caused_by(cause_of(&error)).into())
            }
            Err(_) => Err(OrderRefusal::Stopped.into()),
        }
    };
    let counted = with_deadline(api.world.sleep(ANSWER_WITHIN), counting).await;
    counted.unwrap_or_else(|| Err(goes_on(&pool))).map(Json)
}

/// Changes sparing, failure domains, or failure sets: one of these at a time.
#[utoipa::path(patch, path = "/v1/pools/{pool}", tag = "pools", request_body = PoolPatch,
    params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "The pool afterwards", body = PoolRow), (status = "default", response = ApiProblem)))]
pub(super) async fn patch(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(pool): Path<String>,
    Json(body): Json<PoolPatch>,
) -> Result<Json<PoolRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let pool = pool_of(&api, &caller, &pool)?;
    change_pool(&api, &pool, "change pool", (body.change()?, identity)).await?;
    Ok(Json(PoolRow::of(&pool)))
}
