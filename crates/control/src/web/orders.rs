//! Orders that handlers give to pools.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    expected_tags::ExpectedTags,
    problem::ApiProblem,
    rows::VolumeEntry,
    volumes::NewVolumeBody,
};
use crate::{
    folder_drives::DriveChangeOutcome,
    order::{ANSWER_WITHIN, OrderRefusal, check_time},
    pool_changes::PoolChanges,
    pool_thread::ServedPool,
    site::handle::{PoolHandle, SiteView},
    view::VolumeView,
};
use array::{
    format::{DriveId, PoolId, SnapshotId, VolumeId},
    pool::{VolumeInfo, is_moved},
};
use axum::http::{HeaderMap, StatusCode};
use report::Refusal;
use serving::{
    pool::{
        pool_change::PoolChange,
        volume_change::{VolumeChange, VolumeDone, perform},
    },
    uuid::parse_uuid,
};
use std::{rc::Rc, time::Duration};
use world::{LocalFuture, Moment, with_deadline};

/// Time for a view to show a change.
pub(super) const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// A volume that a path names, and its pool.
pub(super) struct MeantVolume {
    pub pool: PoolHandle,
    pub volume: VolumeView,
}

impl MeantVolume {
    pub fn row(&self) -> VolumeEntry {
        VolumeEntry::of((&self.pool.name, &self.pool.id.to_string()), &self.volume)
    }

    pub fn id(&self) -> VolumeId {
        self.volume.volume
    }
}

/// The pool of a UUID.
pub(super) fn pool_of(api: &ApiState, caller: &Caller, id: &str) -> Result<PoolHandle, ApiProblem> {
    let id_bytes = PoolId(parse_uuid(id).map_err(|_| ApiProblem::not_found(format!("{id:?} is no UUID")))?);
    let site = api.site.look();
    let pool = site.pools.values().find(|pool| pool.id == id_bytes && caller.sees(&pool.name));
    pool.cloned().ok_or_else(|| missing(&site, format!("there is no pool {id}")))
}

/// The volume of a UUID.
pub(super) fn volume_of(api: &ApiState, caller: &Caller, id: &str) -> Result<MeantVolume, ApiProblem> {
    let volume = VolumeId(parse_uuid(id).map_err(|_| ApiProblem::not_found(format!("{id:?} is no UUID")))?);
    let site = api.site.look();
    find_volume(&site, caller, volume).ok_or_else(|| missing(&site, format!("there is no volume {id}")))
}

/// As [`volume_of`], also if it is complete in another pool, and the old one waits to be deleted.
pub(super) fn moved_volume_of(api: &ApiState, caller: &Caller, id: &str) -> Result<MeantVolume, ApiProblem> {
    let found = volume_of(api, caller, id);
    let Ok(volume) = parse_uuid(id).map(VolumeId) else { return found };
    let site = api.site.look();
    let mut pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let moved = pools.find_map(|pool| {
        let view = pool.last_view();
        let is_meant = |known: &&VolumeView| known.volume == volume && is_moved(&known.name);
        let volume = view.volumes.iter().find(is_meant)?.clone();
        Some(MeantVolume { pool: pool.clone(), volume })
    });
    moved.map_or(found, Ok)
}

/// The volume that an earlier request with the same key has made.
pub(super) fn made_before(api: &ApiState, caller: &Caller, identity: ChangeIdentity) -> Option<MeantVolume> {
    find_volume(&api.site.look(), caller, VolumeId(identity.uuid)).filter(|_| identity.may_be_done)
}

fn find_volume(site: &SiteView, caller: &Caller, id: VolumeId) -> Option<MeantVolume> {
    let mut pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    pools.find_map(|pool| {
        let view = pool.last_view();
        // One that has moved has its identity still, until it is deleted.
        let is_meant = |volume: &&VolumeView| volume.volume == id && !is_moved(&volume.name);
        let volume = view.volumes.iter().find(is_meant)?.clone();
        Some(MeantVolume { pool: pool.clone(), volume })
    })
}

/// True if a pool of the site is not open: what lies in it is not seen.
pub(super) fn has_stopped_pools(site: &SiteView) -> bool {
    !site.stopped.is_empty() || site.pools.values().any(|pool| pool.view().is_none())
}

/// The problem of something that is not there, or cannot be seen while a pool is stopped.
pub(super) fn missing(site: &SiteView, what: String) -> ApiProblem {
    if !has_stopped_pools(site) {
        return ApiProblem::not_found(what);
    }
    let refusal =
        Refusal::new(format!("{what} in the pools that are open, and one is stopped"), "see GET /v1/pools");
    ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "pool-stopped", &refusal)
}

