//! Pools of the site that are not open: tried again until they are. A drive may come after the server, a file system be mounted late.
//!
//! Invariants:
//!
//! 1. A pool is opened where it was, or not at all: its place is checked before each try.
//! 2. A pool that opens late gets what a reload of the applied file would bring it, and keeps what was changed online.

use super::{
    handle::{SiteAnswer, SiteRequest, WantedAnswer},
    planning::PlanOccasion,
    server::{SiteServer, parse},
    wanted::WantedSite,
};
use report::Refusal;
use std::time::Duration;
use tokio::sync::oneshot;

/// Before the first try; each later one comes after twice the time.
const TRIED_AFTER: Duration = Duration::from_secs(5);
const TRIED_AFTER_MAX: Duration = Duration::from_secs(60);

impl SiteServer {
    /// Asks itself to open pools again, as long as some are not open.
    pub(super) fn watch_closed_pools(&self) {
        let (world, mut view) = (self.world.clone(), self.requests.view.subscribe());
        let requests = self.requests.give.downgrade();
        drop(self.world.spawn("closed pools", async move {
            let mut pause = TRIED_AFTER;
            // Without a server nobody opens them.
            while view.wait_for(|site| !site.stopped.is_empty()).await.is_ok() {
                world.sleep(pause).await;
                let Some(requests) = requests.upgrade() else { return };
                let (answer, answered) = oneshot::channel();
                let wanted = WantedAnswer::OpenClosedPools;
                let _ = requests.send(SiteRequest { wanted, answer, in_progress: None }).await;
                drop(requests);
                let _ = answered.await;
                let are_all_open = view.borrow().stopped.is_empty();
                pause = if are_all_open { TRIED_AFTER } else { (2 * pause).min(TRIED_AFTER_MAX) };
            }
        }));
    }

    /// Opens the pools that are where they were, and serves them. Returns their names.
    ///
    /// # Errors
    ///
    /// The journal cannot be read, or a pool that is open now does not get all that the file wants of it.
    pub(super) async fn open_closed_pools(&mut self) -> Result<Vec<String>, Refusal> {
        let Some(text) = self.journal.served_site().map_err(|error| error.refusal())? else {
            return Ok(Vec::new());
        };
        let wanted = WantedSite::of(&parse(&text)?, &self.context)?;
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        let mut tried = wanted.pools;
        tried.retain(|pool| {
            let is_closed = self.stopped.contains_key(&pool.name) && self.daemon.pool(&pool.name).is_none();
            let may_open = || self.planner.check_place(pool, records.get(&pool.name), &records).is_ok();
            is_closed && !self.late.has(&pool.name) && self.places.is_made(pool) && may_open()
        });
        for pool in &tried {
            self.refused.remove(&pool.name);
        }
        self.open_pools(&tried).await;
        tried.retain(|pool| self.daemon.pool(&pool.name).is_some());
        let opened: Vec<String> = tried.into_iter().map(|pool| pool.name).collect();
        if opened.is_empty() {
            return Ok(opened);
        }
        for name in &opened {
            self.notices.of(name).note("it is open now, and served");
        }
        self.catch_up().await.map(|()| opened)
    }

    /// The answer to a request of [`Self::watch_closed_pools`].
    pub(super) async fn answer_closed_pools(&mut self) -> (bool, Result<SiteAnswer, Refusal>) {
        let opened = self.open_closed_pools().await;
        // Nobody else hears of it.
        let opened = opened.inspect_err(|refusal| self.notices.warn(refusal.to_string()));
        let is_change = opened.as_ref().map_or(true, |opened| !opened.is_empty());
        (is_change, opened.map(|_| SiteAnswer::default()))
    }

    /// Does for pools that were not open what a reload of the applied file would.
    pub(super) async fn catch_up(&mut self) -> Result<(), Refusal> {
        let file = self.journal.applied_file().map_err(|error| error.refusal())?;
        let Some(file) = file.filter(|_| self.is_applied()) else { return self.go_on_with_site().await };
        match self.plan(&file, &[], PlanOccasion::Reload).await {
            Ok(plan) => self.apply(plan, |_| ()).await,
            // Another pool is not as the file says, or the site is on a battery: what is there is served.
            Err(refusal) => {
                self.serve_missed().await?;
                let problem = format!("what the file has added since is not made: {}", refusal.problem());
                Err(Refusal::new(problem, "then send the server SIGHUP"))
            }
        }
    }
}
