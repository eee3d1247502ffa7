//! Jobs of all pools.

use crate::{
    overview::{PoolJob, jobs_of},
    page::{Frame, PageResult, shown},
    shown as show,
    visit::Visit,
};
use askama::Template;
use control::web::{health_rows::JobState, rows::PoolRow};

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage<'a> {
    frame: &'a Frame,
    running: Vec<PoolJob>,
    idle: Vec<PoolJob>,
    /// Names of pools whose jobs are not known yet.
    silent: Vec<String>,
}

pub(crate) async fn list(visit: Visit) -> PageResult {
    let frame = Frame::new(&visit, "Jobs", "Jobs").await?.live(&visit).await?;
    let pools: Vec<PoolRow> = visit.get("/v1/pools").await?;
    let jobs = jobs_of(&visit, &pools).await;
    let (idle, running) = jobs.rows.into_iter().partition(|row| row.job.state == JobState::Idle);
    shown(&JobsPage { frame: &frame, running, idle, silent: jobs.silent }, &frame)
}
