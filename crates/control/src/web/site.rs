//! The site as a file: printed, planned, applied.

use super::{ApiState, caller::Caller, problem::ApiProblem, rows::SitePlan};
use crate::{
    journal::tokens::CallerRole,
    notifying::without_urls,
    site::{
        handle::{SiteAnswer, SiteText, WantedAnswer},
        printed_site,
    },
};
use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;
use world::with_deadline;

/// Path of the request that changes nothing, although it is a POST.
pub(super) const PLAN_PATH: &str = "/v1/site/plan";
/// An apply has what it needs.
const APPLIED_WITHIN: Duration = Duration::from_secs(30 * 86_400);
/// Time for an answer to anything else.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A site file to be planned or applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteBody {
    /// The file's text. Relative paths in it begin at the folder of the file that the server was started with.
    pub text: String,
    /// Volumes to be destroyed, which the file lacks, `POOL/VOLUME`; or `POOL`, to forget one that is gone for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub destroy: Vec<String>,
}

impl From<SiteBody> for SiteText {
    fn from(SiteBody { text, destroy }: SiteBody) -> Self {
        Self { text, destroy }
    }
}

/// Prints the site as a file whose plan is empty; of an apply that is under way, the one before it; without the paths of
/// webhooks, unless the role is admin.
#[utoipa::path(get, path = "/v1/site", tag = "site",
    responses((status = 200, description = "A site file; the header spindle-left-out tells what it lacks", body = String, content_type = "application/toml"),
    (status = "default", response = ApiProblem)))]
pub(super) async fn show(State(api): State<ApiState>, caller: Caller) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let SiteAnswer { text, mut notes, .. } = printed_site(&api.journal, &api.site)?;
    let mut text = text.expect("a file was asked for");
    if caller.need(CallerRole::Admin).is_err() {
        let shown = without_urls(&text)?;
        if shown != text {
            text = shown;
            notes.push("paths of webhooks, which are for the role admin".to_owned());
        }
    }
    let mut response = ([(header::CONTENT_TYPE, "application/toml")], text).into_response();
    // Headers are ASCII.
    let left_out: String = notes
        .join("; ")
        .chars()
        .map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' })
        .collect();
    if let Ok(left_out) = left_out.parse()
        && !notes.is_empty()
    {
        response.headers_mut().insert("spindle-left-out", left_out);
    }
    Ok(response)
}

/// Shows the changes to a site file, without doing them.
#[utoipa::path(post, path = "/v1/site/plan", tag = "site", request_body = SiteBody,
    responses((status = 200, description = "What an apply would change", body = SitePlan), (status = "default", response = ApiProblem)))]
pub(super) async fn plan(
    State(api): State<ApiState>,
    caller: Caller,
    Json(body): Json<SiteBody>,
) -> Result<Json<SitePlan>, ApiProblem> {
    // Its text names files of the server, which are read.
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    Ok(Json(ask(&api, WantedAnswer::Plan(body.into())).await?.into()))
}

/// Applies a site file, under clients.
#[utoipa::path(post, path = "/v1/site/apply", tag = "site", request_body = SiteBody,
    responses((status = 200, description = "What was changed", body = SitePlan), (status = "default", response = ApiProblem)))]
pub(super) async fn apply(
    State(api): State<ApiState>,
    caller: Caller,
    Json(body): Json<SiteBody>,
) -> Result<Json<SitePlan>, ApiProblem> {
    caller.need(CallerRole::Admin)?;
    caller.need_all_pools()?;
    Ok(Json(ask(&api, WantedAnswer::Apply(body.into())).await?.into()))
}

pub(super) async fn ask(api: &ApiState, wanted: WantedAnswer) -> Result<SiteAnswer, ApiProblem> {
    // An apply has its end in the audit, however long it takes.
    let time = match wanted {
        WantedAnswer::Plan(_) => ANSWER_WITHIN,
        _ => APPLIED_WITHIN,
    };
    let answer = api.site.ask(wanted)?;
    match with_deadline(api.world.sleep(time), answer).await {
        Some(Ok(answer)) => Ok(answer?),
        Some(Err(_)) => {
            let refusal =
                Refusal::new("the server ends", "start it again, and ask for the plan of the same file");
            Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "ending", &refusal))
        }
        None => {
            let refusal = Refusal::new("the server is busy with another change", "ask again");
            Err(ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal))
        }
    }
}
