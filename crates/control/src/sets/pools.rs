//! The pools of a site as the keeper of a set asks them.
//!
//! Invariants:
//!
//! 1. Points of the set are looked for in all pools: a volume may have been renamed, or have left the set.
//! 2. A pool that does not answer in time is silent, whatever it goes on with: nothing is concluded from that.
//! 3. A cut over several pools that ended early is settled before the keeper hears its outcome, and before points are listed;
//!    where that is not possible, the pools that have parts of it are silent.

use super::points::{PointsRefusal, parts_of_id, point_id, points_in};
use crate::{
    order::{ANSWER_WITHIN, check_time},
    planted::{self, SetBug},
    several_pools::{GATHER_MAX, PartsRefusal, SharedCut, SharedCutPart, settle, take_in_all},
    site::handle::{PoolHandle, SiteHandle, SiteView},
};
use array::format::{SnapshotId, VolumeId};
use protect::{
    backup::{StepError, StepResult},
    catalogue::{CutPoint, PointNote, SetId},
    set_keeper::{BackupPools, PoolRoom, PoolsAnswer, WantedCut},
};
use report::Refusal;
use serving::{
    pool::volume_change::{VolumeChange, VolumeRef, perform},
    uuid::{parse_uuid, random_uuid},
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, World, with_deadline};

/// The pools of a served site.
#[derive(Clone)]
pub(crate) struct SitePools(Rc<Shared>);

struct Shared {
    world: World,
    site: SiteHandle,
    /// Name of the set.
    set: String,
    /// Names of the pools of its volumes.
    pools: RefCell<BTreeSet<String>>,
}

/// Points of one volume in a pool.
type PointIds = Vec<(VolumeId, SnapshotId)>;

impl SitePools {
    pub fn new(world: &World, site: &SiteHandle, set: &str) -> Self {
        let (world, site, set) = (world.clone(), site.clone(), set.to_owned());
        Self(Rc::new(Shared { world, site, set, pools: RefCell::default() }))
    }

    /// Names the pools of the set's volumes.
    pub fn set_pools(&self, pools: BTreeSet<String>) {
        self.0.pools.replace(pools);
    }
}

impl BackupPools for SitePools {
    fn points(&self, set: &SetId) -> LocalFuture<PoolsAnswer> {
        let (shared, set) = (Rc::clone(&self.0), set.clone());
        Box::pin(async move { shared.points(&set).await })
    }

    fn cut(&self, cut: WantedCut, deadline: Moment) -> LocalFuture<Result<Vec<CutPoint>, StepError>> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move { shared.cut(cut, deadline).await })
    }

    fn remove(&self, points: Vec<CutPoint>) -> LocalFuture<StepResult> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move { shared.remove(&points).await })
    }

    fn rooms(&self) -> LocalFuture<Vec<PoolRoom>> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move { shared.rooms() })
    }
}

impl Shared {
    async fn points(&self, set: &SetId) -> PoolsAnswer {
        let site = self.site.look();
        let mut unsettled = false;
        let first = self.ask(&site, set, &mut unsettled).await;
        if !unsettled || self.settle(&site).await.is_err() {
            return first;
        }
        self.ask(&site, set, &mut unsettled).await
    }

    async fn ask(&self, site: &SiteView, set: &SetId, unsettled: &mut bool) -> PoolsAnswer {
        let mut answer = PoolsAnswer::default();
        for pool in self.pools.borrow().iter().filter(|pool| !site.pools.contains_key(*pool)) {
            if planted::is_in_sets(SetBug::ClosedPoolIsEmpty) {
                answer.asked.insert(pool.clone());
                continue;
            }
            let why = site.stopped.get(pool).map_or("it is not open".to_owned(), ToString::to_string);
            answer.silent.insert(pool.clone(), why);
        }
        for (name, pool) in &site.pools {
            match self.points_of(pool).await {
                Err(why) => {
                    *unsettled |= matches!(why, SilentPool::Unsettled(_));
                    answer.silent.insert(name.clone(), why.text());
                }
                Ok(points) => {
                    answer.asked.insert(name.clone());
                    for point in points {
                        // A note of a newer program, or a damaged one, is nobody's.
                        let Ok(Some(note)) = PointNote::decode(&point.found.note) else { continue };
                        if note.set != *set {
                            *answer.of_others.entry(note.set.to_string()).or_default() += 1;
                            continue;
                        }
                        if !point.services.is_empty() {
                            answer.in_use.insert(point.found.point.clone());
                        }
                        answer.found.push(point.found);
                    }
                }
            }
        }
        answer
    }

