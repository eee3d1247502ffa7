//! A presentation of a point to one host: its beginning from the page of the snapshot, its page, its end.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show, snapshot,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{NewPresentationBody, PresentationEndRow, PresentationList, PresentationRow},
};

/// Seconds of an hour, the unit of the form.
const HOUR_S: f64 = 3_600.0;

#[derive(Template)]
#[template(path = "presentation.html")]
struct PresentationPage<'a> {
    frame: &'a Frame,
    row: PresentationRow,
}

impl PresentationPage<'_> {
    /// The name that confirms the end: of what is destroyed, else of the point.
    fn confirmed_by(&self) -> &str {
        confirmed_by(&self.row)
    }
}

/// The state in a word, and the word of its mark.
pub(crate) fn state(row: &PresentationRow) -> (&'static str, &'static str) {
    match (row.is_served, row.sessions) {
        (false, _) => ("warning", "not served"),
        (true, 0) => ("good", "served"),
        (true, _) => ("good", "in use"),
    }
}

/// The presentations of a volume, and that of which it is the clone.
pub(crate) async fn of_volume(visit: &Visit, id: &str) -> Result<Vec<PresentationRow>, ApiProblem> {
    let list: PresentationList = visit.get(&format!("/v1/presentations?volume={}", escaped(id))).await?;
    Ok(list.presentations)
}

fn confirmed_by(row: &PresentationRow) -> &str {
    let removed = row.clone.as_deref().filter(|_| !row.keeps_clone);
    removed.unwrap_or(&row.path)
}

/// Presents a snapshot as the form of its page says.
pub(crate) async fn create(
    visit: Visit,
    Path((id, snapshot)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let end = async {
        let hours: f64 = fields.number("hours")?;
        let clone = fields.is_checked("clone");
        let body = NewPresentationBody {
            snapshot: snapshot.clone(),
            initiator: fields.text("initiator").to_owned(),
            // The API says which are too many.
            seconds: (hours * HOUR_S).max(0.0) as u64,
            clone,
            keep_clone: clone && fields.is_checked("keep_clone"),
            ..NewPresentationBody::default()
        };
        let path = format!("/v1/volumes/{}/presentations", escaped(&id));
        visit.change::<PresentationRow>((Method::POST, &path), &body, fields.change()).await
    };
    match end.await {
        Ok(row) => Ok(see(&format!("/presentations/{}?done=presented", row.id))),
        Err(problem) => snapshot::page(&visit, (&id, &snapshot), Some(problem)).await,
    }
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None).await
}

async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>) -> PageResult {
    let row: PresentationRow = visit.get(&format!("/v1/presentations/{}", escaped(id))).await?;
    let frame = Frame::new(visit, format!("{}, presented", row.path), "Volumes").await?;
    let frame = frame.with_problem(problem);
    shown(&PresentationPage { frame: &frame, row }, &frame)
}

/// Ends a presentation, once the name was typed of its clone, or of its point if no clone is removed.
pub(crate) async fn end(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let path = format!("/v1/presentations/{}", escaped(&id));
    let end = async {
        let row: PresentationRow = visit.get(&path).await?;
        fields.check_typed("presentation", confirmed_by(&row))?;
        visit.change::<PresentationEndRow>((Method::DELETE, &path), &(), fields.change()).await?;
        Ok(row.volume)
    };
    match end.await {
        Ok(volume) => Ok(see(&format!("/volumes/{}?done=withdrawn", escaped(&volume)))),
        Err(problem) => page(&visit, &id, Some(problem)).await,
    }
}
