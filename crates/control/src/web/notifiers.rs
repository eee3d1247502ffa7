//! Notifiers: how far each has come, and tests.

use super::{ApiState, caller::Caller, problem::ApiProblem};
use crate::{
    journal::tokens::CallerRole,
    notifying::{NotifierState, TestRefusal, TestRequest},
};
use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
};
use report::{Refusal, calendar::utc_time};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use utoipa::ToSchema;

const ENDED: &str = "the thread of events has ended: nothing is delivered";

/// A notifier of the site file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotifierRow {
    pub name: String,
    /// Number of an event before which everything is delivered.
    pub delivered_to: u64,
    /// Time of the last message that was accepted since the server started; left out if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
    /// Since when it fails; left out if it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<String>,
    /// The reason for which it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Outcome of a test message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NotifierTest {
    pub name: String,
    /// The receiver has accepted it.
    pub is_delivered: bool,
    /// The reason why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Lists the notifiers.
#[utoipa::path(get, path = "/v1/notifiers", tag = "events",
    responses((status = 200, description = "All notifiers, by name", body = Vec<NotifierRow>), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<Vec<NotifierRow>>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let row = |(name, place): (String, crate::notifying::NotifierPlace)| {
        let NotifierState { delivered_unix_s, failing } = api.events.notifier_state(&name);
        // That which lasts longest.
        let failing = failing.into_values().min();
        let (failing_since, mut reason) = failing.map(|(since, why)| (utc_time(since), why)).unzip();
        if api.events.has_failed() {
            reason = Some(ENDED.to_owned());
        }
        let delivered_at = delivered_unix_s.map(utc_time);
        NotifierRow { name, delivered_to: place.earliest(), delivered_at, failing_since, reason }
    };
    Ok(Json(api.events.places().into_iter().map(row).collect()))
}

/// Sends a test message, and waits for its outcome.
#[utoipa::path(post, path = "/v1/notifiers/{notifier}/test", tag = "events",
    params(("notifier" = String, Path, description = "Name of the notifier")),
    responses((status = 200, description = "The outcome", body = NotifierTest), (status = "default", response = ApiProblem)))]
pub(super) async fn test(
    State(api): State<ApiState>,
    caller: Caller,
    Path(notifier): Path<String>,
) -> Result<Json<NotifierTest>, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    caller.need_all_pools()?;
    let (outcome, answer) = oneshot::channel();
    let request = TestRequest { notifier: notifier.clone(), outcome };
    let ended = || {
        let refusal = Refusal::new(ENDED, "see the server's log, and start it again");
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "ending", &refusal)
    };
    api.events.ask_test(request).map_err(|refused| match refused {
        TestRefusal::Full => {
            let refusal = Refusal::new("other tests wait already", "try again");
            ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal)
        }
        TestRefusal::Ended => ended(),
    })?;
    let answer = answer.await.map_err(|_| ended())?;
    let answer = answer.ok_or_else(|| {
        let mut problem = ApiProblem::not_found(format!("there is no notifier {notifier:?}"));
        problem.next = Some("the site file lists them as [[notify]]; 'spindle site' prints it".to_owned());
        problem
    })?;
    let reason = answer.err();
    Ok(Json(NotifierTest { name: notifier, is_delivered: reason.is_none(), reason }))
}
