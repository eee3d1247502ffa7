//! Changes of a served pool's drives and settings, and its jobs on request.
//!
//! Invariants:
//!
//! 1. An order begins a change, and does not wait for it: volumes have their orders meanwhile.
//! 2. One change at a time; another one is refused until it has ended. One that was begun is done, also if nobody waits.
//! 3. A job that was asked for twice is done once; one that is cancelled before it has begun does not begin.

use crate::folder_drives::{DriveChangeOutcome, FolderDrives};
use array::{format::DriveId, mover::JobKind, pool::Pool};
use report::Refusal;
use serving::pool::{pool_change::PoolChange, status::DriveStatuses};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use thiserror::Error;
use tokio::sync::{Notify, oneshot};
use world::World;

/// Between two looks at a scrub that was cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Makes the changes of one pool.
pub struct PoolChanges {
    world: World,
    pool: Rc<Pool>,
    /// `None` for a pool without a folder.
    drives: Option<Rc<FolderDrives>>,
    under_way: Cell<Option<&'static str>>,
    /// False once a job is cancelled.
    requests: RefCell<BTreeMap<JobKind, Rc<Cell<bool>>>>,
    revision: Cell<u64>,
    changed: Notify,
}

/// The end of a change, and the revision of the view that shows it.
pub type ChangeEnd = Result<(DriveChangeOutcome, u64), Refusal>;

/// The reason for which a change did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChangeRefusal {
    #[error("the pool has no folder, so its drives cannot be changed")]
    NoFolder,
    #[error("another change of the pool is under way: {0}")]
    UnderWay(&'static str),
}

impl PoolChanges {
    pub(crate) fn new(world: &World, pool: &Rc<Pool>, drives: Option<Rc<FolderDrives>>) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            pool: Rc::clone(pool),
            drives,
            under_way: Cell::new(None),
            requests: RefCell::default(),
            revision: Cell::new(0),
            changed: Notify::new(),
        })
    }

    /// Begins a change. A drive that joins has the UUID `identity`; `name` is for the operator.
    ///
    /// # Errors
    ///
    /// It did not begin.
    pub fn begin(
        self: &Rc<Self>,
        name: &'static str,
        change: PoolChange,
        identity: DriveId,
    ) -> Result<oneshot::Receiver<ChangeEnd>, ChangeRefusal> {
        let drives = Rc::clone(self.drives.as_ref().ok_or(ChangeRefusal::NoFolder)?);
        if let Some(other) = self.under_way.get() {
            return Err(ChangeRefusal::UnderWay(other));
        }
        self.under_way.set(Some(name));
        let (tell, ended) = oneshot::channel();
        let changes = Rc::clone(self);
        self.world.spawn("pool change", async move {
            let outcome = drives.change(&change, identity).await;
            changes.under_way.set(None);
            let revision = changes.show();
            // The caller may be gone.
            let _ = tell.send(outcome.map(|outcome| (outcome, revision)));
        });
        Ok(ended)
    }

    /// Begins a scrub of everything, unless one was asked for already. One that the pool began by itself ends.
    pub async fn begin_scrub(self: &Rc<Self>) -> u64 {
        let Some(is_wanted) = self.request(JobKind::Scrub) else { return self.revision.get() };
        let changes = Rc::clone(self);
        self.world.spawn("scrub on request", async move {
            let pool = &changes.pool;
            while is_wanted.get() && pool.scrub_progress().is_running {
                pool.cancel(JobKind::Scrub);
                changes.world.sleep(LOOK_EVERY).await;
            }
            if is_wanted.get() {
                // The pool's events tell how it ends.
                let _ = pool.scrub().await;
            }
            changes.end_request(JobKind::Scrub, &is_wanted);
        });
        self.show_begun().await
    }

    /// Makes missing copies, and levels the drives.
    pub async fn begin_levelling(self: &Rc<Self>) -> u64 {
        let Some(is_wanted) = self.request(JobKind::Level) else { return self.revision.get() };
        let changes = Rc::clone(self);
        self.world.spawn("levelling on request", async move {
            let pool = &changes.pool;
            if pool.rebuild().await.is_ok() && is_wanted.get() {
                // The pool's events tell how it ends.
                let _ = pool.level().await;
            }
            changes.end_request(JobKind::Level, &is_wanted);
        });
        self.show_begun().await
    }

    /// Ends a job, or gives up its request. What is done counts.
    pub fn cancel(&self, job: JobKind) -> u64 {
        if let Some(is_wanted) = self.requests.borrow_mut().remove(&job) {
            is_wanted.set(false);
        }
        self.pool.cancel(job);
        self.show()
    }

    /// Records a request; `None` if there is one.
    fn request(&self, job: JobKind) -> Option<Rc<Cell<bool>>> {
        let mut requests = self.requests.borrow_mut();
        if requests.contains_key(&job) {
            return None;
        }
        let is_wanted = Rc::new(Cell::new(true));
        requests.insert(job, Rc::clone(&is_wanted));
        Some(is_wanted)
    }

    fn end_request(&self, job: JobKind, is_wanted: &Rc<Cell<bool>>) {
        let mut requests = self.requests.borrow_mut();
        if requests.get(&job).is_some_and(|request| Rc::ptr_eq(request, is_wanted)) {
            requests.remove(&job);
        }
        drop(requests);
        self.show();
    }

    /// Has the view published once the task that was just spawned has begun.
    async fn show_begun(&self) -> u64 {
        self.world.yield_now().await;
        self.show()
    }

    /// Has the view published now. Returns the revision that it will have.
    fn show(&self) -> u64 {
        let revision = self.revision.get() + 1;
        self.revision.set(revision);
        self.changed.notify_one();
        revision
    }

    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision.get()
    }

    pub(crate) fn under_way(&self) -> Option<&'static str> {
        self.under_way.get()
    }

    /// Jobs that were asked for and have not ended.
    pub(crate) fn requested_jobs(&self) -> Vec<JobKind> {
        self.requests.borrow().keys().copied().collect()
    }

    pub(crate) fn drive_statuses(&self) -> DriveStatuses {
        self.drives.as_ref().map(|drives| drives.statuses()).unwrap_or_default()
    }

    /// Takes drives that have left for good out of the folder's record.
    pub(crate) fn update_record(&self) {
        if let Some(drives) = &self.drives {
            drives.update_record();
        }
    }
}
