//! Scrub: reads every copy of everything that the trees refer to, and repairs wrong copies from right ones.
//!
//! Blocks that only the tables in RAM refer to are checked in the log. A pool scrubs in the background at a
//! rate that hosts do not notice. The position of a round is stored in the catalogue by checkpoints, so a
//! round continues after the pool is reopened.

use super::Mover;
use crate::{
    engine::{Permit, StoredRun, Urgency},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, BlockIndex, BlockLocation, GRAIN_BYTES, NodeKey, NodePointer,
        SegmentNumber, Stored, TreeKind, VersionRun,
        row::{ScrubCounts, ScrubPlace, ScrubRow},
    },
};
use std::{ops::ControlFlow, time::Duration};
use world::BoxedFuture;

/// Runs checked between two reads of the tree.
const RUNS_AT_ONCE: usize = 256;

/// Results of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubResult {
    /// Blocks of volumes and snapshots that were read, counting each copy.
    pub blocks: u64,
    /// Nodes of trees.
    pub nodes: u64,
    /// Superblocks; a drive has two.
    pub superblocks: u64,
    /// Wrong copies that were repaired.
    pub repaired: u64,
    /// Locations of which no copy is right.
    pub lost_places: u64,
    /// Descriptions of those locations, at most 100. Only those found since the pool was opened.
    pub lost: Vec<String>,
}

/// A round of scrubbing under way.
pub(super) struct ScrubRound {
    row: ScrubRow,
    found: ScrubResult,
    /// The pool's count of repairs when the row was made.
    repaired_before: u64,
}

impl From<ScrubCounts> for ScrubResult {
    fn from(ScrubCounts { blocks, nodes, repaired, lost }: ScrubCounts) -> Self {
        Self { blocks, nodes, repaired, lost_places: lost, ..Self::default() }
    }
}

impl From<&ScrubResult> for ScrubCounts {
    fn from(found: &ScrubResult) -> Self {
        let ScrubResult { blocks, nodes, repaired, lost_places, .. } = *found;
        Self { blocks, nodes, repaired, lost: lost_places }
    }
}

/// Progress of the current scrub, and results of the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// A scrub is under way.
    pub is_running: bool,
    /// Rounds completed since the pool was opened.
    pub rounds: u64,
    /// Blocks of volumes and snapshots when the round began.
    pub total_blocks: u64,
    /// Blocks checked.
    pub done_blocks: u64,
    /// Results of the last completed round.
    pub last: ScrubResult,
    /// Duration of the last completed round.
    pub last_took: Duration,
}

/// Limit of the descriptions.
const LOST_MAX: usize = 100;

impl Mover {
    /// Checks everything once, from the beginning. Lost locations do not end the scrub. One that is cancelled
    /// returns what it has found.
    ///
    /// # Errors
    ///
    /// A tree cannot be read at all, or the pool has stopped.
    pub async fn scrub(&self) -> Result<ScrubResult> {
        self.scrub_round(false).await
    }

    /// As [`Self::scrub`], but continues an unfinished round.
    pub(crate) async fn scrub_on(&self) -> Result<ScrubResult> {
        self.scrub_round(true).await
    }

    /// Delay of the first scrub after opening: zero if a round is unfinished, otherwise `every` after the
    /// last one.
    pub(crate) fn next_scrub_in(&self, every: Duration) -> Duration {
        match self.shared.state.borrow().catalogue.scrub() {
            Some(ScrubRow { next: Some(_), .. }) => Duration::ZERO,
            Some(ScrubRow { ended_at, .. }) if ended_at.0 > 0 => {
                let since = self.shared.wall_now().0.saturating_sub(ended_at.0);
                every.saturating_sub(Duration::from_nanos(since))
            }
            _ => every / 7,
        }
    }

