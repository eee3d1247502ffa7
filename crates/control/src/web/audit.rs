//! The audit, read.

use super::{ApiState, caller::Caller, problem::ApiProblem, volumes::page_rows};
use crate::journal::{audit::AuditLine, tokens::CallerRole};
use axum::{
    Json,
    extract::{Query, State},
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditFilter {
    /// Number of the last line of the page before.
    after: Option<u64>,
    /// Most lines of the page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
}

/// A line of the audit: a change that was asked for, or its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditRow {
    pub number: u64,
    pub at: String,
    /// Seconds since 1970; with the other fields it is in the hash.
    pub unix_s: i64,
    pub who: String,
    pub whence: String,
    /// Method and path.
    pub what: String,
    /// The request's body, at most 4 KiB of it.
    pub wanted: String,
    /// Number of the line that announced the change; none for an announcement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// HTTP status and problem; `begun` in an announcement.
    pub outcome: String,
    pub before_hash: String,
    pub hash: String,
}

impl AuditRow {
    fn of(AuditLine { number, unix_s, event, before_hash, hash }: AuditLine) -> Self {
        Self {
            number,
            at: utc_time(unix_s),
            unix_s,
            who: event.who,
            whence: event.whence,
            what: event.what,
            wanted: event.wanted,
            of: event.of,
            outcome: event.outcome,
            before_hash,
            hash,
        }
    }
}

/// Lists the audit, oldest first.
#[utoipa::path(get, path = "/v1/audit", tag = "audit", params(AuditFilter),
    responses((status = 200, description = "A page", body = Vec<AuditRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    Query(filter): Query<AuditFilter>,
) -> Result<Json<Vec<AuditRow>>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    let after = filter.after.unwrap_or_default();
    if i64::try_from(after).is_err() {
        return Err(ApiProblem::bad_request(
            format!("{after} is no number of a line"),
            "numbers begin with 1",
        ));
    }
    let lines = api.journal.audit_lines(after, page_rows(filter.limit)?)?;
    Ok(Json(lines.into_iter().map(AuditRow::of).collect()))
}
