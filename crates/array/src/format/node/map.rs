//! Leaves of the map: head and history.

use super::{
    Draft, GROUP_ENTRIES, HEAD_BYTES, NodeFull, NodeKey, NodePlace, Sealed, THIS, TreeKind, TreeNode,
    VersionRun, run::RunBase, varint::VarintReader,
};
use crate::format::{
    decode_error::DecodeError,
    pointer::NodePointer,
    units::{BranchNumber, Stamp},
};

/// A leaf of head or history.
#[derive(Clone, Copy, Debug)]
pub struct MapLeaf<'a>(pub(super) Sealed<'a>);

impl<'a> MapLeaf<'a> {
    /// All runs, in order.
    pub fn runs(self) -> VersionRuns<'a> {
        self.runs_from(0)
    }

    /// The runs from a group on.
    fn runs_from(self, group: usize) -> VersionRuns<'a> {
        let group = group.min(self.0.group_count());
        let start =
            if group == self.0.group_count() { self.0.body().len() } else { self.0.group_start(group) };
        let base = self.group_base();
        VersionRuns {
            reader: VarintReader::new(self.0.body(), start),
            base,
            before: base,
            next: group * GROUP_ENTRIES,
            count: self.0.entry_count(),
            tree: self.tree(),
        }
    }

    /// The runs from the first one on that does not end below `key`.
    pub fn seek(self, key: NodeKey) -> impl Iterator<Item = VersionRun<'a>> {
        let tree = self.tree();
        self.runs_from(self.group_for(key)).skip_while(move |run| run.last_key_in(tree) < key)
    }

    /// The last run that begins at or below `key`.
    pub fn before(self, key: NodeKey) -> Option<VersionRun<'a>> {
        let tree = self.tree();
        self.runs_from(self.group_for(key)).take_while(|run| run.first_key_in(tree) <= key).last()
    }

    /// Shows for each of `keys`, which ascend, the last run that begins at or below it, if there is one; by
    /// index of the key.
    pub fn each_before(self, keys: &[NodeKey], mut visit: impl FnMut(usize, &VersionRun<'a>)) {
        let tree = self.tree();
        let with_key = |run: VersionRun<'a>| (run.first_key_in(tree), run);
        let mut group = 0;
        let mut runs = self.runs();
        let (mut before, mut next) = (None, runs.next().map(with_key));
        for (index, &key) in keys.iter().enumerate() {
            // Many keys fall between the same two runs.
            if next.is_some_and(|(first, _)| first <= key) {
                let sought = self.group_from(group, key);
                if sought > group {
                    (group, runs) = (sought, self.runs_from(sought));
                    next = runs.next().map(with_key);
                }
                while let Some((_, run)) = next.filter(|(first, _)| *first <= key) {
                    (before, next) = (Some(run), runs.next().map(with_key));
                }
            }
            before.iter().for_each(|run| visit(index, run));
        }
    }

    /// The last group that begins at or below `key`, or the first group.
    fn group_for(self, key: NodeKey) -> usize {
        self.group_from(0, key)
    }

    /// The same, searched from group `from` on, which begins at or below `key` or is the first one.
    fn group_from(self, from: usize, key: NodeKey) -> usize {
        let (base, tree) = (self.group_base(), self.tree());
        let (mut low, mut high) = (from + 1, self.0.group_count());
        while low < high {
            let middle = low.midpoint(high);
            let mut reader = VarintReader::new(self.0.body(), self.0.group_start(middle));
            let first = VersionRun::decode_key(&mut reader, base, tree).expect("the leaf was decoded before");
            if first <= key { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    pub(super) fn tree(&self) -> TreeKind {
        TreeNode::Map(*self).tree()
    }

    fn group_base(&self) -> RunBase {
        let raw = self.0.raw;
        RunBase::group(BranchNumber(raw.branch_base.get()), Stamp(raw.stamp_base.get()))
    }

    pub fn last(self) -> VersionRun<'a> {
        self.runs_from(self.0.group_count() - 1).last().expect("a leaf holds something")
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        let mut reader = VarintReader::new(self.0.body(), HEAD_BYTES);
        let mut before = self.group_base();
        let (mut last, mut stamp_max, mut bases) = (None, 0, (0, 0));
        for index in 0..self.0.entry_count() {
            if index % GROUP_ENTRIES == 0 {
                self.0.check_group(index / GROUP_ENTRIES, reader.at())?;
                before = self.group_base();
            }
            let start = reader.at();
            let (run, after) = VersionRun::decode::<true>(&mut reader, before, self.tree())?;
            before = after;
            let ascends = last.is_none_or(|last| last < run.first_key_in(self.tree()));
            THIS.agree(ascends, start, "runs do not ascend, or overlap")?;
            last = Some(run.last_key_in(self.tree()));
            stamp_max = stamp_max.max(run.birth.0);
            if index == 0 {
                bases = (run.branch.0, run.birth.0);
            }
        }
        self.0.check_end(reader.at())?;
        self.0.check_bases(bases.0, bases.1, stamp_max)
    }
}

/// Runs of a decoded leaf, in order.
#[derive(Clone)]
pub struct VersionRuns<'a> {
    reader: VarintReader<'a>,
    /// Base of the first entry of a group.
    base: RunBase,
    before: RunBase,
    next: usize,
    count: usize,
    tree: TreeKind,
}

impl<'a> Iterator for VersionRuns<'a> {
    type Item = VersionRun<'a>;

    #[inline]
    fn next(&mut self) -> Option<VersionRun<'a>> {
        if self.next >= self.count {
            return None;
        }
        if self.next.is_multiple_of(GROUP_ENTRIES) {
            self.before = self.base;
        }
        self.next += 1;
        let (run, after) = VersionRun::decode::<false>(&mut self.reader, self.before, self.tree)
            .expect("the leaf was decoded before");
        self.before = after;
        Some(run)
    }
}

