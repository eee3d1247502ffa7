//! Writing blobs: into packs, the packs into the store, and an index of them behind.
//!
//! Invariants:
//!
//! 1. A blob is in the index only when its pack is stable.
//! 2. A blob that is known or claimed is not written again. If the pack with a claimed blob fails, everything fails.

use crate::{
    VaultResult,
    blob_id::BlobId,
    index::{self, INDEX_BLOBS_MAX, IndexedPack},
    packs::{BlobKind, PackBuilder, SealedBlob},
    planted::{self, VaultBug},
    repository::Repository,
    sealing::new_nonce,
    store::VaultFileKind,
    trees::FileTree,
};
use rustc_hash::FxHashSet;
use std::{cell::RefCell, collections::VecDeque, rc::Rc, sync::Arc};
use world::JoinHandle;

/// Packs under way to the store at once; each takes 16 MiB of memory.
const PACKS_UNDER_WAY_MAX: usize = 3;
/// Packs after which an index is written, so that a copy that ends early leaves few packs without one: 1 GiB.
const PACKS_OF_AN_INDEX: usize = 64;

pub struct RepositoryWriter {
    repository: Rc<Repository>,
    data: PackBuilder,
    trees: PackBuilder,
    under_way: VecDeque<JoinHandle<VaultResult<IndexedPack>>>,
    /// Stable packs that no index file has.
    unindexed: Vec<IndexedPack>,
    claims: Rc<BlobClaims>,
    stored_bytes: u64,
}

/// Blobs that are not in the index yet, and will be.
pub struct BlobClaims {
    repository: Rc<Repository>,
    claimed: RefCell<FxHashSet<(BlobKind, BlobId)>>,
}

impl BlobClaims {
    /// True if the caller is the one to seal and add this blob.
    pub fn claim(&self, kind: BlobKind, id: BlobId) -> bool {
        !self.repository.index.borrow().has(kind, id) && self.claimed.borrow_mut().insert((kind, id))
    }
}

impl RepositoryWriter {
    pub fn new(repository: &Rc<Repository>) -> Self {
        Self {
            repository: Rc::clone(repository),
            data: PackBuilder::default(),
            trees: PackBuilder::default(),
            under_way: VecDeque::new(),
            unindexed: Vec::new(),
            claims: Rc::new(BlobClaims { repository: Rc::clone(repository), claimed: RefCell::default() }),
            stored_bytes: 0,
        }
    }

    /// Bytes written to the store, packs and indexes.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    /// Claims for those who seal beside.
    pub fn claims(&self) -> Rc<BlobClaims> {
        Rc::clone(&self.claims)
    }

    /// Adds a blob that was claimed.
    ///
    /// # Errors
    ///
    /// The store took a pack before it not.
    pub async fn add(&mut self, kind: BlobKind, blob: &SealedBlob) -> VaultResult<()> {
        let builder = if kind == BlobKind::Data { &mut self.data } else { &mut self.trees };
        builder.add(kind, blob);
        if builder.len() >= self.repository.access.pack_bytes {
            let full = std::mem::take(builder);
            self.begin_pack(full).await?;
        }
        Ok(())
    }

    /// Writes a small blob.
    ///
    /// # Errors
    ///
    /// As of [`Self::add`].
    pub async fn write(&mut self, kind: BlobKind, plain: Vec<u8>) -> VaultResult<BlobId> {
        let access = &self.repository.access;
        let (id, plain) = access.processors.run(move || (BlobId::of(&plain), plain)).await;
        if self.claims.claim(kind, id) {
            let (key, nonce) = (Arc::clone(self.repository.key()), new_nonce(&self.repository.access.world));
            let seal = move || SealedBlob::seal(&key, &nonce, (kind, id), &plain);
            let sealed = self.repository.access.processors.run(seal).await;
            self.add(kind, &sealed).await?;
        }
        Ok(id)
    }

    /// Writes a tree.
    ///
    /// # Errors
    ///
    /// As of [`Self::add`].
    pub async fn write_tree(&mut self, tree: &FileTree) -> VaultResult<BlobId> {
        self.write(BlobKind::Tree, tree.encode()).await
    }

    /// Adds packs that are stable and in no index: of a copy that ended early.
    pub fn adopt(&mut self, pack: IndexedPack) {
        self.repository.index.borrow_mut().add(&pack);
        self.unindexed.push(pack);
    }

    async fn begin_pack(&mut self, builder: PackBuilder) -> VaultResult<()> {
        while self.under_way.len() >= PACKS_UNDER_WAY_MAX {
            self.end_oldest_pack().await?;
        }
        let repository = Rc::clone(&self.repository);
        let writing = async move {
            let (key, nonce) = (Arc::clone(repository.key()), new_nonce(&repository.access.world));
            let finish = move || {
                let (bytes, blobs) = builder.finish(&key, &nonce);
                (BlobId::of(&bytes), bytes, blobs)
            };
            let (id, bytes, blobs) = repository.access.processors.run(finish).await;
            repository.access.store.write(VaultFileKind::Pack, &id.to_string(), bytes).await?;
            Ok(IndexedPack { id, blobs })
        };
        self.under_way.push_back(self.repository.access.world.spawn("vault pack", writing));
        Ok(())
    }

    async fn end_oldest_pack(&mut self) -> VaultResult<()> {
        let Some(oldest) = self.under_way.pop_front() else { return Ok(()) };
        let pack = match oldest.await {
            Err(_) if planted::is(VaultBug::LostPackCounts) => return Ok(()),
            written => written?,
        };
        for blob in &pack.blobs {
            self.claims.claimed.borrow_mut().remove(&(blob.kind, blob.id));
        }
        self.stored_bytes += crate::packs::pack_bytes(&pack.blobs);
        self.adopt(pack);
        if self.unindexed.len() >= PACKS_OF_AN_INDEX {
            self.write_index().await?;
        }
        Ok(())
    }

    /// Writes what is not written: when it returns, all blobs are stable and in an index.
    ///
    /// # Errors
    ///
    /// The store did not take all of it.
    pub async fn flush(&mut self) -> VaultResult<()> {
        for builder in [std::mem::take(&mut self.data), std::mem::take(&mut self.trees)] {
            if !builder.is_empty() {
                self.begin_pack(builder).await?;
            }
        }
        while !self.under_way.is_empty() {
            self.end_oldest_pack().await?;
        }
        if planted::is(VaultBug::IndexForgotten) {
            return Ok(());
        }
        self.write_index().await
    }

    async fn write_index(&mut self) -> VaultResult<()> {
        write_index_of(&self.repository, &self.unindexed).await?;
        self.unindexed.clear();
        Ok(())
    }
}

/// Writes index files of packs that are stable.
///
/// # Errors
///
/// The store did not take all of them.
pub(crate) async fn write_index_of(repository: &Repository, packs: &[IndexedPack]) -> VaultResult<()> {
    let mut rest = packs;
    while !rest.is_empty() {
        let mut blobs = 0;
        // At least one pack, as many as a file takes.
        let count = rest
            .iter()
            .take_while(|pack| {
                blobs += pack.blobs.len();
                blobs <= INDEX_BLOBS_MAX || blobs == pack.blobs.len()
            })
            .count();
        let (some, others) = rest.split_at(count);
        repository.write_file(VaultFileKind::Index, &index::encode(some)).await?;
        rest = others;
    }
    Ok(())
}
