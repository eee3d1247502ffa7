//! Changes of a served pool's drives and settings.
//!
//! Invariants:
//!
//! 1. An order begins a change, and does not wait for it: volumes have their orders meanwhile.
//! 2. One change at a time; another one is refused until it has ended. One that was begun is done, also if nobody waits.
//! 3. Copies that a change has left missing are made by a job (`pool_jobs`), which a request may wait for.

use crate::{
    folder_drives::{DriveChangeOutcome, FolderDrives},
    job_request::RequestedJob,
    pool_jobs::{PoolJobs, ShownChanges},
    pool_peers::PoolPeers,
};
use array::{format::DriveId, pool::Pool};
use report::Refusal;
use serving::pool::{pool_change::PoolChange, status::DriveStatuses};
use std::{cell::Cell, rc::Rc};
use thiserror::Error;
use tokio::sync::oneshot;
use world::World;

/// Makes the changes of one pool.
pub struct PoolChanges {
    world: World,
    /// `None` for a pool without a folder.
    drives: Option<Rc<FolderDrives>>,
    under_way: Cell<Option<&'static str>>,
    /// On request.
    pub jobs: Rc<PoolJobs>,
    shown: Rc<ShownChanges>,
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
    pub(crate) fn new(
        world: &World,
        pool: &Rc<Pool>,
        drives: Option<Rc<FolderDrives>>,
        peers: &PoolPeers,
    ) -> Rc<Self> {
        let shown = Rc::<ShownChanges>::default();
        let jobs = PoolJobs::new(world, pool, (drives.clone(), &shown), peers);
        Rc::new(Self { world: world.clone(), drives, under_way: Cell::new(None), jobs, shown })
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
            if let Ok(outcome) = &outcome
                && let Some(forgets) = copies_after(&change, outcome)
            {
                // Copies are made, and a missing drive that holds nothing any more leaves, as after the same verb on a stopped pool.
                let (job, id) = (RequestedJob::Rebuild, identity.0);
                changes.jobs.begin_with(job, id, forgets).await;
            }
            changes.under_way.set(None);
            let revision = changes.shown.show();
            // The caller may be gone.
            let _ = tell.send(outcome.map(|outcome| (outcome, revision)));
        });
        Ok(ended)
    }

    pub(crate) async fn changed(&self) {
        self.shown.changed().await;
    }

    pub(crate) fn revision(&self) -> u64 {
        self.shown.revision()
    }

    pub(crate) fn under_way(&self) -> Option<&'static str> {
        self.under_way.get()
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

/// The drive that is forgotten once missing copies are made, if a change is one after which they are made.
fn copies_after(change: &PoolChange, outcome: &DriveChangeOutcome) -> Option<Option<DriveId>> {
    match (change, outcome) {
        (_, DriveChangeOutcome::ForgottenLater(named)) => Some(Some(named.drive)),
        (PoolChange::AddDrive { .. } | PoolChange::Readmit { .. }, DriveChangeOutcome::Done(_)) => Some(None),
        _ => None,
    }
}