    async fn scrub_round(&self, goes_on: bool) -> Result<ScrubResult> {
        let _one_at_a_time = self.scrubbing.lock().await;
        let _running = self.scrub_job.begin();
        let live_grains = self.shared.state.borrow().segments.live_grains();
        let begun = self.shared.world.now();
        *self.scrubs.borrow_mut() = ScrubProgress {
            is_running: true,
            done_blocks: 0,
            total_blocks: live_grains / BLOCK_GRAINS as u64,
            ..self.scrub_progress()
        };
        self.scrub_job.set_total(live_grains * GRAIN_BYTES as u64);
        let scrubbed = self.scrub_all(goes_on).await;
        let mut scrubs = self.scrubs.borrow_mut();
        scrubs.is_running = false;
        if let Ok(found) = &scrubbed
            && !self.scrub_job.is_cancelled()
        {
            scrubs.rounds += 1;
            scrubs.last = found.clone();
            scrubs.last_took = self.shared.world.now().since(begun);
        }
        scrubbed
    }

    /// Begin of the round that the catalogue knows, in nanoseconds since 1970; 0 if there was none.
    pub fn scrub_begun_ns(&self) -> u64 {
        self.shared.state.borrow().catalogue.scrub().map_or(0, |row| row.begun_at.0)
    }

    pub fn scrub_progress(&self) -> ScrubProgress {
        self.scrubs.borrow().clone()
    }

