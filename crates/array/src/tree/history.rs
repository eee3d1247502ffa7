//! Merges of the history tree. A block may have any number of versions there, each keyed by the pivot of its
//! lifetime.

use super::{
    BlockVersion, Trees,
    change::{HistoryChange, HistoryEvent},
    changes::Changes,
    draft::RunDraft,
    head::relocate,
    levels::Levels,
    lookup::is_map_leaf,
    merge::{Content, PourProgress},
    runs::{Joiner, OldRuns},
};
use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, CheckpointNumber, NodeKey, NodePointer, Stamp, TreeKind, TreeNode,
        VersionRun,
    },
};

impl Trees {
    /// Merges `changes`, which ascend by branch, pivot, block, into a history tree. Returns the new root and
    /// passes each event to `report`.
    ///
    /// # Errors
    ///
    /// The old tree is unchanged; ignore the events.
    ///
    /// # Panics
    ///
    /// If the changes do not ascend.
    pub async fn merge_history(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = HistoryChange>,
        report: impl FnMut(HistoryEvent),
    ) -> Result<Option<NodePointer>> {
        self.merge(checkpoint, root, changes, HistoryContent { joiner: Joiner::new(), report }).await
    }
}

struct HistoryContent<F> {
    joiner: Joiner,
    report: F,
}

impl<F: FnMut(HistoryEvent)> Content for HistoryContent<F> {
    const TREE: TreeKind = TreeKind::History;
    type Draft = RunDraft;
    type Change = HistoryChange;
    type Old<'a> = OldRuns<'a>;

    fn old<'a>(&self, leaf: Option<TreeNode<'a>>) -> OldRuns<'a> {
        OldRuns::new(leaf.map(is_map_leaf))
    }

    fn pour<I: Iterator<Item = HistoryChange>>(
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
                (Some(run), Some(key)) => blocks_before(run, key),
                (None, Some(_)) => 0,
            };
            if before > 0 {
                self.joiner.push(&old.take(before), into)?;
                continue;
            }
            let key = next.expect("looked at above");
            let is_there = old.front().is_some_and(|run| run.first_key() == key);
            let there = is_there.then(|| old.take(1)).map(|run| {
                (BlockVersion::of(&run, run.first), run.death.expect("versions in history have died"))
            });
            if let Some(refused) = self.change(key, there, changes, into)? {
                return Ok(PourProgress::Refused(refused));
            }
        }
        Ok(PourProgress::Some)
    }

    fn flush(&mut self, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        self.joiner.flush(into)
    }
}

impl<F: FnMut(HistoryEvent)> HistoryContent<F> {
    /// Applies all changes of one version, which the tree has as `there`. Returns the reason if the tree
    /// contradicts them.
    fn change<I: Iterator<Item = HistoryChange>>(
        &mut self,
        key: NodeKey,
        there: Option<(BlockVersion, Stamp)>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, RunDraft>,
    ) -> Result<Option<&'static str>> {
        let (branch, block) = (BranchNumber(key.major), BlockIndex(key.minor));
        let (mut there, mut death) = there.unzip();
        while let Some(change) = changes.take_of(key) {
            match change {
                HistoryChange::Insert { version, death: died, .. } => {
                    if there.is_some() {
                        return Ok(Some("it has a version that is only now to be inserted"));
                    }
                    (there, death) = (Some(version), Some(died));
                }
                HistoryChange::Remove { key, .. } => {
                    let is_it = there.is_some_and(|there| there.birth == key.stamp);
                    let gone = if is_it { there.take().zip(death.take()) } else { None };
                    (self.report)(match gone {
                        Some((version, death)) => HistoryEvent::Removed { branch, block, version, death },
                        None => HistoryEvent::Absent(key),
                    });
                }
                HistoryChange::Relocate { moved, .. } => {
                    let applies = relocate(&mut there, &moved);
                    (self.report)(if applies {
                        HistoryEvent::Moved(moved)
                    } else {
                        HistoryEvent::Missed(moved)
                    });
                }
            }
        }
        if let Some(version) = there {
            self.joiner.push_version(branch, block, version, death, into)?;
        }
        Ok(None)
    }
}

/// Number of versions of a run that precede a key.
#[inline]
fn blocks_before(run: &VersionRun, key: NodeKey) -> u64 {
    let first = run.first_key();
    if key <= first {
        return 0;
    }
    let is_beside = (first.major, first.id) == (key.major, key.id);
    if is_beside { (key.minor - first.minor).min(run.count.into()) } else { run.count.into() }
}
