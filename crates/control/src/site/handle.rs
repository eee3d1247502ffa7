//! The served site as other threads see it, and how they ask for changes.
//!
//! Invariants:
//!
//! 1. Looking at the site sends it nothing.
//! 2. Changes are made one at a time, in their order. Plans are answered beside them, from views. A queue that is full refuses.

use super::{
    changes::SiteChange,
    dr_groups_waiting::WaitingDrGroup,
    file_merge::FileDifference,
    power::SitePower,
    row_change::{RowEffect, SiteRowChange},
    row_refusal::RowRefusal,
    volume_following::MovedVolumeNews,
};
use crate::{
    metrics::MetricsSetting,
    order::{OrderRefusal, Orders},
    pool_thread::{ServedPool, current},
    presenting::board::PresentationBoard,
    schedules::ScheduleView,
    sets::ServedSet,
    several_pools::OperationPlaces,
    site::apply_progress::{ApplyInProgress, ApplyProgress},
    view::PoolView,
};
use array::format::PoolId;
use plan::site::Site;
use report::Refusal;
use serving::figures::PoolFigures;
use std::{collections::BTreeMap, fmt, path::PathBuf, rc::Rc, sync::Arc};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};
use world::{Address, LocalFuture};

/// Most requests that wait.
pub const REQUESTS_MAX: usize = 16;

/// A served site, seen from another thread.
#[derive(Clone)]
pub struct SiteHandle {
    site: watch::Receiver<Arc<SiteView>>,
    backups: BackupViews,
    /// Of changes, and of plans.
    requests: [mpsc::Sender<SiteRequest>; 2],
    progress: ApplyProgress,
    /// Of work over several pools.
    pub operation_places: Arc<OperationPlaces>,
    pub(crate) presentations: PresentationBoard,
}

/// Schedules and sets, as their flows show them.
#[derive(Clone)]
pub(super) struct BackupViews {
    pub schedules: watch::Receiver<Arc<Vec<ScheduleView>>>,
    pub sets: watch::Receiver<Arc<Vec<ServedSet>>>,
}

/// The pools of a site.
#[derive(Default)]
pub struct SiteView {
    /// Pools that are open, or were until their thread stopped; by name.
    pub pools: BTreeMap<String, PoolHandle>,
    /// Pools that are not as the file says, with the reasons.
    pub stopped: BTreeMap<String, Refusal>,
    /// Clients are accepted.
    pub is_open: bool,
    /// Of the machine, as it was told.
    pub power: SitePower,
    /// The site that is served, as it was applied or changed last; volumes may have changed since.
    pub site: Arc<Site>,
    /// Of the file that was applied.
    pub metrics: Arc<MetricsSetting>,
    /// The address at which exports are served over NBD, and whether over TLS; `None` if none are.
    pub nbd: Option<(Address, bool)>,
    /// The address at which targets are served over iSCSI; `None` if none are.
    pub iscsi: Option<Address>,
    /// DR groups of the site file that are made once their other sites are connected.
    pub waiting_dr_groups: Arc<[WaitingDrGroup]>,
}

impl SiteView {
    /// The pool of that identity, whatever its name is by now.
    pub fn pool_of(&self, id: PoolId) -> Option<&PoolHandle> {
        self.pools.values().find(|pool| pool.id == id)
    }
}

/// A pool of the site.
#[derive(Clone)]
pub struct PoolHandle {
    pub name: String,
    pub id: PoolId,
    pub folder: PathBuf,
    pub(super) orders: Orders,
    pub(super) views: watch::Receiver<Arc<PoolView>>,
    pub(super) figures: watch::Receiver<Arc<PoolFigures>>,
}

/// A request to the site's server.
pub struct SiteRequest {
    pub(super) wanted: WantedAnswer,
    pub(super) answer: oneshot::Sender<Result<SiteAnswer, RowRefusal>>,
    /// Of an apply, until it is answered.
    pub(super) in_progress: Option<ApplyInProgress>,
}

impl SiteRequest {
    /// A request, and where its answer comes.
    pub(crate) fn new(wanted: WantedAnswer) -> (Self, oneshot::Receiver<Result<SiteAnswer, RowRefusal>>) {
        let (tell, answer) = oneshot::channel();
        (Self { wanted, answer: tell, in_progress: None }, answer)
    }
}

/// The kind of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum WantedAnswer {
    /// The changes to a site file, without doing them.
    Plan(SiteText),
    /// A site file applied.
    Apply(SiteText),
    /// The power followed.
    Power(SitePower),
    /// One row changed without a file.
    Change(Box<OnlineChange>),
    /// Work that a pool missed while it did not answer, done. The server asks itself.
    GoOn(String),
    /// The services of a volume that has moved, moved as well. The pool that has it asks.
    FollowMoved(MovedVolumeNews),
    /// Pools opened that are not open. The server asks itself.
    OpenClosedPools,
    /// DR groups made that waited for their other site. The server asks itself.
    MakeWaitingDrGroups,
}

/// A change of one row, without a file.
#[derive(Clone, Debug, PartialEq)]
pub struct OnlineChange {
    pub change: SiteRowChange,
    /// Secret of the initiator, to be kept in a file of the server.
    pub secret: Option<NewSecret>,
    /// The change is made only if the row is of this version.
    pub if_match: Option<String>,
    /// Hosts may lose what they use.
    pub is_forced: bool,
    pub is_dry_run: bool,
}

