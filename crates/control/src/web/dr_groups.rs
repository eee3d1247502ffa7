//! DR groups: volumes that another site has a copy of.

use super::{
    ApiState,
    caller::Caller,
    changing::ChangeIdentity,
    dr_kept_states::kept_state,
    dr_loss::check_loss,
    dr_parts::{check_whole, move_parts, parts_of},
    dr_rehearsals,
    dr_rows::{DrGroupList, DrGroupRow, rows},
    dr_sites::{link_of, site_of},
    orders::{MeantVolume, volume_of},
    problem::ApiProblem,
};
use crate::{
    dr::{
        access::{WITNESS_ADDRESSES, WitnessKind},
        group_view::{DrGroupView, DrRole},
        mode::DrMode,
        pool_groups::{PoolDrGroups, begin_change},
    },
    journal::tokens::CallerRole,
    planted::{self, DrBug},
    site::{
        dr_group_making::{DrGroupRefusal, NewDrGroup, make_in_pools},
        handle::PoolHandle,
    },
};
use array::format::{GroupId, VolumeId};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use replication::{
    group_record::{AutoFailover, GROUP_VOLUMES_MAX},
    joint_group::JOINT_PARTS_MAX,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use utoipa::ToSchema;
use world::LocalFuture;

const NAME_BYTES_MAX: usize = 128;
/// Interval of looking whether a change is shown, and looks at most: 3 s.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const SHOWN_LOOKS: usize = 150;

/// A DR group to make. This site is its primary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDrGroupBody {
    /// Unique among the DR groups of both sites.
    #[schema(min_length = 1, max_length = 128)]
    pub name: String,
    /// UUIDs of its volumes. If they lie in several pools, the group is not periodic.
    #[schema(min_items = 1, max_items = 992)]
    pub volumes: Vec<String>,
    /// Name of the other site.
    pub peer: String,
    /// Name of the pool there; that of the pool here if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Of a group with volumes in several pools: names of pools there, by the names of the pools here. One that is left out has
    /// the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, String>,
    pub mode: DrMode,
    /// Addresses of a witness, HOST or HOST:PORT, or of members of an etcd cluster, etcd://HOST:PORT or etcds://HOST:PORT, which are tried in this
    /// order: the other site takes over without a person when this one is lost. In sync alone, without failsafe.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 8)]
    pub witness: Vec<String>,
}

/// A failover.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailoverBody {
    /// This site becomes primary although the other one is not reached.
    #[serde(default)]
    pub unplanned: bool,
    /// Of an unplanned one: everything that hosts were answered in so many seconds may be lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept_loss_s: Option<f64>,
    /// Of an unplanned one: whatever is lost.
    #[serde(default)]
    pub accept_any_loss: bool,
    /// Of an unplanned one: a person vouches that the other site is off, and the witness is not asked.
    #[serde(default)]
    pub peer_is_off: bool,
    /// Of an unplanned one: as of a kept state instead of the newest one, which stays as a fork: the name of a snapshot of all
    /// volumes of the group, or *last-proven* for the newest one that a rehearsal proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A failover that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FailoverAnswer {
    #[serde(flatten)]
    pub group: DrGroupRow,
    /// Something that hosts were answered may be lost: the volumes are withheld from the hosts that are known to have been
    /// connected at the other site. Those that connected after the line was lost are not known.
    pub may_have_lost: bool,
}

/// Has a pool change its groups.
pub(super) async fn change<T: Send + 'static>(
    pool: &PoolHandle,
    name: &'static str,
    work: impl FnOnce(Rc<PoolDrGroups>) -> LocalFuture<Result<T, Refusal>> + Send + 'static,
) -> Result<T, ApiProblem> {
    Ok(begin_change(pool, name, work)?.await??)
}

/// Lists the DR groups of this site.
#[utoipa::path(get, path = "/v1/dr/groups", tag = "dr",
    responses((status = 200, description = "All groups, by name", body = DrGroupList), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<DrGroupList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let link = api.link.as_ref().map(|link| link.look());
    let mut list = rows(&api.site.look(), link.as_deref(), |pool| caller.sees(&pool.name));
    dr_rehearsals::add_to_rows(&api, &mut list.groups);
    Ok(Json(list))
}

/// Shows a DR group.
#[utoipa::path(get, path = "/v1/dr/groups/{group}", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "The group", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    row(&api, &caller, &group).map(Json)
}

