//! Events, newest first, by pages.

use crate::{
    page::{Frame, PageResult, shown},
    shown as show,
    visit::Visit,
};
use askama::Template;
use control::web::{
    ApiProblem,
    client::{EventPage, EventRow},
};

/// Rows of a page.
const ROWS: usize = 100;

#[derive(Template)]
#[template(path = "events.html")]
struct EventsPage<'a> {
    frame: &'a Frame,
    /// Newest first.
    events: Vec<EventRow>,
    /// The page ends before this event; `None` shows the newest.
    before: Option<u64>,
    /// The next page ends before this event.
    older: Option<u64>,
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Events", "Events").await?;
    let before: Option<u64> = visit.asked("before").and_then(|before| before.parse().ok());
    // Older pages stay as they are.
    let frame = match before {
        None => frame.live(&visit).await?,
        Some(_) => frame,
    };
    let events = newest_events(&visit, before.unwrap_or(u64::MAX), ROWS).await?;
    let older = events.last().filter(|_| events.len() >= ROWS).map(|event| event.id);
    shown(&EventsPage { frame: &frame, events, before, older }, &frame)
}

/// The last events before a number, newest first.
pub(crate) async fn newest_events(
    visit: &Visit,
    before: u64,
    rows: usize,
) -> Result<Vec<EventRow>, ApiProblem> {
    let path = format!("/v1/events?before={before}&limit={rows}");
    let mut events = visit.get::<EventPage>(&path).await?.events;
    events.reverse();
    Ok(events)
}
