//! Lifetimes of a branch's versions, as of one moment: what the trees have, and what the tables in memory hold, supersede or
//! moved since.

use super::{MapTable, PastVersion, Sources};
use crate::{
    error::Result,
    format::{
        BlockIndex, BlockLocation, BranchNumber, NodeKey, Roots, Stamp, TreeKind, VersionRun,
        node::BRANCH_BLOCKS_MAX,
    },
    tree::{BlockVersion, Trees, WalkPace},
};
use std::ops::{ControlFlow, Range};

/// Ranges of the head closer than this are walked as one.
const NEAR_BLOCKS: u64 = 512;

/// The map of one branch as of the moment it was begun.
#[derive(Debug)]
pub(super) struct Lifetimes {
    branch: BranchNumber,
    roots: Roots,
    /// Changes of the branch, the older table first.
    tables: Vec<MapTable>,
}

/// Versions of adjacent blocks with one lifetime, in one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lifetime {
    pub birth: Stamp,
    /// Birth of the successors; `None` for newest versions.
    pub death: Option<Stamp>,
    /// Of the first block.
    pub location: BlockLocation,
    pub blocks: u64,
}

/// The past versions to visit.
#[derive(Clone, Copy, Debug)]
pub(super) enum HistoryScope<'p> {
    All,
    /// At least those of the trees that these points may see, and all of the tables.
    SeenBy(&'p [Stamp]),
}

/// The newest versions of the trees to visit.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeadScope {
    All,
    /// At least those with changes in memory: no others may be superseded.
    Changed,
}

/// True if one of the points, which ascend, lies in [birth, death).
pub(super) fn is_seen(points: &[Stamp], birth: Stamp, death: Stamp) -> bool {
    points.get(points.partition_point(|&point| point < birth)).is_some_and(|&point| point < death)
}

impl Lifetimes {
    pub fn new(sources: &Sources<'_>, branch: BranchNumber) -> Self {
        let tables = sources.merging.into_iter().chain([sources.active]).map(|table| table.only(branch));
        Self { branch, roots: sources.roots, tables: tables.collect() }
    }

    /// Visits each version once, in no particular order.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn visit(
        &self,
        trees: &Trees,
        (history, head): (HistoryScope<'_>, HeadScope),
        mut visit: impl FnMut(Lifetime),
    ) -> Result<()> {
        for (index, table) in self.tables.iter().enumerate() {
            for (block, PastVersion { version, death }) in table.kept(self.branch) {
                visit(self.lifetime(block, version, index + 1, Some(death)));
            }
            let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
            for piece in table.pieces(self.branch, all).filter(|piece| !piece.is_zero()) {
                for (block, version) in piece.versions() {
                    visit(self.lifetime(block, version, index + 1, None));
                }
            }
        }
        let (root, [from, to]) =
            (self.roots.history, [NodeKey::begin_of(self.branch), NodeKey::end_of(self.branch)]);
        let past = |run: &VersionRun<'_>| {
            self.visit_run(run, run.first.0..run.last().0 + 1, &mut visit);
            ControlFlow::Continue(())
        };
        match history {
            HistoryScope::All => trees.scan_by_leaves(TreeKind::History, root, (from, to), past).await?,
            HistoryScope::SeenBy(points) => {
                trees.scan_lives(root, self.branch, points, (from, WalkPace::LeafByLeaf), past).await?
            }
        }
        for blocks in self.head_ranges(head) {
            let newest = |run: &VersionRun<'_>| {
                let within = run.first.0.max(blocks.start)..(run.last().0 + 1).min(blocks.end);
                self.visit_run(run, within, &mut visit);
                ControlFlow::Continue(())
            };
            let [from, to] =
                [blocks.start, blocks.end].map(|block| NodeKey::of_block(self.branch, BlockIndex(block)));
            trees.scan_by_leaves(TreeKind::Head, self.roots.head, (from, to), newest).await?;
        }
        Ok(())
    }

    /// Visits the versions of a run of the trees within `blocks`: together, unless a table knows more of some.
    fn visit_run(&self, run: &VersionRun<'_>, blocks: Range<u64>, visit: &mut impl FnMut(Lifetime)) {
        if blocks.is_empty() {
            return;
        }
        if self.tables.iter().any(|table| table.has_changes_in(self.branch, blocks.clone())) {
            for block in blocks.map(BlockIndex) {
                visit(self.lifetime(block, BlockVersion::of(run, block), 0, run.death));
            }
        } else {
            let location = run.location_of(BlockIndex(blocks.start));
            let blocks = blocks.end - blocks.start;
            visit(Lifetime { birth: run.birth, death: run.death, location, blocks });
        }
    }

    /// The lifetime of a version that the tables from `younger` on may have superseded or moved. A known `death` overrides theirs.
    fn lifetime(
        &self,
        block: BlockIndex,
        version: BlockVersion,
        younger: usize,
        death: Option<Stamp>,
    ) -> Lifetime {
        let tables = &self.tables[younger..];
        let died = || tables.iter().find_map(|table| table.death(self.branch, block, version.birth));
        let death = death.or_else(died);
        let relocate = |version, table: &MapTable| table.relocated(self.branch, block, version);
        let location = tables.iter().fold(version, relocate).location;
        Lifetime { birth: version.birth, death, location, blocks: 1 }
    }

    /// Ranges of blocks of the head tree, in order, near ones joined.
    fn head_ranges(&self, scope: HeadScope) -> Vec<Range<u64>> {
        if matches!(scope, HeadScope::All) {
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
