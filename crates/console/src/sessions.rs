//! Sessions of hosts.

use crate::{
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{SessionKind, SessionRow},
};

/// Most rows; hosts with more sessions are found by `spindle session list`.
const ROWS_MAX: usize = 500;

#[derive(Template)]
#[template(path = "sessions.html")]
struct SessionsPage<'a> {
    frame: &'a Frame,
    sessions: Vec<SessionRow>,
    /// Of all, with those that are not shown.
    all: usize,
}

#[derive(Template)]
#[template(path = "session.html")]
struct SessionPage<'a> {
    frame: &'a Frame,
    session: SessionRow,
}

/// The name by which a person knows the host.
fn host(session: &SessionRow) -> &str {
    session.initiator.as_deref().unwrap_or(&session.peer)
}

fn protocol(kind: &SessionKind) -> &'static str {
    match kind {
        SessionKind::Iscsi => "iSCSI",
        SessionKind::Nbd => "NBD",
    }
}

/// Numbers of units, with those that are only read.
fn units(session: &SessionRow) -> String {
    let unit = |unit: &control::web::client::SessionUnit| match unit.may_write {
        true => unit.number.to_string(),
        false => format!("{} (read)", unit.number),
    };
    match session.units.is_empty() {
        true => "–".to_owned(),
        false => session.units.iter().map(unit).collect::<Vec<_>>().join(", "),
    }
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Sessions", "Sessions").await?.live(&visit).await?;
    let mut sessions: Vec<SessionRow> = visit.get("/v1/sessions").await?;
    let all = sessions.len();
    sessions.truncate(ROWS_MAX);
    shown(&SessionsPage { frame: &frame, sessions, all }, &frame)
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None).await
}

async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>) -> PageResult {
    let session: SessionRow = visit.get(&format!("/v1/sessions/{}", escaped(id))).await?;
    let frame = Frame::new(visit, format!("Session of {}", host(&session)), "Sessions").await?;
    let frame = frame.with_problem(problem);
    shown(&SessionPage { frame: &frame, session }, &frame)
}

/// Ends the session of the host whose name was typed.
pub(crate) async fn end(visit: Visit, Path(id): Path<String>, fields: Fields) -> PageResult {
    let path = format!("/v1/sessions/{}", escaped(&id));
    let end = async {
        let session: SessionRow = visit.get(&path).await?;
        fields.check_typed("host", host(&session))?;
        visit.change::<serde_json::Value>((Method::DELETE, &path), &(), fields.change()).await
    };
    match end.await {
        Ok(_) => Ok(see("/sessions?done=connection-ended")),
        Err(problem) => page(&visit, &id, Some(problem)).await,
    }
}
