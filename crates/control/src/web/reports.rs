//! Reports of `prove`, and others of their form, that the server keeps for people to look at.

use super::{ApiState, caller::Caller, changing::ChangeIdentity, problem::ApiProblem};
use crate::{
    journal::tokens::CallerRole,
    report_folder::{KeepingOutcome, KeptReport, ReportFolder},
};
use axum::{
    Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use report::{Refusal, Verdict, VerdictOutcome, calendar::utc_time, json::DocumentSummary};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Begin of the paths of reports.
pub(super) const PATH: &str = "/v1/reports/";

/// Answer of a report to its question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReportOutcome {
    Pass,
    Fail,
    /// The run ended without an answer.
    Incomplete,
}

/// Verdict of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportVerdictRow {
    pub outcome: ReportOutcome,
    /// Kind and extent of the test.
    pub class: String,
    /// The answer in a sentence.
    pub headline: String,
}

/// A report that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportRow {
    pub name: String,
    pub bytes: u64,
    /// The last change of its file.
    pub kept_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The subject, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subtitle: Option<String>,
    /// The machine of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// As the report has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Left out if the report judges nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ReportVerdictRow>,
    /// The reason if the file cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Reports that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportList {
    /// The newest first, at most 256.
    pub reports: Vec<ReportRow>,
    /// Older ones.
    pub left_out: usize,
}

impl ReportVerdictRow {
    fn of(Verdict { outcome, class, headline }: Verdict) -> Self {
        let outcome = match outcome {
            VerdictOutcome::Pass => ReportOutcome::Pass,
            VerdictOutcome::Fail => ReportOutcome::Fail,
            VerdictOutcome::Incomplete => ReportOutcome::Incomplete,
        };
        Self { outcome, class, headline }
    }
}

impl ReportRow {
    fn of(KeptReport { name, size, kept_at, facts }: KeptReport) -> Self {
        let (bytes, kept_at) = (size.0, utc_time(kept_at.seconds));
        let row = Self {
            name,
            bytes,
            kept_at,
            title: None,
            subtitle: None,
            machine: None,
            created: None,
            verdict: None,
            problem: None,
        };
        let filled = |text: String| Some(text).filter(|text| !text.is_empty());
        match facts {
            Err(problem) => Self { problem: Some(problem), ..row },
            Ok(DocumentSummary { title, subtitle, meta, verdict }) => Self {
                title: Some(title),
                subtitle: filled(subtitle),
                machine: filled(meta.machine),
                created: filled(meta.created_utc),
                verdict: verdict.map(ReportVerdictRow::of),
                ..row
            },
        }
    }
}

fn folder_of(api: &ApiState) -> Result<&ReportFolder, ApiProblem> {
    let nowhere = || Refusal::new("this server has no folder for reports", "start it with a state folder");
    api.reports.as_ref().ok_or_else(|| ApiProblem::refused(&nowhere()))
}

/// Lists the reports that the server keeps.
#[utoipa::path(get, path = "/v1/reports", tag = "reports",
    responses((status = 200, description = "The newest reports", body = ReportList), (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<ReportList>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let kept = folder_of(&api)?.list()?;
    let reports = kept.reports.into_iter().map(ReportRow::of).collect();
    Ok(Json(ReportList { reports, left_out: kept.left_out }))
}

/// Shows a report, as the .json that was sent.
#[utoipa::path(get, path = "/v1/reports/{report}", tag = "reports", params(("report" = String, Path, description = "Name of the report")),
    responses((status = 200, description = "The report, of the format spindle-report", body = String, content_type = "application/json"),
    (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    match folder_of(&api)?.read(&name)? {
        Some(text) => Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response()),
        None => Err(missing(&name)),
    }
}

/// Keeps a report: the .json that `prove` wrote beside it, at most 8 MiB.
#[utoipa::path(put, path = "/v1/reports/{report}", tag = "reports", params(("report" = String, Path, description = "Name of the report")),
    request_body(content = String, content_type = "application/json"),
    responses((status = 201, description = "It is kept", body = ReportRow), (status = 200, description = "It was there", body = ReportRow),
    (status = "default", response = ApiProblem)))]
pub(super) async fn keep(
    State(api): State<ApiState>,
    caller: Caller,
    Path(name): Path<String>,
    text: String,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Operate)?;
    caller.need_all_pools()?;
    let folder = folder_of(&api)?;
    let status = match folder.keep(&name, &text)? {
        KeepingOutcome::New => StatusCode::CREATED,
        KeepingOutcome::Same => StatusCode::OK,
    };
    let row = folder.list()?.reports.into_iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| missing(&name))?;
    Ok((status, Json(ReportRow::of(row))).into_response())
}

/// Deletes a report.
#[utoipa::path(delete, path = "/v1/reports/{report}", tag = "reports", params(("report" = String, Path, description = "Name of the report")),
    responses((status = 204, description = "It is gone"), (status = "default", response = ApiProblem)))]
pub(super) async fn delete(
    State(api): State<ApiState>,
    caller: Caller,
    identity: ChangeIdentity,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    // An earlier request with this key may have deleted it.
    match folder_of(&api)?.delete(&name)? || identity.may_be_done {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(missing(&name)),
    }
}

fn missing(name: &str) -> ApiProblem {
    ApiProblem::not_found(format!("there is no report {name:?}"))
}
