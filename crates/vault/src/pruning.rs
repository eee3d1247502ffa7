//! Pruning: removing what no snapshot refers to.
//!
//! Invariants:
//!
//! 1. Nobody else is at work in the vault: the lock is exclusive.
//! 2. All snapshots and trees were read before anything is removed; if one is damaged, nothing is.
//! 3. New packs are stable before an index has them, the new index is complete before the old one goes, and the old index
//!    before its packs. So a prune that ends early at any moment leaves a whole vault, and more than is needed.
//! 4. Packs that no index has are left: a copy that ended early goes on from them.

use crate::{
    VaultError, VaultResult,
    blob_id::BlobId,
    index::{self, IndexedPack},
    locks::{LockKind, VaultLock},
    packs::{BlobKind, PackedBlob, SealedBlob, pack_bytes},
    planted::{self, VaultBug},
    repository::Repository,
    sealing::new_nonce,
    store::VaultFileKind,
    writer::{RepositoryWriter, write_index_of},
};
use rustc_hash::FxHashSet;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};
use world::{IoErrorKind, Job};

/// Share of bytes without use that stays, in percent of all: packs with more of them are written again first (restic's default).
const UNUSED_PERCENT_MAX: u64 = 5;

/// The result of a prune.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PruneOutcome {
    pub snapshots: usize,
    pub packs_before: usize,
    /// Packs that are gone, those included whose used part was written again.
    pub packs_removed: usize,
    /// Bytes of those packs.
    pub removed_bytes: u64,
    /// Bytes written again.
    pub stored_bytes: u64,
    /// Bytes without use in the packs that stay.
    pub unused_bytes: u64,
}

/// A pack, and how much of it is in use.
struct PackUse {
    pack: IndexedPack,
    used: Vec<PackedBlob>,
    unused_bytes: u64,
}

/// Removes what no snapshot refers to. `job` counts the bytes to be written again.
///
/// # Errors
///
/// The vault is in use or damaged, cannot be read or written, or `job` was cancelled. What snapshots refer to is there.
pub async fn prune(repository: &Rc<Repository>, job: &Job) -> VaultResult<PruneOutcome> {
    let lock = VaultLock::take(repository, LockKind::Exclusive).await?;
    let pruned = Prune { repository, lock: &lock, job }.run().await;
    let released = lock.release().await;
    let outcome = pruned?;
    released?;
    Ok(outcome)
}

struct Prune<'p> {
    repository: &'p Rc<Repository>,
    lock: &'p VaultLock,
    job: &'p Job,
}

