//! Groups that handlers find, and the orders that they give to all pools of one.
//!
//! Invariants:
//!
//! 1. What an order finds in a pool holds until the places of the group's pools are given back.
//! 2. A change that ended early is settled before the caller hears its outcome, so the caller learns of all or of none.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    expected_tags::ExpectedTags,
    group_rows::{FoundPart, GroupEntry},
    orders::{SHOWN_WITHIN, missing, order, show_change},
    problem::ApiProblem,
};
use crate::{
    order::OrderRefusal,
    planted::{self, GroupBug},
    pool_thread::ServedPool,
    several_pools::{GATHER_MAX, HeldPlaces, PartsRefusal, settle, show_settled, with_all_pools},
    site::handle::{PoolHandle, SiteView},
    view::PoolView,
};
use array::{
    error::Error,
    format::{GroupId, PoolId, SnapshotId, VolumeId},
    pool::{CutMember, GroupInfo},
};
use axum::http::{HeaderMap, StatusCode};
use report::Refusal;
use serving::{
    pool::{
        folder::refusal,
        group::HELP,
        group_change::{GroupChange, GroupChangeDone, GroupSighting, PartRefusal, perform},
    },
    uuid::parse_uuid,
};
use std::{path::Path, rc::Rc};
use world::LocalFuture;

/// A group that a path names, by the views of its pools.
pub(super) struct MeantGroup {
    pub id: GroupId,
    pub parts: Vec<(PoolHandle, FoundPart)>,
}

/// All pools of a group, held for a change of it, with what is in them.
pub(super) struct HeldGroup {
    pub id: GroupId,
    /// By the names of the pools.
    pub parts: Vec<(PoolHandle, GroupSighting)>,
    places: HeldPlaces,
}

impl FoundPart {
    /// The part of a group in a pool's view.
    pub(super) fn seen(pool: &PoolHandle, view: &PoolView, info: &GroupInfo) -> Self {
        let id_of = |name: &String| {
            let found = view.volumes.binary_search_by(|known| known.name.cmp(name));
            found.map(|index| (view.volumes[index].volume, name.clone())).ok()
        };
        Self {
            pool: pool.name.clone(),
            pool_id: pool.id,
            volumes: info.volumes.iter().filter_map(id_of).collect(),
            info: info.clone(),
            unsettled: view.unsettled.to_vec(),
        }
    }

    fn sighted(pool: &PoolHandle, sighting: &GroupSighting) -> Self {
        Self {
            pool: pool.name.clone(),
            pool_id: pool.id,
            volumes: sighting.members.iter().map(|member| (member.volume, member.name.clone())).collect(),
            info: sighting.info.clone(),
            unsettled: sighting.unsettled.clone(),
        }
    }
}

/// The group of a UUID.
pub(super) fn group_of(api: &ApiState, caller: &Caller, id: &str) -> Result<MeantGroup, ApiProblem> {
    let group = GroupId(parse_uuid(id).map_err(|_| ApiProblem::not_found(format!("{id:?} is no UUID")))?);
    let site = api.site.look();
    let found = find(&site, group, |pool| caller.sees(&pool.name));
    found.ok_or_else(|| missing(&site, format!("there is no group {id}")))
}

/// A group by its parts in some pools.
pub(super) fn find(
    site: &SiteView,
    id: GroupId,
    is_seen: impl Fn(&PoolHandle) -> bool,
) -> Option<MeantGroup> {
    let mut parts = Vec::new();
    for pool in site.pools.values().filter(|pool| is_seen(pool)) {
        let view = pool.last_view();
        if let Some(info) = view.groups.iter().find(|info| info.group == id) {
            parts.push((pool.clone(), FoundPart::seen(pool, &view, info)));
        }
    }
    (!parts.is_empty()).then_some(MeantGroup { id, parts })
}

impl MeantGroup {
    pub fn row(self) -> GroupEntry {
        let parts: Vec<FoundPart> = self.parts.into_iter().map(|(_, part)| part).collect();
        GroupEntry::of(self.id, &parts)
    }

