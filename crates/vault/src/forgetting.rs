//! Removing old copies of the clock: their snapshots go, what they alone refer to goes with the next prune.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    contents::{CopiedBackup, copied_backups},
    locks::{LockKind, VaultLock},
    planted::{self, VaultBug},
    repository::Repository,
    store::VaultFileKind,
};
use std::{collections::BTreeSet, rc::Rc};
use world::IoErrorKind;

/// Removes copies of a catalogue's backups that the clock made, but for the newest `stay`. Copies by hand, and those of other
/// sets, are left alone. Returns the numbers of the backups that have no copy here any more.
///
/// # Errors
///
/// The vault is locked for a prune, damaged, or nothing can be removed there. What is removed stays so.
///
/// # Panics
///
/// If none were to stay.
pub async fn forget(repository: &Rc<Repository>, catalogue: &str, stay: usize) -> VaultResult<BTreeSet<u64>> {
    assert!(stay > 0, "the newest copy stays");
    let lock = VaultLock::take(repository, LockKind::Shared).await?;
    let forgotten = forget_locked(repository, catalogue, stay).await;
    lock.release().await?;
    forgotten
}

async fn forget_locked(repository: &Repository, catalogue: &str, stay: usize) -> VaultResult<BTreeSet<u64>> {
    let all = copied_backups(repository).await?;
    let old: BTreeSet<BlobId> = surplus(&all, catalogue, stay).into_iter().collect();
    let mut removed = BTreeSet::new();
    for copy in all.iter().filter(|copy| old.contains(&copy.id)) {
        match repository.access.store.delete(VaultFileKind::Snapshot, &copy.id.to_string()).await {
            Ok(()) => {}
            Err(error) if error.kind() == IoErrorKind::NotFound => {}
            Err(error) if error.kind() == IoErrorKind::PermissionDenied => {
                return Err(VaultError::NoDeletion(repository.access.store.describe()));
            }
            Err(error) => return Err(error.into()),
        }
        removed.insert(copy.record.backup);
    }
    let left = all.iter().filter(|copy| copy.record.catalogue == catalogue && !old.contains(&copy.id));
    for copy in left {
        // It has another copy, by hand.
        removed.remove(&copy.record.backup);
    }
    Ok(removed)
}

/// Snapshots of a catalogue's copies by the clock, but for those of the newest backups. Numbers order them: clocks are set. A
/// backup with two copies counts once.
fn surplus(all: &[CopiedBackup], catalogue: &str, stay: usize) -> Vec<BlobId> {
    let is_meant = |copy: &&CopiedBackup| {
        copy.record.catalogue == catalogue
            && (copy.record.is_scheduled || planted::is(VaultBug::ForgetsCopiesByHand))
    };
    let of_clock: Vec<&CopiedBackup> = all.iter().filter(is_meant).collect();
    let numbers: BTreeSet<u64> = of_clock.iter().map(|copy| copy.record.backup).collect();
    let kept: BTreeSet<u64> = match planted::is(VaultBug::ForgetsNewest) {
        true => numbers.iter().take(stay).copied().collect(),
        false => numbers.iter().rev().take(stay).copied().collect(),
    };
    let is_old = |copy: &&CopiedBackup| !kept.contains(&copy.record.backup);
    of_clock.into_iter().filter(is_old).map(|copy| copy.id).collect()
}
