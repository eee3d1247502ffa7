//! Lookups: what blocks read as, at the head of a branch or at one of its points.
//!
//! Younger sources are asked first: the active table, the one that is being merged, the head tree, for points the
//! history tree, and what is still open is looked for in the parent branch, as of where the branch left it. Of a head,
//! history is never asked, however many snapshots there are.
//!
//! A lookup is begun and ended in two steps. The first asks the tables, of all branches concerned, at one moment; the second
//! reads trees, those of the same moment, and waits. So it does not matter what is written or merged meanwhile, as
//! long as nobody reuses what the old trees name; that is for the caller to hold back.

use super::{Branches, Found, Mapped, Table, Version};
use crate::{
    error::{Error, Result},
    format::{BlockIndex, BranchNumber, Roots, Run, Stamp},
    simulation::canary::{self, Canary},
    tree::Trees,
};
use std::{collections::BTreeSet, ops::RangeInclusive};

/// Where the map is, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// What happens now goes here.
    pub active: &'a Table,
    /// What the checkpoint under way merges into the trees.
    pub merging: Option<&'a Table>,
    /// The trees.
    pub roots: Roots,
    /// Which branch goes on where.
    pub branches: &'a Branches,
    /// Nothing has happened with this stamp, or a higher one.
    pub stamp_next: Stamp,
}

/// A lookup that has asked the tables.
#[derive(Clone, Debug)]
pub struct Lookup {
    first: BlockIndex,
    roots: Roots,
    /// The branch itself, its parent, and so on.
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    branch: BranchNumber,
    /// As of when; none is now.
    point: Option<Stamp>,
    /// What the tables say of each block.
    found: Vec<Found>,
    /// Blocks from here on are the parent's where the branch has nothing; none has no parent.
    inherited_from: Option<BlockIndex>,
}

impl Sources<'_> {
    /// Begins to look up `count` blocks from `first` on, as they are now, or as `point` of the branch sees them.
    pub fn look_up(
        &self,
        branch: BranchNumber,
        point: Option<Stamp>,
        first: BlockIndex,
        count: usize,
    ) -> Lookup {
        let beyond = u64::from(canary::is(Canary::SnapshotSeesALaterWrite));
        let point = point.map(|point| Stamp(point.0 + beyond));
        let mut levels = Vec::with_capacity(1);
        let mut next = Some((branch, point));
        while let Some((branch, point)) = next {
            let mut found = vec![Found::NOTHING; count];
            self.active.refine(branch, first, point, &mut found);
            if let Some(merging) = self.merging {
                merging.refine(branch, first, point, &mut found);
            }
            let is_open = found.contains(&Found::NOTHING);
            let known = self.branches.get(branch).filter(|branch| is_open && branch.parent.is_some());
            let inherited_from = known.map(|branch| branch.filled_below.unwrap_or_default());
            next = known.and_then(|branch| branch.parent).map(|(parent, fork)| (parent, Some(fork)));
            levels.push(Level { branch, point, found, inherited_from });
        }
        Lookup { first, roots: self.roots, levels }
    }

    /// What was looked up, in the place it has by now. The old place is as good as long as it is not reused.
    pub fn relocated(&self, block: BlockIndex, mapped: Mapped) -> Mapped {
        let Mapped { branch, mut version } = mapped;
        for table in self.merging.into_iter().chain([self.active]) {
            version = table.relocated(branch, block, version);
        }
        Mapped { branch, version }
    }
}

/// What a lookup came to past nodes that cannot be read.
#[derive(Debug, Default)]
pub struct PartialAnswer {
    /// One answer a block: none reads as zero, unless the block is among those that are lost.
    pub mapped: Vec<Option<Mapped>>,
    /// Blocks of which nobody can say what they are.
    pub lost: BTreeSet<BlockIndex>,
    /// Why, of the first node that could not be read.
    pub error: Option<Error>,
}

