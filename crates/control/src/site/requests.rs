//! Requests of other threads, answered by the site's server; and the view that it publishes for them. Plans have a queue and a
//! flow of their own: they only read, and are answered while a change is under way.

use super::{
    apply_progress::ApplyProgress,
    handle::{
        BackupViews, PoolHandle, REQUESTS_MAX, SiteAnswer, SiteHandle, SiteRequest, SiteText, SiteView,
        WantedAnswer,
    },
    planning::{PlanOccasion, PlannedSite, SitePlanner},
    row_refusal::{RowRefusal, RowRefusalKind},
    server::SiteServer,
};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use world::{JoinHandle, World, with_deadline};

/// The ends of a site's server towards other threads.
pub(super) struct SiteRequests {
    pub view: watch::Sender<Arc<SiteView>>,
    pub progress: ApplyProgress,
    /// Kept so that the queue never ends.
    pub give: mpsc::Sender<SiteRequest>,
    take: mpsc::Receiver<SiteRequest>,
    give_plan: mpsc::Sender<SiteRequest>,
    /// Taken by the flow that answers them.
    take_plan: Option<mpsc::Receiver<SiteRequest>>,
    planning: Option<PlanFlow>,
}

/// The flow that answers requests for plans.
struct PlanFlow {
    end: oneshot::Sender<()>,
    flow: JoinHandle<()>,
}

impl SiteRequests {
    pub fn new() -> Self {
        let (give, take) = mpsc::channel(REQUESTS_MAX);
        let (give_plan, take_plan) = mpsc::channel(REQUESTS_MAX);
        let view = watch::Sender::new(Arc::default());
        let progress = ApplyProgress::default();
        Self { view, progress, give, take, give_plan, take_plan: Some(take_plan), planning: None }
    }

    /// Answers plans from now on, beside all changes.
    pub fn answer_plans(&mut self, world: &World, planner: SitePlanner) {
        let Some(mut plans) = self.take_plan.take() else { return };
        let (end, ended) = oneshot::channel::<()>();
        let progress = self.progress.clone();
        let flow = world.spawn("site plans", async move {
            let mut ended = std::pin::pin!(async move { drop(ended.await) });
            while let Some(Some(request)) = with_deadline(&mut ended, plans.recv()).await {
                let SiteRequest { wanted, answer, .. } = request;
                let WantedAnswer::Plan(SiteText { text, destroy }) = wanted else {
                    unreachable!("changes have a queue of their own")
                };
                let plan = planner.plan(&text, &destroy, PlanOccasion::Apply);
                let plan =
                    plan.map(|plan| SiteAnswer { apply_under_way: progress.words(), ..answer_of(&plan) });
                // The asking thread may have given up.
                let _ = answer.send(plan.map_err(RowRefusal::from));
            }
        });
        self.planning = Some(PlanFlow { end, flow });
    }

    /// Answers no plan any more.
    pub async fn end_plans(&mut self) {
        if let Some(PlanFlow { end, flow }) = self.planning.take() {
            drop(end);
            flow.await;
        }
    }
}

impl SiteServer {
    /// Looks at the site and asks for changes, from any thread.
    pub fn handle(&self) -> SiteHandle {
        let backups = BackupViews { schedules: self.schedules.progress(), sets: self.sets.shown() };
        let SiteRequests { view, progress, give, give_plan, .. } = &self.requests;
        let give = [give.clone(), give_plan.clone()];
        let shared = (Arc::clone(&self.operation_places), self.daemon.presentations());
        SiteHandle::new(view.subscribe(), backups, give, progress.clone(), shared)
    }

    /// The next request of another thread.
    pub async fn next_request(&mut self) -> SiteRequest {
        self.requests.take.recv().await.expect("the server has a sender itself")
    }

    /// Does what a request asks for, and answers it. Returns true if the site was changed.
    pub async fn answer(&mut self, request: SiteRequest) -> bool {
        let SiteRequest { wanted, answer, in_progress } = request;
        let mut is_change = matches!(
            wanted,
            WantedAnswer::Apply(_)
                | WantedAnswer::GoOn(_)
                | WantedAnswer::FollowMoved(_)
                | WantedAnswer::MakeWaitingDrGroups
        ) || matches!(&wanted, WantedAnswer::Change(change) if !change.is_dry_run);
        let answered = match wanted {
            WantedAnswer::Plan(_) => unreachable!("plans have a queue of their own"),
            WantedAnswer::Apply(SiteText { text, destroy }) => self.plan_and_apply(&text, &destroy).await,
            WantedAnswer::Power(power) => self.set_power(power).await.map_err(RowRefusal::from),
            WantedAnswer::Change(change) => self.change_row(*change).await,
            WantedAnswer::GoOn(pool) => self.go_on(&pool).await.map_err(RowRefusal::from),
            WantedAnswer::FollowMoved(news) => self.follow_moved(&news).await,
            WantedAnswer::OpenClosedPools => {
                let (has_changed, done) = self.answer_closed_pools().await;
                is_change = has_changed;
                done.map_err(RowRefusal::from)
            }
            WantedAnswer::MakeWaitingDrGroups => {
                let made = self.make_waiting_dr_groups().await;
                // Nobody else hears of it.
                made.inspect_err(|refusal| self.notices.warn(refusal.to_string())).map_err(RowRefusal::from)
            }
        };
        // A part may be done.
        self.publish();
        drop(in_progress);
        // The asking thread may have given up.
        let _ = answer.send(answered);
        is_change
    }

    async fn plan_and_apply(&mut self, text: &str, destroy: &[String]) -> Result<SiteAnswer, RowRefusal> {
        let plan = self.plan(text, destroy, PlanOccasion::Apply).await?;
        let answer = answer_of(&plan);
        match self.apply(plan, |_| {}).await {
            Ok(()) => Ok(answer),
            Err(refusal) if !self.unanswered.names().is_empty() => {
                Err(RowRefusal { kind: RowRefusalKind::NoAnswer, refusal })
            }
            Err(refusal) => Err(refusal.into()),
        }
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
            iscsi: self.daemon.addresses().iscsi.clone(),
            nbd: self.nbd_address().map(|address| (address, self.uri_tls().is_some())),
            waiting_dr_groups: self.waiting_dr_groups.list(),
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

fn answer_of(plan: &PlannedSite) -> SiteAnswer {
    SiteAnswer {
        changes: plan.changes.shown(),
        kept: plan.changes.kept.clone(),
        notes: plan.notes().to_vec(),
        ..SiteAnswer::default()
    }
}
