//! Space that deleting points would free, to the grain.
//!
//! It takes the same walk as a pass of [`Reclaim`](super::Reclaim), with the points still in place, and adds
//! what the tables in memory hold or supersede.

use super::{
    LiveGrains, Points, Sources,
    lifetimes::{HeadScope, HistoryScope, Lifetime, Lifetimes, is_seen},
};
use crate::{
    error::Result,
    format::{BranchNumber, Stamp},
    tree::Trees,
};

/// A computation of reclaimable space, as of the moment it was begun.
#[derive(Debug)]
pub struct ReclaimableQuery {
    branch: BranchNumber,
    deleted: Vec<Stamp>,
    remaining: Vec<Stamp>,
    /// The newest versions are deleted, too.
    with_head: bool,
    lifetimes: Lifetimes,
}

impl ReclaimableQuery {
    /// Begins the computation for some points of a branch.
    pub fn new(sources: &Sources<'_>, points: &Points, branch: BranchNumber, deleted: &[Stamp]) -> Self {
        let (deleted, remaining) = points.of(branch).iter().partition(|point| deleted.contains(point));
        Self { branch, deleted, remaining, with_head: false, lifetimes: Lifetimes::new(sources, branch) }
    }

    /// The same if the head of the branch is deleted, too: no volume reads its newest versions then.
    pub fn with_head(self) -> Self {
        Self { with_head: true, ..self }
    }

    /// Computes the space that would be freed: grains by segment.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(self, trees: &Trees) -> Result<LiveGrains> {
        let mut grains = LiveGrains::new();
        let history = HistoryScope::SeenBy(&self.deleted);
        let head = if self.with_head { HeadScope::All } else { HeadScope::Changed };
        let visit = |Lifetime { birth, death, location, blocks }: Lifetime| {
            if self.frees(birth, death) {
                grains.add_blocks(self.branch, location, blocks);
            }
        };
        self.lifetimes.visit(trees, (history, head), visit).await?;
        Ok(grains)
    }

    /// True if some of the points to be deleted see a lifetime, or its versions are the newest of a head to be deleted, and no
    /// other point sees it.
    fn frees(&self, birth: Stamp, death: Option<Stamp>) -> bool {
        let is_lost = match death {
            Some(death) => is_seen(&self.deleted, birth, death),
            None => self.with_head,
        };
        is_lost && !is_seen(&self.remaining, birth, death.unwrap_or(Stamp(u64::MAX)))
    }
}
