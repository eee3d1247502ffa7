//! Advice on the site that is served: the rules of `plan`, held against it.

use super::{ApiState, caller::Caller, events::EventSeverity, problem::ApiProblem};
use crate::{journal::tokens::CallerRole, site::printed_site};
use axum::{Json, extract::State};
use plan::{
    advice::{Advice, Finding, Severity, Skipped, advise},
    site::Site,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The site, held against published recommendations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SiteAdvice {
    /// Rules that are broken, the gravest first.
    pub findings: Vec<FindingRow>,
    /// Rules that are kept, by their short names.
    pub passed: Vec<String>,
    /// Rules that found nothing of what they are about.
    pub not_applicable: Vec<String>,
    /// Rules that could not be looked at.
    pub skipped: Vec<SkippedRule>,
}

/// A rule that is broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingRow {
    /// Its short name.
    pub id: String,
    pub severity: EventSeverity,
    pub finding: String,
    pub places: Vec<String>,
    pub why: String,
    /// Paper and section.
    pub source: String,
    pub fix: String,
}

/// A rule that could not be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedRule {
    /// Its short name.
    pub id: String,
    /// The keys that the site lacks.
    pub missing: String,
}

impl SiteAdvice {
    fn of(advice: Advice) -> Self {
        let Advice { findings, passed, not_applicable, skipped } = advice;
        let finding = |Finding { id, severity, finding, places, why, source, fix }: Finding| FindingRow {
            id,
            severity: match severity {
                Severity::Error => EventSeverity::Error,
                Severity::Warning => EventSeverity::Warning,
                Severity::Note => EventSeverity::Note,
            },
            finding,
            places,
            why,
            source,
            fix,
        };
        let findings = findings.into_iter().map(finding).collect();
        let skipped =
            skipped.into_iter().map(|Skipped { id, missing }| SkippedRule { id, missing }).collect();
        Self { findings, passed, not_applicable, skipped }
    }

    /// The advice, as `plan` prints it.
    pub fn advice(self) -> Advice {
        let Self { findings, passed, not_applicable, skipped } = self;
        let finding = |FindingRow { id, severity, finding, places, why, source, fix }: FindingRow| Finding {
            id,
            severity: match severity {
                EventSeverity::Error => Severity::Error,
                EventSeverity::Warning => Severity::Warning,
                EventSeverity::Note => Severity::Note,
            },
            finding,
            places,
            why,
            source,
            fix,
        };
        let findings = findings.into_iter().map(finding).collect();
        let skipped =
            skipped.into_iter().map(|SkippedRule { id, missing }| Skipped { id, missing }).collect();
        Advice { findings, passed, not_applicable, skipped }
    }
}

/// Holds the site that is served against published recommendations.
#[utoipa::path(get, path = "/v1/site/advice", tag = "site",
    responses((status = 200, description = "Rules that are broken, kept and skipped", body = SiteAdvice), (status = "default", response = ApiProblem)))]
pub(super) async fn show(
    State(api): State<ApiState>,
    caller: Caller,
) -> Result<Json<SiteAdvice>, ApiProblem> {
    caller.need(CallerRole::Read)?;
    caller.need_all_pools()?;
    let printed = printed_site(&api.journal, &api.site)?;
    let text = printed.text.expect("a file was asked for");
    let unread = |error| Refusal::new(format!("the site that is served: {error}"), "apply its file again");
    let site = Site::from_toml(&text).map_err(unread)?;
    Ok(Json(SiteAdvice::of(advise(&site, None))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_of_a_server_is_printed_as_that_of_a_file() {
        let site = Site::from_toml("[[group]]\nname = 'mail'\ndrives = 8\nraid = 'raid0'\n").unwrap();
        let advice = advise(&site, None);
        assert!(
            !advice.findings.is_empty() && !advice.skipped.is_empty() && !advice.not_applicable.is_empty()
        );
        assert_eq!(SiteAdvice::of(advice.clone()).advice(), advice);
    }
}