/// Gives an order that only reads, and waits for its answer.
pub(super) async fn read_order<T: Send + 'static>(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    let reading = async {
        let _place = api.readers.acquire().await.expect("it is never closed");
        pool.begin(name, work)?.await?
    };
    with_deadline(api.world.sleep(ANSWER_WITHIN), reading).await.unwrap_or_else(|| Err(goes_on(pool)))
}

/// Gives an order and waits for its answer, however long it takes.
pub(super) async fn order<T: Send + 'static>(
    pool: &PoolHandle,
    name: &'static str,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    pool.begin(name, work)?.await?
}

/// The problem of an order that takes longer than its caller waits.
pub(super) fn goes_on(pool: &PoolHandle) -> ApiProblem {
    let seconds = ANSWER_WITHIN.as_secs();
    let refusal = Refusal::new(
        format!("pool {}: no answer within {seconds} s; what was asked for goes on", pool.name),
        "look again whether it is done",
    );
    ApiProblem::new(StatusCode::GATEWAY_TIMEOUT, "goes-on", &refusal)
}

/// Has a pool change its drives or settings, and waits until the pool's view shows it.
pub(super) async fn change_pool(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    (change, identity): (PoolChange, ChangeIdentity),
) -> Result<DriveChangeOutcome, ApiProblem> {
    has_its_jobs(api, pool).await?;
    let begin = move |served: Rc<ServedPool>| -> LocalFuture<_> {
        Box::pin(async move { Ok(served.changes.begin(name, change, DriveId(identity.uuid))?) })
    };
    let ended = order(pool, name, begin).await?;
    match ended.await {
        Ok(end) => {
            let (outcome, revision) = end?;
            keeps_its_jobs(api, pool, revision).await?;
            Ok(outcome)
        }
        Err(_) => Err(OrderRefusal::Stopped.into()),
    }
}

/// Has a pool begin or end a job, and waits until the pool's view shows it. `work` returns the revision that does.
pub(super) async fn change_job(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    work: impl AsyncFnOnce(&Rc<PoolChanges>) -> Result<u64, ApiProblem> + Send + 'static,
) -> Result<(), ApiProblem> {
    has_its_jobs(api, pool).await?;
    let begin = move |served: Rc<ServedPool>| -> LocalFuture<_> {
        Box::pin(async move { work(&served.changes).await })
    };
    let revision = order(pool, name, begin).await?;
    keeps_its_jobs(api, pool, revision).await
}

/// Before a change: the pool has what an earlier process was asked for.
async fn has_its_jobs(api: &ApiState, pool: &PoolHandle) -> Result<(), ApiProblem> {
    let kept = api.jobs.keep(pool, 0).await;
    kept.map_err(|refusal| ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal))
}

/// After a change: the journal has the jobs that it began or ended.
async fn keeps_its_jobs(api: &ApiState, pool: &PoolHandle, revision: u64) -> Result<(), ApiProblem> {
    api.jobs.keep(pool, revision).await.map_err(|refusal| {
        let problem = format!("it is done or under way, but its job is not kept over a restart: {refusal}");
        let refusal = Refusal::new(problem, "look at the pool's jobs");
        ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "not-kept", &refusal)
    })
}

/// Conditions of a change.
#[derive(Clone, Debug)]
pub(super) struct ChangeGuard {
    identity: ChangeIdentity,
    /// The versions that a volume is to have.
    expected: Option<(VolumeId, ExpectedTags)>,
    /// The volume that is to be created: one that is the same will do.
    same: Option<NewVolumeBody>,
    /// An order that its pool takes up later is refused.
    not_after: Option<Moment>,
}

/// The end of a change.
pub(super) enum ChangeEnd {
    Now(VolumeDone),
    /// It had been done: by a request with the same key, or by one that asked for the same.
    Before(VolumeInfo),
}

impl ChangeGuard {
    pub fn new(identity: ChangeIdentity) -> Self {
        Self { identity, expected: None, same: None, not_after: None }
    }

    /// The UUID of what the change makes.
    pub fn uuid(&self) -> [u8; 16] {
        self.identity.uuid
    }

    /// The same, while there is time.
    pub fn by(self, not_after: Option<Moment>) -> Self {
        Self { not_after, ..self }
    }

    /// Of a volume that is to be created.
    pub fn of_new(identity: ChangeIdentity, body: &NewVolumeBody) -> Self {
        Self { same: Some(body.clone()), ..Self::new(identity) }
    }

