//! Changes of one row of the site: parameters and answers that all of them have.

use super::{
    ApiState,
    caller::Caller,
    changing::{ChangeIdentity, FirstSeen},
    problem::ApiProblem,
    site::ask,
};
use crate::{
    journal::tokens::CallerRole,
    site::{
        SiteChange,
        file_merge::FileDifference,
        handle::{NewSecret, OnlineChange, RowAnswer, WantedAnswer},
        row_change::{RowEffect, SiteRowChange},
        row_refusal::{RowRefusal, RowRefusalKind},
    },
};
use axum::{
    Json,
    extract::{FromRequestParts, Query},
    http::{StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use plan::site::Site;
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// The way of a change.
#[derive(Clone, Copy, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct RowChangeWay {
    /// Hosts that use what is taken away lose their sessions; without it they keep it, and the change is refused.
    #[serde(default)]
    force: bool,
    /// Only the changes are shown.
    #[serde(default)]
    dry_run: bool,
}

/// The surroundings of a change: who asks, how, and of which version.
pub(super) struct RowChanger {
    api: ApiState,
    caller: Caller,
    identity: ChangeIdentity,
    if_match: Option<String>,
    /// The row's version before the first request with the same key.
    before: Option<String>,
    way: RowChangeWay,
}

impl FromRequestParts<ApiState> for RowChanger {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Response> {
        let caller = Caller::from_request_parts(parts, api).await.map_err(IntoResponse::into_response)?;
        let identity =
            parts.extensions.get::<ChangeIdentity>().copied().expect("every change has an identity");
        let Query(way) = Query::from_request_parts(parts, api).await.map_err(IntoResponse::into_response)?;
        let tag = parts.headers.get(header::IF_MATCH).map(|tag| tag.to_str().unwrap_or_default().to_owned());
        let if_match = tag.filter(|tag| tag != "*");
        // Before the body is looked at: the role that any of these changes takes.
        let may = caller.need(CallerRole::Operate).and_then(|()| caller.need_all_pools());
        may.map_err(IntoResponse::into_response)?;
        let FirstSeen(before) = parts.extensions.get::<FirstSeen>().cloned().expect("every change has one");
        let before = before.filter(|_| identity.may_be_done).map(|before| before.tag);
        Ok(Self { api: Arc::clone(api), caller, identity, if_match, before, way })
    }
}

/// Outcome of a change of a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowChangeResult {
    pub result: RowChangeOutcome,
    /// It was only shown.
    pub is_dry_run: bool,
    /// Services before and after.
    pub changes: Vec<SiteChange>,
    /// Hosts whose sessions end, with what they lose.
    pub ended_sessions: Vec<String>,
    /// Parts of the site that are not served, and dangers.
    pub notes: Vec<String>,
    pub site_file: SiteFileDifference,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowChangeOutcome {
    Created,
    Changed,
    Removed,
    /// It was so already.
    Unchanged,
}

/// Tables for the site file, so that it says what is served. A start with the same file keeps what is served; `POST
/// /v1/site/apply` of it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SiteFileDifference {
    /// TOML tables, instead of those of the same names.
    pub tables: String,
    /// Tables to take out: `[[target]] NAME`.
    pub gone: Vec<String>,
}

/// The changes of a row, for the audit.
#[derive(Clone, Debug)]
pub(super) struct AuditedChanges(pub String);

impl RowChanger {
    /// The served site.
    pub fn site(&self) -> Arc<Site> {
        Arc::clone(&self.api.site.look().site)
    }

    pub fn api(&self) -> &ApiState {
        &self.api
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Makes a change, for callers with `role`.
    pub async fn change(
        self,
        role: CallerRole,
        change: SiteRowChange,
        secret: Option<String>,
    ) -> Result<Response, ApiProblem> {
        let Self { api, caller, identity, if_match, before, way } = self;
        caller.need(role)?;
        caller.need_all_pools()?;
        let is_removal = change.is_removal();
        let was_there = before.is_some();
        // Once it may be done, a row that is neither as before nor as wanted is somebody else's.
        let if_match = if_match.or(before);
        let secret = secret.map(|text| NewSecret { text, uuid: identity.uuid });
        let wanted = OnlineChange { change, secret, if_match, is_forced: way.force, is_dry_run: way.dry_run };
        let answer = match ask(&api, WantedAnswer::Change(Box::new(wanted))).await {
            Ok(answer) => answer,
            // An earlier request with the same key may have removed it.
            Err(problem) if is_removal && was_there && problem.status == 404 => {
                return Ok(Json(RowChangeResult::gone()).into_response());
            }
            Err(problem) => return Err(problem),
        };
        let RowAnswer { effect, ended, difference } = answer.row.expect("a row was changed");
        let words: Vec<String> = answer.changes.iter().map(ToString::to_string).collect();
        let audited_ends = ended.join(", ");
        let result = RowChangeResult {
            result: effect.into(),
            is_dry_run: way.dry_run,
            changes: answer.changes,
            ended_sessions: ended,
            notes: answer.notes,
            site_file: difference.into(),
        };
        let is_new = effect == RowEffect::Created && !way.dry_run;
        let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
        let mut response = (status, Json(result)).into_response();
        let shown = if way.dry_run { "only shown: " } else { "" };
        let ends = match audited_ends.is_empty() {
            true => String::new(),
            false => format!("; sessions that end: {audited_ends}"),
        };
        response.extensions_mut().insert(AuditedChanges(format!("{shown}{}{ends}", words.join("; "))));
        Ok(response)
    }
}

impl RowChangeResult {
    fn gone() -> Self {
        Self {
            result: RowChangeOutcome::Removed,
            is_dry_run: false,
            changes: Vec::new(),
            ended_sessions: Vec::new(),
            notes: Vec::new(),
            site_file: SiteFileDifference::default(),
        }
    }
}

impl From<RowEffect> for RowChangeOutcome {
    fn from(effect: RowEffect) -> Self {
        match effect {
            RowEffect::Created => Self::Created,
            RowEffect::Changed => Self::Changed,
            RowEffect::Removed => Self::Removed,
            RowEffect::None => Self::Unchanged,
        }
    }
}

impl From<FileDifference> for SiteFileDifference {
    fn from(FileDifference { tables, gone }: FileDifference) -> Self {
        Self { tables, gone }
    }
}

impl From<RowRefusal> for ApiProblem {
    fn from(RowRefusal { kind, refusal }: RowRefusal) -> Self {
        let (status, word) = match kind {
            RowRefusalKind::NotFound => (StatusCode::NOT_FOUND, "not-found"),
            RowRefusalKind::Exists => (StatusCode::CONFLICT, "exists"),
            RowRefusalKind::Bad => (StatusCode::BAD_REQUEST, "bad-request"),
            RowRefusalKind::InUse => (StatusCode::CONFLICT, "in-use"),
            RowRefusalKind::Stale => (StatusCode::PRECONDITION_FAILED, "changed"),
            RowRefusalKind::NoAnswer => (StatusCode::GATEWAY_TIMEOUT, "no-answer"),
            RowRefusalKind::Refused => return refusal.into(),
        };
        Self::new(status, word, &refusal)
    }
}

/// The problem of a row that is not there.
pub(super) fn missing(kind: &str, name: &str) -> ApiProblem {
    let refusal = Refusal::new(format!("there is no {kind} {name:?}"), "list what there is");
    ApiProblem::new(StatusCode::NOT_FOUND, "not-found", &refusal)
}
