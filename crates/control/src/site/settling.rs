//! Snapshots and operations over several pools that ended early, settled when their pools are opened.

use super::{pool_answers::SITE_ANSWER_WITHIN, server::SiteServer};
use crate::{
    planted::{self, GroupBug},
    pool_thread::current,
    several_pools::{GATHER_MAX, PartsRefusal, SettledOnline, settle},
};
use serving::pool::cut::{CutOutcome, SettledCut};
use world::with_deadline;

impl SiteServer {
    /// Settles what ended early in the pools that are open, as far as all that it needs are. To be called before their volumes
    /// are served: those of a rollback that waits are not opened. What waits still is a condition.
    pub(super) async fn settle_pools(&self) {
        // One that does not answer settles when it is opened the next time.
        let mut pools = self.pool_handles();
        pools.retain(|pool| !self.unanswered.has(&pool.name) && current(&pool.views).is_some());
        let is_settled = |pool: &crate::site::handle::PoolHandle| pool.last_view().unsettled.is_empty();
        if pools.iter().all(is_settled) || planted::is_in_groups(GroupBug::NotSettledAtStart) {
            return;
        }
        let ids = pools.iter().map(|pool| pool.id);
        let in_time = async {
            let _places = self.operation_places.hold(ids, self.world.sleep(GATHER_MAX)).await?;
            with_deadline(self.world.sleep(SITE_ANSWER_WITHIN), Box::pin(settle(&pools, None))).await
        };
        let busy = || Err(PartsRefusal::Busy { pool: "of several".to_owned() });
        match in_time.await.unwrap_or_else(busy) {
            Ok(outcomes) => {
                for settled in outcomes.into_values().filter(|settled| settled.outcome != CutOutcome::Waits) {
                    self.notices.occurred("settled", SettledCut::from(settled).text());
                }
            }
            Err(refusal) => {
                self.notices.warn(format!("nothing of several pools was settled: {}", refusal.refusal()))
            }
        }
    }
}

impl From<SettledOnline> for SettledCut {
    fn from(settled: SettledOnline) -> Self {
        let SettledOnline { name, operation, outcome, waits_for } = settled;
        let waits_for = waits_for.iter().map(|pool| format!("pool {pool}")).collect();
        Self { snapshot: name, operation, outcome, waits_for }
    }
}
