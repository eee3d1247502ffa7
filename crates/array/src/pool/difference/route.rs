//! The way from one point to another of branches that have a common ancestor: up from the earlier point to the
//! branch that both share, and down to the later one.
//!
//! A block differs only if it changed on a leg of the way. Changes of the branches that only the later point
//! reads, and of the shared branch up to where the later one left it, give the later state. Those that only
//! the earlier point sees are *undone* on the way: the block reads what it did before them, or what a leg
//! nearer to the later point wrote.
//!
//! Versions of a branch are younger than its fork, apart from copies of what it reads through its parent. So
//! a branch changed by what was born after its fork, and a filling changes nothing.

use crate::{
    error::Result,
    format::{BranchNumber, Roots, Stamp},
    map::Branches,
    simulation::canary::{self, Canary},
    tree::{BlockChange, ChangedBlocks, PointPair, Trees},
};
use std::ops::Range;

/// A branch, changed from one of its points, or its fork, to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leg {
    pair: PointPair,
    /// The later point does not see these changes.
    is_undone: bool,
}

/// A way between two points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Route {
    /// The nearest to the later point comes first.
    legs: Vec<Leg>,
    /// The branches whose parents it uses.
    children: Vec<BranchNumber>,
}

/// State of changed blocks at the later point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteChange {
    Known(BlockChange),
    /// Their last change is undone: a lookup says what they are.
    Undone,
}

impl Route {
    /// The way between two points, of which the later one may be the present of its branch; none if they have
    /// no common ancestor.
    pub fn between(
        branches: &Branches,
        earlier: (BranchNumber, Stamp),
        later: (BranchNumber, Option<Stamp>),
    ) -> Option<Self> {
        let above = |branch| branches.ancestors(branch).map(|(parent, fork)| (parent, Some(fork)));
        let up: Vec<_> = std::iter::once((earlier.0, Some(earlier.1))).chain(above(earlier.0)).collect();
        let down: Vec<_> = std::iter::once(later).chain(above(later.0)).collect();
        let shared = |&(branch, _): &(BranchNumber, Option<Stamp>)| up.iter().position(|of| of.0 == branch);
        let (down_at, up_at) = down.iter().enumerate().find_map(|(at, point)| Some((at, shared(point)?)))?;
        let own = |way: &[(BranchNumber, Option<Stamp>)], is_undone| -> Vec<Leg> {
            let forked = way.windows(2).map(|pair| (pair[0], pair[1].1.expect("a fork has a stamp")));
            forked
                .map(|((branch, later), earlier)| Leg {
                    pair: PointPair { branch, earlier, later },
                    is_undone,
                })
                .collect()
        };
        let mut legs = own(&down[..=down_at], false);
        let (from, to) = (up[up_at].1.expect("the earlier point has a stamp"), down[down_at].1);
        let branch = down[down_at].0;
        match to {
            Some(to) if to == from => {}
            Some(to) if to < from => {
                let pair = PointPair { branch, earlier: to, later: Some(from) };
                legs.push(Leg { pair, is_undone: true });
            }
            later => legs.push(Leg { pair: PointPair { branch, earlier: from, later }, is_undone: false }),
        }
        legs.extend(own(&up[..=up_at], true));
        if canary::is(Canary::DifferenceForgetsABranch) && legs.len() > 1 {
            legs.pop();
        }
        let children = up[..up_at].iter().chain(&down[..down_at]).map(|(branch, _)| *branch).collect();
        Some(Self { legs, children })
    }

    /// The way from a stamp of a branch's history, which need not be a point, to a point of that branch.
    pub fn since(branches: &Branches, since: Stamp, later: (BranchNumber, Stamp)) -> Self {
        let mut branch = later.0;
        for (parent, fork) in branches.ancestors(later.0) {
            if fork <= since {
                break;
            }
            branch = parent;
        }
        let route = Self::between(branches, (branch, since), (later.0, Some(later.1)));
        route.expect("a branch has its ancestors in common with itself")
    }

    /// True if all is on one branch, and the later point is older than the earlier one.
    pub fn is_backwards(&self) -> bool {
        self.children.is_empty() && self.legs.iter().any(|leg| leg.is_undone)
    }

    /// The branches of which some changes count.
    pub fn branches(&self) -> impl Iterator<Item = BranchNumber> {
        self.legs.iter().map(|leg| leg.pair.branch)
    }

    /// The branches that must not leave their parents while the way is walked.
    pub fn children(&self) -> &[BranchNumber] {
        &self.children
    }

    /// A walk over the changed blocks within `blocks`, as [`Trees::changed_blocks`] of each leg.
    pub fn changed_blocks<'t>(
        &self,
        trees: &'t Trees,
        roots: Roots,
        blocks: &Range<u64>,
        nodes_max: u64,
    ) -> RouteWalk<'t> {
        let nodes_max = nodes_max / (self.legs.len() as u64).max(1);
        let walks = self.legs.iter().map(|leg| LegWalk {
            blocks: trees.changed_blocks(roots, leg.pair, blocks.clone(), nodes_max),
            is_undone: leg.is_undone,
            front: None,
            is_at_end: false,
        });
        RouteWalk { legs: walks.collect(), taken_below: blocks.start, end: blocks.end, paused_at: None }
    }
}

/// A walk over the changes of all legs, by block.
pub(super) struct RouteWalk<'t> {
    legs: Vec<LegWalk<'t>>,
    /// Everything below this block was returned.
    taken_below: u64,
    /// All legs are known below this block.
    end: u64,
    paused_at: Option<u64>,
}

