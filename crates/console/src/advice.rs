//! The site that is served, held against published recommendations.

use crate::{
    page::{Frame, PageResult, shown},
    shown as show,
    visit::Visit,
};
use askama::Template;
use control::web::client::SiteAdvice;

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