    /// All pools of the group, if the caller may change them and they are open.
    pub fn pools(&self, api: &ApiState, caller: &Caller) -> Result<Vec<PoolHandle>, ApiProblem> {
        let (first, part) = &self.parts[0];
        if part.info.pools.is_empty() {
            return Ok(vec![first.clone()]);
        }
        pools_of(&api.site.look(), caller, (&part.info.name, &part.info.pools))
    }

    /// Holds the group for a change, with what a change with this UUID has made.
    pub async fn hold(
        &self,
        api: &ApiState,
        caller: &Caller,
        identity: ChangeIdentity,
    ) -> Result<HeldGroup, ApiProblem> {
        let pools = self.pools(api, caller)?;
        let places = hold(api, &pools).await?;
        let mut parts = sight(&pools, self.id, identity.uuid).await?;
        if pools.len() > 1 && parts.iter().any(|(_, sighting)| !sighting.unsettled.is_empty()) {
            settle_now(api, &pools).await?;
            parts = sight(&pools, self.id, identity.uuid).await?;
        }
        if parts.is_empty() {
            return Err(ApiProblem::not_found(format!("there is no group {}", self.id)));
        }
        Ok(HeldGroup { id: self.id, parts, places })
    }
}

/// Pools by their UUIDs, in the order of their names, if the caller may change them and they are open. `what` names the group.
pub(super) fn pools_of(
    site: &SiteView,
    caller: &Caller,
    (what, ids): (&str, &[PoolId]),
) -> Result<Vec<PoolHandle>, ApiProblem> {
    let known: Vec<&PoolHandle> = site.pools.values().filter(|pool| ids.contains(&pool.id)).collect();
    if known.iter().any(|pool| !caller.sees(&pool.name)) {
        let problem = format!("group {what:?} has volumes in a pool that {} is not for", caller.name);
        let refusal = Refusal::new(problem, "use a token for all its pools");
        return Err(ApiProblem::new(StatusCode::FORBIDDEN, "forbidden", &refusal));
    }
    let is_open = |id: &&PoolId| known.iter().any(|pool| pool.id == **id && pool.view().is_some());
    if let Some(closed) = ids.iter().find(|id| !is_open(id)) {
        let problem = format!("group {what:?} has volumes in pool {closed}, too, which is not open");
        let refusal = Refusal::new(problem, "see the server's messages, and repeat this when it is open");
        return Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "pool-stopped", &refusal));
    }
    Ok(known.into_iter().cloned().collect())
}

/// Holds the places of pools for work over them.
pub(super) async fn hold(api: &ApiState, pools: &[PoolHandle]) -> Result<HeldPlaces, ApiProblem> {
    let ids = pools.iter().map(|pool| pool.id);
    let held = api.site.operation_places.hold(ids, api.world.sleep(GATHER_MAX)).await;
    held.ok_or_else(|| {
        let names: Vec<&str> = pools.iter().map(|pool| pool.name.as_str()).collect();
        let problem = format!("another change of a group is under way in {}", names.join(" or "));
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &Refusal::new(problem, "try again"))
    })
}

/// Settles what ended early in pools whose places the caller holds.
pub(super) async fn settle_now(api: &ApiState, pools: &[PoolHandle]) -> Result<(), ApiProblem> {
    settle(pools, None).await.map_err(ApiProblem::from)?;
    show_settled(pools, api.world.sleep(SHOWN_WITHIN)).await;
    Ok(())
}

/// The row of a group as its pools have it now.
pub(super) async fn row_in(pools: &[PoolHandle], group: GroupId) -> Result<GroupEntry, ApiProblem> {
    let mut parts = sight(pools, group, [0; 16]).await?;
    parts.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    let parts: Vec<FoundPart> =
        parts.iter().map(|(pool, sighting)| FoundPart::sighted(pool, sighting)).collect();
    match parts.is_empty() {
        true => Err(ApiProblem::not_found("the group was made, and is gone already")),
        false => Ok(GroupEntry::of(group, &parts)),
    }
}

