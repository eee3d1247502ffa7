//! What deletion of points would give back, to the grain.
//!
//! The same walk as a pass of [`Reclaim`](super::Reclaim), with the points still there; and what the tables in memory hold or
//! displace, which no tree knows of yet.

use super::{LiveGrains, Past, Points, Sources, Table, Version, reclaim::death};
use crate::{
    error::Result,
    format::{BlockIndex, BranchNumber, NodeKey, Roots, Run, Stamp, Tree, node::BRANCH_BLOCKS_MAX},
    tree::Trees,
};
use std::ops::{ControlFlow, Range};

/// Ranges of the head that are closer than this are walked as one.
const NEAR_BLOCKS: u64 = 512;

/// A figure that is being worked out, as of the moment at which it was asked for.
#[derive(Debug)]
pub struct Figure {
    branch: BranchNumber,
    deleted: Vec<Stamp>,
    remaining: Vec<Stamp>,
    roots: Roots,
    /// What happened to the branch, the older table first.
    tables: Vec<Table>,
    grains: LiveGrains,
}

impl Figure {
    /// Asks what deletion of some of a branch's points would give back.
    pub fn new(sources: &Sources<'_>, points: &Points, branch: BranchNumber, deleted: &[Stamp]) -> Self {
        let (deleted, remaining) = points.of(branch).iter().partition(|point| deleted.contains(point));
        let tables = sources.merging.into_iter().chain([sources.active]).map(|table| table.only(branch));
        let roots = sources.roots;
        Self { branch, deleted, remaining, roots, tables: tables.collect(), grains: LiveGrains::new() }
    }

    /// Works it out: grains by segment.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(mut self, trees: &Trees) -> Result<LiveGrains> {
        let mut grains = std::mem::take(&mut self.grains);
        for (index, table) in self.tables.iter().enumerate() {
            for (block, Past { version, death }) in table.kept(self.branch) {
                self.count(block, version, index + 1, Some(death), &mut grains);
            }
            let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
            for piece in table.pieces(self.branch, all).filter(|piece| !piece.is_zero()) {
                for (block, version) in piece.versions() {
                    self.count(block, version, index + 1, None, &mut grains);
                }
            }
        }
        let visit = |run: &Run<'_>| {
            if self.frees(run.birth, death(run)) {
                for block in (run.first.0..=run.last().0).map(BlockIndex) {
                    self.count(block, Version::of(run, block), 0, Some(death(run)), &mut grains);
                }
            }
            ControlFlow::Continue(())
        };
        let from = NodeKey::begin_of(self.branch);
        trees.scan_lives(self.roots.history, self.branch, &self.deleted, from, visit).await?;
        for blocks in self.touched() {
            let visit = |run: &Run<'_>| {
                for block in
                    (run.first.0.max(blocks.start)..(run.last().0 + 1).min(blocks.end)).map(BlockIndex)
                {
                    self.count(block, Version::of(run, block), 0, None, &mut grains);
                }
                ControlFlow::Continue(())
            };
            let keys =
                [blocks.start, blocks.end].map(|block| NodeKey::of_block(self.branch, BlockIndex(block)));
            trees.scan(Tree::Head, self.roots.head, keys[0], keys[1], visit).await?;
        }
        Ok(grains)
    }

    /// Counts a version that the tables from `younger` on may have displaced or moved, unless it is known when it died.
    fn count(
        &self,
        block: BlockIndex,
        version: Version,
        younger: usize,
        death: Option<Stamp>,
        grains: &mut LiveGrains,
    ) {
        let tables = &self.tables[younger..];
        let died = || tables.iter().find_map(|table| table.death(self.branch, block, version.birth));
        if death.or_else(died).is_some_and(|death| self.frees(version.birth, death)) {
            let relocate = |version, table: &Table| table.relocated(self.branch, block, version);
            grains.add(self.branch, tables.iter().fold(version, relocate).location);
        }
    }

    /// Whether a life is seen by points that would go, and by no other.
    fn frees(&self, birth: Stamp, death: Stamp) -> bool {
        let is_seen = |points: &[Stamp]| {
            points.get(points.partition_point(|&point| point < birth)).is_some_and(|&point| point < death)
        };
        is_seen(&self.deleted) && !is_seen(&self.remaining)
    }

    /// Blocks to which something happened in memory, in order, near ones together.
    fn touched(&self) -> Vec<Range<u64>> {
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
