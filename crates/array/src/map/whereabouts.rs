//! Whereabouts: which of many versions somebody still sees, and where they lie.
//!
//! A segment that is emptied asks for all that was ever stored in it, most of which is dead. Asked in the order of the trees,
//! a leaf is found once for all that it may hold; one by one, asking took longer than the moving.

use super::{Points, Sources, Trace, Version};
use crate::{
    error::Result,
    format::{BlockKey, NodeKey, NodePointer, Roots, Run, Tree},
    tree::Trees,
};

/// Versions looked for, of which the tables were asked. Invariant: keys ascend.
#[derive(Debug)]
pub struct Whereabouts {
    roots: Roots,
    sought: Vec<Sought>,
}

#[derive(Clone, Copy, Debug)]
struct Sought {
    key: BlockKey,
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
    /// Begins to look for versions, of which `points` may see some: `keys` ascend. As with a lookup, the tables are
    /// asked at this moment, and the trees are those of this moment.
    pub fn whereabouts(&self, points: &Points, keys: impl IntoIterator<Item = BlockKey>) -> Whereabouts {
        let find = |key| Sought { key, found: self.find(points, key) };
        let sought: Vec<_> = keys.into_iter().map(find).collect();
        assert!(sought.is_sorted_by_key(|sought| sought.key), "keys ascend");
        Whereabouts { roots: self.roots, sought }
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
        self.ask(trees, Tree::Head, self.roots.head).await?;
        self.ask(trees, Tree::History, self.roots.history).await?;
        let answer = |sought: &Sought| match sought.found {
            Found::Alive(version) => Some(version),
            Found::Dead | Found::Unknown => None,
        };
        Ok(self.sought.iter().map(answer).collect())
    }

    async fn ask(&mut self, trees: &Trees, tree: Tree, root: Option<NodePointer>) -> Result<()> {
        let mut open: Vec<&mut Sought> =
            self.sought.iter_mut().filter(|sought| matches!(sought.found, Found::Unknown)).collect();
        let keys: Vec<_> = open.iter().map(|sought| node_key(tree, sought.key)).collect();
        let take = |index: usize, run: &Run<'_>| {
            let Sought { key, found } = &mut *open[index];
            if run.covers(key.branch, key.block) && run.birth == key.stamp {
                *found = Found::Alive(Version::of(run, key.block));
            }
        };
        trees.runs_at_keys(tree, root, &keys, take).await
    }
}

fn node_key(tree: Tree, key: BlockKey) -> NodeKey {
    match tree {
        Tree::Head => NodeKey::of_block(key.branch, key.block),
        _ => NodeKey::of_version(key.branch, key.block, key.stamp),
    }
}
