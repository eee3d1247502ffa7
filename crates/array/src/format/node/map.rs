//! Leaves of the map: head and history.

use super::{
    Draft, GROUP_ENTRIES, HEAD_BYTES, Node, NodeFull, NodeKey, NodePlace, Run, Sealed, THIS, Tree,
    run::Before, varint::Reader,
};
use crate::format::{
    pointer::NodePointer,
    refusal::Refusal,
    units::{BranchNumber, Stamp},
};

/// A leaf of head or history.
#[derive(Clone, Copy, Debug)]
pub struct MapLeaf<'a>(pub(super) Sealed<'a>);

impl<'a> MapLeaf<'a> {
    /// All runs, in order.
    pub fn runs(self) -> impl Iterator<Item = Run<'a>> {
        (0..self.0.group_count()).flat_map(move |group| self.group(group))
    }

    /// The runs from the first one on that does not end below `key`.
    pub fn seek(self, key: NodeKey) -> impl Iterator<Item = Run<'a>> {
        let groups = self.0.group_count();
        let (mut low, mut high) = (0, groups);
        // Of the groups that begin at or below `key`, the last one may hold it.
        while low < high {
            let middle = low.midpoint(high);
            let first = self.group(middle).next().expect("a group has an entry");
            if self.first_key(&first) <= key { low = middle + 1 } else { high = middle }
        }
        (low.saturating_sub(1)..groups)
            .flat_map(move |group| self.group(group))
            .skip_while(move |run| self.last_key(run) < key)
    }

    /// Key of a run's first block.
    pub fn first_key(&self, run: &Run) -> NodeKey {
        self.key(run, run.first.0)
    }

    /// Key of a run's last block.
    pub fn last_key(&self, run: &Run) -> NodeKey {
        self.key(run, run.last().0)
    }

    fn key(&self, run: &Run, block: u64) -> NodeKey {
        NodeKey { major: run.branch.0, id: block, minor: if self.is_history() { run.birth.0 } else { 0 } }
    }

    fn is_history(&self) -> bool {
        Node::Map(*self).tree() == Tree::History
    }

    fn group_base(&self) -> Before {
        let raw = self.0.raw;
        Before::group(BranchNumber(raw.branch_base.get()), Stamp(raw.stamp_base.get()))
    }

    /// Runs of a group of a leaf that was decoded.
    fn group(self, group: usize) -> impl Iterator<Item = Run<'a>> {
        let mut reader = Reader::new(self.0.body(), self.0.group_start(group));
        let mut before = self.group_base();
        (0..self.0.group_entries(group)).map(move |_| {
            let (run, after) =
                Run::decode(&mut reader, before, self.is_history()).expect("the leaf was decoded before");
            before = after;
            run
        })
    }

    pub(super) fn check(&self) -> Result<(), Refusal> {
        let mut reader = Reader::new(self.0.body(), HEAD_BYTES);
        let mut before = self.group_base();
        let (mut last, mut stamp_max, mut bases) = (None, 0, (0, 0));
        for index in 0..self.0.entry_count() {
            if index % GROUP_ENTRIES == 0 {
                self.0.check_group(index / GROUP_ENTRIES, reader.at())?;
                before = self.group_base();
            }
            let start = reader.at();
            let (run, after) = Run::decode(&mut reader, before, self.is_history())?;
            before = after;
            let ascends = last.is_none_or(|last| last < self.first_key(&run));
            THIS.agree(ascends, start, "runs do not ascend, or overlap")?;
            last = Some(self.last_key(&run));
            stamp_max = stamp_max.max(run.birth.0);
            if index == 0 {
                bases = (run.branch.0, run.birth.0);
            }
        }
        self.0.check_end(reader.at())?;
        self.0.check_bases(bases.0, bases.1, stamp_max)
    }
}

/// Makes a leaf of head or history.
#[derive(Clone, Debug)]
pub struct MapBuilder {
    draft: Draft,
    before: Option<Before>,
    last: Option<NodeKey>,
}

impl MapBuilder {
    /// An empty one; `tree` is head or history.
    pub fn new(tree: Tree, blocks: u8) -> Self {
        assert!(tree != Tree::Catalogue, "rows are not runs");
        Self { draft: Draft::new(tree, 0, blocks), before: None, last: None }
    }

    /// Adds a run behind all others.
    ///
    /// # Errors
    ///
    /// There is no room for it; the leaf is as it was.
    ///
    /// # Panics
    ///
    /// If it is not behind the others, or no run of this tree.
    pub fn push(&mut self, run: &Run) -> Result<(), NodeFull> {
        let is_history = self.draft.tree == Tree::History;
        assert_eq!(run.death.is_some(), is_history, "versions in history have died, those in head have not");
        run.check(self.draft.body.len()).expect("a run that is written would be accepted");
        let key = |block: u64| NodeKey {
            major: run.branch.0,
            id: block,
            minor: if is_history { run.birth.0 } else { 0 },
        };
        assert!(self.last.is_none_or(|last| last < key(run.first.0)), "runs ascend");
        let (branch, stamp) = self.draft.bases.unwrap_or((run.branch.0, run.birth.0));
        let base = Before::group(BranchNumber(branch), Stamp(stamp));
        let before = if self.draft.begins_group() { base } else { self.before.unwrap_or(base) };
        let mut after = before;
        self.draft.add(|body| after = run.encode(before, body))?;
        self.before = Some(after);
        self.last = Some(key(run.last().0));
        self.draft.bases = Some((branch, stamp));
        self.draft.stamp_max = self.draft.stamp_max.max(run.birth.0);
        Ok(())
    }

    /// Whether nothing was added yet.
    pub fn is_empty(&self) -> bool {
        self.draft.entry_count == 0
    }

    /// Bytes used so far, head included.
    pub fn used_bytes(&self) -> usize {
        self.draft.body.len() + self.draft.groups.len() * super::DIRECTORY_ENTRY_BYTES
    }

    /// The leaf's bytes, and what points to it there.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        self.draft.finish(place)
    }
}