/// A secret, and the identity of its file: the same request, repeated, names the same file.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSecret {
    pub text: String,
    pub uuid: [u8; 16],
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewSecret").finish_non_exhaustive()
    }
}

/// The answer to a change of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowAnswer {
    pub effect: RowEffect,
    /// Hosts whose sessions end, with what they lose.
    pub ended: Vec<String>,
    /// Tables for the site file.
    pub difference: FileDifference,
}

/// A site file, and what it may destroy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteText {
    pub text: String,
    /// `POOL/VOLUME`; or `POOL`, to forget one that is gone for good.
    pub destroy: Vec<String>,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteAnswer {
    /// Changes to be done, or that were done.
    pub changes: Vec<SiteChange>,
    /// Pools and volumes that the file lacks: they stay.
    pub kept: Vec<String>,
    /// Parts of the file that are not served, and dangers.
    pub notes: Vec<String>,
    /// The site as a file.
    pub text: Option<String>,
    /// Of a change of one row.
    pub row: Option<RowAnswer>,
    /// Of a plan: what the apply has done that waits or is under way, in words.
    pub apply_under_way: Option<String>,
}

/// The reason for which a request was not taken. Nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestRefusal {
    #[error("{REQUESTS_MAX} requests wait already; try again")]
    Full,
    #[error("the server ends")]
    Ending,
}

impl SiteHandle {
    pub(super) fn new(
        site: watch::Receiver<Arc<SiteView>>,
        backups: BackupViews,
        requests: [mpsc::Sender<SiteRequest>; 2],
        progress: ApplyProgress,
        (operation_places, presentations): (Arc<OperationPlaces>, PresentationBoard),
    ) -> Self {
        Self { site, backups, requests, progress, operation_places, presentations }
    }

    /// The progress of the schedules in each pool, a minute old at most.
    pub fn schedules(&self) -> Arc<Vec<ScheduleView>> {
        Arc::clone(&self.backups.schedules.borrow())
    }

    /// The sets of the site file, in its order.
    pub fn sets(&self) -> Arc<Vec<ServedSet>> {
        Arc::clone(&self.backups.sets.borrow())
    }

    /// The pools as they are now.
    pub fn look(&self) -> Arc<SiteView> {
        Arc::clone(&self.site.borrow())
    }

    /// Sends a request. The answer comes however long it takes; dropping it ends nothing.
    ///
    /// # Errors
    ///
    /// It was not taken.
    pub fn ask(
        &self,
        wanted: WantedAnswer,
    ) -> Result<oneshot::Receiver<Result<SiteAnswer, RowRefusal>>, RequestRefusal> {
        let [changes, plans] = &self.requests;
        let queue = if matches!(wanted, WantedAnswer::Plan(_)) { plans } else { changes };
        let in_progress = matches!(wanted, WantedAnswer::Apply(_)).then(|| self.progress.one_more());
        let (request, answer) = SiteRequest::new(wanted);
        let request = SiteRequest { in_progress, ..request };
        queue.try_send(request).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => RequestRefusal::Full,
            mpsc::error::TrySendError::Closed(_) => RequestRefusal::Ending,
        })?;
        Ok(answer)
    }
}

impl PoolHandle {
    /// The newest view; `None` once the pool's thread has ended.
    pub fn view(&self) -> Option<Arc<PoolView>> {
        current(&self.views)
    }

    /// The newest view, also of a pool whose thread has ended.
    pub fn last_view(&self) -> Arc<PoolView> {
        Arc::clone(&self.views.borrow())
    }

    /// The newest figures; `None` once the pool's thread has ended.
    pub fn figures(&self) -> Option<Arc<PoolFigures>> {
        current(&self.figures)
    }

    /// True if both are the same pool, opened once.
    pub fn is_same_thread(&self, other: &Self) -> bool {
        self.views.same_channel(&other.views)
    }

    /// Waits until the view shows the catalogue as of a revision, or the thread has ended.
    pub async fn shows(&self, revision: u64) {
        let mut views = self.views.clone();
        // An error is the end of the thread.
        let _ = views.wait_for(|view| view.catalogue_revision >= revision).await;
    }

    /// Waits until the view shows what is served since a revision, or the thread has ended.
    pub async fn shows_services(&self, revision: u64) {
        let mut views = self.views.clone();
        // An error is the end of the thread.
        let _ = views.wait_for(|view| view.services_revision >= revision).await;
    }

    /// Waits until the view shows the pool's drives and jobs as of a revision, or the thread has ended.
    pub async fn shows_changes(&self, revision: u64) {
        let mut views = self.views.clone();
        // An error is the end of the thread.
        let _ = views.wait_for(|view| view.changes_revision >= revision).await;
    }

    /// Gives the pool an order; see [`Orders::begin`].
    ///
    /// # Errors
    ///
    /// The order was not taken.
    pub fn begin<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Rc<ServedPool>) -> LocalFuture<T> + Send + 'static,
    ) -> Result<crate::order::PendingOrder<T>, OrderRefusal> {
        self.orders.begin(name, work)
    }
}
