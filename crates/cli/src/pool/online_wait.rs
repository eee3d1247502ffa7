//! Waiting for work in a server, with its progress: the work goes on if the wait ends early, and the person is told how to go on.

use super::online_pool::OnlinePool;
use crate::{console::Console, progress::ProgressView};
use control::{
    job_request::JobOutcome,
    view::VIEWS_EVERY,
    web::{
        health_rows::{JobName, JobRequestRow, JobRow, JobUnit},
        rows::{PoolRow, PoolState},
    },
};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serde::de::DeserializeOwned;
use std::time::Duration;
use world::{ByteCount, World, real::signals::interrupted, with_deadline};

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A server that does not answer for longer is given up.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// The state of some work.
pub enum WorkState<T> {
    Ended(T),
    GoesOn(Option<ProgressStatus>),
}

/// A wait for some work in a server.
pub struct OnlineWait<'a> {
    pub world: &'a World,
    pub pool: &'a OnlinePool,
    pub console: &'a Console,
    /// The job that does the work.
    pub job: JobName,
    /// The work in messages: `the scrub`.
    pub work: String,
    /// The command that ends the work, with what it does, if there is one: `'spindle job cancel mail/scrub' ends it`.
    pub cancel: Option<String>,
    /// The command that waits for the work again, if that is not `spindle job wait`.
    pub again: Option<String>,
}

impl OnlineWait<'_> {
    /// Looks until the work has ended, and shows its progress.
    ///
    /// # Errors
    ///
    /// That of a look; the server is gone; Ctrl-C. The work goes on.
    pub async fn until<T>(
        &self,
        mut look: impl AsyncFnMut() -> Result<WorkState<T>, Refusal>,
    ) -> Result<T, Refusal> {
        let signal = interrupted();
        let begun = self.world.now();
        let mut view = ProgressView::new(self.console);
        let waiting = async {
            loop {
                match look().await? {
                    WorkState::Ended(end) => return Ok(end),
                    WorkState::GoesOn(status) => {
                        view.tell(self.world.now().since(begun), status.as_ref(), &[]);
                    }
                }
                // Pools publish once a second; only short waits would notice.
                let is_short = self.world.now().since(begun) < LOST_AFTER;
                self.world.sleep(if is_short { LOOK_EVERY } else { VIEWS_EVERY }).await;
            }
        };
        let ended = with_deadline(Box::pin(async move { _ = signal.await }), waiting).await;
        drop(view);
        ended.unwrap_or_else(|| {
            let (at, server) = (self.pool.place().display(), self.pool.server().address());
            let cancel = self.cancel.as_ref().map_or(String::new(), |cancel| format!("; {cancel}"));
            Err(Refusal::new(
                format!("{at}: {} goes on in the server at {server}", self.work),
                format!("{}{cancel}", self.wait_again()),
            ))
        })
    }

    fn wait_again(&self) -> String {
        match &self.again {
            Some(again) => format!("'{again}' waits for it"),
            None => format!(
                "'spindle job wait {}{}' waits for it",
                self.pool.job_word(self.job),
                self.pool.repeated()
            ),
        }
    }

    /// Gets a resource of the pool. A server that starts again is waited for a little.
    ///
    /// # Errors
    ///
    /// The server's problem; it does not answer for some seconds.
    pub async fn get<T: DeserializeOwned>(&self, end: &str) -> Result<T, Refusal> {
        let since = self.world.now();
        loop {
            let refusal = match self.pool.server().get_if_up(&self.pool.path(end)).await? {
                Ok(found) => return Ok(found),
                Err(refusal) => refusal,
            };
            if self.world.now().since(since) >= LOST_AFTER {
                return Err(Refusal::new(
                    format!(
                        "{}: {} is not over: {}",
                        self.pool.place().display(),
                        self.work,
                        refusal.problem()
                    ),
                    format!("it goes on when 'spindle serve' runs again; {} then", self.wait_again()),
                ));
            }
            self.world.sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until the job under the request `id` has ended.
    ///
    /// # Errors
    ///
    /// It was cancelled or has failed; or as of [`OnlineWait::until`].
    pub async fn until_job_ends(&self, id: &str) -> Result<JobRequestRow, Refusal> {
        let ended = self.until(async || {
            self.check_pool_runs().await?;
            let row: JobRow = self.get(&format!("/jobs/{}", self.job.name())).await?;
            match row.request.clone() {
                Some(request) if request.id == id && request.outcome.is_none() => {
                    Ok(WorkState::GoesOn(Some(progress_of(&row))))
                }
                Some(request) if request.id == id => Ok(WorkState::Ended(request)),
                _ => {
                    let problem = format!("{}: {} is over, and its end is not known", self.at(), self.work);
                    Err(Refusal::new(problem, "see 'spindle pool show'"))
                }
            }
        });
        let request = ended.await?;
        let problem = match (request.outcome, &request.problem) {
            (Some(JobOutcome::Done), _) => return Ok(request),
            (_, Some(problem)) => format!("{}: {} has failed: {problem}", self.at(), self.work),
            _ => format!("{}: {} was cancelled; what it has done counts", self.at(), self.work),
        };
        Err(Refusal::new(self.pool.as_given(&problem), ""))
    }

    /// Refuses a pool that has stopped: nothing goes on in it.
    pub async fn check_pool_runs(&self) -> Result<(), Refusal> {
        let row: PoolRow = self.get("").await?;
        if row.state == PoolState::Open {
            return Ok(());
        }
        let reason = row.reason.unwrap_or_else(|| "it has stopped".to_owned());
        let problem = format!("{}: {} is not over: {reason}", self.at(), self.work);
        Err(Refusal::new(self.pool.as_given(&problem), "it goes on when the pool is served again"))
    }

    fn at(&self) -> String {
        self.pool.place().display().to_string()
    }
}

/// Progress of a job.
pub fn progress_of(row: &JobRow) -> ProgressStatus {
    let left = row.total.saturating_sub(row.done);
    let mut figures = match row.unit {
        JobUnit::Bytes => {
            vec![format!("{} left", ByteCount(left)), format!("{}/s", ByteCount(row.per_second))]
        }
        JobUnit::Nanoseconds | JobUnit::Millionths => Vec::new(),
    };
    // A job that stands still says why where somebody waits for it.
    figures.extend(row.problem.iter().map(|problem| format!("waits: {problem}")));
    ProgressStatus {
        phase: row.kind.name().to_owned(),
        fraction: if row.total == 0 { 0.0 } else { row.done as f64 / row.total as f64 },
        figures,
        left: row.time_left_s.map(Duration::from_secs),
    }
}
