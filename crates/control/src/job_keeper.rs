//! Keeps the jobs that were asked for over restarts: the journal knows them, and their pools go on with them.
//!
//! Invariants:
//!
//! 1. The journal's jobs of a pool are replaced only after the pool's thread has got them: none is lost by a restart.
//! 2. A caller who was answered that a job is under way finds it, or its end, after a restart.

use crate::{
    job_request::JobRequest,
    journal::DaemonJournal,
    notice::NoticeSender,
    order::OrderRefusal,
    pool_thread::ServedPool,
    site::handle::{PoolHandle, SiteHandle},
    view::VIEWS_EVERY,
};
use array::format::PoolId;
use report::Refusal;
use std::{
    collections::BTreeMap,
    rc::Rc,
    sync::{Arc, Mutex as StdMutex},
};
use tokio::sync::Mutex;
use world::{LocalFuture, World, with_deadline};

/// Records the jobs of all pools of a site.
pub struct JobKeeper {
    journal: Arc<DaemonJournal>,
    notices: NoticeSender,
    /// A lock for each pool: one that takes long makes no other wait.
    known: StdMutex<BTreeMap<PoolId, Arc<Mutex<KnownPool>>>>,
}

/// A pool, as the journal knows it.
#[derive(Default)]
struct KnownPool {
    /// The pool whose thread has the journal's jobs; `None` before it has.
    handle: Option<PoolHandle>,
    recorded: Arc<Vec<JobRequest>>,
    /// The last try failed, which was said.
    has_failed: bool,
}

impl JobKeeper {
    pub fn new(journal: &Arc<DaemonJournal>, notices: &NoticeSender) -> Self {
        Self { journal: Arc::clone(journal), notices: notices.clone(), known: StdMutex::default() }
    }

    /// Has pools that were opened go on with their jobs, and records how jobs end, until the future is dropped.
    pub async fn run(&self, world: &World, site: &SiteHandle) {
        loop {
            let site = site.look();
            for pool in site.pools.values().filter(|_| site.is_open) {
                // A pool that does not answer is tried again; it keeps no other waiting for long.
                let _ = with_deadline(world.sleep(VIEWS_EVERY), self.keep(pool, 0)).await;
            }
            world.sleep(VIEWS_EVERY).await;
        }
    }

    /// Has a pool go on with its jobs, if it was opened lately, and records those that its view shows as of `revision`.
    ///
    /// # Errors
    ///
    /// They are not kept over a restart; it is said in a warning, too.
    pub async fn keep(&self, pool: &PoolHandle, revision: u64) -> Result<(), Refusal> {
        let known = {
            let mut all = self.known.lock().expect("nothing panics with the lock held");
            Arc::clone(all.entry(pool.id).or_default())
        };
        let mut known = known.lock().await;
        let kept = self.record(pool, &mut known, revision).await;
        let has_failed = kept.is_err();
        let had_failed = std::mem::replace(&mut known.has_failed, has_failed);
        if let Err(refusal) = &kept
            && !had_failed
        {
            self.notices.of(&pool.name).warn(format!("its jobs are not kept over a restart: {refusal}"));
        }
        kept
    }

    async fn record(&self, pool: &PoolHandle, known: &mut KnownPool, revision: u64) -> Result<(), Refusal> {
        if !known.handle.as_ref().is_some_and(|handle| handle.is_same_thread(pool)) {
            let jobs = self.journal.jobs(pool.id).map_err(|error| error.refusal())?;
            let given = jobs.clone();
            let resume = move |served: Rc<ServedPool>| -> LocalFuture<u64> {
                Box::pin(async move { served.changes.jobs.resume(given).await })
            };
            let resumed = match pool.begin("resume jobs", resume) {
                Ok(resumed) => resumed.await,
                Err(refusal) => Err(refusal),
            };
            match resumed {
                Ok(revision) => pool.shows_changes(revision).await,
                // The journal has its jobs for the next time.
                Err(OrderRefusal::Stopped) => return Ok(()),
                Err(OrderRefusal::Full) => {
                    return Err(Refusal::new(OrderRefusal::Full.to_string(), "ask again in a moment"));
                }
            }
            (known.handle, known.recorded) = (Some(pool.clone()), Arc::new(jobs));
        }
        pool.shows_changes(revision).await;
        let Some(view) = pool.view() else { return Ok(()) };
        if known.recorded != view.job_requests {
            self.journal.set_jobs(pool.id, &view.job_requests).map_err(|error| error.refusal())?;
            known.recorded = Arc::clone(&view.job_requests);
        }
        Ok(())
    }
}