/// Builds a leaf of head or history.
#[derive(Clone, Debug)]
pub struct MapBuilder {
    draft: Draft,
    before: Option<RunBase>,
    last: Option<NodeKey>,
}

impl MapBuilder {
    /// An empty leaf of head or history.
    pub fn new(tree: TreeKind, blocks: u8) -> Self {
        assert!(tree != TreeKind::Catalogue, "rows are not runs");
        Self { draft: Draft::new(tree, 0, blocks), before: None, last: None }
    }

    /// Adds a run behind all others.
    ///
    /// # Errors
    ///
    /// It does not fit; the leaf is unchanged.
    ///
    /// # Panics
    ///
    /// If the run is out of order, or invalid in this tree.
    pub fn push(&mut self, run: &VersionRun) -> Result<(), NodeFull> {
        let tree = self.draft.tree;
        assert_eq!(
            run.death.is_some(),
            tree.is_history(),
            "versions in history have died, those in head have not"
        );
        run.check(self.draft.body.len()).expect("a run that is written would be accepted");
        assert!(self.last.is_none_or(|last| last < run.first_key_in(tree)), "runs ascend");
        let (branch, stamp) = self.draft.bases.unwrap_or((run.branch.0, run.birth.0));
        let base = RunBase::group(BranchNumber(branch), Stamp(stamp));
        let before = if self.draft.begins_group() { base } else { self.before.unwrap_or(base) };
        let mut after = before;
        self.draft.add(|body| after = run.encode(before, body))?;
        self.before = Some(after);
        self.last = Some(run.last_key_in(tree));
        self.draft.bases = Some((branch, stamp));
        self.draft.stamp_max = self.draft.stamp_max.max(run.birth.0);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.draft.entry_count == 0
    }

    /// Runs added so far, in order.
    pub fn runs(&self) -> VersionRuns<'_> {
        let (branch, stamp) = self.draft.bases.unwrap_or_default();
        let base = RunBase::group(BranchNumber(branch), Stamp(stamp));
        VersionRuns {
            reader: VarintReader::new(&self.draft.body, HEAD_BYTES),
            base,
            before: base,
            next: 0,
            count: usize::from(self.draft.entry_count),
            tree: self.draft.tree,
        }
    }

    /// Bytes used so far, header included.
    pub fn used_bytes(&self) -> usize {
        self.draft.used_bytes()
    }

    /// The leaf's bytes, and the pointer to them.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        self.draft.finish(place)
    }
}
