//! Metrics for Prometheus.

use super::{ApiState, caller::Caller, dr_rows::site_name, problem::ApiProblem};
use crate::{
    journal::tokens::CallerRole,
    metrics::{MeteredDrGroup, MeteredSite, MetricsFormat, NamedFigures, render_site},
};
use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};

/// Gives all metrics as text, in the format that the header `Accept` asks for.
#[utoipa::path(get, path = "/metrics", tag = "metrics", responses(
    (status = 200, description = "OpenMetrics if Accept asks for it, else Prometheus's text format", content(
        (String = "text/plain"), (String = "application/openmetrics-text"))),
    (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let site = api.site.look();
    let open =
        site.pools.values().map(|pool| NamedFigures { pool: pool.name.clone(), figures: pool.figures() });
    let mut pools: Vec<NamedFigures> = open.collect();
    let stopped = site.stopped.keys().filter(|name| !site.pools.contains_key(*name));
    pools.extend(stopped.map(|name| NamedFigures { pool: name.clone(), figures: None }));
    pools.retain(|pool| caller.sees(&pool.pool));
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::accepted(accept);
    let link = api.link.as_ref().map(|link| link.look());
    let seen = site.pools.values().filter(|pool| caller.sees(&pool.name));
    let groups = seen.flat_map(|pool| {
        let groups = pool.last_view().dr.groups.clone().into_iter();
        groups.map(|view| MeteredDrGroup {
            pool: pool.name.clone(),
            peer: site_name(link.as_deref(), view.peer),
            view,
        })
    });
    let groups = groups.collect();
    // Paired sites are of no pool.
    let peers = link.filter(|_| caller.pools().is_empty()).map_or_else(Vec::new, |link| link.peers.clone());
    let text = render_site(MeteredSite { pools, groups, peers }, &site.metrics, format);
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}