    /// Of a volume: it has to be as `If-Match` says, and a request that is repeated finds it as the first one did.
    ///
    /// # Errors
    ///
    /// An `If-Match` is no list of tags.
    pub fn of(
        (identity, first_seen): (ChangeIdentity, FirstSeen),
        headers: &HeaderMap,
        volume: VolumeId,
    ) -> Result<Self, ApiProblem> {
        let tags = ExpectedTags::of(headers, (identity, &first_seen))?;
        Ok(Self { expected: Some((volume, tags)), ..Self::new(identity) })
    }

    /// Refuses a change of a volume that is not as the caller believes.
    fn check_expected(
        &self,
        served: &ServedPool,
        (pool, pool_id): &(String, String),
    ) -> Result<(), ApiProblem> {
        let Some((volume, tags)) = &self.expected else { return Ok(()) };
        tags.check("volume", || {
            let known = served.pool.volumes().into_iter().find(|known| known.volume == *volume)?;
            Some(VolumeEntry::of((pool, pool_id), &VolumeView::of(known)).tag())
        })
    }

    /// The volume that shows that the change has been done.
    fn done_before(
        &self,
        served: &ServedPool,
        change: &VolumeChange,
        (pool, pool_id): &(String, String),
    ) -> Result<Option<VolumeInfo>, ApiProblem> {
        let (volumes, uuid) = (served.pool.volumes(), self.identity.uuid);
        if let Some(made) = volumes.iter().find(|known| known.volume == VolumeId(uuid)) {
            return Ok(Some(made.clone()));
        }
        if let VolumeChange::Snapshot { volumes: wanted, .. } = change {
            let of_wanted = volumes.into_iter().filter(|known| wanted.iter().any(|volume| volume.is(known)));
            let is_made = |known: &VolumeInfo| {
                let snapshots = served.pool.snapshots(known.volume).unwrap_or_default();
                snapshots.iter().any(|snapshot| snapshot.snapshot == SnapshotId(uuid))
            };
            return Ok(of_wanted.into_iter().find(is_made));
        }
        let Some(same) = &self.same else { return Ok(None) };
        let Some(known) = volumes.into_iter().find(|known| known.name == same.name) else { return Ok(None) };
        let row = VolumeEntry::of((pool, pool_id), &VolumeView::of(known.clone()));
        if same.is(&row) {
            return Ok(Some(known));
        }
        let refusal = Refusal::new(
            format!("pool {pool}: there is a volume {:?} of another size or with other settings", row.name),
            "use another name, or change that one",
        );
        Err(ApiProblem::new(StatusCode::CONFLICT, "exists", &refusal))
    }
}

/// Has a pool make a change, and waits until the pool's view shows it.
pub(super) async fn change(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    (change, guard): (VolumeChange, ChangeGuard),
) -> Result<ChangeEnd, ApiProblem> {
    let place = (pool.name.clone(), pool.id.to_string());
    let done = order(pool, name, move |served| {
        Box::pin(async move {
            if let Some(volume) = guard.done_before(&served, &change, &place)? {
                return Ok((ChangeEnd::Before(volume), served.pool.catalogue_revision()));
            }
            guard.check_expected(&served, &place)?;
            check_time(served.world.now(), guard.not_after)?;
            let on = served.exports.changeable().with_identity(guard.identity.uuid);
            let done = perform(&change, &on).await;
            served.show_changes();
            Ok((ChangeEnd::Now(done?), served.pool.catalogue_revision()))
        })
    });
    let (done, revision) = done.await?;
    show_change(api, pool, revision).await;
    Ok(done)
}

/// Waits until a pool's view shows a revision of its catalogue, [`SHOWN_WITHIN`] at most: a view that is late shows it later.
pub(super) async fn show_change(api: &ApiState, pool: &PoolHandle, revision: u64) {
    with_deadline(api.world.sleep(SHOWN_WITHIN), pool.shows(revision)).await;
}

impl ChangeEnd {
    /// The row of the volume that was changed, with what that means for clients.
    pub fn row(self, pool: &PoolHandle) -> VolumeEntry {
        match self {
            Self::Now(done) => VolumeEntry { notes: done.notes, ..row_of(pool, done.volume) },
            Self::Before(volume) => row_of(pool, volume),
        }
    }
}

/// The row of a volume that was changed.
pub(super) fn row_of(pool: &PoolHandle, volume: VolumeInfo) -> VolumeEntry {
    VolumeEntry::of((&pool.name, &pool.id.to_string()), &VolumeView::of(volume))
}