fn row(api: &ApiState, caller: &Caller, group: &str) -> Result<DrGroupRow, ApiProblem> {
    let (pool, group) = group_of(api, caller, group)?;
    let link = api.link.as_ref().map(|link| link.look());
    let mut row = DrGroupRow::of((&pool.name, &pool.last_view()), &group, link.as_deref());
    dr_rehearsals::add_to_rows(api, std::slice::from_mut(&mut row));
    Ok(row)
}

/// A group of this site, and its pool.
pub(super) fn group_of(
    api: &ApiState,
    caller: &Caller,
    id: &str,
) -> Result<(PoolHandle, DrGroupView), ApiProblem> {
    let site = api.site.look();
    let mut pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let found = pools.find_map(|pool| {
        let view = pool.last_view();
        let group = view.dr.groups.iter().find(|group| group.group.to_string() == id)?;
        Some((pool.clone(), group.clone()))
    });
    found.ok_or_else(|| super::orders::missing(&site, format!("there is no DR group {id}")))
}

/// Makes a DR group: the other site makes replicas, and gets a first copy. Repeated with its key, it goes on.
#[utoipa::path(post, path = "/v1/dr/groups", tag = "dr", request_body = NewDrGroupBody,
    responses((status = 201, description = "The group", body = DrGroupRow), (status = 200, description = "It was there", body = DrGroupRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Json(body): Json<NewDrGroupBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let NewDrGroupBody { name, volumes, peer, pool: pool_there, pools, mode, witness } = body;
    let group = GroupId(identity.uuid);
    if identity.may_be_done
        && let Ok(row) = row(&api, &caller, &group.to_string())
    {
        return Ok((StatusCode::OK, Json(row)).into_response());
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        let next = format!("a name has 1 to {NAME_BYTES_MAX} bytes without control characters");
        return Err(ApiProblem::bad_request(format!("{name:?} is no name of a DR group"), &next));
    }
    mode.checked()?;
    let link = link_of(&api)?.clone();
    let site = site_of(&link.look(), &peer)?;
    let places = volumes_of(&api, &caller, &volumes)?;
    check_name(&api, &name, group)?;
    let known: Vec<&str> = places.iter().map(|(pool, _)| pool.name.as_str()).collect();
    check_pools((&pool_there, &pools), (&known, &mode))?;
    if !witness.is_empty() {
        let refused = |problem| ApiProblem::bad_request(problem, WITNESS_ADDRESSES);
        WitnessKind::parse(&witness).map_err(refused)?;
    }
    let new = places.into_iter().map(|(pool, volumes)| {
        let named = pools.get(&pool.name).cloned().or_else(|| pool_there.clone());
        let part = NewDrGroup {
            name: name.clone(),
            volumes,
            peer: site,
            pool_there: named.unwrap_or_else(|| pool.name.clone()),
            mode: mode.clone(),
            auto: (!witness.is_empty()).then(|| AutoFailover { witness: witness.clone() }),
            joint: None,
        };
        (pool, part)
    });
    let new: Vec<(PoolHandle, NewDrGroup)> = new.collect();
    let made = make_in_pools(&link, group, new).await;
    let group = made.map_err(|refusal| match refusal {
        DrGroupRefusal::Refused(refusal) => ApiProblem::from(refusal),
        DrGroupRefusal::Pool(refusal) => ApiProblem::from(refusal),
    })?;
    let is_connected = |row: &DrGroupRow| row.connected_since.is_some();
    let row = shown_when(&api, &caller, &group.to_string(), is_connected).await?;
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

/// The volumes of a new group, by their pools, in the order in which these were named.
fn volumes_of(
    api: &ApiState,
    caller: &Caller,
    volumes: &[String],
) -> Result<Vec<(PoolHandle, Vec<VolumeId>)>, ApiProblem> {
    let mut places: Vec<(PoolHandle, Vec<VolumeId>)> = Vec::new();
    for volume in volumes {
        let meant: MeantVolume = volume_of(api, caller, volume)?;
        if places.iter().any(|(_, ids)| ids.contains(&meant.id())) {
            return Err(ApiProblem::bad_request(format!("volume {} is named twice", meant.volume.name), ""));
        }
        match places.iter_mut().find(|(pool, _)| pool.id == meant.pool.id) {
            Some((_, ids)) => ids.push(meant.id()),
            None => {
                let id = meant.id();
                places.push((meant.pool, vec![id]));
            }
        }
    }
    if places.is_empty() {
        return Err(ApiProblem::bad_request("volumes is empty", "name one or more"));
    }
    if places.len() > JOINT_PARTS_MAX || places.iter().any(|(_, ids)| ids.len() > GROUP_VOLUMES_MAX) {
        let problem = format!(
            "a DR group has at most {GROUP_VOLUMES_MAX} volumes in a pool, in {JOINT_PARTS_MAX} pools"
        );
        return Err(ApiProblem::bad_request(problem, ""));
    }
    Ok(places)
}

/// Refuses the name of another group of this site.
fn check_name(api: &ApiState, name: &str, group: GroupId) -> Result<(), ApiProblem> {
    let site = api.site.look();
    let is_other = |view: &DrGroupView| {
        view.name == name
            && view.group != group
            && view.joint.as_ref().is_none_or(|joint| joint.part.whole != group)
    };
    if site.pools.values().any(|pool| pool.last_view().dr.groups.iter().any(is_other)) {
        let refusal = Refusal::new(format!("there is a DR group {name:?}"), "choose another name");
        return Err(ApiProblem::refused(&refusal));
    }
    Ok(())
}

/// Refuses what groups with volumes in several pools cannot be, and names of pools that lead nowhere.
fn check_pools(
    (pool_there, pools): (&Option<String>, &BTreeMap<String, String>),
    (known, mode): (&[&str], &DrMode),
) -> Result<(), ApiProblem> {
    let refused = |problem: String, next: &str| Err(ApiProblem::refused(&Refusal::new(problem, next)));
    if let Some(other) = pools.keys().find(|pool| !known.contains(&pool.as_str())) {
        return refused(format!("no volume of the group lies in pool {other:?}"), "name its pools alone");
    }
    if known.len() == 1 {
        return Ok(());
    }
    let all = known.join(", ");
    if pool_there.is_some() {
        let next = "say HERE=THERE for each pool that has another name there";
        return refused(format!("the volumes lie in pools {all}, and one pool there is named"), next);
    }
    if matches!(mode, DrMode::Periodic { .. }) {
        let next = "say sync or async; or make a group for each pool";
        return refused(format!("the volumes lie in pools {all}: such a group is not periodic today"), next);
    }
    Ok(())
}

/// The row of a group that was made or changed, once the view shows it.
pub(super) async fn shown_when(
    api: &ApiState,
    caller: &Caller,
    group: &str,
    is_shown: impl Fn(&DrGroupRow) -> bool,
) -> Result<DrGroupRow, ApiProblem> {
    for _ in 0..SHOWN_LOOKS {
        match row(api, caller, group) {
            Ok(row) if is_shown(&row) => return Ok(row),
            _ => api.world.sleep(LOOK_EVERY).await,
        }
    }
    row(api, caller, group)
}

/// Removes a DR group here: its volumes stay, and are written by hosts again. The other site keeps its own until it is removed there.
#[utoipa::path(delete, path = "/v1/dr/groups/{group}", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(group): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let id = GroupId(parse_uuid(&group).map_err(|_| ApiProblem::not_found(format!("{group:?} is no UUID")))?);
    let site = api.site.look();
    let has = |pool: &&PoolHandle| {
        let dr = &pool.last_view().dr;
        let ids = dr.groups.iter().map(|group| group.group).chain(dr.damaged.iter().map(|group| group.group));
        caller.sees(&pool.name) && ids.collect::<Vec<_>>().contains(&id)
    };
    let pool = match site.pools.values().find(has) {
        Some(pool) => pool.clone(),
        None if identity.may_be_done => {
            api.journal.forget_dr_services(&group)?;
            api.journal.forget_dr_clients(&group)?;
            return Ok(StatusCode::NO_CONTENT);
        }
        None => return Err(super::orders::missing(&site, format!("there is no DR group {group}"))),
    };
    let known = pool.last_view().dr.groups.iter().find(|known| known.group == id).cloned();
    let mut parts: Vec<_> = match known {
        Some(view) => {
            let all = parts_of(&api, &caller, (pool, view)).into_iter();
            all.map(|(pool, view)| (pool, view.group)).collect()
        }
        None => vec![(pool, id)],
    };
    // The one that was named goes last: a removal that is cut short is ended by the same request.
    let is_last = |part: GroupId| (part == id) != planted::is_in_dr(DrBug::NamedPartRemovedFirst);
    parts.sort_by_key(|(_, part)| is_last(*part));
    for (pool, id) in parts {
        change(&pool, "remove DR group", move |dr| Box::pin(async move { dr.remove(id).await })).await?;
        let group = id.to_string();
        api.journal.forget_rehearsal(&group)?;
        api.journal.forget_dr_services(&group)?;
        api.journal.forget_dr_clients(&group)?;
    }
    Ok(StatusCode::NO_CONTENT)
}

/// Moves a group to the other site, or makes this site primary although the other one is not reached.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/failover", tag = "dr", request_body = FailoverBody, params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It was done", body = FailoverAnswer), (status = "default", response = ApiProblem)))]
pub(super) async fn fail_over(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
    Json(body): Json<FailoverBody>,
) -> Result<Json<FailoverAnswer>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let note_wish = |which: &str| {
        let text = format!("{}: {} asked for {which} failover", view.name, caller.name);
        api.notices.of(&pool.name).occurred("dr_failover_asked", text);
    };
    let parts = parts_of(&api, &caller, (pool.clone(), view.clone()));
    check_whole(&parts)?;
    let mut may_have_lost = false;
    if body.at.is_some() && parts.len() > 1 {
        let problem = format!("{} has volumes in several pools: no state of all of them is kept", view.name);
        let next = "leave ⟨at⟩ out, and roll back the volumes afterwards";
        return Err(ApiProblem::refused(&Refusal::new(problem, next)));
    }
    if body.at.is_some() && !body.unplanned {
        let problem = "a failover to a kept state loses everything newer, so it is an unplanned one";
        return Err(ApiProblem::refused(&Refusal::new(problem, "say ⟨unplanned⟩, too")));
    }
    let is_primary = parts.iter().all(|(_, part)| part.role == DrRole::Primary);
    match body.unplanned {
        true if is_primary && view.serves => {
            let refusal = Refusal::new(format!("{} is primary here and serves", view.name), "");
            return Err(ApiProblem::refused(&refusal));
        }
        true => {
            let at = match &body.at {
                Some(meant) => kept_state(&api, &parts, meant).await?.into_iter().next(),
                None => None,
            };
            // Parts that an attempt before this one promoted are asked again: they do nothing if they serve.
            for (_, part) in
                parts.iter().filter(|(_, part)| parts.len() == 1 || part.role == DrRole::Secondary)
            {
                check_loss(&api, part, &body, at.as_ref())?;
            }
            let is_peer_off = body.peer_is_off;
            note_wish("an unplanned");
            for (pool, part) in &parts {
                let (id, at) = (part.group, at.clone());
                let promoted = change(pool, "promote DR group", move |dr| {
                    Box::pin(async move { dr.promote(id, is_peer_off, at).await })
                });
                may_have_lost |= promoted.await?.may_have_lost;
            }
        }
        false => {
            note_wish("a planned");
            move_parts(&api, &parts).await?;
        }
    }
    // Then both connect again, if they can; after an unplanned one hosts are served here.
    let is_shown = |row: &DrGroupRow| match body.unplanned {
        true => row.serves,
        false => row.role != view.role && row.connected_since.is_some(),
    };
    let group = shown_when(&api, &caller, &group, is_shown).await?;
    Ok(Json(FailoverAnswer { group, may_have_lost }))
}

