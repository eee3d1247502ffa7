//! Liveness queries: which of many versions are still referenced, and their locations.
//!
//! The cleaner asks for every version ever stored in a segment; most are dead. Sorted like the trees, one
//! read of a leaf answers for all versions it may hold; asking one by one took longer than relocating the
//! live ones.

use super::{Points, Reclaim, Sources, VersionTrace};
use crate::{
    error::Result,
    format::{BlockKey, NodeKey, Roots, Stamp, TreeKind, VersionRun},
    tree::{BlockVersion, Trees},
};

/// A query that has consulted the tables. Invariant: keys ascend.
#[derive(Debug)]
pub struct LivenessQuery {
    roots: Roots,
    stamp_next: Stamp,
    sought: Vec<SoughtVersion>,
}

#[derive(Clone, Copy, Debug)]
struct SoughtVersion {
    key: BlockKey,
    /// The first point that may see it: if it is in history, it was alive then.
    seen_first: Option<Stamp>,
    found: Finding,
}

#[derive(Clone, Copy, Debug)]
enum Finding {
    Alive(BlockVersion),
    DeadVersion,
    /// Not in the tables; the trees decide.
    Unknown,
}

impl Sources<'_> {
    /// Begins a query for versions that `points`, or deleted points still in `reclaim`, may see: `keys`
    /// ascend. Like a lookup it consults the tables as of now, and later the trees as of now.
    pub fn liveness(
        &self,
        points: &Points,
        reclaim: &Reclaim,
        keys: impl IntoIterator<Item = BlockKey>,
    ) -> LivenessQuery {
        let find = |key: BlockKey| {
            let seen_first = points.at_or_after(key.branch, key.stamp).into_iter();
            let seen_first = seen_first.chain(reclaim.deleted_at_or_after(key.branch, key.stamp)).min();
            SoughtVersion { key, seen_first, found: self.find(points, key) }
        };
        let sought: Vec<_> = keys.into_iter().map(find).collect();
        assert!(sought.is_sorted_by_key(|sought| sought.key), "keys ascend");
        LivenessQuery { roots: self.roots, stamp_next: self.stamp_next, sought }
    }

    fn find(&self, points: &Points, key: BlockKey) -> Finding {
        for table in std::iter::once(self.active).chain(self.merging) {
            match table.trace(key) {
                VersionTrace::Here(version) => return Finding::Alive(version),
                VersionTrace::Ended(death) if !points.sees(key.branch, key.stamp, death) => {
                    return Finding::DeadVersion;
                }
                VersionTrace::Ended(_) | VersionTrace::None => {}
            }
        }
        Finding::Unknown
    }
}

impl LivenessQuery {
    /// Consults the trees. Returns one answer a key, none for a dead version. A version may have moved since:
    /// see [`Sources::relocated`].
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(mut self, trees: &Trees) -> Result<Vec<Option<BlockVersion>>> {
        self.ask_head(trees).await?;
        self.ask_history(trees).await?;
        let answer = |sought: &SoughtVersion| match sought.found {
            Finding::Alive(version) => Some(version),
            Finding::DeadVersion | Finding::Unknown => None,
        };
        Ok(self.sought.iter().map(answer).collect())
    }

    async fn ask_head(&mut self, trees: &Trees) -> Result<()> {
        let root = self.roots.head;
        let mut open = self.open();
        let keys: Vec<_> =
            open.iter().map(|sought| NodeKey::of_block(sought.key.branch, sought.key.block)).collect();
        let take = |index: usize, run: &VersionRun<'_>| open[index].take(run);
        trees.runs_at_keys(TreeKind::Head, root, &keys, take).await
    }

    async fn ask_history(&mut self, trees: &Trees) -> Result<()> {
        let (root, stamp_next) = (self.roots.history, self.stamp_next);
        let mut open = self.open();
        open.retain(|sought| sought.seen_first.is_some());
        let seen = |sought: &&mut SoughtVersion| (sought.key, sought.seen_first.expect("retained"));
        let versions: Vec<_> = open.iter().map(seen).collect();
        let take = |index: usize, run: &VersionRun<'_>| open[index].take(run);
        trees.lives_of(root, &versions, stamp_next, take).await
    }

    /// Versions that the tables did not decide.
    fn open(&mut self) -> Vec<&mut SoughtVersion> {
        self.sought.iter_mut().filter(|sought| matches!(sought.found, Finding::Unknown)).collect()
    }
}

impl SoughtVersion {
    /// Marks the version alive if the run holds it.
    fn take(&mut self, run: &VersionRun<'_>) {
        let Self { key, found, .. } = self;
        if run.covers(key.branch, key.block) && run.birth == key.stamp {
            *found = Finding::Alive(BlockVersion::of(run, key.block));
        }
    }
}
