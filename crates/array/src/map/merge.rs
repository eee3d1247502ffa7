//! The merge of a checkpoint: what a frozen table holds goes into the trees, and what nothing sees any more goes.
//!
//! Which version of a block is displaced shows only where its leaf is rewritten. The points as of the freeze say what
//! becomes of it: it goes to history if one sees it, else it is dead. Points that are made later see nothing of it;
//! those that go later leave it to the next pass of [`Reclaim`](super::Reclaim).

use super::{
    Branches, LiveGrains, Points, ReclaimPlan, Reclaimed, Table, Version, discards::Discards,
    reclaim::Removals,
};
use crate::{
    error::Result,
    format::{
        BlockIndex, BlockKey, BranchNumber, CheckpointNumber, Interval, Location, Move, NodeKey, Roots, Run,
        Stamp, node::BRANCH_BLOCKS_MAX,
    },
    simulation::sometimes::{self, Sometimes},
    tree::{HeadChange, HeadEvent, HistoryChange, HistoryEvent, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    iter::Peekable,
};

/// How much of what can wait one checkpoint does. It bounds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Blocks of discards looked at.
    pub discarded: u64,
    /// Versions looked at for what deletion of points gives back.
    pub reclaimed: u64,
}

/// What is merged, as of the moment at which the table was frozen.
#[derive(Clone, Copy, Debug)]
pub struct Merge<'a> {
    /// Of which checkpoint.
    pub checkpoint: CheckpointNumber,
    /// What happened since the last one. Nothing is added to it any more.
    pub frozen: &'a Table,
    /// The trees of the last one.
    pub roots: Roots,
    /// All points.
    pub points: &'a Points,
    /// All branches.
    pub branches: &'a Branches,
    /// What deleted points may have left.
    pub reclaim: &'a ReclaimPlan,
    /// How much of that, and of discards.
    pub budget: Budget,
    /// Nothing in the table, or the trees, happened with this stamp, or a higher one.
    pub stamp_next: Stamp,
}

/// What came of it. Takes effect at one moment: new roots, the frozen table gone, [`Table::set_unfinished`] for the active
/// one, [`Reclaim::finish`](super::Reclaim::finish).
#[derive(Clone, Debug)]
pub struct Merged {
    /// The new trees; the catalogue is the old one.
    pub roots: Roots,
    /// By how much what the two trees take has changed.
    pub live: LiveGrains,
    /// Where nothing lies any more that is needed: out of the trees, the frozen table, and copies in vain.
    pub dead: Vec<Location>,
    /// What is left of discards: one a branch and stamp, each a row of the catalogue.
    pub unfinished: Vec<Interval>,
    /// How far the search for what nothing sees has come.
    pub reclaimed: Reclaimed,
}

/// What is known so far.
struct Progress<'a> {
    merge: &'a Merge<'a>,
    live: LiveGrains,
    dead: Vec<Location>,
    inserts: Vec<HistoryChange>,
    /// Moves of what is not the newest version of its block: perhaps a point's.
    missed: Vec<Move>,
    /// Births of what was displaced in branches that have a parent.
    displaced: BTreeMap<(BranchNumber, BlockIndex), Stamp>,
}

