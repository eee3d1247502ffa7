//! Merges of the head tree.
//!
//! The first change after its birth supersedes a version: the version set in its place, or a removal.

use super::{
    BlockVersion, Trees,
    change::{Change, HeadChange, HeadEvent},
    changes::Changes,
    draft::RunDraft,
    levels::Levels,
    lookup::is_map_leaf,
    merge::{Content, PourProgress},
    runs::{Joiner, OldRuns},
};
use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, CheckpointNumber, Move, NodeKey, NodePointer, Stamp, TreeKind, TreeNode,
        VersionRun,
    },
};

impl Trees {
    /// Merges `changes`, which ascend by their first block, into a head tree. Returns the new root and passes
    /// each event to `report`.
    ///
    /// # Errors
    ///
    /// The old tree is unchanged; ignore the events.
    ///
    /// # Panics
    ///
    /// If the changes do not ascend, or contradict each other.
    pub async fn merge_head(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = HeadChange>,
        report: impl FnMut(HeadEvent),
    ) -> Result<Option<NodePointer>> {
        let content = HeadContent { joiner: Joiner::new(), removals: Vec::new(), report };
        self.merge(checkpoint, root, changes, content).await
    }
}

struct HeadContent<F> {
    joiner: Joiner,
    /// Removals whose first block was passed, and whose last one may be ahead.
    removals: Vec<Removal>,
    report: F,
}

#[derive(Clone, Copy)]
struct Removal {
    branch: BranchNumber,
    end: BlockIndex,
    by: Stamp,
}

impl Removal {
    /// True if it removes a version of a block, which must not precede its first one.
    fn takes(&self, branch: BranchNumber, block: BlockIndex, birth: Stamp) -> bool {
        self.branch == branch && block < self.end && birth < self.by
    }

    fn end_key(&self) -> NodeKey {
        NodeKey::of_block(self.branch, self.end)
    }
}

impl<F: FnMut(HeadEvent)> Content for HeadContent<F> {
    const TREE: TreeKind = TreeKind::Head;
    type Draft = RunDraft;
    type Change = HeadChange;
    type Old<'a> = OldRuns<'a>;

    fn old<'a>(&self, leaf: Option<TreeNode<'a>>) -> OldRuns<'a> {
        OldRuns::new(leaf.map(is_map_leaf))
    }

    fn pour<I: Iterator<Item = HeadChange>>(
        &mut self,
        old: &mut OldRuns<'_>,
        end: Option<NodeKey>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, RunDraft>,
    ) -> Result<PourProgress> {
        while !into.writer.has_full() {
            let next = changes.next_below(end);
            let before = match (old.front(), next) {
                (None, None) => return Ok(PourProgress::All),
                (Some(run), None) => u64::from(run.count),
                (Some(run), Some(key)) if run.last_key() < key => u64::from(run.count),
                (Some(run), Some(key)) if run.first_key() < key => key.id - run.first.0,
                (_, Some(_)) => 0,
            };
            if before > 0 {
                self.pass(&old.take(before), into)?;
                continue;
            }
            let key = next.expect("looked at above");
            let is_there = old.front().is_some_and(|run| run.first_key() == key);
            let there = is_there.then(|| BlockVersion::of(&old.take(1), BlockIndex(key.id)));
            if let Some(refused) = self.change(key, there, changes, into)? {
                return Ok(PourProgress::Refused(refused));
            }
        }
        Ok(PourProgress::Some)
    }

    fn flush(&mut self, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        self.joiner.flush(into)
    }

    fn reach(&self) -> Option<NodeKey> {
        self.removals.iter().map(Removal::end_key).max()
    }
}

impl<F: FnMut(HeadEvent)> HeadContent<F> {
    /// Old blocks between changes.
    #[inline]
    fn pass(&mut self, run: &VersionRun, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        if self.removals.is_empty() {
            return self.joiner.push(run, into);
        }
        self.forget_removals_before(run.first_key());
        let mut first = run.first;
        while first <= run.last() {
            let taken = self.removals.iter().filter(|removal| removal.takes(run.branch, first, run.birth));
            // Up to the next end of a removal the same removals apply.
            let Some((by, end)) = taken
                .map(|removal| (removal.by, removal.end))
                .reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)))
            else {
                return self.joiner.push(&run.part(first, run.last()), into);
            };
            while first < end && first <= run.last() {
                let version = BlockVersion::of(run, first);
                (self.report)(HeadEvent::Superseded { branch: run.branch, block: first, version, by });
                first.0 += 1;
            }
        }
        Ok(())
    }

    /// Applies all changes that begin at a block whose version in the tree is `there`. Returns the reason if
    /// the tree contradicts them.
    fn change<I: Iterator<Item = HeadChange>>(
        &mut self,
        key: NodeKey,
        mut there: Option<BlockVersion>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, RunDraft>,
    ) -> Result<Option<&'static str>> {
        let (branch, block) = (BranchNumber(key.major), BlockIndex(key.id));
        let mut set: Option<BlockVersion> = None;
        while let Some(change) = changes.take_of(key) {
            match change {
                HeadChange::Set { version, .. } => {
                    assert!(set.is_none(), "block {block} of branch {branch} is set twice");
                    set = Some(version);
                }
                HeadChange::Remove { by, .. } => {
                    let end = BlockIndex(change.reach().expect("a removal is of an interval").id);
                    assert!(end > block, "a removal is of at least one block");
                    self.removals.push(Removal { branch, end, by });
                }
                HeadChange::Relocate(moved) => {
                    let applies = relocate(&mut there, &moved);
                    (self.report)(if applies { HeadEvent::Moved(moved) } else { HeadEvent::Missed(moved) });
                }
            }
        }
        self.forget_removals_before(key);
        let removals = |birth: Stamp| {
            let taking = self.removals.iter().filter(move |removal| removal.takes(branch, block, birth));
            taking.map(|removal| removal.by).min()
        };
        if let Some(version) = set {
            assert_eq!(removals(version.birth), None, "block {block} of branch {branch} is set and removed");
        }
        if let Some(version) = there {
            let by = removals(version.birth).into_iter().chain(set.map(|set| set.birth)).min();
            match by {
                Some(by) if by <= version.birth => return Ok(Some("it has a version that is not yet born")),
                Some(by) => (self.report)(HeadEvent::Superseded { branch, block, version, by }),
                None => self.joiner.push_version(branch, block, version, None, into)?,
            }
        }
        if let Some(version) = set {
            self.joiner.push_version(branch, block, version, None, into)?;
        }
        Ok(None)
    }

    fn forget_removals_before(&mut self, key: NodeKey) {
        self.removals.retain(|removal| removal.end_key() > key);
    }
}

/// Applies a move, if the version matches and has the location where the move begins.
pub(super) fn relocate(there: &mut Option<BlockVersion>, moved: &Move) -> bool {
    match there {
        Some(version) if version.birth == moved.key.stamp && version.location == moved.from => {
            let is_stored = matches!(moved.to, crate::format::BlockLocation::Direct { .. });
            version.location = moved.to;
            version.checksum = is_stored.then_some(moved.checksum);
            true
        }
        _ => false,
    }
}
