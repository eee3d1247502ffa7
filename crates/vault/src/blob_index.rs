//! Places of blobs, in memory: 48 bytes a blob, so 0.75 GiB for a TiB of different chunks of 64 KiB.
//!
//! Invariant: a place is added only when its pack is stable.

use crate::{
    blob_id::BlobId,
    index::IndexedPack,
    packs::{BlobKind, PackedBlob},
};
use rustc_hash::FxHashMap;

/// A pack in memory.
type PackNumber = u32;

/// The place of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobPlace {
    pub pack: BlobId,
    pub blob: PackedBlob,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    id: BlobId,
    pack: PackNumber,
    offset: u32,
    /// Sealed length, with the kind in the highest bit.
    length: u32,
    /// 0: not compressed.
    plain_length: u32,
}

const IS_TREE: u32 = 1 << 31;

#[derive(Default)]
pub struct BlobIndex {
    packs: Vec<BlobId>,
    /// Sorted by identity.
    loaded: Vec<Entry>,
    new: FxHashMap<(BlobKind, BlobId), Entry>,
}

impl Entry {
    fn of(pack: PackNumber, blob: &PackedBlob) -> Self {
        let is_tree = if blob.kind == BlobKind::Tree { IS_TREE } else { 0 };
        Self {
            id: blob.id,
            pack,
            offset: blob.offset,
            length: blob.length | is_tree,
            plain_length: blob.plain_length.unwrap_or_default(),
        }
    }

    fn kind(&self) -> BlobKind {
        if self.length & IS_TREE == 0 { BlobKind::Data } else { BlobKind::Tree }
    }
}

impl BlobIndex {
    /// The index of packs that are stable. Of a blob in several packs any place will do.
    pub fn of(packs: impl IntoIterator<Item = IndexedPack>) -> Self {
        let mut index = Self::default();
        for pack in packs {
            let number = index.number_of_new(pack.id);
            index.loaded.extend(pack.blobs.iter().map(|blob| Entry::of(number, blob)));
        }
        index.loaded.sort_unstable_by_key(|entry| (entry.id, entry.length & IS_TREE));
        index.loaded.dedup_by_key(|entry| (entry.id, entry.length & IS_TREE));
        index
    }

    fn number_of_new(&mut self, pack: BlobId) -> PackNumber {
        self.packs.push(pack);
        PackNumber::try_from(self.packs.len() - 1).expect("4 billion packs are 64 PiB")
    }

    /// Adds a pack that is stable now.
    pub fn add(&mut self, pack: &IndexedPack) {
        let number = self.number_of_new(pack.id);
        for blob in &pack.blobs {
            self.new.insert((blob.kind, blob.id), Entry::of(number, blob));
        }
    }

    pub fn find(&self, kind: BlobKind, id: BlobId) -> Option<BlobPlace> {
        let wanted = (id, if kind == BlobKind::Tree { IS_TREE } else { 0 });
        let loaded = self.loaded.binary_search_by_key(&wanted, |entry| (entry.id, entry.length & IS_TREE));
        let entry = loaded.ok().map(|at| &self.loaded[at]).or_else(|| self.new.get(&(kind, id)))?;
        let blob = PackedBlob {
            kind: entry.kind(),
            id: entry.id,
            offset: entry.offset,
            length: entry.length & !IS_TREE,
            plain_length: (entry.plain_length > 0).then_some(entry.plain_length),
        };
        Some(BlobPlace { pack: self.packs[entry.pack as usize], blob })
    }

    pub fn has(&self, kind: BlobKind, id: BlobId) -> bool {
        self.find(kind, id).is_some()
    }

    /// Packs, in no order; one may be listed twice.
    pub fn packs(&self) -> &[BlobId] {
        &self.packs
    }

    /// Number of blobs.
    pub fn len(&self) -> usize {
        self.loaded.len() + self.new.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_are_found_by_kind_and_identity() {
        assert_eq!(size_of::<Entry>(), 48);
        let blob = |number: u8, kind| PackedBlob {
            kind,
            id: BlobId([number; 32]),
            offset: number.into(),
            length: 100,
            plain_length: (number > 2).then_some(7),
        };
        let pack = |number: u8, blobs: &[PackedBlob]| IndexedPack {
            id: BlobId([number; 32]),
            blobs: blobs.to_vec(),
        };
        let [a, b, c] =
            [(1, BlobKind::Data), (1, BlobKind::Tree), (3, BlobKind::Tree)].map(|(n, kind)| blob(n, kind));
        let mut index = BlobIndex::of([pack(8, &[a]), pack(9, &[b, a])]);
        assert_eq!((index.len(), index.has(BlobKind::Tree, c.id)), (2, false));
        index.add(&pack(10, &[c]));
        assert_eq!(index.find(BlobKind::Tree, b.id), Some(BlobPlace { pack: BlobId([9; 32]), blob: b }));
        assert_eq!(index.find(BlobKind::Tree, c.id), Some(BlobPlace { pack: BlobId([10; 32]), blob: c }));
        assert_eq!(index.find(BlobKind::Data, c.id), None);
    }
}
