//! Orders of the site with a time limit, and the pools that did not answer in it.
//!
//! Invariants:
//!
//! 1. A pool that has not answered an order of the site gets no other one before it does: its orders would only queue up.
//! 2. An order that was given is done, late or never; the one that says what is served is withdrawn. When the pool answers,
//!    the server goes on with what the pool missed.

use super::{
    handle::{SiteAnswer, SiteRequest, WantedAnswer},
    planning::{PlanOccasion, PlannedSite},
    power::SitePower,
    server::{SiteServer, parse},
    wanted::WantedSite,
};
use crate::{
    journal::ApplyRecord,
    order::{OrderRefusal, Orders},
    pool_thread::ServedPool,
};
use report::Refusal;
use std::{
    cell::RefCell,
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;
use world::{LocalFuture, with_deadline};

/// Time of a pool for an order of the site: less than callers of the API wait, so that they hear which pool it was.
pub const SITE_ANSWER_WITHIN: Duration = Duration::from_secs(25);

/// Work of a pool that answers again and that was refused is tried again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Pools that have not answered, with the names of the orders.
#[derive(Clone, Default)]
pub(super) struct UnansweredPools(Rc<RefCell<BTreeMap<String, &'static str>>>);

impl UnansweredPools {
    pub fn has(&self, pool: &str) -> bool {
        self.0.borrow().contains_key(pool)
    }

    pub fn names(&self) -> Vec<String> {
        self.0.borrow().keys().cloned().collect()
    }

    fn refusal(&self, pool: &str) -> Option<Refusal> {
        let orders = self.0.borrow();
        let seconds = SITE_ANSWER_WITHIN.as_secs();
        let problem = format!("pool {pool} did not answer within {seconds} s ({})", orders.get(pool)?);
        Some(Refusal::new(problem, "look at its drives; the server goes on by itself when it answers"))
    }
}

/// An order that its giver may withdraw as long as it has not begun.
#[derive(Clone, Default)]
pub(super) struct WithdrawnOrder(Arc<AtomicBool>);

impl WithdrawnOrder {
    pub fn withdraw(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// # Errors
    ///
    /// It was withdrawn: it must not begin.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.0.load(Ordering::Acquire) {
            true => Err(Refusal::new("the server did not wait for it", "")),
            false => Ok(()),
        }
    }
}

impl SiteServer {
    /// Has a pool's thread do some work, and waits [`SITE_ANSWER_WITHIN`] for it.
    ///
    /// # Errors
    ///
    /// The work's own, or the pool is stopped, or does not answer: then it goes on with the work.
    pub(super) async fn order<T: Send + 'static>(
        &self,
        pool: &str,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, Refusal>> + Send + 'static,
    ) -> Result<T, Refusal> {
        let refused = |why: String| Refusal::new(format!("pool {pool}: {why}"), "see its messages");
        let thread = self.daemon.pool(pool).ok_or_else(|| refused("it is not open".to_owned()))?;
        if let Some(refusal) = self.unanswered.refusal(pool) {
            return Err(refusal);
        }
        let answering = answer(thread.orders.clone(), name, work);
        let mut answering = Box::pin(answering);
        match with_deadline(self.world.sleep(SITE_ANSWER_WITHIN), &mut answering).await {
            Some(answer) => answer.map_err(|error| refused(error.to_string()))?,
            None => {
                self.unanswered.0.borrow_mut().insert(pool.to_owned(), name);
                self.go_on_after(pool, async move { drop(answering.await) });
                let refusal = self.unanswered.refusal(pool).expect("it was noted");
                self.notices.of(pool).warn(refusal.to_string());
                Err(refusal)
            }
        }
    }

    /// Asks the server to go on with a pool once its order has ended.
    fn go_on_after(&self, pool: &str, order: impl Future<Output = ()> + 'static) {
        let (unanswered, requests, pool) =
            (self.unanswered.clone(), self.requests.give.downgrade(), pool.to_owned());
        drop(self.world.spawn("late answer", async move {
            order.await;
            unanswered.0.borrow_mut().remove(&pool);
            // Without a server there is nothing to go on with.
            let Some(requests) = requests.upgrade() else { return };
            let wanted = WantedAnswer::GoOn(pool);
            let _ =
                requests.send(SiteRequest { wanted, answer: oneshot::channel().0, in_progress: None }).await;
        }));
    }
}