    async fn points_of(&self, pool: &PoolHandle) -> Result<Vec<super::points::BackupPoint>, SilentPool> {
        // A pool that has stopped may have what no drive has.
        if let Some(why) = pool.last_view().failure.clone() {
            return Err(SilentPool::Other(why));
        }
        let asking = points_in(pool, Some(self.set.clone()));
        match with_deadline(self.world.sleep(ANSWER_WITHIN), Box::pin(asking)).await {
            Some(Ok(points)) => Ok(points),
            Some(Err(why @ PointsRefusal::Unsettled(_))) => Err(SilentPool::Unsettled(why.to_string())),
            Some(Err(why)) => Err(SilentPool::Other(why.to_string())),
            None => Err(SilentPool::Other(late())),
        }
    }

    /// Settles what ended early in the pools that are open.
    async fn settle(&self, site: &SiteView) -> Result<(), PartsRefusal> {
        let pools: Vec<PoolHandle> =
            site.pools.values().filter(|pool| pool.view().is_some()).cloned().collect();
        let busy = || PartsRefusal::Busy { pool: "of several".to_owned() };
        let settling = async {
            let ids = pools.iter().map(|pool| pool.id);
            let held = self.site.operation_places.hold(ids, self.world.sleep(GATHER_MAX)).await;
            let _places = held.ok_or_else(busy)?;
            settle(&pools, None).await.map(drop)
        };
        let settled = with_deadline(self.world.sleep(ANSWER_WITHIN), Box::pin(settling)).await;
        settled.unwrap_or_else(|| Err(busy()))
    }

    async fn cut(&self, wanted: WantedCut, deadline: Moment) -> Result<Vec<CutPoint>, StepError> {
        let site = self.site.look();
        let parts = parts_of(&site, &wanted)?;
        let uuid = random_uuid(&self.world);
        match &parts[..] {
            [part] => self.cut_in_one(part, &wanted, (uuid, deadline)).await?,
            parts => self.cut_in_all(parts, &wanted, (uuid, deadline)).await?,
        }
        let point = |(pool, volume): (&PoolHandle, &VolumeId)| {
            let view = pool.last_view();
            let known = view.volumes.iter().find(|known| known.volume == *volume);
            CutPoint {
                pool: pool.name.clone(),
                volume: known.map(|known| known.name.clone()).unwrap_or_default(),
                id: point_id(*volume, SnapshotId(uuid)),
            }
        };
        let all = parts.iter().flat_map(|part| part.volumes.iter().map(|volume| (&part.pool, volume)));
        Ok(all.map(point).collect())
    }

    async fn cut_in_one(
        &self,
        part: &SharedCutPart,
        wanted: &WantedCut,
        (uuid, deadline): ([u8; 16], Moment),
    ) -> StepResult {
        let volumes = part.volumes.iter().copied().map(VolumeRef::Id).collect();
        let change = VolumeChange::Snapshot { volumes, name: wanted.name.clone(), note: wanted.note.clone() };
        let taken = part.pool.begin("cut of a set", move |served| {
            Box::pin(async move {
                check_time(served.world.now(), Some(deadline))?;
                let done = perform(&change, &served.exports.changeable().with_identity(uuid)).await;
                served.show_changes();
                done.map(drop)
            })
        });
        let refused = |why: String| StepError(format!("pool {}: {why}", part.pool.name));
        // It ends however late: until then nobody knows what the pool has.
        let done = taken.map_err(|error| refused(error.to_string()))?.await;
        done.map_err(|error| refused(error.to_string()))?.map_err(|refusal| StepError(refusal.to_string()))
    }

    async fn cut_in_all(
        &self,
        parts: &[SharedCutPart],
        wanted: &WantedCut,
        (uuid, deadline): ([u8; 16], Moment),
    ) -> StepResult {
        let left = GATHER_MAX.min(deadline.since(self.world.now()));
        let ids = parts.iter().map(|part| part.pool.id);
        let Some(places) = self.site.operation_places.hold(ids, self.world.sleep(left)).await else {
            let why = "another change over several pools is under way in them, and nothing was cut";
            return Err(StepError(why.to_owned()));
        };
        let cut = SharedCut {
            name: wanted.name.clone(),
            note: wanted.note.clone(),
            uuid,
            not_after: Some(deadline),
        };
        let taken = take_in_all(parts, cut, &places, |time| self.world.sleep(time)).await;
        taken.map(drop).map_err(|refused| StepError(refused.refusal().to_string()))
    }

