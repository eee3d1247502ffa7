//! Events: a page of them, the next ones when they happen, or a stream.

use super::{ApiState, caller::Caller, problem::ApiProblem, volumes::page_rows};
use crate::{events::NumberedEvent, journal::tokens::CallerRole, kinds};
use axum::{
    Json,
    body::Body,
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use report::{Refusal, Severity};
use serde::{Deserialize, Serialize};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::{IntoParams, ToSchema};
use world::with_deadline;

/// Most streams at the same time.
pub const STREAMS_MAX: usize = 64;
/// Most seconds for which a page is waited for.
const WAIT_SECONDS_MAX: u64 = 30;
/// A stream in which nothing happens says so.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Events that are written to a stream at once.
const EVENTS_AT_ONCE: usize = 64;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct EventFilter {
    /// Number of the last event that is known.
    after: Option<u64>,
    /// Number of an event: the page has the last events before it, whatever `after` and `wait` say.
    before: Option<u64>,
    /// Most events of the page.
    #[param(minimum = 1, maximum = 5000)]
    limit: Option<usize>,
    /// Seconds to wait for an event if there is none.
    #[param(maximum = 30)]
    wait: Option<u64>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventRow {
    /// It grows from event to event.
    pub id: u64,
    /// Kind of the event (docs/events.md); `note` and `warning` are lines without a kind.
    pub event: String,
    pub severity: EventSeverity,
    pub time: String,
    /// Name of the pool, or `api`, `portal` or `serve`.
    pub pool: String,
    pub text: String,
    /// The next step; may be empty.
    pub next_step: String,
    /// The whole message: what happened, what it means for mail, Spindle's part, until when, the person's part.
    #[serde(default)]
    pub message: String,
    /// Figures and names; they differ by kind. Of a condition, `state` is raised or cleared, and `condition` its id.
    pub details: serde_json::Map<String, serde_json::Value>,
}

/// Severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum EventSeverity {
    Note,
    Warning,
    Error,
}

/// A page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<EventRow>,
    /// `after` of the next page.
    pub next: u64,
    /// Events between the known one and the last of these are not kept any more.
    pub has_gap: bool,
    /// Number of the newest event that there is.
    #[serde(default)]
    pub newest: u64,
}

impl EventRow {
    pub(crate) fn of(NumberedEvent { id, report }: &NumberedEvent) -> Self {
        Self {
            id: *id,
            event: report.event.clone(),
            severity: EventSeverity::of(report.severity),
            time: report.time.clone(),
            pool: report.pool.clone(),
            text: report.text.clone(),
            next_step: report.next_step.clone(),
            message: kinds::message(report),
            details: report.details.clone(),
        }
    }
}

impl EventSeverity {
    pub(super) fn of(severity: Severity) -> Self {
        match severity {
            Severity::Note => Self::Note,
            Severity::Warning => Self::Warning,
            Severity::Error => Self::Error,
        }
    }
}

/// Lists events, or streams them as they happen if `Accept` asks for `text/event-stream`; `Last-Event-ID` is `after` then.
#[utoipa::path(get, path = "/v1/events", tag = "events",
    params(EventFilter, ("Last-Event-ID" = Option<String>, Header, description = "Number of the last event of a stream that broke")),
    responses((status = 200, description = "A page, or a stream", content((EventPage = "application/json"), (String = "text/event-stream"))),
    (status = "default", response = ApiProblem)))]
