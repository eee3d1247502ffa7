//! Reads of head and history: one leaf after the other, each found from the root. Nothing is awaited, nor allocated, as
//! long as nodes are cached.

use super::{
    Trees,
    changes::{Changes, Span},
    walker::{Step, Walker},
};
use crate::{
    error::Result,
    format::{BlockIndex, BranchNumber, Node, NodeKey, NodePointer, RowKey, Run, Stamp, Tree, node::MapLeaf},
    map::Version,
};
use std::ops::ControlFlow;

impl Trees {
    /// What a head tree has of a block.
    pub async fn version(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
    ) -> Result<Option<Version>> {
        let Some(root) = root else { return Ok(None) };
        let key = NodeKey::of_block(branch, block);
        let leaf = self.leaf_for(Tree::Head, root, key).await?;
        let (run, _) = map_leaf(&leaf.bytes).around(key);
        Ok(run.filter(|run| run.covers(branch, block)).map(|run| Version::of(&run, block)))
    }

    /// Shows all that a head tree has of `count` blocks from `first` on, in order, as parts of runs that lie within.
    pub async fn runs(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        mut visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let last_key = NodeKey::of_block(branch, last);
        let mut key = NodeKey::of_block(branch, first);
        loop {
            let leaf = self.leaf_for(Tree::Head, root, key).await?;
            for run in map_leaf(&leaf.bytes).seek(key) {
                if run.first_key() > last_key {
                    return Ok(());
                }
                visit(&run.part(run.first.max(first), run.last().min(last)));
            }
            match leaf.end {
                Some(end) if end <= last_key => key = end,
                _ => return Ok(()),
            }
        }
    }

    /// What a history tree has of a block that was alive at `point`.
    pub async fn version_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
        point: Stamp,
    ) -> Result<Option<Version>> {
        let mut found = None;
        self.runs_at(root, branch, block, 1, point, |run| found = Some(Version::of(run, block))).await?;
        Ok(found)
    }

    /// Shows all that a history tree has of `count` blocks from `first` on and was alive at `point`, in order, as parts
    /// of runs that lie within.
    pub async fn runs_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        point: Stamp,
        mut visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let mut block = first;
        // A block has any number of versions. So each is looked up by its point, and what that tells of the blocks
        // behind it is used.
        while block <= last {
            let key = NodeKey::of_version(branch, block, point);
            let leaf = self.leaf_for(Tree::History, root, key).await?;
            let (run, next) = map_leaf(&leaf.bytes).around(key);
            let next = next.map(|next| next.first_key()).or(leaf.end);
            let Some(run) = run.filter(|run| run.covers(branch, block)) else {
                match next {
                    Some(next) if next.major == branch.0 => {
                        block = BlockIndex(next.id.max(block.0 + 1));
                        continue;
                    }
                    _ => return Ok(()),
                }
            };
            let known = known_to(&run, next, point).max(block).min(last);
            if run.birth <= point && run.death.is_some_and(|death| point < death) {
                visit(&run.part(block, known));
            }
            block = BlockIndex(known.0 + 1);
        }
        Ok(())
    }

    /// Shows of each of `keys`, which ascend, the last run of head or history that begins at or below it, if its leaf has
    /// one: by the index of the key.
    pub async fn runs_at_keys(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        keys: &[NodeKey],
        mut visit: impl FnMut(usize, &Run<'_>),
    ) -> Result<()> {
        assert!(tree != Tree::Catalogue, "a catalogue has no runs");
        assert!(keys.is_sorted(), "keys ascend");
        let Some(root) = root else { return Ok(()) };
        let mut done = 0;
        while let Some(&key) = keys.get(done) {
            let leaf = self.leaf_for(tree, root, key).await?;
            let runs = map_leaf(&leaf.bytes);
            let rest = &keys[done..];
            let here = leaf.end.map_or(rest.len(), |end| rest.partition_point(|key| *key < end));
            assert!(here > 0, "a leaf has the key it was found by");
            for (index, &key) in (done..).zip(&rest[..here]) {
                if let (Some(run), _) = runs.around(key) {
                    visit(index, &run);
                }
            }
            done += here;
        }
        Ok(())
    }

    /// Shows the runs of head or history that are not wholly below `from`, and begin below `to`, in order, until told
    /// to stop. For long walks: it reads ahead, and leaves the cache alone.
    pub async fn scan(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        from: NodeKey,
        to: NodeKey,
        mut visit: impl FnMut(&Run<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        assert!(tree != Tree::Catalogue, "a catalogue has no runs");
        let Some(root) = root.filter(|_| from < to) else { return Ok(()) };
        let mut span = Changes::new([Span { from, to }]);
        let mut walker = Walker::new(self, tree);
        let mut step = walker.enter_root(root).await?;
        loop {
            if let Some(Step::Leaf(leaf)) = step {
                for run in map_leaf(&leaf.bytes).seek(from) {
                    if run.first_key() >= to || visit(&run).is_break() {
                        return Ok(());
                    }
                }
            }
            step = walker.next(&mut span, None).await?;
            if step.is_none() {
                return Ok(());
            }
        }
    }

    /// All rows of a catalogue, in order; every node is shown to `visit`, parents first.
    pub async fn all_rows(
        &self,
        root: Option<NodePointer>,
        mut visit: impl FnMut(&NodePointer),
    ) -> Result<Vec<(RowKey, Vec<u8>)>> {
        let mut rows = Vec::new();
        let Some(root) = root else { return Ok(rows) };
        let mut span = Changes::new([Span::ALL]);
        let mut walker = Walker::new(self, Tree::Catalogue);
        let mut step = walker.enter_root(root).await?;
        loop {
            walker.take_entered().iter().for_each(&mut visit);
            if let Some(Step::Leaf(leaf)) = step {
                let Node::Catalogue(leaf) = Node::again(&leaf.bytes) else {
                    unreachable!("a node of another tree is refused")
                };
                rows.extend(leaf.rows().map(|(key, row)| (key, row.to_vec())));
            }
            step = walker.next(&mut span, None).await?;
            if step.is_none() {
                return Ok(rows);
            }
        }
    }
}

/// The last of the blocks of a run that covers a block of which nothing else tells more at `point`, `next` being the
/// first key behind the run: of its last block there may be a younger version.
fn known_to(run: &Run, next: Option<NodeKey>, point: Stamp) -> BlockIndex {
    let last = run.last();
    let has_younger =
        next.is_some_and(|next| next.major == run.branch.0 && next.id == last.0 && next.minor <= point.0);
    if has_younger { BlockIndex(last.0 - 1) } else { last }
}

/// The last of `count` blocks; none if there is none.
fn last_of(first: BlockIndex, count: u64) -> Option<BlockIndex> {
    count.checked_sub(1).map(|more| BlockIndex(first.0.saturating_add(more)))
}

fn map_leaf(bytes: &[u8]) -> MapLeaf<'_> {
    is_map_leaf(Node::again(bytes))
}

pub(super) fn is_map_leaf(node: Node<'_>) -> MapLeaf<'_> {
    let Node::Map(leaf) = node else { unreachable!("a node of another tree is refused") };
    leaf
}

impl Version {
    /// The version of one of a run's blocks.
    pub fn of(run: &Run, block: BlockIndex) -> Self {
        Self { birth: run.birth, location: run.location_of(block), checksum: run.checksum_of(block) }
    }
}