    fn scrub_all(&self, goes_on: bool) -> BoxedFuture<'_, Result<ScrubResult>> {
        Box::pin(self.scrub_everything(goes_on))
    }

    async fn scrub_everything(&self, goes_on: bool) -> Result<ScrubResult> {
        let now = self.shared.wall_now();
        let known = self.shared.state.borrow().catalogue.scrub().unwrap_or_default();
        let begun = ScrubRow {
            next: Some(ScrubPlace::Segments(SegmentNumber(0))),
            begun_at: now,
            counts: ScrubCounts::default(),
            ..known
        };
        let row = if goes_on && known.next.is_some() { known } else { begun };
        let mut round =
            ScrubRound { row, found: row.counts.into(), repaired_before: self.shared.repaired.get() };
        self.scrub_superblocks(&mut round.found).await?;
        while let Some(place) = round.row.next {
            let next = match place {
                ScrubPlace::Segments(from) => {
                    self.scrub_segments(from, &mut round).await?;
                    Some(ScrubPlace::Nodes(TreeKind::Head))
                }
                ScrubPlace::Nodes(tree) => {
                    self.scrub_nodes(tree, &mut round.found).await?;
                    Some(match tree {
                        TreeKind::Head => ScrubPlace::Nodes(TreeKind::History),
                        TreeKind::History => ScrubPlace::Nodes(TreeKind::Catalogue),
                        TreeKind::Catalogue => ScrubPlace::Blocks(TreeKind::Head, NodeKey::FIRST),
                    })
                }
                ScrubPlace::Blocks(tree, from) => {
                    self.scrub_blocks(tree, from, &mut round).await?;
                    (tree == TreeKind::Head).then_some(ScrubPlace::Blocks(TreeKind::History, NodeKey::FIRST))
                }
            };
            if self.scrub_job.is_cancelled() {
                break;
            }
            if next.is_none() {
                round.row.ended_at = self.shared.wall_now();
            }
            self.has_come_to(next, &mut round);
        }
        Ok(round.found)
    }

    /// Records that everything before `next` was checked.
    pub(super) fn has_come_to(&self, next: Option<ScrubPlace>, round: &mut ScrubRound) {
        round.row.next = next;
        round.found.repaired = round.row.counts.repaired + self.shared.repaired.get() - round.repaired_before;
        round.row.counts = ScrubCounts::from(&round.found);
        round.repaired_before = self.shared.repaired.get();
        self.shared.state.borrow_mut().catalogue.set_scrub(round.row);
        self.shared.note_unsaved_rows();
    }

    /// A permit to check a piece. A scrub keeps the segments that it reads from being reused, so it does not
    /// pause while hosts wait for room.
    pub(super) async fn scrub_permit(&self) -> Result<Permit> {
        let urgency = if self.shared.demand.wanted() > 0 { Urgency::Awaited } else { Urgency::CanWait };
        self.throttle.permit(urgency).await
    }

    fn copies(&self) -> usize {
        self.shared.drives.copies().most()
    }

    async fn scrub_nodes(&self, tree: TreeKind, found: &mut ScrubResult) -> Result<()> {
        let _reading = self.shared.begin_reading();
        let roots = self.shared.state.borrow().roots;
        let root = match tree {
            TreeKind::Head => roots.head,
            TreeKind::History => roots.history,
            TreeKind::Catalogue => roots.catalogue,
        };
        let mut pointers: Vec<NodePointer> = Vec::new();
        self.map.trees.check(tree, root, |pointer| pointers.push(*pointer)).await?;
        for pointer in pointers {
            self.shared.check_runs()?;
            if self.scrub_job.is_cancelled() {
                break;
            }
            found.nodes += 1;
            let bytes = usize::from(pointer.blocks) * BLOCK_BYTES * self.copies();
            let permit = self.scrub_permit().await?;
            permit.moves(bytes);
            if let Err(error) = self.shared.scrub_node(pointer).await {
                note_lost(found, &error);
            }
        }
        Ok(())
    }

    async fn scrub_blocks(&self, tree: TreeKind, mut from: NodeKey, round: &mut ScrubRound) -> Result<()> {
        let end = NodeKey { major: u32::MAX, id: u64::MAX, minor: u64::MAX };
        loop {
            self.shared.check_runs()?;
            // Blocks that a checkpoint moves meanwhile are met later in the tree, or were just written.
            let _reading = self.shared.begin_reading();
            let roots = self.shared.state.borrow().roots;
            let root = if tree == TreeKind::Head { roots.head } else { roots.history };
            let (mut runs, mut next) = (Vec::new(), None);
            let visit = |run: &VersionRun<'_>| {
                let key = run.first_key();
                if runs.len() == RUNS_AT_ONCE {
                    next = Some(key);
                    return ControlFlow::Break(());
                }
                runs.extend(stored(run).map(|run| (key, run)));
                ControlFlow::Continue(())
            };
            self.map.trees.scan(tree, root, from, end, visit).await?;
            for (key, run) in runs {
                if self.scrub_job.is_cancelled() {
                    return Ok(());
                }
                self.has_come_to(Some(ScrubPlace::Blocks(tree, key)), round);
                round.found.blocks += run.blocks.len() as u64;
                self.scrubs.borrow_mut().done_blocks = round.found.blocks;
                self.scrub_job.advance((run.blocks.len() * BLOCK_BYTES) as u64);
                let bytes = run.blocks.len() * BLOCK_BYTES * self.copies();
                let permit = self.scrub_permit().await?;
                permit.moves(bytes);
                if let Err(error) = self.shared.scrub_run(&run).await {
                    note_lost(&mut round.found, &error);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }
}

pub(super) fn note_lost(found: &mut ScrubResult, error: &Error) {
    found.lost_places += 1;
    if found.lost.len() < LOST_MAX {
        found.lost.push(error.to_string());
    }
}

/// The blocks that a run of the map has in a segment, if any.
fn stored(run: &VersionRun<'_>) -> Option<StoredRun> {
    let BlockLocation::Direct { segment, at, stored: Stored::PLAIN } = run.location else { return None };
    let blocks = (run.first.0..=run.last().0).map(BlockIndex).map(|block| {
        let key = crate::format::BlockKey { branch: run.branch, block, stamp: run.birth };
        (key, run.checksum_of(block).expect("what is stored in a segment has a checksum"))
    });
    Some(StoredRun { segment, at: at.block(), blocks: blocks.collect() })
}
