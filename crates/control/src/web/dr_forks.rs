//! Forks of DR groups: volumes that keep what this site once gave up for the other one's history.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    problem::ApiProblem,
    volumes,
};
use crate::{journal::tokens::CallerRole, site::handle::PoolHandle};
use array::format::BLOCK_BYTES;
use axum::{
    Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
};
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrForkRow {
    /// UUID of the volume that keeps it.
    pub id: String,
    pub name: String,
    pub pool: String,
    /// The DR group, and its volume, of whose history it is.
    pub group: String,
    pub group_name: String,
    pub volume: String,
    /// The end of that history here; left out if the site knows it no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Blocks of 4 KiB that this site had changed of its own, behind the history that both sites had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Bytes of these blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Forks of this site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DrForkList {
    /// By pool and name.
    pub forks: Vec<DrForkRow>,
    /// A pool is not open: there may be more.
    pub is_incomplete: bool,
}

fn rows(api: &ApiState, caller: &Caller) -> DrForkList {
    let site = api.site.look();
    let mut forks: Vec<DrForkRow> =
        site.pools.values().filter(|pool| caller.sees(&pool.name)).flat_map(rows_of).collect();
    forks.sort_by(|one, other| (&one.pool, &one.name).cmp(&(&other.pool, &other.name)));
    DrForkList { forks, is_incomplete: super::orders::has_stopped_pools(&site) }
}

fn rows_of(pool: &PoolHandle) -> Vec<DrForkRow> {
    let view = pool.last_view();
    let name_of = |id| view.volumes.iter().find(|row| row.volume == id).map(|row| row.name.clone());
    let mut rows = Vec::new();
    for group in &view.dr.groups {
        rows.extend(group.report.forks.iter().map(|fork| DrForkRow {
            id: fork.volume.to_string(),
            name: fork.name.clone(),
            pool: pool.name.clone(),
            group: group.group.to_string(),
            group_name: group.name.clone(),
            volume: name_of(fork.source).unwrap_or_else(|| fork.source.to_string()),
            kept: fork.kept.map(|kept| utc_time(kept.kept_unix_s as i64)),
            blocks: fork.kept.map(|kept| kept.blocks),
            bytes: fork.kept.map(|kept| kept.blocks.saturating_mul(BLOCK_BYTES as u64)),
        }));
    }
    rows
}

/// Lists the forks of this site's DR groups: what it gave up when the other site's history counted, until it is dropped.
#[utoipa::path(get, path = "/v1/dr/forks", tag = "dr",
    responses((status = 200, description = "All forks", body = DrForkList), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<DrForkList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    Ok(Json(rows(&api, &caller)))
}

/// Drops a fork: its volume is deleted, and what this site once wrote of its own is gone.
#[utoipa::path(delete, path = "/v1/dr/forks/{fork}", tag = "dr", params(("fork" = String, Path, description = "UUID of its volume")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn drop_fork(
    State(api): State<ApiState>,
    caller: Caller,
    (identity, first_seen): (ChangeIdentity, FirstSeen),
    headers: HeaderMap,
    Path(fork): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let is_fork = rows(&api, &caller).forks.iter().any(|row| row.id == fork);
    let is_volume = super::orders::volume_of(&api, &caller, &fork).is_ok();
    if is_volume && !is_fork {
        let refusal = Refusal::new(
            format!("volume {fork} is no fork of a DR group"),
            "'spindle dr fork list' shows them; 'spindle volume delete' deletes others",
        );
        return Err(ApiProblem::refused(&refusal));
    }
    volumes::delete(State(api), caller, (identity, first_seen), headers, Path(fork)).await
}