impl SiteServer {
    /// True unless a site file is applied to a part.
    pub(super) fn is_applied(&self) -> bool {
        // A journal that cannot be read has said so.
        let under_way = self.journal.apply_under_way().ok().flatten();
        under_way.is_none_or(|apply| apply.online.is_some())
    }

    /// Does what a pool missed while it did not answer.
    pub(super) async fn go_on(&mut self, pool: &str) -> Result<SiteAnswer, Refusal> {
        let is_late = self.daemon.pool(pool).is_none();
        match is_late {
            true => self.join_late(pool).await?,
            false => self.notices.of(pool).note("it answers again: the server goes on with what it missed"),
        }
        if self.unanswered.has(pool) || self.daemon.pool(pool).is_none() {
            return Ok(SiteAnswer::default());
        }
        let is_on_battery = self.power == SitePower::OnBattery;
        let own = self.serve_own(pool).await;
        let done = match is_late {
            true => own.and(self.catch_up().await),
            false => own.and(self.go_on_with_site().await),
        };
        for failed in self.suspend_caches(is_on_battery).await {
            self.notices.of(pool).warn(failed);
        }
        if let Err(refusal) = &done {
            self.notices.of(pool).warn(refusal.to_string());
            self.go_on_after(pool, self.world.sleep(AGAIN_AFTER));
        }
        done.map(|()| SiteAnswer::default())
    }

    /// Has a pool serve its version of the site, in which rights may have been taken away while it did not answer. An apply that
    /// goes on may be refused, or end before it.
    async fn serve_own(&mut self, pool: &str) -> Result<(), Refusal> {
        let Some(text) = self.served_texts.get(pool).cloned() else { return Ok(()) };
        let wanted = WantedSite::of(&parse(&text)?, &self.context)?;
        let Some(wanted) = wanted.pools.iter().find(|wanted| wanted.name == *pool) else { return Ok(()) };
        if self.served_exports.get(pool) == Some(&wanted.exports) {
            return Ok(());
        }
        Ok(self.serve_pool(wanted, &text, None).await?)
    }

    /// Goes on with an apply that is under way, or serves what was missed.
    pub(super) async fn go_on_with_site(&mut self) -> Result<(), Refusal> {
        let under_way = self.journal.apply_under_way().map_err(|error| error.refusal())?;
        match under_way.filter(|apply| apply.online.is_none()) {
            Some(ApplyRecord { text, file, begun, .. }) => {
                let plan = self.plan(&text, &[], PlanOccasion::Apply).await?;
                self.apply(PlannedSite { file, begun, said: Vec::new(), ..plan }, |_| ()).await
            }
            None => self.serve_missed().await,
        }
    }

    /// Serves the site of those pools that do not serve all of it.
    pub(super) async fn serve_missed(&mut self) -> Result<(), Refusal> {
        let text = self.journal.served_site().map_err(|error| error.refusal())?;
        let Some(text) = text else { return Ok(()) };
        let wanted = WantedSite::of(&parse(&text)?, &self.context)?;
        let own: Arc<str> = text.as_str().into();
        let mut refused = None;
        for pool in &wanted.pools {
            let is_open = self.daemon.pool(&pool.name).is_some();
            let is_missed = is_open && self.served_exports.get(&pool.name) != Some(&pool.exports);
            // The server goes on with a pool that does not answer when it does; the others need not wait for it.
            if is_missed && !self.unanswered.has(&pool.name) {
                let served = self.serve_pool(pool, &own, None).await;
                refused = refused.or(served.err());
            }
        }
        self.keep_documents(&text, &wanted.pools).await?;
        refused.map_or(Ok(()), |refused| Err(refused.refusal))
    }
}

/// Gives an order when there is room for it, and waits for its answer.
async fn answer<T: Send + 'static>(
    orders: Orders,
    name: &'static str,
    work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<Result<T, Refusal>> + Send + 'static,
) -> Result<Result<T, Refusal>, OrderRefusal> {
    // Callers of the API may fill the queue; the site waits for a place.
    orders.give_when_free(name, work).await
}
