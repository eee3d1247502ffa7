//! Requests of other threads, answered by the site's server; and the view that it publishes for them.

use super::{
    adoption::{FoundPool, refreshed},
    handle::{PoolHandle, SiteAnswer, SiteHandle, SiteRequest, SiteText, SiteView, WantedAnswer},
    planning::{PlanOccasion, PlannedSite},
    row_refusal::RowRefusal,
    server::{SiteServer, parse},
};
use crate::journal::DaemonJournal;
use report::Refusal;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};

/// The ends of a site's server towards other threads.
pub(super) struct SiteRequests {
    pub view: watch::Sender<Arc<SiteView>>,
    /// Kept so that the queue never ends.
    give: mpsc::Sender<SiteRequest>,
    take: mpsc::Receiver<SiteRequest>,
}

impl SiteRequests {
    pub fn new() -> Self {
        let (give, take) = mpsc::channel(super::handle::REQUESTS_MAX);
        Self { view: watch::Sender::new(Arc::default()), give, take }
    }
}

impl SiteServer {
    /// Looks at the site and asks for changes, from any thread.
    pub fn handle(&self) -> SiteHandle {
        let schedules = self.schedules.progress();
        let places = Arc::clone(&self.operation_places);
        SiteHandle::new(self.requests.view.subscribe(), schedules, self.requests.give.clone(), places)
    }

    /// The next request of another thread.
    pub async fn next_request(&mut self) -> SiteRequest {
        self.requests.take.recv().await.expect("the server has a sender itself")
    }

    /// Does what a request asks for, and answers it. Returns true if the site was changed.
    pub async fn answer(&mut self, SiteRequest { wanted, answer }: SiteRequest) -> bool {
        let is_change = matches!(wanted, WantedAnswer::Apply(_))
            || matches!(&wanted, WantedAnswer::Change(change) if !change.is_dry_run);
        let answered = match wanted {
            WantedAnswer::Plan(SiteText { text, destroy }) => {
                let plan = self.plan(&text, &destroy, PlanOccasion::Apply).await;
                plan.map(|plan| answer_of(&plan)).map_err(RowRefusal::from)
            }
            WantedAnswer::Apply(SiteText { text, destroy }) => {
                self.plan_and_apply(&text, &destroy).await.map_err(RowRefusal::from)
            }
            WantedAnswer::Power(power) => self.set_power(power).await.map_err(RowRefusal::from),
            WantedAnswer::Change(change) => self.change_row(*change).await,
        };
        // A part may be done.
        self.publish();
        // The asking thread may have given up.
        let _ = answer.send(answered);
        is_change
    }

    async fn plan_and_apply(&mut self, text: &str, destroy: &[String]) -> Result<SiteAnswer, Refusal> {
        let plan = self.plan(text, destroy, PlanOccasion::Apply).await?;
        let answer = answer_of(&plan);
        self.apply(plan, |_| {}).await?;
        Ok(answer)
    }

    /// Shows other threads the pools that there are now.
    pub(super) fn publish(&self) {
        self.publish_without(None);
    }

    /// The same without a pool that is about to be closed: it has not failed.
    pub(super) fn publish_without(&self, closing: Option<&str>) {
        let pools = self.pool_handles().into_iter().filter(|pool| closing != Some(&*pool.name));
        self.requests.view.send_replace(Arc::new(SiteView {
            pools: pools.map(|pool| (pool.name.clone(), pool)).collect(),
            stopped: self.stopped.clone(),
            is_open: self.daemon.is_open(),
            power: self.power,
            site: Arc::clone(&self.served_site),
            metrics: Arc::clone(&self.metrics),
        }));
    }

    /// The pools that are open, as other threads reach them.
    pub(super) fn pool_handles(&self) -> Vec<PoolHandle> {
        // A journal that cannot be read has said so.
        let records = self.journal.pools().unwrap_or_default();
        let handle = |pool: &crate::pool_thread::PoolThread| {
            let id = pool.last_view().pool?;
            let folder = records.get(&pool.name).map(|record| record.folder.clone()).unwrap_or_default();
            let (orders, views, figures) = (pool.orders.clone(), pool.views.clone(), pool.figures.clone());
            Some(PoolHandle { name: pool.name.clone(), id, folder, orders, views, figures })
        };
        self.daemon.pools().iter().filter_map(handle).collect()
    }
}

/// The site as it is, as a file whose plan is empty. From any thread: it waits for no apply that is under way, whose site it
/// is not yet.
///
/// # Errors
///
/// No site file was applied, or the site and the pools contradict each other.
pub fn printed_site(journal: &DaemonJournal, view: &SiteView) -> Result<SiteAnswer, Refusal> {
    let text = journal.served_site().map_err(|error| error.refusal())?;
    let text = text.ok_or_else(|| Refusal::new("no site file was applied", "apply one"))?;
    let found = |pool: &PoolHandle| Some(FoundPool::served(&pool.name, pool.folder.clone(), &*pool.view()?));
    let pools: Vec<FoundPool> = view.pools.values().filter_map(found).collect();
    let (site, notes) = refreshed(parse(&text)?, &pools)?;
    Ok(SiteAnswer { notes, text: Some(site.to_toml()), ..SiteAnswer::default() })
}

fn answer_of(plan: &PlannedSite) -> SiteAnswer {
    SiteAnswer {
        changes: plan.changes.shown(),
        kept: plan.changes.kept.clone(),
        notes: plan.notes().to_vec(),
        ..SiteAnswer::default()
    }
}
