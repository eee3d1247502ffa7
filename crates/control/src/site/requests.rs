//! Requests of other threads, answered by the site's server; and the view that it publishes for them.

use super::{
    adoption::{FoundPool, listed_volumes, refreshed},
    handle::{PoolHandle, SiteAnswer, SiteHandle, SiteRequest, SiteText, SiteView, WantedAnswer},
    planning::{PlanOccasion, PlannedSite},
    server::{SiteServer, parse},
};
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
        SiteHandle::new(self.requests.view.subscribe(), self.requests.give.clone())
    }

    /// The next request of another thread.
    pub async fn next_request(&mut self) -> SiteRequest {
        self.requests.take.recv().await.expect("the server has a sender itself")
    }

    /// Does what a request asks for, and answers it. Returns true if the site was changed.
    pub async fn answer(&mut self, SiteRequest { wanted, answer }: SiteRequest) -> bool {
        let is_apply = matches!(wanted, WantedAnswer::Apply(_));
        let answered = match wanted {
            WantedAnswer::File => self.file(),
            WantedAnswer::Plan(SiteText { text, destroy }) => {
                self.plan(&text, &destroy, PlanOccasion::Apply).await.map(|plan| answer_of(&plan))
            }
            WantedAnswer::Apply(SiteText { text, destroy }) => self.plan_and_apply(&text, &destroy).await,
            WantedAnswer::Power(power) => self.set_power(power).await,
        };
        // A part may be done.
        self.publish();
        // The asking thread may have given up.
        let _ = answer.send(answered);
        is_apply
    }

    async fn plan_and_apply(&mut self, text: &str, destroy: &[String]) -> Result<SiteAnswer, Refusal> {
        let plan = self.plan(text, destroy, PlanOccasion::Apply).await?;
        let answer = answer_of(&plan);
        self.apply(plan, |_| {}).await?;
        Ok(answer)
    }

    /// The site as it is, as a file whose plan is empty.
    fn file(&self) -> Result<SiteAnswer, Refusal> {
        let text = self.journal.served_site().map_err(|error| error.refusal())?;
        let text = text.ok_or_else(|| Refusal::new("no site file was applied", "apply one"))?;
        let records = self.journal.pools().map_err(|error| error.refusal())?;
        let mut pools = Vec::new();
        for pool in self.daemon.pools() {
            let Some(view) = pool.view() else { continue };
            let folder = records.get(&pool.name).map(|record| record.folder.clone()).unwrap_or_default();
            let volumes = listed_volumes(view.volumes.iter().cloned());
            pools.push(FoundPool {
                name: pool.name.clone(),
                folder,
                devices: Vec::new(),
                drives: 0,
                volumes,
            });
        }
        let (site, notes) = refreshed(parse(&text)?, &pools)?;
        Ok(SiteAnswer { notes, text: Some(site.to_toml()), ..SiteAnswer::default() })
    }

    /// Shows other threads the pools that there are now.
    pub(super) fn publish(&self) {
        self.publish_without(None);
    }

    /// The same without a pool that is about to be closed: it has not failed.
    pub(super) fn publish_without(&self, closing: Option<&str>) {
        // A journal that cannot be read has said so.
        let records = self.journal.pools().unwrap_or_default();
        let handle = |pool: &crate::pool_thread::PoolThread| {
            let id = pool.last_view().pool?;
            let folder = records.get(&pool.name).map(|record| record.folder.clone()).unwrap_or_default();
            let (orders, views, figures) = (pool.orders.clone(), pool.views.clone(), pool.figures.clone());
            Some((
                pool.name.clone(),
                PoolHandle { name: pool.name.clone(), id, folder, orders, views, figures },
            ))
        };
        self.requests.view.send_replace(Arc::new(SiteView {
            pools: self
                .daemon
                .pools()
                .iter()
                .filter(|pool| closing != Some(&*pool.name))
                .filter_map(handle)
                .collect(),
            stopped: self.stopped.clone(),
            is_open: self.daemon.is_open(),
            power: self.power,
        }));
    }
}

fn answer_of(plan: &PlannedSite) -> SiteAnswer {
    SiteAnswer {
        changes: plan.changes.shown(),
        kept: plan.changes.kept.clone(),
        notes: plan.notes().to_vec(),
        text: None,
    }
}
