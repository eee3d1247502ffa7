//! Exact space of volumes and snapshots, counted on request.

use super::{
    ApiState,
    caller::Caller,
    orders::{MeantVolume, goes_on, read_order, volume_of},
    problem::ApiProblem,
};
use crate::{
    journal::tokens::CallerRole,
    order::{ANSWER_WITHIN, OrderRefusal},
    space_counter::{CountFailure, CountedSpace},
};
use array::format::VolumeId;
use axum::{
    Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use std::{sync::Arc, time::Duration};
use utoipa::{IntoParams, ToSchema};
use world::with_deadline;

/// Age up to which an answer is given again, unless the caller says one.
pub(super) const AGE_USUAL: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SpaceAge {
    /// Give an earlier answer again if it is younger than this; 60 if left out, 0 counts anew.
    #[param(minimum = 0)]
    max_age_seconds: Option<u32>,
}

/// Space of a volume, exact to the byte: data of one copy, without the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeSpaceRow {
    /// UUID of the volume.
    pub volume_id: String,
    /// Time of the count.
    pub as_of: String,
    /// All data of the volume, its snapshots and what its rollbacks left: the sum of the three below. Data that a clone shares
    /// with the volume it was made of counts there; data of a deleted volume that its clones read counts to none.
    pub used_bytes: u64,
    /// The part that the volume reads itself.
    pub volume_bytes: u64,
    /// The part that its snapshots keep beyond it: deleting all of them frees it.
    pub snapshots_bytes: u64,
    /// The part that clones, and volumes left by rollbacks, keep beyond both.
    pub others_bytes: u64,
    /// Freed by deleting the volume with its snapshots.
    pub reclaimable_bytes: u64,
}

impl VolumeSpaceRow {
    fn of(id: VolumeId, counted: &CountedSpace) -> Self {
        let space = &counted.space;
        Self {
            volume_id: id.to_string(),
            as_of: as_of(counted),
            used_bytes: space.used_bytes,
            volume_bytes: space.volume_bytes,
            snapshots_bytes: space.snapshots_bytes,
            others_bytes: space.others_bytes,
            reclaimable_bytes: space.reclaimable_bytes,
        }
    }
}

/// The time of a count.
pub(super) fn as_of(counted: &CountedSpace) -> String {
    utc_time(counted.as_of.seconds)
}

/// Shows what keeps the data of a volume, and what deleting it would free. The first count of a volume reads its whole map, later
/// ones its history. One that takes longer than 30 s goes on: ask again.
#[utoipa::path(get, path = "/v1/volumes/{volume}/space", tag = "volumes",
    params(("volume" = String, Path, description = "UUID"), SpaceAge),
    responses((status = 200, description = "Its space", body = VolumeSpaceRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(volume): Path<String>,
    Query(SpaceAge { max_age_seconds }): Query<SpaceAge>,
) -> Result<Json<VolumeSpaceRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let meant = volume_of(&api, &caller, &volume)?;
    let age_max = max_age_seconds.map_or(AGE_USUAL, |seconds| Duration::from_secs(seconds.into()));
    let counted = counted_space(&api, &meant, age_max).await?;
    Ok(Json(VolumeSpaceRow::of(meant.id(), &counted)))
}

/// The space of a volume, counted unless there is an answer that is younger than `age_max`.
pub(super) async fn counted_space(
    api: &ApiState,
    meant: &MeantVolume,
    age_max: Duration,
) -> Result<Arc<CountedSpace>, ApiProblem> {
    let id = meant.id();
    let begun = read_order(api, &meant.pool, "count space", move |served| {
        Box::pin(async move { Ok(served.space.begin(id, age_max)) })
    })
    .await?;
    match with_deadline(api.world.sleep(ANSWER_WITHIN), begun).await {
        None => Err(goes_on(&meant.pool)),
        Some(Ok(Ok(counted))) => Ok(counted),
        Some(Ok(Err(CountFailure::Gone))) => Err(ApiProblem::not_found(format!("there is no volume {id}"))),
        Some(Ok(Err(CountFailure::Failed(reason)))) => {
            let refusal = Refusal::new(
                format!(
                    "pool {}: the space of {} cannot be counted: {reason}",
                    meant.pool.name, meant.volume.name
                ),
                "see the pool's messages",
            );
            Err(ApiProblem::new(StatusCode::INTERNAL_SERVER_ERROR, "not-counted", &refusal))
        }
        // The pool's thread has ended.
        Some(Err(_)) => Err(OrderRefusal::Stopped.into()),
    }
}
