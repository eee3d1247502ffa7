//! Targets and NBD exports, as they are served.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::journal::tokens::CallerRole;
use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TargetRow {
    /// iSCSI name.
    pub name: String,
    /// Name of the pool in which its units lie.
    pub pool: String,
    /// Logical unit numbers.
    pub units: Vec<u64>,
}

/// An NBD export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExportRow {
    pub name: String,
    /// Name of its pool.
    pub pool: String,
    pub description: String,
}

/// Lists the iSCSI targets.
#[utoipa::path(get, path = "/v1/targets", tag = "services",
    responses((status = 200, description = "All targets", body = Vec<TargetRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn targets(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<TargetRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let rows = pools.filter_map(|pool| Some((pool, pool.view()?))).flat_map(|(pool, view)| {
        let row = |target: &iscsi::target::ListedTarget| TargetRow {
            name: target.name.clone(),
            pool: pool.name.clone(),
            units: target.units.iter().copied().collect(),
        };
        view.targets.iter().map(row).collect::<Vec<_>>()
    });
    Ok(Json(rows.collect()))
}

/// Lists the NBD exports.
#[utoipa::path(get, path = "/v1/exports", tag = "services",
    responses((status = 200, description = "All NBD exports", body = Vec<ExportRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn exports(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<ExportRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let pools = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let rows = pools.filter_map(|pool| Some((pool, pool.view()?))).flat_map(|(pool, view)| {
        let row = |export: &nbd::ListedExport| ExportRow {
            name: export.name.clone(),
            pool: pool.name.clone(),
            description: export.description.clone(),
        };
        view.exports.iter().map(row).collect::<Vec<_>>()
    });
    Ok(Json(rows.collect()))
}
