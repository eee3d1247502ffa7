//! The merge of a checkpoint: moves a frozen table into the trees, and removes versions nothing sees any
//! more.
//!
//! The merge finds a superseded version only when it rewrites its leaf. The points as of the freeze decide
//! its fate: it goes to history if one of them sees it, else it is dead. Points made later do not see it;
//! points deleted later leave it to the next pass of [`Reclaim`](super::Reclaim).

use super::{
    Branches, LiveGrains, MapTable, Points, ReclaimPlan, ReclaimProgress, discards::Discards,
    reclaim::Removals,
};
use crate::{
    error::Result,
    format::{
        BlockIndex, BlockKey, BlockLocation, BranchNumber, CheckpointNumber, Interval, Move, NodeKey, Roots,
        Stamp, VersionRun, node::BRANCH_BLOCKS_MAX,
    },
    simulation::sometimes::{self, Sometimes},
    tree::{BlockVersion, HeadChange, HeadEvent, HistoryChange, HistoryEvent, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

/// Limits of the deferrable work of one checkpoint. They bound its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Blocks of discards examined.
    pub discarded: u64,
    /// Versions examined for reclamation after points were deleted.
    pub reclaimed: u64,
}

/// Input of a merge, as of the moment the table was frozen.
#[derive(Clone, Copy, Debug)]
pub struct Merge<'a> {
    pub checkpoint: CheckpointNumber,
    /// All changes since the last checkpoint; nothing is added to it any more.
    pub frozen: &'a MapTable,
    /// Trees of the last checkpoint.
    pub roots: Roots,
    pub points: &'a Points,
    pub branches: &'a Branches,
    /// Passes over what deleted points may have left.
    pub reclaim: &'a ReclaimPlan,
    pub budget: Budget,
    /// All changes in the table and the trees have lower stamps.
    pub stamp_next: Stamp,
}

/// Result of a merge. The caller applies it at one moment: new roots, the frozen table dropped,
/// [`MapTable::set_unfinished`] on the active one, [`Reclaim::finish`](super::Reclaim::finish).
#[derive(Clone, Debug)]
pub struct MergeOutcome {
    /// The new trees, with the catalogue unchanged.
    pub roots: Roots,
    /// Change of the grains that head and history reference.
    pub live: LiveGrains,
    /// Locations nothing references any more: from the trees, from the frozen table, and copies made in vain.
    pub dead: Vec<BlockLocation>,
    /// Rest of discards: one a branch and stamp, each a row of the catalogue.
    pub unfinished: Vec<Interval>,
    pub reclaimed: ReclaimProgress,
}

/// State between the steps of a merge.
struct Progress<'a> {
    merge: &'a Merge<'a>,
    live: LiveGrains,
    dead: Vec<BlockLocation>,
    inserts: Vec<HistoryChange>,
    /// Moves that did not apply to the head tree: the version may be in history.
    missed: Vec<Move>,
    /// Births of versions superseded in branches that have a parent.
    superseded: BTreeMap<(BranchNumber, BlockIndex), Stamp>,
}