async fn sight(
    pools: &[PoolHandle],
    group: GroupId,
    change: [u8; 16],
) -> Result<Vec<(PoolHandle, GroupSighting)>, ApiProblem> {
    let mut parts = Vec::new();
    for pool in pools {
        let sighting = order(pool, "look at group", move |served| {
            Box::pin(async move { Ok(GroupSighting::of(&served.exports.changeable(), group, change)) })
        });
        parts.extend(sighting.await?.map(|sighting| (pool.clone(), sighting)));
    }
    Ok(parts)
}

impl HeldGroup {
    pub fn name(&self) -> &str {
        &self.parts[0].1.info.name
    }

    /// True if it has volumes in several pools.
    pub fn is_shared(&self) -> bool {
        !self.parts[0].1.info.pools.is_empty()
    }

    pub fn row(&self) -> GroupEntry {
        let parts: Vec<FoundPart> =
            self.parts.iter().map(|(pool, sighting)| FoundPart::sighted(pool, sighting)).collect();
        GroupEntry::of(self.id, &parts)
    }

    /// Refuses a group that is not as `If-Match` says, or, of a request that is repeated, as the first one found it.
    pub fn check_expected(
        &self,
        headers: &HeaderMap,
        seen: (ChangeIdentity, &FirstSeen),
    ) -> Result<(), ApiProblem> {
        ExpectedTags::of(headers, seen)?.check("group", || Some(self.row().tag()))
    }

    /// A snapshot of the group by its name.
    pub fn snapshot_named(&self, name: &str) -> Result<SnapshotId, ApiProblem> {
        let mut all = self.parts.iter().flat_map(|(_, sighting)| &sighting.info.snapshots);
        let found = all.find(|snapshot| snapshot.name == name).map(|snapshot| snapshot.snapshot);
        found.ok_or_else(|| {
            let missing = Error::NoGroupSnapshot { group: self.name().to_owned(), snapshot: name.to_owned() };
            refusal(Path::new(&self.parts[0].0.name), &missing, HELP).into()
        })
    }

    /// The group as it is after a change.
    async fn again(&self, change: [u8; 16]) -> Result<Vec<(PoolHandle, GroupSighting)>, ApiProblem> {
        let pools: Vec<PoolHandle> = self.parts.iter().map(|(pool, _)| pool.clone()).collect();
        sight(&pools, self.id, change).await
    }

