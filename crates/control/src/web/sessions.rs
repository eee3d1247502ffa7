//! Sessions: the hosts that use targets and exports now.

use super::{
    ApiState,
    caller::Caller,
    orders::order,
    problem::ApiProblem,
    row_changes::{AuditedChanges, missing},
};
use crate::{
    journal::tokens::CallerRole,
    session_view::{SessionProtocol, SessionView},
    site::handle::PoolHandle,
};
use axum::{
    Json,
    extract::{Path, Query, State},
    response::{IntoResponse, Response},
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use utoipa::{IntoParams, ToSchema};

/// A host that uses a target or an export.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionRow {
    pub id: String,
    pub protocol: SessionKind,
    /// iSCSI name; NBD clients have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiator: Option<String>,
    /// Address of the host.
    pub peer: String,
    pub pool: String,
    /// iSCSI name of the target, or name of the NBD export.
    pub service: String,
    pub since: String,
    /// Seconds since then, as the server's clock has it.
    pub seconds: u64,
    /// Units that it may use; none of NBD.
    pub units: Vec<SessionUnit>,
    /// Sessions of the same initiator to the same target: its paths.
    pub paths: usize,
    pub is_read_only: bool,
    pub is_encrypted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SessionKind {
    Iscsi,
    Nbd,
}

/// A unit in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionUnit {
    pub number: u64,
    pub may_write: bool,
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct SessionFilter {
    /// Name of the pool.
    pool: Option<String>,
    /// iSCSI name of the host.
    initiator: Option<String>,
    /// iSCSI name of the target, or name of the export.
    service: Option<String>,
    protocol: Option<SessionKind>,
}

impl SessionRow {
    fn of(pool: &str, session: &SessionView, paths: &PathCounts<'_>, now: i64) -> Self {
        Self {
            id: session.id.clone(),
            protocol: match session.protocol {
                SessionProtocol::Iscsi => SessionKind::Iscsi,
                SessionProtocol::Nbd => SessionKind::Nbd,
            },
            initiator: session.initiator.clone(),
            peer: session.peer.clone(),
            pool: pool.to_owned(),
            service: session.service.clone(),
            since: utc_time(session.since.seconds),
            seconds: now.saturating_sub(session.since.seconds).max(0).unsigned_abs(),
            units: session
                .units
                .iter()
                .map(|&(number, may_write)| SessionUnit { number, may_write })
                .collect(),
            paths: match session.protocol {
                SessionProtocol::Iscsi => paths
                    .0
                    .get(&(session.initiator.as_deref(), session.service.as_str()))
                    .copied()
                    .unwrap_or(1),
                // They have no names: nobody knows which of them are one host.
                SessionProtocol::Nbd => 1,
            },
            is_read_only: session.is_read_only,
            is_encrypted: session.is_encrypted,
        }
    }
}

/// Numbers of a pool's sessions by initiator and target.
struct PathCounts<'s>(HashMap<(Option<&'s str>, &'s str), usize>);

impl<'s> PathCounts<'s> {
    fn of(sessions: &'s [SessionView]) -> Self {
        let mut counts = HashMap::new();
        for session in sessions.iter().filter(|session| session.protocol == SessionProtocol::Iscsi) {
            *counts.entry((session.initiator.as_deref(), session.service.as_str())).or_default() += 1;
        }
        Self(counts)
    }
}

fn rows(api: &ApiState, caller: &Caller) -> Vec<SessionRow> {
    let (view, now) = (api.site.look(), api.world.unix_s());
    let pools = view.pools.values().filter(|pool| caller.sees(&pool.name));
    let rows = pools.filter_map(|pool| Some((pool, pool.view()?))).flat_map(|(pool, view)| {
        let paths = PathCounts::of(&view.sessions);
        let row = |session| SessionRow::of(&pool.name, session, &paths, now);
        view.sessions.iter().map(row).collect::<Vec<_>>()
    });
    rows.collect()
}

/// Lists the hosts that are connected: sessions of iSCSI, and clients of NBD. It is a second old at most.
#[utoipa::path(get, path = "/v1/sessions", tag = "services", params(SessionFilter),
    responses((status = 200, description = "All sessions", body = Vec<SessionRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<SessionFilter>,
) -> Result<Json<Vec<SessionRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let is_meant = |row: &SessionRow| {
        let is = |wanted: &Option<String>, now: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(now))
        };
        is(&filter.pool, &row.pool)
            && is(&filter.initiator, row.initiator.as_deref().unwrap_or_default())
            && is(&filter.service, &row.service)
            && filter.protocol.is_none_or(|protocol| protocol == row.protocol)
    };
    Ok(Json(rows(&api, &caller).into_iter().filter(is_meant).collect()))
}

/// Shows a session.
#[utoipa::path(get, path = "/v1/sessions/{session}", tag = "services", params(("session" = String, Path, description = "Its id")),
    responses((status = 200, description = "The session", body = SessionRow), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<SessionRow>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let row = rows(&api, &caller).into_iter().find(|row| row.id == id);
    row.map(Json).ok_or_else(|| missing("session", &id))
}

/// Ends a session: an initiator is asked to log out, and is cut off after five seconds. Commands that it has sent are done. It
/// may log in again, unless its rights are taken away.
#[utoipa::path(delete, path = "/v1/sessions/{session}", tag = "services", params(("session" = String, Path, description = "Its id")),
    responses((status = 200, description = "It ends", body = SessionRow), (status = "default", response = ApiProblem)))]
pub(super) async fn end(
    State(api): State<ApiState>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    let view = api.site.look();
    let has_it = |pool: &&PoolHandle| pool.last_view().sessions.iter().any(|session| session.id == id);
    let pool = view.pools.values().filter(|pool| caller.sees(&pool.name)).find(has_it);
    let pool = pool.ok_or_else(|| missing("session", &id))?;
    let meant = id.clone();
    let ended = order(pool, "end session", move |served| {
        Box::pin(async move { Ok((served.end_session(&meant), served.sessions())) })
    });
    let (ended, all) = ended.await?;
    let ended = ended.ok_or_else(|| missing("session", &id))?;
    let row = SessionRow::of(&pool.name, &ended, &PathCounts::of(&all), api.world.unix_s());
    let words = format!("session of {} with {} ends", ended.host(), ended.service);
    let mut response = Json(row).into_response();
    response.extensions_mut().insert(AuditedChanges(words));
    Ok(response)
}