/// Says that the other site is off: this one, which is primary and holds its hosts, serves them without it and without the witness.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/alone", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It was done", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn go_on_alone(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let (pool, view) = group_of(&api, &caller, &group)?;
    let parts = parts_of(&api, &caller, (pool, view.clone()));
    if parts.iter().any(|(_, part)| part.connected_since.is_some()) {
        let refusal = Refusal::new(
            format!("the other site of {} is connected, so it is not off", view.name),
            "see 'spindle dr status'",
        );
        return Err(ApiProblem::refused(&refusal));
    }
    for (pool, part) in parts {
        let id = part.group;
        change(&pool, "go on alone", move |dr| Box::pin(async move { dr.go_on_alone(id).await })).await?;
    }
    shown_when(&api, &caller, &group, |row| row.serves).await.map(Json)
}

/// Says that the other site's history counts, after both have written: what this site has of its own becomes a fork.
#[utoipa::path(post, path = "/v1/dr/groups/{group}/give-way", tag = "dr", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "It was done", body = DrGroupRow), (status = "default", response = ApiProblem)))]
pub(super) async fn give_way(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Json<DrGroupRow>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    for (pool, part) in parts_of(&api, &caller, group_of(&api, &caller, &group)?) {
        let id = part.group;
        change(&pool, "give way", move |dr| Box::pin(async move { dr.give_way(id).await })).await?;
    }
    row(&api, &caller, &group).map(Json)
}