    /// Makes a change in all pools of the group, or in none. Returns what it has made, by pool; `None` if that is only known
    /// from the pools themselves, because the change was settled. The parts are those after the change.
    pub async fn change(
        &mut self,
        api: &ApiState,
        (name, identity): (&'static str, ChangeIdentity),
        change: GroupChange,
    ) -> Result<Option<Vec<GroupChangeDone>>, ApiProblem> {
        let pools: Vec<PoolHandle> = self.parts.iter().map(|(pool, _)| pool.clone()).collect();
        let group = self.id;
        let work = move |served: Rc<ServedPool>, part: Option<CutMember>| -> LocalFuture<_> {
            let change = change.clone();
            Box::pin(async move {
                let on = served.exports.changeable().with_identity(identity.uuid);
                let done = perform(&on, group, &change, part).await?;
                Ok::<_, PartRefusal>((done, served.pool.catalogue_revision()))
            })
        };
        let done = match &pools[..] {
            [pool] if !self.is_shared() => {
                alone(pool, name, (self.places.clone(), work)).await.map(|one| vec![one])
            }
            _ => {
                let late = api.world.sleep(GATHER_MAX);
                with_all_pools(&pools, name, (&self.places, late), move |served, part| {
                    work(served, Some(part))
                })
                .await
            }
        };
        let done = match done {
            Ok(done) => {
                for (pool, (_, revision)) in pools.iter().zip(&done) {
                    show_change(api, pool, *revision).await;
                }
                Some(done.into_iter().map(|(done, _)| done).collect())
            }
            Err(refused) if refused.is_before_begin() => return Err(refused.into()),
            Err(refused) => {
                // One pool may have done its part, and the others will; a pool that has stopped is settled when it is opened.
                if self.is_shared() {
                    settle_now(api, &pools).await.map_err(|_| ApiProblem::from(refused.clone()))?;
                }
                let parts = self.again(identity.uuid).await.map_err(|_| ApiProblem::from(refused.clone()))?;
                if !has_happened(&parts, identity.uuid) {
                    return Err(refused.into());
                }
                None
            }
        };
        self.parts = self.again(identity.uuid).await?;
        Ok(done)
    }

    /// True if a change with this UUID was made in all pools.
    pub fn has_happened(&self, change: [u8; 16]) -> bool {
        has_happened(&self.parts, change)
    }

    /// UUID of a volume of the group in one of its pools.
    pub fn volume_named(&self, pool: PoolId, name: &str) -> Option<VolumeId> {
        let (_, sighting) = self.parts.iter().find(|(known, _)| known.id == pool)?;
        sighting.members.iter().find(|member| member.name == name).map(|member| member.volume)
    }

    /// Does something in each pool, one after the other, and waits until the views show it.
    pub async fn in_each_pool(
        &self,
        api: &ApiState,
        name: &'static str,
        work: impl Fn(Rc<ServedPool>) -> LocalFuture<Result<(), ApiProblem>> + Clone + Send + 'static,
    ) -> Result<(), ApiProblem> {
        let all = if planted::is_in_groups(GroupBug::DeletedInOnePool) { 1 } else { self.parts.len() };
        for (pool, _) in &self.parts[..all] {
            let (work, places) = (work.clone(), self.places.clone());
            let done = order(pool, name, move |served| {
                Box::pin(async move {
                    let done = work(Rc::clone(&served)).await;
                    served.show_changes();
                    drop(places);
                    done.map(|()| served.pool.catalogue_revision())
                })
            });
            let revision = done.await?;
            show_change(api, pool, revision).await;
        }
        Ok(())
    }
}

fn has_happened(parts: &[(PoolHandle, GroupSighting)], change: [u8; 16]) -> bool {
    let is_whole = |sighting: &GroupSighting| {
        let mut snapshots = sighting.info.snapshots.iter();
        // A pending one cannot be used.
        let is_cut = snapshots.any(|known| known.snapshot == SnapshotId(change) && known.cut.is_none());
        is_cut || (!sighting.members.is_empty() && sighting.made.len() == sighting.members.len())
    };
    if planted::is_in_groups(GroupBug::RepeatedBlindly) {
        return false;
    }
    !parts.is_empty() && parts.iter().all(|(_, sighting)| is_whole(sighting))
}

/// A change of a group that one pool has as a whole.
async fn alone<T: Send + 'static>(
    pool: &PoolHandle,
    name: &'static str,
    (places, work): (
        HeldPlaces,
        impl FnOnce(Rc<ServedPool>, Option<CutMember>) -> LocalFuture<Result<T, PartRefusal>> + Send + 'static,
    ),
) -> Result<T, PartsRefusal> {
    let not_taken = |refusal: OrderRefusal| PartsRefusal::NotTaken { pool: pool.name.clone(), refusal };
    let pending = pool.begin(name, move |served| {
        Box::pin(async move {
            let done = work(Rc::clone(&served), None).await;
            served.show_changes();
            drop(places);
            done
        })
    });
    let done = pending.map_err(not_taken)?.await.map_err(not_taken)?;
    done.map_err(|refused| PartsRefusal::Refused(refused.refusal))
}

impl From<PartsRefusal> for ApiProblem {
    fn from(refused: PartsRefusal) -> Self {
        match refused {
            PartsRefusal::NotTaken { refusal, .. } => refusal.into(),
            PartsRefusal::Busy { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refused.refusal())
            }
            PartsRefusal::Refused(refusal) => refusal.into(),
        }
    }
}
