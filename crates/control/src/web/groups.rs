//! Groups: volumes, of one pool or several, whose snapshots, clones and rollbacks are one.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    group_orders::{find, group_of, hold, row_in},
    group_rows::{GroupEntry, GroupPage},
    orders::{MeantVolume, has_stopped_pools, order, pool_of, show_change, volume_of},
    problem::ApiProblem,
    volumes::page_rows,
};
use crate::{
    journal::tokens::CallerRole,
    site::handle::{PoolHandle, SiteView},
};
use array::{
    error::Error,
    format::{GroupId, PoolId, VolumeId},
    pool::{GroupInfo, NewGroup},
};
use axum::{
    Json,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::pool::group::HELP;
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct GroupFilter {
    /// UUID of a pool that the group has a part in.
    pool: Option<String>,
    /// Name of the group.
    name: Option<String>,
    /// `next` of the page before.
    after: Option<String>,
    /// Most rows of the page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
}

/// A group to create.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroupBody {
    /// Unique among the groups of each of its pools.
    pub name: String,
    /// UUIDs of its volumes, of one pool or several.
    #[schema(min_items = 1)]
    pub volumes: Vec<String>,
}

/// Lists groups, by name and UUID.
#[utoipa::path(get, path = "/v1/groups", tag = "groups", params(GroupFilter),
    responses((status = 200, description = "A page", body = GroupPage), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<GroupFilter>,
) -> Result<Json<GroupPage>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let limit = page_rows(filter.limit)?;
    let only = filter.pool.as_deref().map(|pool| pool_of(&api, &caller, pool)).transpose()?;
    let site = api.site.look();
    let is_wanted = |name: &str, id: &str| {
        filter.name.as_ref().is_none_or(|wanted| name == wanted)
            && filter.after.as_ref().is_none_or(|after| (name, id) > split(after))
    };
    let mut wanted: Vec<(String, String, GroupId)> = Vec::new();
    let pools = site
        .pools
        .values()
        .filter(|pool| caller.sees(&pool.name) && only.as_ref().is_none_or(|only| only.id == pool.id));
    for pool in pools {
        let view = pool.last_view();
        let groups = view.groups.iter().map(|info| (info.name.clone(), info.group.to_string(), info.group));
        wanted.extend(groups.filter(|(name, id, _)| is_wanted(name, id)));
    }
    wanted.sort();
    wanted.dedup();
    let has_more = wanted.len() > limit;
    wanted.truncate(limit);
    let next = wanted.last().filter(|_| has_more).map(|(name, id, _)| format!("{name}/{id}"));
    let rows = wanted.into_iter().filter_map(|(_, _, id)| row_of(&site, &caller, id));
    Ok(Json(GroupPage { groups: rows.collect(), is_incomplete: has_stopped_pools(&site), next }))
}

fn split(after: &str) -> (&str, &str) {
    after.rsplit_once('/').unwrap_or((after, ""))
}

fn row_of(site: &SiteView, caller: &Caller, id: GroupId) -> Option<GroupEntry> {
    find(site, id, |pool| caller.sees(&pool.name)).map(|group| group.row())
}

/// Shows a group, with its ETag.
#[utoipa::path(get, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "UUID")),
    responses((status = 200, description = "The group", body = GroupEntry), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(group): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(group_of(&api, &caller, &group)?.row().tagged(StatusCode::OK))
}

/// The volumes of a new group in one pool.
struct NewPart {
    pool: PoolHandle,
    volumes: Vec<(VolumeId, String)>,
    /// The group of that name that is there.
    known: Option<GroupInfo>,
}

impl NewPart {
    /// True if the group that is there is this part of it.
    fn is_there(&self, pools: &[PoolId]) -> bool {
        let wanted: BTreeSet<&String> = self.volumes.iter().map(|(_, name)| name).collect();
        self.known.as_ref().is_some_and(|known| {
            // A pool alone names none.
            let is_same = if pools.len() > 1 { known.pools == pools } else { known.pools.is_empty() };
            is_same && known.volumes.iter().collect::<BTreeSet<_>>() == wanted
        })
    }
}

/// Makes a group of volumes. If there is one of this name with these volumes, that is the answer; one that was made in some of
/// its pools alone is completed.
#[utoipa::path(post, path = "/v1/groups", tag = "groups", request_body = NewGroupBody,
    responses((status = 201, description = "It was made", body = GroupEntry), (status = 200, description = "It was there", body = GroupEntry),
    (status = "default", response = ApiProblem)))]