impl Merge<'_> {
    /// Runs the merge. The old trees stay valid.
    ///
    /// # Errors
    ///
    /// Nodes that cannot be read, written or placed. Nothing is changed then.
    pub async fn run(&self, trees: &Trees) -> Result<MergeOutcome> {
        let discards = Discards::plan(self, trees).await?;
        let removals = Removals::find(self, trees).await?;
        let mut planned = discards.changes;
        planned.extend(removals.head);
        planned.extend(
            self.frozen
                .branches()
                .flat_map(|branch| self.frozen.moves(branch))
                .map(|&m| HeadChange::Relocate(m)),
        );
        planned.sort_by_key(|change| (key(change), !matches!(change, HeadChange::Relocate(_))));

        let mut progress = Progress {
            merge: self,
            // Counts as if every version and every target of a move went into the trees; the steps below
            // subtract those that do not.
            live: self.frozen.live().clone(),
            dead: Vec::new(),
            inserts: Vec::new(),
            missed: Vec::new(),
            superseded: BTreeMap::new(),
        };
        let changes = InOrder { left: planned.into_iter().peekable(), right: self.sets().peekable() };
        let head = trees
            .merge_head(self.checkpoint, self.roots.head, changes, |event| progress.take_head(event))
            .await?;
        progress.take_wiped();
        progress.take_kept();
        progress.take_gaps();

        let mut history = progress.moves_in_history(trees).await?;
        history.append(&mut progress.inserts);
        history.extend(removals.history);
        history.sort_by_key(|change| (change.node_key(), rank(change)));
        let history = trees
            .merge_history(self.checkpoint, self.roots.history, history, |event| progress.take_history(event))
            .await?;
        Ok(MergeOutcome {
            roots: Roots { head, history, catalogue: self.roots.catalogue },
            live: progress.live,
            dead: progress.dead,
            unfinished: discards.unfinished,
            reclaimed: removals.reclaimed,
        })
    }

    /// True if the branch was deleted and has no points: nothing can see it any more.
    fn is_wiped(&self, branch: BranchNumber) -> bool {
        self.points.of(branch).is_empty() && !self.branches.has_head(branch)
    }

    /// The newest versions that store data in branches that are not wiped, in order.
    fn sets(&self) -> impl Iterator<Item = HeadChange> {
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        self.frozen.branches().filter(|&branch| !self.is_wiped(branch)).flat_map(move |branch| {
            let stored = self.frozen.pieces(branch, all.clone()).filter(|piece| !piece.is_zero());
            stored.flat_map(|piece| piece.versions()).map(move |(block, version)| HeadChange::Set {
                branch,
                block,
                version,
            })
        })
    }
}

