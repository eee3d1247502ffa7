//! The first page: health, conditions with the next step, pools, jobs under way, the newest events.

use crate::{
    events::newest_events,
    fields::Fields,
    page::{Frame, PageResult, see, shown},
    shown as show,
    visit::{Visit, escaped},
};
use askama::Template;
use axum::{extract::Path, http::Method};
use control::web::{
    ApiProblem,
    client::{ConditionRow, EventRow, EventSeverity, SessionRow},
    health_rows::{JobRow, JobState},
    rows::{PoolRow, PoolState},
};
use std::time::Duration;

const EVENTS_SHOWN: usize = 8;
/// A page is shown without the jobs of a pool that takes longer to say them.
const JOBS_WITHIN: Duration = Duration::from_millis(100);

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage<'a> {
    frame: &'a Frame,
    conditions: Vec<ConditionRow>,
    pools: Vec<PoolRow>,
    jobs: PoolJobs,
    sessions: usize,
    /// Newest first.
    events: Vec<EventRow>,
}

/// Jobs of pools that say them at once.
#[derive(Default)]
pub(crate) struct PoolJobs {
    /// By pool.
    pub rows: Vec<PoolJob>,
    /// Names of the others.
    pub silent: Vec<String>,
}

/// A job with the name of its pool.
pub(crate) struct PoolJob {
    pub pool: String,
    pub pool_id: String,
    pub job: JobRow,
}

impl OverviewPage<'_> {
    fn pools_open(&self) -> usize {
        self.pools.iter().filter(|pool| pool.state == PoolState::Open).count()
    }

    fn conditions_of(&self, severity: EventSeverity) -> usize {
        self.conditions.iter().filter(|condition| condition.severity == severity).count()
    }

    fn errors(&self) -> usize {
        self.conditions_of(EventSeverity::Error)
    }

    fn warnings(&self) -> usize {
        self.conditions_of(EventSeverity::Warning)
    }
}

pub(crate) async fn show(visit: Visit) -> PageResult {
    page(&visit, None).await
}

async fn page(visit: &Visit, problem: Option<ApiProblem>) -> PageResult {
    let frame = Frame::new(visit, "Overview", "Overview").await?.live(visit).await?.with_problem(problem);
    let mut conditions: Vec<ConditionRow> = visit.get("/v1/conditions").await?;
    conditions.sort_by_key(|row| match row.severity {
        EventSeverity::Error => 0,
        EventSeverity::Warning => 1,
        EventSeverity::Note => 2,
    });
    let pools: Vec<PoolRow> = visit.get("/v1/pools").await?;
    let mut jobs = jobs_of(visit, &pools).await;
    jobs.rows.retain(|row| row.job.state != JobState::Idle);
    let sessions: Vec<SessionRow> = visit.get("/v1/sessions").await?;
    let events = newest_events(visit, u64::MAX, EVENTS_SHOWN).await?;
    let page = OverviewPage { frame: &frame, conditions, pools, jobs, sessions: sessions.len(), events };
    shown(&page, &frame)
}

/// Jobs of all pools that are open. After a start a pool has to open them, and may be busy.
pub(crate) async fn jobs_of(visit: &Visit, pools: &[PoolRow]) -> PoolJobs {
    let mut jobs = PoolJobs::default();
    for pool in pools.iter().filter(|pool| pool.state == PoolState::Open) {
        let Some(id) = &pool.id else { continue };
        let rows = visit.get_within::<Vec<JobRow>>(JOBS_WITHIN, &format!("/v1/pools/{id}/jobs")).await;
        match rows {
            Some(Ok(rows)) => {
                let row = |job| PoolJob { pool: pool.name.clone(), pool_id: id.clone(), job };
                jobs.rows.extend(rows.into_iter().map(row));
            }
            Some(Err(_)) | None => jobs.silent.push(pool.name.clone()),
        }
    }
    jobs
}

/// Says that the caller has taken a condition on.
pub(crate) async fn acknowledge(visit: Visit, Path(condition): Path<String>, fields: Fields) -> PageResult {
    let path = format!("/v1/conditions/{}/acknowledge", escaped(&condition));
    match visit.change::<ConditionRow>((Method::POST, &path), &(), fields.change()).await {
        Ok(_) => Ok(see("/?done=acknowledged")),
        Err(problem) => page(&visit, Some(problem)).await,
    }
}
