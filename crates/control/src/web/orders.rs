//! Orders that handlers give to pools.

use super::{ApiState, caller::Caller, changing::ChangeIdentity, problem::ApiProblem, rows::VolumeRow};
use crate::{
    folder_drives::DriveChangeOutcome,
    order::{ANSWER_WITHIN, OrderRefusal},
    pool_changes::PoolChanges,
    pool_thread::ServedPool,
    site::handle::PoolHandle,
    view::VolumeView,
};
use array::{
    format::{DriveId, PoolId, VolumeId},
    pool::VolumeInfo,
};
use axum::http::{HeaderMap, StatusCode, header};
use report::Refusal;
use serving::{
    pool::{
        pool_change::PoolChange,
        volume_change::{VolumeChange, VolumeDone, perform},
    },
    uuid::parse_uuid,
};
use std::{rc::Rc, time::Duration};
use world::{LocalFuture, with_deadline};

/// Time for a view to show a change.
const SHOWN_WITHIN: Duration = Duration::from_secs(5);

/// A volume that a path names, and its pool.
pub(super) struct MeantVolume {
    pub pool: PoolHandle,
    pub volume: VolumeView,
}

impl MeantVolume {
    pub fn row(&self) -> VolumeRow {
        VolumeRow::of((&self.pool.name, &self.pool.id.to_string()), &self.volume)
    }

    pub fn id(&self) -> VolumeId {
        self.volume.volume
    }
}

/// The pool of a UUID.
pub(super) fn pool_of(api: &ApiState, caller: &Caller, id: &str) -> Result<PoolHandle, ApiProblem> {
    let missing = || ApiProblem::not_found(format!("there is no pool {id}"));
    let id = PoolId(parse_uuid(id).map_err(|_| missing())?);
    let site = api.site.look();
    let pool = site.pools.values().find(|pool| pool.id == id && caller.sees(&pool.name));
    pool.cloned().ok_or_else(missing)
}

/// The volume of a UUID.
pub(super) fn volume_of(api: &ApiState, caller: &Caller, id: &str) -> Result<MeantVolume, ApiProblem> {
    let missing = || ApiProblem::not_found(format!("there is no volume {id}"));
    let id = VolumeId(parse_uuid(id).map_err(|_| missing())?);
    let site = api.site.look();
    let mut pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let found = pools.find_map(|pool| {
        let view = pool.last_view();
        let volume = view.volumes.iter().find(|volume| volume.volume == id)?.clone();
        Some(MeantVolume { pool: pool.clone(), volume })
    });
    found.ok_or_else(missing)
}

/// Gives an order and waits for its answer.
pub(super) async fn order<T: Send + 'static>(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, ApiProblem>> + Send + 'static,
) -> Result<T, ApiProblem> {
    let pending = pool.begin(name, work)?;
    match with_deadline(api.world.sleep(ANSWER_WITHIN), pending).await {
        Some(answer) => answer?,
        None => Err(goes_on(pool)),
    }
}

fn goes_on(pool: &PoolHandle) -> ApiProblem {
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
    let begin = move |served: Rc<ServedPool>| -> LocalFuture<_> {
        Box::pin(async move { Ok(served.changes.begin(name, change, DriveId(identity.uuid))?) })
    };
    let ended = order(api, pool, name, begin).await?;
    match with_deadline(api.world.sleep(ANSWER_WITHIN), ended).await {
        Some(Ok(end)) => {
            let (outcome, revision) = end?;
            // A view that is late shows it later.
            with_deadline(api.world.sleep(SHOWN_WITHIN), pool.shows_changes(revision)).await;
            Ok(outcome)
        }
        Some(Err(_)) => Err(OrderRefusal::Stopped.into()),
        None => Err(goes_on(pool)),
    }
}

/// Has a pool begin or end a job, and waits until the pool's view shows it. `work` returns the revision that does.
pub(super) async fn change_job(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    work: impl AsyncFnOnce(&Rc<PoolChanges>) -> u64 + Send + 'static,
) -> Result<(), ApiProblem> {
    let begin = move |served: Rc<ServedPool>| -> LocalFuture<_> {
        Box::pin(async move { Ok(work(&served.changes).await) })
    };
    let revision = order(api, pool, name, begin).await?;
    with_deadline(api.world.sleep(SHOWN_WITHIN), pool.shows_changes(revision)).await;
    Ok(())
}

/// What a change is tied to.
#[derive(Clone, Debug)]
pub(super) struct ChangeGuard {
    pub identity: ChangeIdentity,
    /// `If-Match`, and the volume of which it is a tag.
    pub expected: Option<(VolumeId, String)>,
}

impl ChangeGuard {
    pub fn new(identity: ChangeIdentity) -> Self {
        Self { identity, expected: None }
    }

    /// Of a volume, with the `If-Match` of its request.
    pub fn of(identity: ChangeIdentity, headers: &HeaderMap, volume: VolumeId) -> Self {
        let tag = headers.get(header::IF_MATCH).and_then(|tag| tag.to_str().ok()).filter(|tag| *tag != "*");
        Self { identity, expected: tag.map(|tag| (volume, tag.to_owned())) }
    }
}

/// Has a pool make a change, and waits until the pool's view shows it.
pub(super) async fn change(
    api: &ApiState,
    pool: &PoolHandle,
    name: &'static str,
    (change, guard): (VolumeChange, ChangeGuard),
) -> Result<VolumeDone, ApiProblem> {
    let place = (pool.name.clone(), pool.id.to_string());
    let done = order(api, pool, name, move |served| {
        Box::pin(async move {
            check_expected(&served, &guard, &place)?;
            let on = served.exports.changeable().with_identity(guard.identity.uuid);
            let done = perform(&change, &on).await;
            served.show_changes();
            Ok((done?, served.pool.catalogue_revision()))
        })
    });
    let (done, revision) = done.await?;
    // A view that is late shows it later.
    with_deadline(api.world.sleep(SHOWN_WITHIN), pool.shows(revision)).await;
    Ok(done)
}

/// Refuses a change of a volume that is not as the caller believes.
fn check_expected(
    served: &ServedPool,
    guard: &ChangeGuard,
    (pool, pool_id): &(String, String),
) -> Result<(), ApiProblem> {
    let Some((volume, tag)) = &guard.expected else { return Ok(()) };
    let known = served.pool.volumes().into_iter().find(|known| known.volume == *volume);
    let now = known.map(|known| VolumeRow::of((pool, pool_id), &VolumeView::of(known)).tag());
    if now.as_ref().is_some_and(|now| tag.split(',').any(|tag| tag.trim() == now)) {
        return Ok(());
    }
    let refusal = Refusal::new("the volume has changed since it was read", "read it again, and decide again");
    Err(ApiProblem::new(StatusCode::PRECONDITION_FAILED, "changed", &refusal))
}

/// The row of a volume that was changed.
pub(super) fn row_of(pool: &PoolHandle, volume: VolumeInfo) -> VolumeRow {
    VolumeRow::of((&pool.name, &pool.id.to_string()), &VolumeView::of(volume))
}