impl Progress<'_> {
    fn take_head(&mut self, event: HeadEvent) {
        match event {
            HeadEvent::Superseded { branch, block, version, by: _ } => {
                if self.merge.branches.hides(branch) {
                    self.superseded.insert((branch, block), version.birth);
                }
                let death = self.merge.frozen.death(branch, block, version.birth);
                assert!(
                    death.is_some() || self.merge.is_wiped(branch),
                    "block {block} of branch {branch} lost its version"
                );
                match death {
                    Some(death) if self.is_seen(branch, &version, death) => {
                        sometimes::reached(Sometimes::WentToHistory);
                        self.inserts.push(HistoryChange::Insert { branch, block, version, death });
                    }
                    _ => self.mark_dead(branch, version.location),
                }
            }
            HeadEvent::Moved(moved) => self.mark_dead(moved.key.branch, moved.from),
            HeadEvent::Missed(moved) => self.missed.push(moved),
        }
    }

    fn take_history(&mut self, event: HistoryEvent) {
        match event {
            HistoryEvent::Removed { branch, version, .. } => self.mark_dead(branch, version.location),
            HistoryEvent::Absent(key) => unreachable!("{key:?} was found before, and nobody else removes"),
            HistoryEvent::Moved(moved) => self.mark_dead(moved.key.branch, moved.from),
            HistoryEvent::Missed(moved) => {
                sometimes::reached(Sometimes::MoveInVain);
                self.mark_dead(moved.key.branch, moved.to);
            }
        }
    }

    /// Moves of versions that are in history, or will be. All other copies were made in vain.
    async fn moves_in_history(&mut self, trees: &Trees) -> Result<Vec<HistoryChange>> {
        let missed = std::mem::take(&mut self.missed);
        let versions: BTreeSet<BlockKey> = missed.iter().map(|moved| moved.key).collect();
        let inserted = self.inserts.iter().map(HistoryChange::life);
        let mut deaths: BTreeMap<BlockKey, Stamp> =
            inserted.filter(|(key, _)| versions.contains(key)).collect();
        let open: Vec<_> =
            versions.iter().filter(|key| !deaths.contains_key(key)).map(|key| (*key, key.stamp)).collect();
        let found = |index: usize, run: &VersionRun<'_>| {
            deaths.insert(open[index].0, run.death.expect("versions in history have died"));
        };
        trees.lives_of(self.merge.roots.history, &open, self.merge.stamp_next, found).await?;
        let mut moves = Vec::new();
        for moved in missed {
            match deaths.get(&moved.key) {
                Some(&death) => moves.push(HistoryChange::Relocate { moved, death }),
                None => self.take_history(HistoryEvent::Missed(moved)),
            }
        }
        Ok(moves)
    }

    /// Marks the versions of wiped branches dead: they never enter a tree.
    fn take_wiped(&mut self) {
        let frozen = self.merge.frozen;
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        for branch in frozen.branches().filter(|&branch| self.merge.is_wiped(branch)) {
            let stored = frozen.pieces(branch, all.clone()).filter(|piece| !piece.is_zero());
            stored
                .flat_map(|piece| piece.versions())
                .for_each(|(_, version)| self.mark_dead(branch, version.location));
        }
    }

    /// Moves older versions from the table to history, or marks them dead.
    fn take_kept(&mut self) {
        for branch in self.merge.frozen.branches() {
            for (block, past) in self.merge.frozen.kept(branch) {
                let (version, death) = (past.version, past.death);
                if self.is_seen(branch, &version, death) {
                    self.inserts.push(HistoryChange::Insert { branch, block, version, death });
                } else {
                    self.mark_dead(branch, version.location);
                }
            }
        }
    }

    /// Adds the zeroes that a child branch read between an unfinished discard and the next write of a block.
    fn take_gaps(&mut self) {
        let frozen = self.merge.frozen;
        for branch in frozen.branches().filter(|&branch| self.merge.branches.hides(branch)) {
            for (blocks, _) in frozen.unfinished(branch) {
                let kept = frozen.kept_in(branch, blocks.clone()).map(|(block, _)| block);
                let stored = frozen.pieces(branch, BlockIndex(blocks.start)..BlockIndex(blocks.end));
                let stored = stored
                    .filter(|piece| !piece.is_zero())
                    .flat_map(|piece| (piece.first.0..piece.end().0).map(BlockIndex));
                for block in kept.chain(stored).collect::<BTreeSet<_>>() {
                    let birth = self.superseded.get(&(branch, block)).copied();
                    let Some((since, until)) = frozen.gap(branch, block, birth) else { continue };
                    let version = BlockVersion::zero(since);
                    if self.merge.points.sees(branch, since, until) {
                        self.inserts.push(HistoryChange::Insert { branch, block, version, death: until });
                    }
                }
            }
        }
    }

    /// True if a point sees a version that lived until `death`. Zeroes that hide nothing are not needed.
    fn is_seen(&self, branch: BranchNumber, version: &BlockVersion, death: Stamp) -> bool {
        let says_something = !version.is_zero() || self.merge.branches.hides(branch);
        says_something && self.merge.points.sees(branch, version.birth, death)
    }

    fn mark_dead(&mut self, branch: BranchNumber, location: BlockLocation) {
        self.live.subtract(branch, location);
        self.dead.push(location);
    }
}

/// Merges two sorted sequences; at equal keys those of `left` come first.
struct InOrder<L: Iterator<Item = HeadChange>, R: Iterator<Item = HeadChange>> {
    left: Peekable<L>,
    right: Peekable<R>,
}

impl<L: Iterator<Item = HeadChange>, R: Iterator<Item = HeadChange>> Iterator for InOrder<L, R> {
    type Item = HeadChange;

    fn next(&mut self) -> Option<HeadChange> {
        match (self.left.peek(), self.right.peek()) {
            (Some(left), Some(right)) if key(left) <= key(right) => self.left.next(),
            (_, Some(_)) => self.right.next(),
            (_, None) => self.left.next(),
        }
    }
}

fn key(change: &HeadChange) -> NodeKey {
    match change {
        HeadChange::Set { branch, block, .. } => NodeKey::of_block(*branch, *block),
        HeadChange::Remove { branch, first, .. } => NodeKey::of_block(*branch, *first),
        HeadChange::Relocate(moved) => NodeKey::of_block(moved.key.branch, moved.key.block),
    }
}

/// Order in which changes of one version apply.
fn rank(change: &HistoryChange) -> u8 {
    match change {
        HistoryChange::Insert { .. } => 0,
        HistoryChange::Relocate { .. } => 1,
        HistoryChange::Remove { .. } => 2,
    }
}
