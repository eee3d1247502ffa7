//! The site as a file: its text, the plan of a new one, and its apply.
//!
//! An apply carries the tag of the plan that the person has read. If the same text would change something else by now, the
//! new plan is shown instead.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{FormChange, Visit},
};
use askama::Template;
use axum::http::{Method, StatusCode};
use control::{
    site::{SiteAction, SiteChange},
    web::{ApiProblem, client::SiteBody, rows::SitePlan},
};
use report::Refusal;

/// A longer text is a file of its own: pages are small.
const TEXT_BYTES_MAX: usize = 200_000;

#[derive(Template)]
#[template(path = "site.html")]
struct SitePage<'a> {
    frame: &'a Frame,
    text: String,
    /// Size of the text of the served site, if that is too long for a page; else 0.
    bytes: u64,
    /// Names of volumes to be destroyed, with spaces between them.
    destroy: String,
    /// The parts of the served site that its text lacks.
    left_out: Option<String>,
    plan: Option<SitePlan>,
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    let answer = visit.get_text("/v1/site").await?;
    let frame = Frame::new(&visit, "Site", "Site").await?;
    let left_out = answer.headers.get("spindle-left-out").and_then(|value| value.to_str().ok());
    let left_out = left_out.map(str::to_owned);
    let (text, bytes) = match answer.body.len() {
        bytes if bytes > TEXT_BYTES_MAX => (String::new(), bytes as u64),
        _ => (answer.body, 0),
    };
    let page = SitePage { frame: &frame, text, bytes, destroy: String::new(), left_out, plan: None };
    shown(&page, &frame)
}

/// The site file that a form has sent.
fn body_of(fields: &Fields) -> SiteBody {
    // Browsers send CR LF.
    let text = fields.whole_text("text").replace("\r\n", "\n");
    let destroy = fields.text("destroy").split_whitespace().map(str::to_owned).collect();
    SiteBody { text, destroy }
}

async fn planned(visit: &Visit, body: &SiteBody) -> Result<SitePlan, ApiProblem> {
    visit.change((Method::POST, "/v1/site/plan"), body, FormChange::default()).await
}

/// Shows what an apply of a text would change.
pub(crate) async fn plan(visit: Visit, fields: Fields) -> PageResult {
    let body = body_of(&fields);
    let end = planned(&visit, &body).await;
    page(&visit, body, end).await
}

async fn page(visit: &Visit, body: SiteBody, end: Result<SitePlan, ApiProblem>) -> PageResult {
    let (plan, problem) = match end {
        Ok(plan) => (Some(plan), None),
        Err(problem) => (None, Some(problem)),
    };
    let frame = Frame::new(visit, "Site", "Site").await?.with_problem(problem);
    let destroy = body.destroy.join(" ");
    shown(&SitePage { frame: &frame, text: body.text, bytes: 0, destroy, left_out: None, plan }, &frame)
}

/// Applies a text whose plan is the one that the person has read.
pub(crate) async fn apply(visit: Visit, fields: Fields) -> PageResult {
    let body = body_of(&fields);
    let plan = match planned(&visit, &body).await {
        Ok(plan) => plan,
        Err(problem) => return page(&visit, body, Err(problem)).await,
    };
    if plan.tag() != fields.text("tag") {
        let refusal = Refusal::new("the plan has changed since you read it", "read the new one below");
        let problem = ApiProblem::new(StatusCode::CONFLICT, "plan-changed", &refusal);
        let frame = Frame::new(&visit, "Site", "Site").await?.with_problem(Some(problem));
        let destroy = body.destroy.join(" ");
        return shown(
            &SitePage { frame: &frame, text: body.text, bytes: 0, destroy, left_out: None, plan: Some(plan) },
            &frame,
        );
    }
    if !body.destroy.is_empty()
        && let Err(problem) = fields.check_typed("volumes to be destroyed", &body.destroy.join(" "))
    {
        return page(&visit, body, Err(problem)).await;
    }
    let change = FormChange { tag: None, ..fields.change() };
    match visit.change::<SitePlan>((Method::POST, "/v1/site/apply"), &body, change).await {
        Ok(_) => Ok(see("/site?done=applied")),
        Err(problem) => page(&visit, body, Err(problem)).await,
    }
}

/// A change of a plan: class of its mark, and word.
fn action(change: &SiteChange) -> (&'static str, &'static str) {
    match change.action {
        SiteAction::Create => ("good", "create"),
        SiteAction::Change => ("warning", "change"),
        SiteAction::Destroy => ("error", "destroy"),
    }
}
