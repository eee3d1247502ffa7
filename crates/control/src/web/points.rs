//! Points of backups, for those who keep a set from another host.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::{
    journal::tokens::CallerRole,
    order::ANSWER_WITHIN,
    sets::points::{parts_of_id, points_in},
};
use axum::{
    Json,
    extract::{Query, State},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::{IntoParams, ToSchema};
use world::with_deadline;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PointFilter {
    /// Name of the set; all sets if left out.
    set: Option<String>,
}

/// A snapshot that is a point of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupPointRow {
    pub pool: String,
    /// Name of the volume.
    pub volume: String,
    /// UUIDs of the volume and of the snapshot.
    pub volume_id: String,
    pub snapshot_id: String,
    /// Name of the backup.
    pub name: String,
    /// Seconds since it was taken, by the server's clock.
    pub age_seconds: u64,
    /// The note that its set keeps with it.
    pub note: String,
    /// Its exports and units, in words: while it has one, it is in use.
    pub services: Vec<String>,
}

/// The points of backups in the pools that answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BackupPointList {
    pub points: Vec<BackupPointRow>,
    /// Names of the pools that answered.
    pub pools: Vec<String>,
    /// The others, with the reasons.
    pub silent: BTreeMap<String, String>,
}

/// Lists the points of backups in all pools: by their notes, sets know their own.
#[utoipa::path(get, path = "/v1/points", tag = "snapshots", params(PointFilter),
    responses((status = 200, description = "The points", body = BackupPointList), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(PointFilter { set }): Query<PointFilter>,
) -> Result<Json<BackupPointList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let now_s = api.world.wall().seconds;
    let mut list = BackupPointList::default();
    for (name, refusal) in site.stopped.iter().filter(|(name, _)| caller.sees(name)) {
        list.silent.insert(name.clone(), refusal.to_string());
    }
    for (name, pool) in site.pools.iter().filter(|(name, _)| caller.sees(name)) {
        let _place = api.readers.acquire().await.expect("it is never closed");
        let points = with_deadline(api.world.sleep(ANSWER_WITHIN), points_in(pool, set.clone())).await;
        match points {
            Some(Ok(points)) => {
                list.silent.remove(name);
                list.pools.push(name.clone());
                list.points.extend(points.into_iter().map(|point| {
                    let (volume_id, snapshot_id) = parts_of_id(&point.found.point.id);
                    BackupPointRow {
                        pool: name.clone(),
                        volume: point.found.point.volume.clone(),
                        volume_id: volume_id.to_owned(),
                        snapshot_id: snapshot_id.to_owned(),
                        name: point.found.name.clone(),
                        age_seconds: (now_s - (point.taken.0 / 1_000_000_000) as i64).max(0) as u64,
                        note: String::from_utf8_lossy(&point.found.note).into_owned(),
                        services: point.services,
                    }
                }));
            }
            Some(Err(refusal)) => drop(list.silent.insert(name.clone(), refusal.to_string())),
            None => {
                let why = format!("it did not answer within {} s", ANSWER_WITHIN.as_secs());
                list.silent.insert(name.clone(), why);
            }
        }
    }
    Ok(Json(list))
}
