//! Pools.

use super::{ApiState, caller::Caller, orders::pool_of, problem::ApiProblem, rows::PoolRow};
use crate::journal::tokens::Role;
use axum::{
    Json,
    extract::{Path, Query, State},
};
use serde::Deserialize;
use utoipa::IntoParams;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolFilter {
    /// Name of the pool.
    name: Option<String>,
}

/// Lists the pools, those that did not open included.
#[utoipa::path(get, path = "/v1/pools", tag = "pools", params(PoolFilter),
    responses((status = 200, description = "All pools, by name", body = Vec<PoolRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<PoolFilter>,
) -> Result<Json<Vec<PoolRow>>, ApiProblem> {
    caller.need(Role::Read)?;
    let site = api.site.look();
    let mut rows: Vec<PoolRow> = site.pools.values().map(PoolRow::of).collect();
    for (name, refusal) in &site.stopped {
        match rows.iter_mut().find(|row| row.name == *name) {
            Some(row) => drop(row.reason.get_or_insert(refusal.to_string())),
            None => rows.push(PoolRow::stopped(name, refusal.to_string())),
        }
    }
    rows.retain(|row| caller.sees(&row.name) && filter.name.as_ref().is_none_or(|name| row.name == *name));
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Json(rows))
}

/// Shows a pool.
#[utoipa::path(get, path = "/v1/pools/{pool}", tag = "pools", params(("pool" = String, Path, description = "UUID")),
    responses((status = 200, description = "The pool", body = PoolRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(pool): Path<String>,
) -> Result<Json<PoolRow>, ApiProblem> {
    caller.need(Role::Read)?;
    Ok(Json(PoolRow::of(&pool_of(&api, &caller, &pool)?)))
}
