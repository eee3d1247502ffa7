//! Scrub: every copy of everything the trees lead to is read and looked at; what is wrong is written again from a copy
//! that is right.
//!
//! What is only in the tables in RAM is looked at where it lies in the log. A pool scrubs by itself, at a pace that hosts do
//! not notice. Where a round has come to is not kept: after an opening it begins anew.

use super::Urgency;
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BLOCK_GRAINS, BlockIndex, Location, NodeKey, NodePointer, Run, Stored, Tree},
    pool::{Pool, StoredRun},
};
use std::{ops::ControlFlow, time::Duration};

/// Runs looked at between two reads of the tree.
const RUNS_AT_ONCE: usize = 256;

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Blocks of volumes and snapshots that were read, each copy of them.
    pub blocks: u64,
    /// Nodes of trees.
    pub nodes: u64,
    /// Superblocks: two on each drive.
    pub superblocks: u64,
    /// Copies, of whatever, that were wrong and are right now.
    pub mended: u64,
    /// What no copy of is right, in words: at most a hundred of them.
    pub lost: Vec<String>,
}

/// How far a scrub is, and what the last one found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// One goes on now.
    pub is_running: bool,
    /// Rounds that were finished since the pool was opened.
    pub rounds: u64,
    /// Blocks of volumes and snapshots there were when it began.
    pub total_blocks: u64,
    /// Of those, what was looked at.
    pub done_blocks: u64,
    /// What the last round that was finished found.
    pub last: Scrubbed,
    /// How long that took.
    pub last_took: Duration,
}

/// What is lost is counted beyond this, and not told.
const LOST_MAX: usize = 100;

impl Pool {
    /// Looks at everything once. It goes on when something is lost: the rest is worth knowing, too.
    ///
    /// # Errors
    ///
    /// A tree that cannot be read at all, or the pool has stopped.
    pub async fn scrub(&self) -> Result<Scrubbed> {
        let _one_at_a_time = self.scrubbing.lock().await;
        let live_grains = self.shared.state.borrow().segments.live_grains();
        let begun = self.shared.world.now();
        *self.scrubs.borrow_mut() = ScrubProgress {
            is_running: true,
            done_blocks: 0,
            total_blocks: live_grains / BLOCK_GRAINS as u64,
            ..self.scrub_progress()
        };
        let scrubbed = self.scrub_all().await;
        let mut scrubs = self.scrubs.borrow_mut();
        scrubs.is_running = false;
        if let Ok(found) = &scrubbed {
            scrubs.rounds += 1;
            scrubs.last = found.clone();
            scrubs.last_took = self.shared.world.now().since(begun);
        }
        scrubbed
    }

    /// How far the scrub is, and what the last one found.
    pub fn scrub_progress(&self) -> ScrubProgress {
        self.scrubs.borrow().clone()
    }

    async fn scrub_all(&self) -> Result<Scrubbed> {
        let mut found = Scrubbed::default();
        let before = self.mended();
        self.scrub_superblocks(&mut found).await?;
        self.scrub_segments().await?;
        self.scrub_nodes(&mut found).await?;
        for tree in [Tree::Head, Tree::History] {
            self.scrub_blocks(tree, &mut found).await?;
        }
        found.mended = self.mended() - before;
        Ok(found)
    }

    fn copies(&self) -> usize {
        usize::from(self.shared.drives.geometry().log_copies)
    }

    async fn scrub_nodes(&self, found: &mut Scrubbed) -> Result<()> {
        let _reading = self.begin_reading();
        let roots = self.shared.state.borrow().roots;
        for (tree, root) in
            [(Tree::Head, roots.head), (Tree::History, roots.history), (Tree::Catalogue, roots.catalogue)]
        {
            let mut pointers: Vec<NodePointer> = Vec::new();
            self.trees.check(tree, root, |pointer| pointers.push(*pointer)).await?;
            for pointer in pointers {
                self.shared.check_runs()?;
                found.nodes += 1;
                let bytes = usize::from(pointer.blocks) * BLOCK_BYTES * self.copies();
                let permit = self.pace.permit(Urgency::CanWait).await?;
                permit.moves(bytes);
                if let Err(error) = self.shared.scrub_node(pointer).await {
                    tell(found, &error);
                }
            }
        }
        Ok(())
    }

    async fn scrub_blocks(&self, tree: Tree, found: &mut Scrubbed) -> Result<()> {
        let mut from = NodeKey::FIRST;
        let end = NodeKey { major: u32::MAX, id: u64::MAX, minor: u64::MAX };
        loop {
            self.shared.check_runs()?;
            // As of now: what a checkpoint changes meanwhile is met further on, or was written just now.
            let _reading = self.begin_reading();
            let roots = self.shared.state.borrow().roots;
            let root = if tree == Tree::Head { roots.head } else { roots.history };
            let (mut runs, mut next) = (Vec::new(), None);
            let visit = |run: &Run<'_>| {
                let minor = if tree == Tree::Head { 0 } else { run.birth.0 };
                if runs.len() == RUNS_AT_ONCE {
                    next = Some(NodeKey { major: run.branch.0, id: run.first.0, minor });
                    return ControlFlow::Break(());
                }
                runs.extend(stored(run));
                ControlFlow::Continue(())
            };
            self.trees.scan(tree, root, from, end, visit).await?;
            for run in runs {
                found.blocks += run.blocks.len() as u64;
                self.scrubs.borrow_mut().done_blocks = found.blocks;
                let bytes = run.blocks.len() * BLOCK_BYTES * self.copies();
                let permit = self.pace.permit(Urgency::CanWait).await?;
                permit.moves(bytes);
                if let Err(error) = self.shared.scrub_run(&run).await {
                    tell(found, &error);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}

pub(super) fn tell(found: &mut Scrubbed, error: &Error) {
    if found.lost.len() < LOST_MAX {
        found.lost.push(error.to_string());
    }
}

/// What a run of the map has in a segment, if anything.
fn stored(run: &Run<'_>) -> Option<StoredRun> {
    let Location::Direct { segment, at, stored: Stored::PLAIN } = run.location else { return None };
    let blocks = (run.first.0..=run.last().0).map(BlockIndex).map(|block| {
        let key = crate::format::BlockKey { branch: run.branch, block, stamp: run.birth };
        (key, run.checksum_of(block).expect("what is stored in a segment has a checksum"))
    });
    Some(StoredRun { segment, at: at.block(), blocks: blocks.collect() })
}
