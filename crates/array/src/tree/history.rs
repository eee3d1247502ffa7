//! Merges of the history tree: a block has any number of versions there, each by the pivot of its life.

use super::{
    Trees,
    change::{HistoryChange, HistoryEvent},
    changes::Changes,
    draft::RunDraft,
    head::relocate,
    levels::Levels,
    lookup::is_map_leaf,
    merge::{Content, Poured},
    runs::{Joiner, OldRuns},
};
use crate::{
    error::Result,
    format::{BlockIndex, BranchNumber, CheckpointNumber, Node, NodeKey, NodePointer, Run, Stamp, Tree},
    map::Version,
};

impl Trees {
    /// A history tree with `changes`, which ascend by branch, pivot, block; its root. Tells what it comes upon.
    ///
    /// # Errors
    ///
    /// The old tree is as it was, and what was told counts for nothing.
    ///
    /// # Panics
    ///
    /// If the changes do not ascend.
    pub async fn merge_history(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = HistoryChange>,
        tell: impl FnMut(HistoryEvent),
    ) -> Result<Option<NodePointer>> {
        self.merge(checkpoint, root, changes, HistoryContent { joiner: Joiner::new(), tell }).await
    }
}

struct HistoryContent<F> {
    joiner: Joiner,
    tell: F,
}

impl<F: FnMut(HistoryEvent)> Content for HistoryContent<F> {
    const TREE: Tree = Tree::History;
    type Draft = RunDraft;
    type Change = HistoryChange;
    type Old<'a> = OldRuns<'a>;

    fn old<'a>(&self, leaf: Option<Node<'a>>) -> OldRuns<'a> {
        OldRuns::new(leaf.map(is_map_leaf))
    }

    fn pour<I: Iterator<Item = HistoryChange>>(
        &mut self,
        old: &mut OldRuns<'_>,
        end: Option<NodeKey>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, RunDraft>,
    ) -> Result<Poured> {
        while !into.writer.has_full() {
            let next = changes.next_below(end);
            let before = match (old.front(), next) {
                (None, None) => return Ok(Poured::All),
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
            let there = is_there
                .then(|| old.take(1))
                .map(|run| (Version::of(&run, run.first), run.death.expect("versions in history have died")));
            if let Some(refused) = self.change(key, there, changes, into)? {
                return Ok(Poured::Refused(refused));
            }
        }
        Ok(Poured::Some)
    }

    fn flush(&mut self, into: &mut Levels<'_, RunDraft>) -> Result<()> {
        self.joiner.flush(into)
    }
}

impl<F: FnMut(HistoryEvent)> HistoryContent<F> {
    /// All changes of one version, of which the tree has `there`. Gives why the tree cannot be right.
    fn change<I: Iterator<Item = HistoryChange>>(
        &mut self,
        key: NodeKey,
        there: Option<(Version, Stamp)>,
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
                    (self.tell)(match gone {
                        Some((version, death)) => HistoryEvent::Removed { branch, block, version, death },
                        None => HistoryEvent::Absent(key),
                    });
                }
                HistoryChange::Relocate { moved, .. } => {
                    let applies = relocate(&mut there, &moved);
                    (self.tell)(if applies {
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

/// How many versions of a run come before a key.
#[inline]
fn blocks_before(run: &Run, key: NodeKey) -> u64 {
    let first = run.first_key();
    if key <= first {
        return 0;
    }
    let is_beside = (first.major, first.id) == (key.major, key.id);
    if is_beside { (key.minor - first.minor).min(run.count.into()) } else { run.count.into() }
}
