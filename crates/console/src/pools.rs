//! Pools: the list, and a pool with its drives, failure domains, jobs and room.

use crate::{
    fields::Fields,
    overview::{PoolJobs, jobs_of},
    page::{Frame, PageResult, see, shown},
    pool_map::pool_map,
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    health_rows::{DriveRow, DriveState},
    rows::{PoolRow, PoolState},
};
use serde::Deserialize;

#[derive(Template)]
#[template(path = "pools.html")]
struct PoolsPage<'a> {
    frame: &'a Frame,
    pools: Vec<PoolRow>,
}

#[derive(Template)]
#[template(path = "pool.html")]
struct PoolPage<'a> {
    frame: &'a Frame,
    pool: PoolRow,
    /// Its UUID.
    id: String,
    drives: Vec<DriveRow>,
    map: String,
    jobs: PoolJobs,
    room: Option<Result<RoomCount, ApiProblem>>,
    sent: &'a Fields,
}

/// The part of the API's count of room that the page shows.
#[derive(Debug, Deserialize)]
struct RoomCount {
    overhead_bytes: u64,
    volumes: Vec<CountedVolume>,
}

#[derive(Debug, Deserialize)]
struct CountedVolume {
    volume: String,
    used_bytes: u64,
    snapshots: usize,
    snapshots_bytes: u64,
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Pools", "Pools").await?.live(&visit).await?;
    let pools = visit.get("/v1/pools").await?;
    shown(&PoolsPage { frame: &frame, pools }, &frame)
}

pub(crate) async fn show(visit: Visit, Path(id): Path<String>) -> PageResult {
    page(&visit, &id, None, &Fields::default()).await
}

pub(crate) async fn page(visit: &Visit, id: &str, problem: Option<ApiProblem>, sent: &Fields) -> PageResult {
    let path = format!("/v1/pools/{}", escaped(id));
    let pool: PoolRow = visit.get(&path).await?;
    let frame = Frame::new(visit, format!("Pool {}", pool.name), "Pools").await?;
    let frame = frame.live(visit).await?.with_problem(problem);
    let drives: Vec<DriveRow> = match pool.state {
        PoolState::Open => visit.get(&format!("{path}/drives")).await?,
        PoolState::Stopped => Vec::new(),
    };
    let jobs = jobs_of(visit, std::slice::from_ref(&pool)).await;
    let room = match visit.asked("room") {
        Some(_) => Some(visit.get(&format!("{path}/room")).await),
        None => None,
    };
    let map = pool_map(&drives);
    shown(&PoolPage { frame: &frame, pool, id: id.to_owned(), drives, map, jobs, room, sent }, &frame)
}

/// Begins or ends a job: `scrub` or `levelling`.
pub(crate) async fn change_job(
    visit: Visit,
    Path((id, job)): Path<(String, String)>,
    fields: Fields,
) -> PageResult {
    let (method, done) = match (fields.is_checked("end"), job.as_str()) {
        (false, "scrub") => (Method::PUT, "scrub"),
        (false, "levelling") => (Method::PUT, "levelling"),
        (true, "scrub") => (Method::DELETE, "scrub-ended"),
        (true, "levelling") => (Method::DELETE, "levelling-ended"),
        _ => return Err(ApiProblem::not_found(format!("no form begins a job {job}")).into()),
    };
    let path = format!("/v1/pools/{}/{}", escaped(&id), escaped(&job));
    match visit.change::<serde_json::Value>((method, &path), &(), fields.change()).await {
        Ok(_) => Ok(see(&format!("/pools/{}?done={done}", escaped(&id)))),
        Err(problem) => page(&visit, &id, Some(problem), &fields).await,
    }
}

/// State of a drive: class of its mark, and word.
pub(crate) fn drive_state(drive: &DriveRow) -> (&'static str, &'static str) {
    match drive.state {
        DriveState::InUse => ("good", "in use"),
        DriveState::Leaving => ("warning", "leaving"),
        DriveState::Unused => ("warning", "not in use"),
        DriveState::Missing => ("error", "missing"),
    }
}

/// A failure domain's loss in words.
fn domain_loss(loss: &str) -> &'static str {
    match loss {
        "survived" => "everything stays",
        "data_lost" => "data is lost",
        "stops" => "the pool stops",
        "needs_force" => "the pool opens by force alone",
        _ => "it is absent now",
    }
}
