//! Whereabouts: which of many versions somebody still sees, and where they lie.
//!
//! A segment that is emptied asks for all that was ever stored in it, most of which is dead. Asked in the order of the trees,
//! a leaf is found once for all that it may hold; one by one, asking took longer than the moving.

use super::{Points, Reclaim, Sources, Trace, Version};
use crate::{
    error::Result,
    format::{BlockKey, NodeKey, Roots, Run, Stamp, Tree},
    tree::Trees,
};

/// Versions looked for, of which the tables were asked. Invariant: keys ascend.
#[derive(Debug)]
pub struct Whereabouts {
    roots: Roots,
    stamp_next: Stamp,
    sought: Vec<Sought>,
}

#[derive(Clone, Copy, Debug)]
struct Sought {
    key: BlockKey,
    /// The first point that may see it: if history has it, it lived then.
    seen_first: Option<Stamp>,
    found: Found,
}

#[derive(Clone, Copy, Debug)]
enum Found {
    Alive(Version),
    Dead,
    /// The trees have to say it.
    Unknown,
}

impl Sources<'_> {
    /// Begins to look for versions, of which `points` may see some, or did, and they were deleted: `keys` ascend. As with
    /// a lookup, the tables are asked at this moment, and the trees are those of this moment.
    pub fn whereabouts(
        &self,
        points: &Points,
        reclaim: &Reclaim,
        keys: impl IntoIterator<Item = BlockKey>,
    ) -> Whereabouts {
        let find = |key: BlockKey| {
            let seen_first = points.at_or_after(key.branch, key.stamp).into_iter();
            let seen_first = seen_first.chain(reclaim.deleted_at_or_after(key.branch, key.stamp)).min();
            Sought { key, seen_first, found: self.find(points, key) }
        };
        let sought: Vec<_> = keys.into_iter().map(find).collect();
        assert!(sought.is_sorted_by_key(|sought| sought.key), "keys ascend");
        Whereabouts { roots: self.roots, stamp_next: self.stamp_next, sought }
    }

    fn find(&self, points: &Points, key: BlockKey) -> Found {
        for table in std::iter::once(self.active).chain(self.merging) {
            match table.trace(key) {
                Trace::Here(version) => return Found::Alive(version),
                Trace::Ended(death) if !points.sees(key.branch, key.stamp, death) => return Found::Dead,
                Trace::Ended(_) | Trace::None => {}
            }
        }
        Found::Unknown
    }
}

impl Whereabouts {
    /// Asks the trees. Gives one answer a key: none is dead. What comes out of a tree may have moved since: see
    /// [`Sources::relocated`].
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(mut self, trees: &Trees) -> Result<Vec<Option<Version>>> {
        self.ask_head(trees).await?;
        self.ask_history(trees).await?;
        let answer = |sought: &Sought| match sought.found {
            Found::Alive(version) => Some(version),
            Found::Dead | Found::Unknown => None,
        };
        Ok(self.sought.iter().map(answer).collect())
    }

    async fn ask_head(&mut self, trees: &Trees) -> Result<()> {
        let root = self.roots.head;
        let mut open = self.open();
        let keys: Vec<_> =
            open.iter().map(|sought| NodeKey::of_block(sought.key.branch, sought.key.block)).collect();
        let take = |index: usize, run: &Run<'_>| open[index].take(run);
        trees.runs_at_keys(Tree::Head, root, &keys, take).await
    }

    async fn ask_history(&mut self, trees: &Trees) -> Result<()> {
        let (root, stamp_next) = (self.roots.history, self.stamp_next);
        let mut open = self.open();
        open.retain(|sought| sought.seen_first.is_some());
        let seen = |sought: &&mut Sought| (sought.key, sought.seen_first.expect("retained"));
        let versions: Vec<_> = open.iter().map(seen).collect();
        let take = |index: usize, run: &Run<'_>| open[index].take(run);
        trees.lives_of(root, &versions, stamp_next, take).await
    }

    /// What the trees have to say.
    fn open(&mut self) -> Vec<&mut Sought> {
        self.sought.iter_mut().filter(|sought| matches!(sought.found, Found::Unknown)).collect()
    }
}

impl Sought {
    /// Takes in what a tree has of the block.
    fn take(&mut self, run: &Run<'_>) {
        let Self { key, found, .. } = self;
        if run.covers(key.branch, key.block) && run.birth == key.stamp {
            *found = Found::Alive(Version::of(run, key.block));
        }
    }
}
