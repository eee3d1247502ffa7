//! Space that deleting points would free, to the grain.
//!
//! It takes the same walk as a pass of [`Reclaim`](super::Reclaim), with the points still in place, and adds
//! what the tables in memory hold or supersede.

use super::{LiveGrains, MapTable, PastVersion, Points, Sources, reclaim::death};
use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, NodeKey, Roots, Stamp, TreeKind, VersionRun, node::BRANCH_BLOCKS_MAX,
    },
    tree::{BlockVersion, Trees},
};
use std::ops::{ControlFlow, Range};

/// Ranges of the head closer than this are walked as one.
const NEAR_BLOCKS: u64 = 512;

/// A computation of reclaimable space, as of the moment it was begun.
#[derive(Debug)]
pub struct ReclaimableQuery {
    branch: BranchNumber,
    deleted: Vec<Stamp>,
    remaining: Vec<Stamp>,
    /// The newest versions are deleted, too.
    with_head: bool,
    roots: Roots,
    /// Changes of the branch, the older table first.
    tables: Vec<MapTable>,
    grains: LiveGrains,
}

impl ReclaimableQuery {
    /// Begins the computation for some points of a branch.
    pub fn new(sources: &Sources<'_>, points: &Points, branch: BranchNumber, deleted: &[Stamp]) -> Self {
        let (deleted, remaining) = points.of(branch).iter().partition(|point| deleted.contains(point));
        let tables = sources.merging.into_iter().chain([sources.active]).map(|table| table.only(branch));
        let roots = sources.roots;
        let (tables, grains) = (tables.collect(), LiveGrains::new());
        Self { branch, deleted, remaining, with_head: false, roots, tables, grains }
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
    pub async fn finish(mut self, trees: &Trees) -> Result<LiveGrains> {
        let mut grains = std::mem::take(&mut self.grains);
        for (index, table) in self.tables.iter().enumerate() {
            for (block, PastVersion { version, death }) in table.kept(self.branch) {
                self.count(block, version, index + 1, Some(death), &mut grains);
            }
            let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
            for piece in table.pieces(self.branch, all).filter(|piece| !piece.is_zero()) {
                for (block, version) in piece.versions() {
                    self.count(block, version, index + 1, None, &mut grains);
                }
            }
        }
        let visit = |run: &VersionRun<'_>| {
            if self.frees(run.birth, death(run)) {
                for block in (run.first.0..=run.last().0).map(BlockIndex) {
                    self.count(block, BlockVersion::of(run, block), 0, Some(death(run)), &mut grains);
                }
            }
            ControlFlow::Continue(())
        };
        let from = NodeKey::begin_of(self.branch);
        trees.scan_lives(self.roots.history, self.branch, &self.deleted, from, visit).await?;
        for blocks in self.touched() {
            let visit = |run: &VersionRun<'_>| {
                for block in
                    (run.first.0.max(blocks.start)..(run.last().0 + 1).min(blocks.end)).map(BlockIndex)
                {
                    self.count(block, BlockVersion::of(run, block), 0, None, &mut grains);
                }
                ControlFlow::Continue(())
            };
            let keys =
                [blocks.start, blocks.end].map(|block| NodeKey::of_block(self.branch, BlockIndex(block)));
            trees.scan(TreeKind::Head, self.roots.head, keys[0], keys[1], visit).await?;
        }
        Ok(grains)
    }

    /// Counts a version that the tables from `younger` on may have superseded or moved. A known `death`
    /// overrides theirs.
    fn count(
        &self,
        block: BlockIndex,
        version: BlockVersion,
        younger: usize,
        death: Option<Stamp>,
        grains: &mut LiveGrains,
    ) {
        let tables = &self.tables[younger..];
        let died = || tables.iter().find_map(|table| table.death(self.branch, block, version.birth));
        let newest = || self.with_head.then_some(Stamp(u64::MAX));
        if death.or_else(died).or_else(newest).is_some_and(|death| self.frees(version.birth, death)) {
            let relocate = |version, table: &MapTable| table.relocated(self.branch, block, version);
            grains.add(self.branch, tables.iter().fold(version, relocate).location);
        }
    }

    /// True if some of the points to be deleted see a lifetime, and no other point does.
    fn frees(&self, birth: Stamp, death: Stamp) -> bool {
        let is_seen = |points: &[Stamp]| {
            points.get(points.partition_point(|&point| point < birth)).is_some_and(|&point| point < death)
        };
        let was_newest = self.with_head && death == Stamp(u64::MAX);
        (was_newest || is_seen(&self.deleted)) && !is_seen(&self.remaining)
    }

    /// Ranges of blocks of which the newest versions in the tree may be freed, in order, near ones joined:
    /// those with changes in memory, or all.
    fn touched(&self) -> Vec<Range<u64>> {
        if self.with_head {
            return std::iter::once(0..BRANCH_BLOCKS_MAX).collect();
        }
        let mut touched: Vec<Range<u64>> = Vec::new();
        for table in &self.tables {
            let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
            touched.extend(table.pieces(self.branch, all).map(|piece| piece.first.0..piece.end().0));
            touched.extend(table.unfinished(self.branch).map(|(blocks, _)| blocks));
        }
        touched.sort_by_key(|blocks| blocks.start);
        let mut joined: Vec<Range<u64>> = Vec::new();
        for blocks in touched {
            match joined.last_mut() {
                Some(last) if blocks.start <= last.end.saturating_add(NEAR_BLOCKS) => {
                    last.end = last.end.max(blocks.end);
                }
                _ => joined.push(blocks),
            }
        }
        joined
    }
}