struct LegWalk<'t> {
    blocks: ChangedBlocks<'t>,
    is_undone: bool,
    /// The next changes that are not taken.
    front: Option<(Range<u64>, BlockChange)>,
    is_at_end: bool,
}

impl RouteWalk<'_> {
    /// The next changed blocks, ascending; two ranges of one state may be adjacent. None at the end, or at a
    /// pause.
    ///
    /// # Errors
    ///
    /// A node cannot be read.
    pub async fn next(&mut self) -> Result<Option<(Range<u64>, RouteChange)>> {
        for leg in &mut self.legs {
            leg.advance(self.taken_below).await?;
            if let Some(paused) = leg.blocks.paused_at().filter(|_| leg.front.is_none()) {
                self.paused_at = Some(self.paused_at.map_or(paused, |other| other.min(paused)));
                self.end = self.end.min(paused);
            }
        }
        let starts = self.legs.iter().filter_map(LegWalk::start);
        let Some(first) = starts.min().filter(|first| *first < self.end) else { return Ok(None) };
        // The nearest to the later point decides, as far as those before it have nothing.
        let nearest = self.legs.iter().position(|leg| leg.start() == Some(first));
        let (before, from) = self.legs.split_at(nearest.expect("a leg begins there"));
        let (blocks, change) = from[0].front.as_ref().expect("it begins there");
        let change = if from[0].is_undone { RouteChange::Undone } else { RouteChange::Known(*change) };
        let hidden = before.iter().filter_map(LegWalk::start);
        let end = hidden.fold(self.end.min(blocks.end), u64::min);
        self.legs.iter_mut().for_each(|leg| leg.take_below(end));
        self.taken_below = end;
        Ok(Some((first..end, change)))
    }

    /// The block at which the walk paused: all changes below were shown. None unless it did.
    pub fn paused_at(&self) -> Option<u64> {
        self.paused_at
    }

    /// Nodes of the trees that were visited, cached or not; each counted once a leg.
    pub fn nodes_visited(&self) -> u64 {
        self.legs.iter().map(|leg| leg.blocks.nodes_visited()).sum()
    }
}

impl LegWalk<'_> {
    fn start(&self) -> Option<u64> {
        self.front.as_ref().map(|(blocks, _)| blocks.start)
    }

    /// Finds the next changes that do not lie below a block.
    async fn advance(&mut self, from: u64) -> Result<()> {
        while self.front.is_none() && !self.is_at_end {
            self.front = self.blocks.next().await?;
            self.is_at_end = self.front.is_none();
            self.take_below(from);
        }
        Ok(())
    }

    fn take_below(&mut self, end: u64) {
        if let Some((blocks, _)) = &mut self.front {
            blocks.start = blocks.start.max(end);
            if blocks.is_empty() {
                self.front = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Branch;

    /// Branch 2 left branch 1 at 10, 3 left 2 at 20, 4 left 1 at 30; 5 stands alone.
    fn family() -> Branches {
        let mut branches = Branches::new();
        let parents = [(1, None), (2, Some((1, 10))), (3, Some((2, 20))), (4, Some((1, 30))), (5, None)];
        for (number, parent) in parents {
            let parent = parent.map(|(parent, fork)| (BranchNumber(parent), Stamp(fork)));
            branches.set(BranchNumber(number), Branch { parent, filled_below: None, has_head: true });
        }
        branches
    }

    /// Legs as branch, earlier and later stamp, and true if undone.
    type Shown = (u32, u64, Option<u64>, bool);

    fn legs(earlier: (u32, u64), later: (u32, Option<u64>)) -> Option<Vec<Shown>> {
        let later = (BranchNumber(later.0), later.1.map(Stamp));
        let route = Route::between(&family(), (BranchNumber(earlier.0), Stamp(earlier.1)), later)?;
        let shown = |leg: &Leg| {
            let PointPair { branch, earlier, later } = leg.pair;
            (branch.0, earlier.0, later.map(|stamp| stamp.0), leg.is_undone)
        };
        Some(route.legs.iter().map(shown).collect())
    }

    #[test]
    fn a_way_leads_over_the_nearest_branch_that_both_points_share() {
        for (earlier, later, expected) in [
            ((1, 5), (1, None), vec![(1, 5, None, false)]),
            ((1, 5), (1, Some(5)), vec![]),
            ((1, 9), (1, Some(5)), vec![(1, 5, Some(9), true)]),
            ((1, 5), (2, None), vec![(2, 10, None, false), (1, 5, Some(10), false)]),
            ((1, 10), (2, None), vec![(2, 10, None, false)]),
            // After a rollback: what came after the fork is undone.
            ((1, 15), (2, None), vec![(2, 10, None, false), (1, 10, Some(15), true)]),
            ((2, 15), (1, None), vec![(1, 10, None, false), (2, 10, Some(15), true)]),
            ((2, 15), (3, Some(25)), vec![(3, 20, Some(25), false), (2, 15, Some(20), false)]),
            (
                (3, 25),
                (4, None),
                vec![
                    (4, 30, None, false),
                    (1, 10, Some(30), false),
                    (3, 20, Some(25), true),
                    (2, 10, Some(20), true),
                ],
            ),
            (
                (4, 35),
                (2, Some(15)),
                vec![(2, 10, Some(15), false), (1, 10, Some(30), true), (4, 30, Some(35), true)],
            ),
        ] {
            assert_eq!(legs(earlier, later), Some(expected), "{earlier:?} to {later:?}");
        }
        assert_eq!(legs((5, 1), (1, None)), None, "they share nothing");
    }
}
