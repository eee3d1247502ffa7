//! Keeps the jobs that were asked for over restarts: the journal knows them, and their pools go on with them.
//!
//! Invariants:
//!
//! 1. The journal's jobs of a pool are replaced only after the pool's thread has got them: none is lost by a restart.
//! 2. A caller who was answered that a job is under way finds it, or its end, after a restart.

use crate::{
    job_request::JobRequest,
    journal::{DaemonJournal, JournalError},
    notice::NoticeSender,
    pool_thread::ServedPool,
    site::handle::{PoolHandle, SiteHandle},
    view::VIEWS_EVERY,
};
use array::format::PoolId;
use std::{collections::BTreeMap, rc::Rc, sync::Arc};
use tokio::sync::Mutex;
use world::{LocalFuture, World};

/// Records the jobs of all pools of a site.
pub struct JobKeeper {
    journal: Arc<DaemonJournal>,
    notices: NoticeSender,
    known: Mutex<BTreeMap<PoolId, KnownPool>>,
}

/// A pool whose thread has the journal's jobs.
struct KnownPool {
    handle: PoolHandle,
    recorded: Arc<Vec<JobRequest>>,
}

impl JobKeeper {
    pub fn new(journal: &Arc<DaemonJournal>, notices: &NoticeSender) -> Self {
        Self { journal: Arc::clone(journal), notices: notices.clone(), known: Mutex::default() }
    }

    /// Has pools that were opened go on with their jobs, and records how jobs end, until the future is dropped.
    pub async fn run(&self, world: &World, site: &SiteHandle) {
        loop {
            let site = site.look();
            for pool in site.pools.values().filter(|_| site.is_open) {
                self.keep(pool).await;
            }
            world.sleep(VIEWS_EVERY).await;
        }
    }

    /// Has a pool go on with its jobs, if it was opened lately, and records those that its view shows.
    pub async fn keep(&self, pool: &PoolHandle) {
        if let Err(error) = self.record(pool).await {
            let refusal = error.refusal();
            self.notices.of(&pool.name).warn(format!("its jobs are not kept over a restart: {refusal}"));
        }
    }

    async fn record(&self, pool: &PoolHandle) -> Result<(), JournalError> {
        let mut known = self.known.lock().await;
        let is_known = known.get(&pool.id).is_some_and(|known| known.handle.is_same_thread(pool));
        if !is_known {
            let jobs = self.journal.jobs(pool.id)?;
            let given = jobs.clone();
            let resume = move |served: Rc<ServedPool>| -> LocalFuture<u64> {
                Box::pin(async move { served.changes.jobs.resume(given).await })
            };
            // A pool that has stopped has no jobs to record.
            let Ok(resumed) = pool.begin("resume jobs", resume) else { return Ok(()) };
            let Ok(revision) = resumed.await else { return Ok(()) };
            pool.shows_changes(revision).await;
            known.insert(pool.id, KnownPool { handle: pool.clone(), recorded: Arc::new(jobs) });
        }
        let Some(view) = pool.view() else { return Ok(()) };
        let known = known.get_mut(&pool.id).expect("it was added");
        if known.recorded != view.job_requests {
            self.journal.set_jobs(pool.id, &view.job_requests)?;
            known.recorded = Arc::clone(&view.job_requests);
        }
        Ok(())
    }
}