    async fn remove(&self, points: &[CutPoint]) -> StepResult {
        let mut by_pool: BTreeMap<&str, PointIds> = BTreeMap::new();
        for point in points {
            let ids = by_pool.entry(&point.pool).or_default();
            ids.push(ids_of(point).ok_or_else(|| {
                StepError(format!(
                    "{}/{}: {:?} is no identity of a point",
                    point.pool, point.volume, point.id
                ))
            })?);
        }
        let site = self.site.look();
        let mut left = Vec::new();
        let all = if planted::is_in_sets(SetBug::RemovedInOnePool) { 1 } else { by_pool.len() };
        for (name, ids) in by_pool.into_iter().take(all) {
            let Some(pool) = site.pools.get(name) else {
                left.push(format!("pool {name} is not open"));
                continue;
            };
            if let Err(why) = self.remove_in(pool, ids).await {
                left.push(format!("pool {name}: {why}"));
            }
        }
        if left.is_empty() { Ok(()) } else { Err(StepError(left.join("; "))) }
    }

    async fn remove_in(&self, pool: &PoolHandle, ids: PointIds) -> Result<(), String> {
        let removing = pool.begin("remove points of backups", move |served| {
            Box::pin(async move {
                for (volume, snapshot) in ids {
                    // A volume that is gone has none.
                    let known = served.pool.snapshots(volume).unwrap_or_default();
                    if known.iter().all(|known| known.snapshot != snapshot) {
                        continue;
                    }
                    let change =
                        VolumeChange::DeleteSnapshot { volume: volume.into(), snapshot: snapshot.into() };
                    perform(&change, &served.exports.changeable()).await?;
                    served.world.yield_now().await;
                }
                served.show_changes();
                Ok::<(), Refusal>(())
            })
        });
        let removing = removing.map_err(|error| error.to_string())?;
        match with_deadline(self.world.sleep(ANSWER_WITHIN), removing).await {
            None => Err(late()),
            Some(Err(error)) => Err(error.to_string()),
            Some(Ok(done)) => done.map_err(|refusal| refusal.to_string()),
        }
    }

    fn rooms(&self) -> Vec<PoolRoom> {
        let site = self.site.look();
        let room = |name: &String| {
            let view = site.pools.get(name)?.view()?;
            let (used_bytes, capacity_bytes) = (view.used.0, view.usable.0);
            Some(PoolRoom { pool: name.clone(), used_bytes, capacity_bytes })
        };
        self.pools.borrow().iter().filter_map(room).collect()
    }
}

/// The reason why a pool says nothing.
enum SilentPool {
    /// A cut over several pools is to be settled.
    Unsettled(String),
    Other(String),
}

impl SilentPool {
    fn text(self) -> String {
        match self {
            Self::Unsettled(why) | Self::Other(why) => why,
        }
    }
}

fn late() -> String {
    format!("it did not answer within {} s", Duration::as_secs(&ANSWER_WITHIN))
}

/// The volumes of a cut, by pool. Views are a second old at most; one that does not know a volume yet refuses the cut.
fn parts_of(site: &SiteView, wanted: &WantedCut) -> Result<Vec<SharedCutPart>, StepError> {
    let mut parts: Vec<SharedCutPart> = Vec::new();
    for volume in &wanted.volumes {
        let open = site.pools.get(&volume.pool).and_then(|pool| Some((pool, pool.view()?)));
        let Some((pool, view)) = open else {
            return Err(StepError(format!("pool {} is not open", volume.pool)));
        };
        let is_meant =
            |known: &&crate::view::VolumeView| known.name == volume.volume && known.left_by.is_none();
        let Some(known) = view.volumes.iter().find(is_meant) else {
            return Err(StepError(format!("there is no volume {volume}")));
        };
        match parts.iter_mut().find(|part| part.pool.id == pool.id) {
            Some(part) => part.volumes.push(known.volume),
            None => parts.push(SharedCutPart { pool: pool.clone(), volumes: vec![known.volume] }),
        }
    }
    Ok(parts)
}

/// UUIDs of the volume and of the snapshot of a point.
fn ids_of(point: &CutPoint) -> Option<(VolumeId, SnapshotId)> {
    let (volume, snapshot) = parts_of_id(&point.id);
    Some((VolumeId(parse_uuid(volume).ok()?), SnapshotId(parse_uuid(snapshot).ok()?)))
}