pub(super) async fn create(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Json(NewGroupBody { name, volumes }): Json<NewGroupBody>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let mut parts: Vec<NewPart> = Vec::new();
    for volume in &volumes {
        let MeantVolume { pool, volume } = volume_of(&api, &caller, volume)?;
        let volume = (volume.volume, volume.name);
        match parts.iter_mut().find(|part| part.pool.id == pool.id) {
            Some(part) => part.volumes.push(volume),
            None => parts.push(NewPart { pool, volumes: vec![volume], known: None }),
        }
    }
    if parts.is_empty() {
        return Err(ApiProblem::bad_request("volumes is empty", "name one or more"));
    }
    let pools: Vec<PoolHandle> = parts.iter().map(|part| part.pool.clone()).collect();
    let mut ids: Vec<PoolId> = pools.iter().map(|pool| pool.id).collect();
    ids.sort();
    let places = hold(&api, &pools).await?;
    for part in &mut parts {
        let name = name.clone();
        part.known = order(&part.pool, "look at groups", move |served| {
            Box::pin(async move { Ok(served.pool.groups().into_iter().find(|info| info.name == name)) })
        })
        .await?;
    }
    let is_there = |part: &&NewPart| part.is_there(&ids);
    let known = parts.iter().filter(is_there).find_map(|part| part.known.as_ref()).map(|info| info.group);
    let id = known.unwrap_or(GroupId(identity.uuid));
    if parts.iter().all(|part| part.is_there(&ids)) {
        let status = if id == GroupId(identity.uuid) { StatusCode::CREATED } else { StatusCode::OK };
        return Ok(row_in(&pools, id).await?.tagged(status));
    }
    let of_several = if ids.len() > 1 { ids.clone() } else { Vec::new() };
    let mut made: Vec<&NewPart> = Vec::new();
    for part in parts.iter().filter(|part| !part.is_there(&ids)) {
        let new = NewGroup { name: name.clone(), group: id, pools: of_several.clone() };
        if let Err(problem) = make(&api, part, new).await {
            for part in made {
                take_back(&part.pool, id).await?;
            }
            return Err(problem);
        }
        made.push(part);
    }
    drop(places);
    Ok(row_in(&pools, id).await?.tagged(StatusCode::CREATED))
}

async fn make(api: &ApiState, part: &NewPart, new: NewGroup) -> Result<(), ApiProblem> {
    let volumes: Vec<VolumeId> = part.volumes.iter().map(|(id, _)| *id).collect();
    let made = order(&part.pool, "make group", move |served| {
        Box::pin(async move {
            let made = served.pool.create_group(&new, &volumes).await;
            served.show_changes();
            let refusal = |error: Error| match &error {
                Error::NameTaken(_) => {
                    let refusal = served.exports.changeable().refusal(&error, HELP);
                    ApiProblem::new(StatusCode::CONFLICT, "exists", &refusal)
                }
                _ => served.exports.changeable().refusal(&error, HELP).into(),
            };
            made.map_err(refusal)?;
            Ok(served.pool.catalogue_revision())
        })
    });
    let revision = made.await?;
    show_change(api, &part.pool, revision).await;
    Ok(())
}

async fn take_back(pool: &PoolHandle, group: GroupId) -> Result<(), ApiProblem> {
    order(pool, "delete group", move |served| {
        Box::pin(async move {
            let deleted = served.pool.delete_group(group).await;
            served.show_changes();
            deleted.map_err(|error| served.exports.changeable().refusal(&error, HELP).into())
        })
    })
    .await
}

/// Deletes a group in all its pools. Its volumes stay, and its snapshots stay as those of the single volumes.
#[utoipa::path(delete, path = "/v1/groups/{group}", tag = "groups",
    params(("group" = String, Path, description = "UUID"), ("If-Match" = Option<String>, Header, description = "ETag that it must have")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(group): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let meant = match group_of(&api, &caller, &group) {
        Ok(meant) => meant,
        Err(problem) => return gone_before(&api, (identity, &first_seen), problem),
    };
    let held = meant.hold(&api, &caller, identity).await?;
    // Parts of it may be gone since the first request with this key.
    if !identity.may_be_done {
        held.check_expected(&headers, (identity, &first_seen))?;
    }
    let id = held.id;
    held.in_each_pool(&api, "delete group", move |served| {
        Box::pin(async move {
            match served.pool.delete_group(id).await {
                Ok(()) | Err(Error::NoGroup(_)) => Ok(()),
                Err(error) => Err(served.exports.changeable().refusal(&error, HELP).into()),
            }
        })
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer for a group, or a snapshot of one, that is not there: an earlier request with the same key may have deleted it.
pub(super) fn gone_before(
    api: &ApiState,
    (identity, FirstSeen(first)): (ChangeIdentity, &FirstSeen),
    problem: ApiProblem,
) -> Result<StatusCode, ApiProblem> {
    if first.is_none() || !identity.may_be_done {
        return Err(problem);
    }
    if !has_stopped_pools(&api.site.look()) {
        return Ok(StatusCode::NO_CONTENT);
    }
    let refusal =
        Refusal::new("a pool is not open: a part may be there still", "try again when all pools are open");
    Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "pool-stopped", &refusal))
}
