//! Pools that were not open in time: the site goes on without them, and they join it when they are open.
//!
//! Invariants:
//!
//! 1. A pool is open, or its opening is under way, or neither: one that is opening is not opened a second time.
//! 2. An opening ends once, and then the server asks itself to go on with the pool.

use super::{
    handle::{SiteRequest, WantedAnswer},
    server::SiteServer,
    wanted_pool::WantedPool,
};
use crate::{daemon::OPENED_WITHIN, pool_thread::PoolThread};
use report::Refusal;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};
use tokio::sync::oneshot;

/// Pools whose openings are under way, or have ended and were not noticed yet; by name.
#[derive(Clone, Default)]
pub(super) struct LatePools(Rc<RefCell<BTreeMap<String, LatePool>>>);

struct LatePool {
    wanted: WantedPool,
    ended: Option<(PoolThread, Result<(), Refusal>)>,
}

impl LatePools {
    /// True if the pool of this name is opening.
    pub fn has(&self, name: &str) -> bool {
        self.0.borrow().contains_key(name)
    }
}

impl SiteServer {
    /// Goes on without a pool, until its opening ends.
    pub(super) fn await_late(&mut self, wanted: &WantedPool, mut pool: PoolThread) {
        let name = pool.name.clone();
        let late = LatePool { wanted: wanted.clone(), ended: None };
        assert!(self.late.0.borrow_mut().insert(name.clone(), late).is_none(), "it is opened once");
        let seconds = OPENED_WITHIN.as_secs();
        let problem = format!("it is not open after {seconds} s: its drives hang, or its log is long");
        self.stop_pool(&name, Refusal::new(problem, "look at its drives; it is served when it is open"));
        let (late, requests) = (self.late.clone(), self.requests.give.downgrade());
        drop(self.world.spawn("late opening", async move {
            let opened = pool.opened().await;
            if let Some(known) = late.0.borrow_mut().get_mut(&name) {
                known.ended = Some((pool, opened));
            }
            // Without a server nobody serves it.
            let Some(requests) = requests.upgrade() else { return };
            let wanted = WantedAnswer::GoOn(name);
            let _ =
                requests.send(SiteRequest { wanted, answer: oneshot::channel().0, in_progress: None }).await;
        }));
    }

    /// Takes a pool in whose opening has ended; one that the site has no more is closed.
    ///
    /// # Errors
    ///
    /// It did not open.
    pub(super) async fn join_late(&mut self, name: &str) -> Result<(), Refusal> {
        let ended = {
            let mut late = self.late.0.borrow_mut();
            let has_ended = late.get(name).is_some_and(|pool| pool.ended.is_some());
            if has_ended { late.remove(name) } else { None }
        };
        let Some(LatePool { wanted, ended: Some((pool, opened)) }) = ended else { return Ok(()) };
        if let Err(refusal) = self.daemon.join(pool, opened).await {
            self.stop_pool(name, refusal.clone());
            return Err(refusal);
        }
        self.stopped.remove(name);
        if !self.served_site.groups.iter().any(|group| group.name == name) {
            let late = self.daemon.remove_pool(name).await;
            late.into_iter().for_each(|why| self.notices.of(name).warn(why));
            return Ok(());
        }
        self.notices.of(name).note("it is open now, and served");
        if let Err(error) = self.record(&wanted) {
            self.notices.of(name).warn(error.refusal().to_string());
        }
        self.settle_pools().await;
        Ok(())
    }
}
