//! Conditions that are open, and who has taken them on.

use super::{ApiState, caller::Caller, events::EventSeverity, problem::ApiProblem};
use crate::{
    conditions::{Acknowledgement, OpenCondition},
    journal::tokens::CallerRole,
    kinds,
};
use axum::{
    Json,
    extract::{Path, State},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A condition that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConditionRow {
    /// The same whenever this condition of this subject is open.
    pub id: String,
    /// Kind, as its event has it.
    pub kind: String,
    pub severity: EventSeverity,
    /// Name of the pool, or of a thread.
    pub pool: String,
    /// The drive, schedule, notifier or file, if there may be several; may be empty.
    pub subject: String,
    pub text: String,
    /// Advice for the person who looks at it.
    pub next_step: String,
    pub raised_at: String,
    /// The caller who has taken it on; left out if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledged_at: Option<String>,
}

impl ConditionRow {
    pub(super) fn of(open: OpenCondition) -> Self {
        let severity = EventSeverity::of(open.severity());
        let next_step = match (open.next_step.is_empty(), kinds::kind(&open.kind)) {
            (true, Some(kind)) => kind.next_step.to_owned(),
            _ => open.next_step,
        };
        let (acknowledged_by, acknowledged_at) =
            open.acknowledged.map(|Acknowledgement { who, at }| (who, at)).unzip();
        let OpenCondition { id, kind, pool, subject, text, raised_at, .. } = open;
        Self {
            id,
            kind,
            severity,
            pool,
            subject,
            text,
            next_step,
            raised_at,
            acknowledged_by,
            acknowledged_at,
        }
    }
}

/// Lists the conditions that are open.
#[utoipa::path(get, path = "/v1/conditions", tag = "events",
    responses((status = 200, description = "All open conditions, by id", body = Vec<ConditionRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<ConditionRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let open = api.events.conditions().into_iter().filter(|open| caller.sees(&open.pool));
    Ok(Json(open.map(ConditionRow::of).collect()))
}

/// Records that the caller has taken a condition on. It stays open until it has ended, and is no news in digests.
#[utoipa::path(post, path = "/v1/conditions/{condition}/acknowledge", tag = "events",
    params(("condition" = String, Path, description = "Id of the condition")),
    responses((status = 200, description = "The condition", body = ConditionRow), (status = "default", response = ApiProblem)))]
pub(super) async fn acknowledge(
    State(api): State<ApiState>,
    caller: Caller,
    Path(condition): Path<String>,
) -> Result<Json<ConditionRow>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    let gone = || ApiProblem::not_found(format!("no condition {condition:?} is open"));
    api.events.condition(&condition).filter(|open| caller.sees(&open.pool)).ok_or_else(gone)?;
    let known = api.events.acknowledge(&condition, &caller.name, api.world.wall()).ok_or_else(gone)?;
    Ok(Json(ConditionRow::of(known)))
}
