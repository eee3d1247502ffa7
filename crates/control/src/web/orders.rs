//! Orders that handlers give to pools.

use super::{ApiState, caller::Caller, changing::ChangeIdentity, problem::ApiProblem, rows::VolumeRow};
use crate::{order::ANSWER_WITHIN, pool_thread::ServedPool, site::handle::PoolHandle, view::VolumeView};
use array::{
    format::{PoolId, VolumeId},
    pool::VolumeInfo,
};
use axum::http::{HeaderMap, StatusCode, header};
use report::Refusal;
use serving::{
    pool::volume_change::{VolumeChange, VolumeDone, perform},
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
        None => {
            let refusal = Refusal::new(
                format!(
                    "pool {}: no answer within {} s; what was asked for goes on",
                    pool.name,
                    ANSWER_WITHIN.as_secs()
                ),
                "look again whether it is done",
            );
            Err(ApiProblem::new(StatusCode::GATEWAY_TIMEOUT, "goes-on", &refusal))
        }
    }
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
