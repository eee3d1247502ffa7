//! Health, for everybody.

use super::ApiState;
use crate::site::power::SitePower;
use axum::{extract::State, http::StatusCode};

/// Answers as long as the API does.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "The API answers", body = String)),
    security(()))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Answers 200 while clients are served and no pool has stopped, else 503 with the pools.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = 200, description = "All pools of the site are served", body = String),
    (status = 503, description = "Names of the pools that are not, a line each", body = String)), security(()))]
pub(super) async fn readyz(State(api): State<ApiState>) -> (StatusCode, String) {
    let site = api.site.look();
    if !site.is_open {
        return (StatusCode::SERVICE_UNAVAILABLE, "starting\n".to_owned());
    }
    if site.power == SitePower::Low {
        return (StatusCode::SERVICE_UNAVAILABLE, "power is low: nothing is served\n".to_owned());
    }
    let stopped = site.stopped.keys().cloned();
    // Without reasons: this answers everybody.
    let failed = site.pools.values().filter(|pool| pool.view().is_none_or(|view| view.failure.is_some()));
    let lines: Vec<String> = stopped
        .chain(failed.map(|pool| pool.name.clone()))
        .map(|pool| format!("pool {pool}: stopped\n"))
        .collect();
    match lines.is_empty() {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, lines.concat()),
    }
}
