//! What published recommendations say of the site that is served.

use crate::{
    page::{Frame, PageResult, shown},
    visit::Visit,
};
use askama::Template;
use control::web::client::{FindingRow, FindingSeverity, SiteAdvice};

#[derive(Template)]
#[template(path = "advice.html")]
struct AdvicePage<'a> {
    frame: &'a Frame,
    advice: SiteAdvice,
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Advice", "Site").await?;
    let advice: SiteAdvice = visit.get("/v1/site/advice").await?;
    shown(&AdvicePage { frame: &frame, advice }, &frame)
}

/// A finding's weight: class of its mark, and word.
fn weight(finding: &FindingRow) -> (&'static str, &'static str) {
    match finding.severity {
        FindingSeverity::Error => ("error", "error"),
        FindingSeverity::Warning => ("warning", "warning"),
        FindingSeverity::Note => ("note", "note"),
    }
}
