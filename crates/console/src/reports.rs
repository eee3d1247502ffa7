//! Reports of `prove`, and others of their form: the list, a report in short, and all of it as a page of its own.

use crate::{
    assets,
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit, escaped},
};
use askama::Template;
use axum::{
    extract::Path,
    http::{Method, StatusCode, header},
    response::IntoResponse,
};
use control::web::{
    ApiProblem,
    client::{EventSeverity, ReportList, ReportOutcome, ReportRow},
};
use report::{
    Document, Refusal, Severity, Verdict, VerdictOutcome,
    html::{self, PageLinks},
    json,
};

#[derive(Template)]
#[template(path = "reports.html")]
struct ReportsPage<'a> {
    frame: &'a Frame,
    /// A problem if the caller may not see them.
    list: Result<ReportList, ApiProblem>,
}

#[derive(Template)]
#[template(path = "report.html")]
struct ReportPage<'a> {
    frame: &'a Frame,
    name: String,
    /// A problem if the file cannot be read.
    document: Result<Document, ApiProblem>,
}

/// The outcome of a report in a list: class of its mark, and word.
fn row_outcome(row: &ReportRow) -> (&'static str, &'static str) {
    match row.verdict.as_ref().map(|verdict| verdict.outcome) {
        Some(ReportOutcome::Pass) => ("good", "passed"),
        Some(ReportOutcome::Fail) => ("error", "failed"),
        Some(ReportOutcome::Incomplete) => ("warning", "incomplete"),
        None => ("", "judges nothing"),
    }
}

/// The same of a verdict.
fn outcome(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict.outcome {
        VerdictOutcome::Pass => ("good", "passed"),
        VerdictOutcome::Fail => ("error", "failed"),
        VerdictOutcome::Incomplete => ("warning", "incomplete"),
    }
}

fn severity(severity: &Severity) -> EventSeverity {
    match severity {
        Severity::Error => EventSeverity::Error,
        Severity::Warning => EventSeverity::Warning,
        Severity::Note => EventSeverity::Note,
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Reports", "Reports").await?;
    let list = visit.get("/v1/reports").await;
    shown(&ReportsPage { frame: &frame, list }, &frame)
}

pub(crate) async fn show(visit: Visit, Path(name): Path<String>) -> PageResult {
    page(&visit, &name, None).await
}

async fn page(visit: &Visit, name: &str, problem: Option<ApiProblem>) -> PageResult {
    let document = document_of(visit, name).await;
    // A file that cannot be read has a page, from which it can be deleted.
    if let Err(problem) = &document
        && [StatusCode::NOT_FOUND, StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN]
            .map(|status| status.as_u16())
            .contains(&problem.status)
    {
        return Err(problem.clone().into());
    }
    let frame = Frame::new(visit, format!("Report {name}"), "Reports").await?.with_problem(problem);
    shown(&ReportPage { frame: &frame, name: name.to_owned(), document }, &frame)
}

async fn document_of(visit: &Visit, name: &str) -> Result<Document, ApiProblem> {
    let text = visit.get_text(&format!("/v1/reports/{}", escaped(name))).await?.body;
    json::parse(&text).map_err(|error| {
        let refusal = Refusal::new(format!("report {name}: {error}"), "delete it, and send it again");
        ApiProblem::refused(&refusal)
    })
}

/// All of a report, as `prove` wrote it, under the console's policy.
pub(crate) async fn show_whole(visit: Visit, Path(name): Path<String>) -> PageResult {
    let document = document_of(&visit, &name).await?;
    let back = format!("/reports/{}", escaped(&name));
    let links = PageLinks { style: assets::report_style_path(), back: (&back, "Back to the console") };
    let page = html::render_linked(&document, links);
    Ok(([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response())
}

/// Deletes the report whose name was typed.
pub(crate) async fn delete(visit: Visit, Path(name): Path<String>, fields: Fields) -> PageResult {
    let end = async {
        fields.check_typed("report", &name)?;
        let path = format!("/v1/reports/{}", escaped(&name));
        let change = FormChange { tag: None, ..fields.change() };
        visit.change::<()>((Method::DELETE, &path), &(), change).await
    };
    match end.await {
        Ok(()) => Ok(see("/reports?done=deleted")),
        Err(problem) => page(&visit, &name, Some(problem)).await,
    }
}