pub(super) async fn list(
    State(api): State<ApiState>,
    caller: Caller,
    headers: HeaderMap,
    Query(filter): Query<EventFilter>,
) -> Result<Response, ApiProblem> {
    caller.need(CallerRole::Read)?;
    let rows_max = page_rows(filter.limit)?;
    let after = filter.after.unwrap_or_default();
    if i64::try_from(after).is_err() {
        return Err(ApiProblem::bad_request(format!("{after} is no number of an event"), "leave it out"));
    }
    if let Some(before) = filter.before {
        return Ok(Json(page_before(&api, &caller, before, rows_max)).into_response());
    }
    let wait = filter.wait.unwrap_or_default();
    if wait > WAIT_SECONDS_MAX {
        return Err(ApiProblem::bad_request(format!("wait is at most {WAIT_SECONDS_MAX}"), "ask again"));
    }
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accepts.contains("text/event-stream") {
        let last = headers.get("last-event-id").and_then(|last| last.to_str().ok()?.parse().ok());
        return stream_of(api, caller, last.unwrap_or(after));
    }
    with_deadline(api.world.sleep(Duration::from_secs(wait)), next_page(&api, &caller, after, rows_max))
        .await
        .map_or_else(
            || Ok(Json(page(&api, &caller, after, rows_max)).into_response()),
            |page| Ok(Json(page).into_response()),
        )
}

/// Waits until there is an event that the caller may see.
async fn next_page(api: &ApiState, caller: &Caller, after: u64, rows_max: usize) -> EventPage {
    let mut from = after;
    loop {
        let found = page(api, caller, from, rows_max);
        if !found.events.is_empty() || found.has_gap {
            return found;
        }
        from = found.next;
        api.events.wait_after(from).await;
    }
}

fn page(api: &ApiState, caller: &Caller, after: u64, rows_max: usize) -> EventPage {
    let found = api.events.after(after, rows_max);
    let next = found.last().map_or(after.max(api.events.oldest() - 1), |last| last.id);
    let seen = found.iter().filter(|event| may_see(caller, event));
    let events = seen.map(|event| EventRow::of(event)).collect();
    let has_gap = after > 0 && api.events.gap(after, next).is_some();
    EventPage { events, next, has_gap, newest: api.events.newest() }
}

fn page_before(api: &ApiState, caller: &Caller, before: u64, rows_max: usize) -> EventPage {
    let found = api.events.before(before, rows_max, |event| may_see(caller, event));
    let events: Vec<EventRow> = found.iter().map(|event| EventRow::of(event)).collect();
    let next = events.last().map_or(0, |last| last.id);
    EventPage { events, next, has_gap: false, newest: api.events.newest() }
}

/// A caller for some pools sees their events alone.
fn may_see(caller: &Caller, event: &NumberedEvent) -> bool {
    caller.sees(&event.report.pool)
}

/// A stream in the form of server-sent events.
fn stream_of(api: ApiState, caller: Caller, after: u64) -> Result<Response, ApiProblem> {
    let place = Arc::clone(&api.streams).try_acquire_owned().map_err(|_| {
        let refusal =
            Refusal::new(format!("{STREAMS_MAX} streams are open already"), "close one, or ask for pages");
        ApiProblem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", &refusal)
    })?;
    let state = EventStream { api, caller, after, _place: place };
    let text = stream::unfold(state, async |mut state| {
        // A token that was deleted ends its streams.
        let is_valid = state.caller.is_valid(&state.api);
        let text = if is_valid { state.next().await } else { return None };
        Some((Ok::<_, Infallible>(text), state))
    });
    let kind = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    Ok((kind, Body::from_stream(text)).into_response())
}

struct EventStream {
    api: ApiState,
    caller: Caller,
    after: u64,
    _place: OwnedSemaphorePermit,
}

impl EventStream {
    /// The next events, or a comment if nothing has happened for a while.
    async fn next(&mut self) -> String {
        let Self { api, caller, after, .. } = self;
        let waited = next_page(api, caller, *after, EVENTS_AT_ONCE);
        let Some(page) = with_deadline(api.world.sleep(SILENCE_MAX), waited).await else {
            return ": nothing happened\n\n".to_owned();
        };
        *after = page.next;
        let mut text = String::new();
        if page.has_gap {
            text.push_str(": events are missing here\n\n");
        }
        for row in &page.events {
            let json = serde_json::to_string(row).expect("plain fields");
            text += &format!("id: {}\nevent: {}\ndata: {json}\n\n", row.id, row.event);
        }
        text
    }
}