impl Lookup {
    /// Asks the trees. Gives one answer a block: none reads as zero.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(self, trees: &Trees) -> Result<Vec<Option<Mapped>>> {
        let answer = self.finish_past_gaps(trees).await;
        answer.error.map_or(Ok(answer.mapped), Err)
    }

    /// Asks the trees; a node that cannot be read costs the blocks below it.
    pub async fn finish_past_gaps(mut self, trees: &Trees) -> PartialAnswer {
        let mut levels = self.levels.drain(..);
        let own = levels.next().expect("a lookup has the branch itself");
        let mut inherited_from = own.inherited_from;
        let mut branch = own.branch;
        let mut answer = PartialAnswer::default();
        let mut found =
            own.ask(trees, self.first, self.roots, &vec![true; own.found.len()], &mut answer).await;
        answer.mapped = found.iter().map(|found| mapped(branch, found)).collect();
        for level in levels {
            let from = inherited_from.expect("the level before has a parent");
            let is_open: Vec<_> = (self.first.0..)
                .zip(&found)
                .map(|(block, found)| {
                    *found == Found::NOTHING && block >= from.0 && !answer.lost.contains(&BlockIndex(block))
                })
                .collect();
            if !is_open.contains(&true) {
                break;
            }
            (branch, inherited_from) = (level.branch, level.inherited_from);
            let inherited = level.ask(trees, self.first, self.roots, &is_open, &mut answer).await;
            for (index, _) in is_open.iter().enumerate().filter(|(_, is_open)| **is_open) {
                found[index] = inherited[index];
                answer.mapped[index] = mapped(branch, &inherited[index]);
            }
            // What a branch on the way down owns, zeroes included, is no longer open for those above.
            for index in (0..is_open.len()).filter(|&index| !is_open[index]) {
                if found[index] == Found::NOTHING {
                    found[index] = Found::Version(Version::zero(Stamp(0)));
                }
            }
        }
        answer
    }
}

impl Level {
    /// What tables and trees have of the branch's own versions, of the blocks that are open. Of those that are lost
    /// `answer` says so.
    async fn ask(
        &self,
        trees: &Trees,
        first: BlockIndex,
        roots: Roots,
        is_open: &[bool],
        answer: &mut PartialAnswer,
    ) -> Vec<Found> {
        let mut found = self.found.clone();
        let mut gaps: Vec<RangeInclusive<u64>> = Vec::new();
        let mut error = None;
        let mut gap = |blocks, why| {
            gaps.push(blocks);
            error.get_or_insert(why);
            Ok(())
        };
        if let Some((from, count)) = unknown(first, &found, is_open) {
            let take = |run: &Run<'_>| {
                if self.point.is_none_or(|point| run.birth <= point) {
                    refine(&mut found, first, run);
                }
            };
            let asked = trees.runs_or_gaps(roots.head, (self.branch, from, count), take, &mut gap).await;
            asked.expect("gaps are no errors here");
        }
        if let Some(point) = self.point
            && let Some((from, count)) = unknown(first, &found, is_open)
        {
            let take = |run: &Run<'_>| refine(&mut found, first, run);
            let range = (self.branch, from, count, point);
            let asked = trees.runs_at_or_gaps(roots.history, range, take, &mut gap).await;
            asked.expect("gaps are no errors here");
        }
        for block in gaps.into_iter().flatten() {
            let index = (block - first.0) as usize;
            if is_open[index] && matches!(found[index], Found::Unknown { .. }) {
                answer.lost.insert(BlockIndex(block));
            }
        }
        if !answer.lost.is_empty() && answer.error.is_none() {
            answer.error = error;
        }
        found
    }
}

/// The blocks from the first open one on of which nothing is known yet, up to the last one.
fn unknown(first: BlockIndex, found: &[Found], is_open: &[bool]) -> Option<(BlockIndex, u64)> {
    let is_unknown = |&index: &usize| is_open[index] && matches!(found[index], Found::Unknown { .. });
    let from = (0..found.len()).find(is_unknown)?;
    let last = (0..found.len()).rfind(is_unknown)?;
    Some((BlockIndex(first.0 + from as u64), (last - from) as u64 + 1))
}

fn refine(found: &mut [Found], first: BlockIndex, run: &Run<'_>) {
    for block in run.first.0..=run.last().0 {
        let block = BlockIndex(block);
        found[(block.0 - first.0) as usize].refine(Found::Version(Version::of(run, block)));
    }
}

fn mapped(branch: BranchNumber, found: &Found) -> Option<Mapped> {
    match found {
        Found::Version(version) if !version.is_zero() => Some(Mapped { branch, version: *version }),
        _ => None,
    }
}