impl Prune<'_> {
    async fn run(&self) -> VaultResult<PruneOutcome> {
        // Read before the lock, the index may lack what others have done since.
        self.repository.load_index().await?;
        let old_indexes = self.repository.access.store.list(VaultFileKind::Index).await?;
        let mut packs = BTreeMap::new();
        for file in &old_indexes {
            let text = self.repository.read_file(VaultFileKind::Index, &file.name).await?;
            packs.extend(index::decode(&text)?.into_iter().map(|pack| (pack.id, pack)));
        }
        let (snapshots, used) = self.used_blobs().await?;
        let mut outcome = PruneOutcome { snapshots, packs_before: packs.len(), ..PruneOutcome::default() };
        let uses: Vec<PackUse> = packs.into_values().map(|pack| self.use_of(pack, &used)).collect();
        let (mut old, kept): (Vec<PackUse>, Vec<PackUse>) = divide(uses);
        old.retain(|one| one.unused_bytes > 0);
        if old.is_empty() {
            outcome.unused_bytes = kept.iter().map(|one| one.unused_bytes).sum();
            return Ok(outcome);
        }
        self.check_right().await?;
        if planted::is(VaultBug::PacksBeforeIndex) {
            self.delete_packs(&old).await?;
        }
        outcome.stored_bytes = self.write_again(&old).await?;
        let kept_packs: Vec<IndexedPack> = kept.iter().map(|one| one.pack.clone()).collect();
        write_index_of(self.repository, &kept_packs).await?;
        for file in &old_indexes {
            self.lock.refresh().await?;
            self.delete(VaultFileKind::Index, &file.name).await?;
        }
        self.delete_packs(&old).await?;
        self.repository.load_index().await?;
        outcome.packs_removed = old.len();
        outcome.removed_bytes = old.iter().map(|one| pack_bytes(&one.pack.blobs)).sum();
        outcome.unused_bytes = kept.iter().map(|one| one.unused_bytes).sum();
        Ok(outcome)
    }

    /// Everything that snapshots refer to.
    async fn used_blobs(&self) -> VaultResult<(usize, FxHashSet<(BlobKind, BlobId)>)> {
        let snapshots = self.repository.snapshots().await?;
        let mut used = FxHashSet::default();
        let mut trees: Vec<BlobId> = snapshots.iter().map(|(_, snapshot)| snapshot.tree).collect();
        while let Some(id) = trees.pop() {
            if !used.insert((BlobKind::Tree, id)) {
                continue;
            }
            self.go_on().await?;
            for node in self.repository.read_tree(id).await?.nodes {
                trees.extend(node.subtree);
                for chunk in node.content.into_iter().flatten() {
                    // A blob that is missing must not be made to look as if it were not needed.
                    self.repository.place(BlobKind::Data, chunk)?;
                    used.insert((BlobKind::Data, chunk));
                }
            }
        }
        Ok((snapshots.len(), used))
    }

    /// Of a blob in several packs, the place that the index finds is in use.
    fn use_of(&self, pack: IndexedPack, used: &FxHashSet<(BlobKind, BlobId)>) -> PackUse {
        let index = self.repository.index.borrow();
        let is_used = |blob: &&PackedBlob| {
            let place = index.find(blob.kind, blob.id);
            used.contains(&(blob.kind, blob.id)) && place.is_some_and(|place| place.pack == pack.id)
        };
        let mut in_use: Vec<PackedBlob> = pack.blobs.iter().filter(is_used).copied().collect();
        // The same blob twice in a pack needs one place.
        let mut seen = BTreeSet::new();
        in_use.retain(|blob| seen.insert((blob.kind, blob.id)));
        let bytes = |blobs: &[PackedBlob]| -> u64 { blobs.iter().map(|blob| u64::from(blob.length)).sum() };
        let unused_bytes = bytes(&pack.blobs) - bytes(&in_use);
        PackUse { pack, used: in_use, unused_bytes }
    }

    /// Writes what is in use of packs that go into new ones. Returns the bytes that were stored.
    async fn write_again(&self, old: &[PackUse]) -> VaultResult<u64> {
        if planted::is(VaultBug::PrunesPartlyUsed) {
            return Ok(0);
        }
        let all = old.iter().flat_map(|one| &one.used).map(|blob| u64::from(blob.length));
        self.job.add_total(all.sum());
        let mut writer = RepositoryWriter::new(self.repository);
        for PackUse { pack, used, .. } in old {
            let name = pack.id.to_string();
            for blob in used {
                self.go_on().await?;
                let range = (u64::from(blob.offset), blob.length as usize);
                let store = &self.repository.access.store;
                let bytes = store.read_range(VaultFileKind::Pack, &name, range).await?;
                let (key, blob, sealed) = (self.repository.key().clone(), *blob, bytes.clone());
                // Damage is found here, and not when its last good copy is gone.
                self.repository.access.processors.run(move || blob.open(&key, &sealed)).await?;
                let sealed = SealedBlob { id: blob.id, bytes, plain_length: blob.plain_length };
                writer.add(blob.kind, &sealed).await?;
                self.job.advance(u64::from(blob.length));
            }
        }
        writer.flush().await?;
        Ok(writer.stored_bytes())
    }

    async fn go_on(&self) -> VaultResult<()> {
        if self.job.is_cancelled() {
            return Err(VaultError::Cancelled);
        }
        self.lock.refresh().await
    }

    /// Deletes a pack that there is not: without the right to delete, packs would be written again, and the old ones stay.
    async fn check_right(&self) -> VaultResult<()> {
        let nobodys = BlobId::of(new_nonce(&self.repository.access.world).as_ref()).to_string();
        match self.delete(VaultFileKind::Pack, &nobodys).await {
            Err(VaultError::Io(error)) if error.kind() == IoErrorKind::PermissionDenied => {
                Err(VaultError::NoDeletion(self.repository.access.store.describe()))
            }
            outcome => outcome,
        }
    }

    async fn delete_packs(&self, old: &[PackUse]) -> VaultResult<()> {
        for one in old {
            self.lock.refresh().await?;
            self.delete(VaultFileKind::Pack, &one.pack.id.to_string()).await?;
        }
        Ok(())
    }

    async fn delete(&self, kind: VaultFileKind, name: &str) -> VaultResult<()> {
        match self.repository.access.store.delete(kind, name).await {
            Err(error) if error.kind() != IoErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// The packs that go, and those that stay: the ones with the least use go until little is without use.
fn divide(mut uses: Vec<PackUse>) -> (Vec<PackUse>, Vec<PackUse>) {
    let share = |one: &PackUse| one.unused_bytes * 1_000 / pack_bytes(&one.pack.blobs).max(1);
    uses.sort_by_key(|one| std::cmp::Reverse((share(one), one.unused_bytes)));
    let mut unused: u64 = uses.iter().map(|one| one.unused_bytes).sum();
    let used: u64 = uses.iter().flat_map(|one| &one.used).map(|blob| u64::from(blob.length)).sum();
    let bound = used * UNUSED_PERCENT_MAX / 100;
    let count = uses
        .iter()
        .take_while(|one| {
            let goes = one.used.is_empty() || unused > bound;
            unused -= one.unused_bytes;
            goes
        })
        .count();
    let kept = uses.split_off(count);
    (uses, kept)
}