impl Merge<'_> {
    /// Merges. The old trees stay as they are.
    ///
    /// # Errors
    ///
    /// Nodes that cannot be read, written or placed. Nothing has happened then.
    pub async fn run(&self, trees: &Trees) -> Result<Merged> {
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
            // Versions and targets of moves are counted as if all went into the trees; what does not is taken off.
            live: self.frozen.live().clone(),
            dead: Vec::new(),
            inserts: Vec::new(),
            missed: Vec::new(),
            displaced: BTreeMap::new(),
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
        Ok(Merged {
            roots: Roots { head, history, catalogue: self.roots.catalogue },
            live: progress.live,
            dead: progress.dead,
            unfinished: discards.unfinished,
            reclaimed: removals.reclaimed,
        })
    }

    /// Whether nobody can see anything of a branch any more: it was deleted, and has no points.
    fn is_wiped(&self, branch: BranchNumber) -> bool {
        self.points.of(branch).is_empty() && !self.branches.has_head(branch)
    }

    /// The newest versions that store something and that somebody sees, in order.
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
            HeadEvent::Displaced { branch, block, version, by: _ } => {
                if self.merge.branches.hides(branch) {
                    self.displaced.insert((branch, block), version.birth);
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
                    _ => self.bury(branch, version.location),
                }
            }
            HeadEvent::Moved(moved) => self.bury(moved.key.branch, moved.from),
            HeadEvent::Missed(moved) => self.missed.push(moved),
        }
    }

    fn take_history(&mut self, event: HistoryEvent) {
        match event {
            HistoryEvent::Removed { branch, version, .. } => self.bury(branch, version.location),
            HistoryEvent::Absent(key) => unreachable!("{key:?} was found before, and nobody else removes"),
            HistoryEvent::Moved(moved) => self.bury(moved.key.branch, moved.from),
            HistoryEvent::Missed(moved) => {
                sometimes::reached(Sometimes::MoveInVain);
                self.bury(moved.key.branch, moved.to);
            }
        }
    }

    /// Moves of versions that history has, or will have. Of all others the copy was not needed.
    async fn moves_in_history(&mut self, trees: &Trees) -> Result<Vec<HistoryChange>> {
        let missed = std::mem::take(&mut self.missed);
        let versions: BTreeSet<BlockKey> = missed.iter().map(|moved| moved.key).collect();
        let inserted = self.inserts.iter().map(HistoryChange::life);
        let mut deaths: BTreeMap<BlockKey, Stamp> =
            inserted.filter(|(key, _)| versions.contains(key)).collect();
        let open: Vec<_> =
            versions.iter().filter(|key| !deaths.contains_key(key)).map(|key| (*key, key.stamp)).collect();
        let found = |index: usize, run: &Run<'_>| {
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

    /// Versions of branches that are gone altogether never come into a tree.
    fn take_wiped(&mut self) {
        let frozen = self.merge.frozen;
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        for branch in frozen.branches().filter(|&branch| self.merge.is_wiped(branch)) {
            let stored = frozen.pieces(branch, all.clone()).filter(|piece| !piece.is_zero());
            stored
                .flat_map(|piece| piece.versions())
                .for_each(|(_, version)| self.bury(branch, version.location));
        }
    }

    /// Versions of which the table knows that they are not the newest.
    fn take_kept(&mut self) {
        for branch in self.merge.frozen.branches() {
            for (block, past) in self.merge.frozen.kept(branch) {
                let (version, death) = (past.version, past.death);
                if self.is_seen(branch, &version, death) {
                    self.inserts.push(HistoryChange::Insert { branch, block, version, death });
                } else {
                    self.bury(branch, version.location);
                }
            }
        }
    }

    /// Between an unfinished discard and what was written over it since, a child branch read zeroes, not its parent.
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
                    let birth = self.displaced.get(&(branch, block)).copied();
                    let Some((since, until)) = frozen.gap(branch, block, birth) else { continue };
                    let version = Version::zero(since);
                    if self.merge.points.sees(branch, since, until) {
                        self.inserts.push(HistoryChange::Insert { branch, block, version, death: until });
                    }
                }
            }
        }
    }

    /// Whether a point sees a version that lived until `death`. Zeroes that hide nothing need not be seen.
    fn is_seen(&self, branch: BranchNumber, version: &Version, death: Stamp) -> bool {
        let says_something = !version.is_zero() || self.merge.branches.hides(branch);
        says_something && self.merge.points.sees(branch, version.birth, death)
    }

    fn bury(&mut self, branch: BranchNumber, location: Location) {
        self.live.subtract(branch, location);
        self.dead.push(location);
    }
}

/// Two sorted sequences as one; of one key the left ones come first.
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

/// In which order changes of one version take place.
fn rank(change: &HistoryChange) -> u8 {
    match change {
        HistoryChange::Insert { .. } => 0,
        HistoryChange::Relocate { .. } => 1,
        HistoryChange::Remove { .. } => 2,
    }
}
