//! Locks, as restic keeps them: a prune excludes everyone, copies and checks exclude a prune.
//!
//! Invariants:
//!
//! 1. A lock is there before its holder looks for the others': of two that come at once, at least one sees the other.
//! 2. A lock is written again every five minutes. Others may remove one that is 30 minutes old; its holder gives up before.

use crate::{
    VaultError, VaultResult, blob_id::BlobId, keys::Maker, planted, repository::Repository,
    store::VaultFileKind, time_text,
};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{IoErrorKind, Moment};

/// Age of a lock that counts no longer, and the pause before the second look (restic's).
const STALE_AFTER_S: i64 = 30 * 60;
const SECOND_LOOK_AFTER: Duration = Duration::from_millis(200);
const REFRESH_EVERY: Duration = Duration::from_secs(5 * 60);
/// Its holder gives up then.
const EXPIRED_AFTER: Duration = Duration::from_secs(25 * 60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// For all that deletes nothing that others may use.
    Shared,
    Exclusive,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LockJson {
    time: String,
    exclusive: bool,
    hostname: String,
    #[serde(default)]
    username: String,
    pid: u32,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
}

/// A lock that is held. It outlives its holder until [`VaultLock::release`], so release it whatever happens.
pub struct VaultLock {
    repository: Rc<Repository>,
    kind: LockKind,
    id: RefCell<BlobId>,
    refreshed: Cell<Moment>,
    written: Moment,
}

impl LockJson {
    fn new(kind: LockKind, repository: &Repository) -> Self {
        let Maker { host, user, pid, uid, gid } = repository.access.maker.clone();
        Self {
            time: time_text::to_text(repository.access.world.wall()),
            exclusive: kind == LockKind::Exclusive,
            hostname: host,
            username: user,
            pid,
            uid,
            gid,
        }
    }

    /// Its process is gone.
    fn is_orphan(&self, repository: &Repository) -> bool {
        let access = &repository.access;
        self.hostname == access.maker.host && !(access.is_running)(self.pid)
    }

    fn is_stale(&self, repository: &Repository) -> bool {
        let now = repository.access.world.wall().seconds;
        let is_old = time_text::seconds_of(&self.time).is_some_and(|time| now - time > STALE_AFTER_S);
        is_old || self.is_orphan(repository)
    }
}

impl VaultLock {
    /// # Errors
    ///
    /// `Locked`: by somebody else; or the vault cannot be written.
    pub async fn take(repository: &Rc<Repository>, kind: LockKind) -> VaultResult<Self> {
        let lock = Self::begin(repository, kind).await?;
        match lock.confirm().await {
            Ok(()) => Ok(lock),
            Err(error) => {
                lock.release().await?;
                Err(error)
            }
        }
    }

    /// The first half of [`Self::take`]: until [`Self::confirm`] returns, read alone.
    ///
    /// # Errors
    ///
    /// As of `take`.
    pub async fn begin(repository: &Rc<Repository>, kind: LockKind) -> VaultResult<Self> {
        look_for_others(repository, kind, None).await?;
        let id = write_lock(repository, kind).await?;
        let written = repository.access.world.now();
        Ok(Self {
            repository: Rc::clone(repository),
            kind,
            id: RefCell::new(id),
            refreshed: Cell::new(written),
            written,
        })
    }

    /// The second half, some time later: somebody who came at the same time is seen now. Release the lock after an error.
    ///
    /// # Errors
    ///
    /// `Locked`, or the vault cannot be read.
    pub async fn confirm(&self) -> VaultResult<()> {
        self.repository.access.world.sleep_until(self.written + SECOND_LOOK_AFTER).await;
        let own = *self.id.borrow();
        look_for_others(&self.repository, self.kind, Some(own)).await
    }

    /// Takes a lock; `None` if the vault cannot be written by this process.
    ///
    /// # Errors
    ///
    /// `Locked`, or the vault cannot be read.
    pub async fn take_if_writable(repository: &Rc<Repository>, kind: LockKind) -> VaultResult<Option<Self>> {
        match Self::take(repository, kind).await {
            Err(VaultError::Io(error))
                if [IoErrorKind::ReadOnly, IoErrorKind::PermissionDenied].contains(&error.kind()) =>
            {
                Ok(None)
            }
            taken => taken.map(Some),
        }
    }

    /// Writes the lock again if it is time. Call it at least every ten minutes, and before a snapshot is written.
    ///
    /// # Errors
    ///
    /// `LockExpired`, or the vault cannot be written.
    pub async fn refresh(&self) -> VaultResult<()> {
        let world = &self.repository.access.world;
        let age = world.now().since(self.refreshed.get());
        if age > EXPIRED_AFTER {
            return Err(VaultError::LockExpired);
        }
        if age >= REFRESH_EVERY {
            let began = world.now();
            let new = write_lock(&self.repository, self.kind).await?;
            let old = self.id.replace(new);
            self.refreshed.set(began);
            remove(&self.repository, old).await?;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// The vault cannot be written: the lock stays until its process has ended, or for 30 minutes.
    pub async fn release(self) -> VaultResult<()> {
        let id = *self.id.borrow();
        remove(&self.repository, id).await
    }
}

async fn write_lock(repository: &Repository, kind: LockKind) -> VaultResult<BlobId> {
    let text = serde_json::to_vec(&LockJson::new(kind, repository)).expect("plain fields");
    repository.write_file(VaultFileKind::Lock, &text).await
}

async fn remove(repository: &Repository, id: BlobId) -> VaultResult<()> {
    match repository.access.store.delete(VaultFileKind::Lock, &id.to_string()).await {
        // Somebody has removed it.
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(()),
        removed => Ok(removed?),
    }
}

/// Refuses if another's lock excludes this one. Locks of processes of this host that are gone are removed.
async fn look_for_others(repository: &Repository, kind: LockKind, own: Option<BlobId>) -> VaultResult<()> {
    for file in repository.access.store.list(VaultFileKind::Lock).await? {
        let Some(id) = BlobId::parse(&file.name).filter(|id| Some(*id) != own) else { continue };
        let text = match repository.read_file(VaultFileKind::Lock, &file.name).await {
            Ok(text) => text,
            Err(VaultError::Io(error)) if error.kind() == IoErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let lock: LockJson = serde_json::from_slice(&text)
            .map_err(|error| VaultError::damaged(VaultFileKind::Lock.path(&file.name), error.to_string()))?;
        if lock.is_orphan(repository) {
            remove(repository, id).await?;
            continue;
        }
        let excludes = lock.exclusive || kind == LockKind::Exclusive;
        if excludes && !lock.is_stale(repository) && !planted::is(planted::VaultBug::LockIgnored) {
            let LockJson { hostname, pid, time, .. } = lock;
            return Err(VaultError::Locked(format!("process {pid} on {hostname} since {time}")));
        }
    }
    Ok(())
}
