//! The drives of a pool in a folder, changed while the pool is served.
//!
//! Invariants:
//!
//! 1. One change at a time has the open pool. It is closed after the change under way, and none begins after that.
//! 2. What waits for copies does not hold the open pool meanwhile.
//! 3. A drive that has left for good leaves the folder's record within a second.

use array::format::DriveId;
use report::Refusal;
use serving::{
    notices::Notices,
    pool::{
        add_drive::{CopiesAnswer, check_source, conclude_copies},
        departure::{NamedDrive, drive_named},
        folder::{OpenPool, ShownDrives},
        pool_change::{PoolChange, PoolDone, perform_as},
        status::DriveStatuses,
    },
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Mutex;
use world::{World, with_deadline};

/// The open pool of a folder, for changes of its drives.
pub struct FolderDrives {
    world: World,
    notices: Rc<dyn Notices>,
    /// `None` once it is closed.
    open: Mutex<Option<OpenPool>>,
    shown: Rc<RefCell<ShownDrives>>,
    is_record_old: Cell<bool>,
}

/// Time for a device that is to join to answer.
const CHECKED_WITHIN: Duration = Duration::from_secs(60);

/// The outcome of a change of a pool's drives.
#[derive(Clone, Debug)]
pub enum DriveChangeOutcome {
    Done(PoolDone),
    /// Nothing is done yet: the drive is to be forgotten once copies are made, with `conclude_copies`.
    ForgottenLater(NamedDrive),
}

/// The end of copies that were made.
pub(crate) enum CopiesEnd {
    Concluded(Result<CopiesAnswer, Refusal>),
    /// More are to be made first.
    Again,
    /// The pool was closed.
    Closed,
}

impl FolderDrives {
    pub fn new(world: &World, open: OpenPool, notices: &Rc<dyn Notices>) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            notices: Rc::clone(notices),
            shown: open.shared_shown(),
            open: Mutex::new(Some(open)),
            is_record_old: Cell::new(false),
        })
    }

    /// Makes a change, after the one under way. A drive that joins has the UUID `identity`.
    ///
    /// # Errors
    ///
    /// A refusal.
    pub async fn change(
        &self,
        change: &PoolChange,
        identity: DriveId,
    ) -> Result<DriveChangeOutcome, Refusal> {
        if let PoolChange::AddDrive { source, .. } | PoolChange::Replace { source, .. } = change {
            // Before the pool is taken: a device that does not answer must not keep the pool from being closed.
            let checking = check_source(&self.world, source.source());
            let checked = with_deadline(self.world.sleep(CHECKED_WITHIN), checking).await;
            checked.unwrap_or_else(|| {
                let problem = format!("the device does not answer within {} s", CHECKED_WITHIN.as_secs());
                Err(Refusal::new(problem, "check it, or its server"))
            })?;
        }
        let mut open = self.open.lock().await;
        let open = open.as_mut().ok_or_else(|| Refusal::new("the pool is being closed", "start it again"))?;
        if let PoolChange::Forget { drive } = change {
            let named = drive_named(open, drive)?;
            let is_away =
                open.pool.is_listed(named.drive) && !open.pool.drives_in_use().contains(&named.drive);
            if is_away && open.pool.degraded().segments > 0 {
                return Ok(DriveChangeOutcome::ForgottenLater(named));
            }
        }
        let on = (&self.world, open);
        perform_as(change, Some(identity), on, &*self.notices).await.map(DriveChangeOutcome::Done)
    }

    /// Forgets drives, now that copies were made, and removes missing ones that hold nothing from the record. `forgets`
    /// names them once the pool is there, or is `None` if more copies are to be made first.
    pub(crate) async fn conclude_copies(&self, forgets: impl FnOnce() -> Option<Vec<DriveId>>) -> CopiesEnd {
        let mut open = self.open.lock().await;
        let Some(open) = open.as_mut() else { return CopiesEnd::Closed };
        let Some(forgets) = forgets() else { return CopiesEnd::Again };
        let mut refused = None;
        for drive in forgets.into_iter().filter(|&drive| open.pool.is_listed(drive)) {
            let name = drive_named(open, &drive.to_string()).map_or(drive.to_string(), |named| named.name);
            match open.pool.forget(drive).await {
                Ok(()) => self.notices.note(&format!("{name} is forgotten")),
                Err(error) => {
                    let refusal = open.refusal(&error, "ask for it again once copies can be made");
                    self.notices.warn(&format!("{name} is not forgotten: {refusal}"));
                    refused.get_or_insert(refusal);
                }
            }
        }
        CopiesEnd::Concluded(match refused {
            Some(refusal) => Err(refusal),
            None => conclude_copies(open),
        })
    }

    /// Takes drives that have left for good out of the record, unless a change is under way.
    pub(crate) fn update_record(&self) {
        let Ok(mut open) = self.open.try_lock() else { return };
        let Some(open) = open.as_mut() else { return };
        let updated = open.forget_departed();
        let was_old = self.is_record_old.replace(updated.is_err());
        if let Err(refusal) = updated
            && !was_old
        {
            self.notices.warn(&format!("a drive that has left is still in the pool's record: {refusal}"));
        }
    }

    /// The drives, those that are missing included.
    pub(crate) fn statuses(&self) -> DriveStatuses {
        self.shown.borrow().statuses.clone()
    }

    /// Closes the pool after the change under way: all acknowledged writes are stable.
    ///
    /// # Errors
    ///
    /// The refusal of the closing.
    pub async fn close(&self) -> Result<(), Refusal> {
        let open = self.open.lock().await.take();
        match open {
            Some(open) => open.close().await,
            None => Ok(()),
        }
    }
}
