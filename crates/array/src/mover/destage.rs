//! Destaging: blocks of raid0 volumes are moved from the mirrored log to segments of one copy.
//!
//! Every write is mirrored in the log, so that acknowledged data survives the loss of a drive. Blocks that
//! are still live a minute later are moved out of segments that the log has left, oldest first, as fast as
//! the throttle allows, and immediately when space is short. Blocks of other volumes stay. A segment that
//! held both is then partly dead, and is cleaned like any other.

use super::{CleaningResult, Mover, victim::Selection};
use crate::{
    engine::Purpose,
    error::Result,
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, BlockLocation, GRAIN_BYTES, NodeKey, SegmentKind, SegmentNumber,
        SegmentUse, TreeKind, VersionRun, row::SegmentState,
    },
    log::room_blocks,
    redundancy::{Raid0, RedundancyScheme},
};
use std::{collections::BTreeSet, ops::ControlFlow};

/// Victims of one round, at most: each is read through.
const VICTIMS_MAX: usize = 32;

impl Mover {
    /// Destages all blocks of raid0 volumes from segments that the log has left, as far as there is room, and
    /// returns when their old locations are free. The pool also does this in the background.
    ///
    /// # Errors
    ///
    /// A segment cannot be written or read. No data is lost.
    pub async fn destage(&self) -> Result<CleaningResult> {
        self.checkpoints.make().await?;
        self.destage_before(self.use_next(), 1).await
    }

    /// As [`Self::destage`], for segments allocated before `before`, and only once their live blocks fill a
    /// segment.
    pub(crate) async fn destage_older(&self, before: SegmentUse) -> Result<CleaningResult> {
        self.destage_before(before, self.room_grains()).await
    }

    /// The number of the next segment allocation.
    pub(crate) fn use_next(&self) -> SegmentUse {
        self.shared.state.borrow().segments.use_next()
    }

    async fn destage_before(&self, before: SegmentUse, grains_min: u64) -> Result<CleaningResult> {
        let _running = self.destage_job.begin();
        self.destage_job.set_total(self.destageable_bytes(before));
        let mut done = CleaningResult::default();
        while !self.destage_job.is_cancelled() {
            let round = {
                let _one_round_at_a_time = self.cleaning.lock().await;
                self.shared.check_runs()?;
                self.destage_round(before, grains_min).await?
            };
            let Some(round) = round else { break };
            done.segments += round.segments;
            done.blocks += round.blocks;
            self.destage_job.advance(round.blocks * BLOCK_BYTES as u64);
            self.checkpoints.make().await?;
        }
        Ok(done)
    }

    /// Live bytes in the segments of the backlog, at most as many as one round has room for.
    fn destageable_bytes(&self, before: SegmentUse) -> u64 {
        let victims = self.destage_victims(before);
        let state = self.shared.state.borrow();
        let rows = victims.iter().filter_map(|&number| state.segments.row(number));
        rows.map(|row| u64::from(row.live_grains)).sum::<u64>() * GRAIN_BYTES as u64
    }

    /// One round; `None` if fewer than `grains_min` grains are to be moved.
    pub(super) async fn destage_round(
        &self,
        before: SegmentUse,
        grains_min: u64,
    ) -> Result<Option<CleaningResult>> {
        self.complete_backlog().await?;
        let victims = self.destage_victims(before);
        let live = |number: &SegmentNumber| {
            self.shared.state.borrow().segments.row(*number).map_or(0, |row| u64::from(row.live_grains))
        };
        if victims.iter().map(live).sum::<u64>() < grains_min {
            return Ok(None);
        }
        let done = self.empty(&victims, Selection::Raid0).await?;
        // The log has left them, so no further block of a raid0 volume comes to lie in them.
        let backlog = &mut self.shared.state.borrow_mut().backlog;
        backlog.segments.retain(|segment| !victims.contains(segment));
        Ok(Some(done))
    }

    /// The next victims, oldest first: as many as there is room for.
    pub(super) fn destage_victims(&self, before: SegmentUse) -> Vec<SegmentNumber> {
        let (free, room_grains) = (self.shared.space().free_for(Purpose::Upkeep), self.room_grains());
        let drives = &self.shared.drives;
        let copies = drives.copies_wanted(SegmentKind::Data);
        let mut state = self.shared.state.borrow_mut();
        if copies < 2 || state.backlog.is_empty() {
            return Vec::new();
        }
        let state = &mut *state;
        let (segments, unreadable) = (&state.segments, &state.unreadable);
        let may_hold_some = |number: &SegmentNumber| {
            segments.row(*number).is_some_and(|row| row.kind != SegmentKind::Nodes && row.shape.is_mirror())
                && !unreadable.contains(number)
        };
        state.backlog.segments.retain(may_hold_some);
        let is_left = |number: &SegmentNumber| {
            let row = segments.row(*number).expect("looked at above");
            let is_old = row.state == SegmentState::Sealed && row.segment_use < before;
            is_old && row.live_grains > 0 && drives.copies_there(&row.slots) > 0
        };
        let mut victims: Vec<_> = state.backlog.segments.iter().copied().filter(is_left).collect();
        victims.sort_by_key(|number| segments.row(*number).map(|row| row.segment_use));
        let mut room = free.div_ceil(2) * room_grains;
        let fits = victims.iter().take(VICTIMS_MAX).take_while(|number| {
            let live = segments.row(**number).map_or(0, |row| u64::from(row.live_grains));
            let fits = live <= room;
            room = room.saturating_sub(live);
            fits
        });
        let count = fits.count();
        victims.truncate(count);
        victims
    }

    /// Grains that fit into one data segment.
    fn room_grains(&self) -> u64 {
        let shape = Raid0.shape(self.shared.drives.geometry().slot_blocks(), 1);
        u64::from(room_blocks(shape)) * BLOCK_GRAINS as u64
    }

    /// Adds segments logged before the pool was opened. Scans the maps of all raid0 volumes, once.
    async fn complete_backlog(&self) -> Result<()> {
        let (branches, roots, _reading) = {
            let state = self.shared.state.borrow();
            if state.backlog.is_complete {
                return Ok(());
            }
            let reading = self.shared.begin_reading();
            (state.catalogue.raid0_branches().collect::<Vec<_>>(), state.roots, reading)
        };
        let mut found = BTreeSet::new();
        for branch in branches {
            let [from, to] = [NodeKey::begin_of(branch), NodeKey::end_of(branch)];
            for (tree, root) in [(TreeKind::Head, roots.head), (TreeKind::History, roots.history)] {
                let visit = |run: &VersionRun<'_>| {
                    if let BlockLocation::Direct { segment, .. } = run.location {
                        found.insert(segment);
                    }
                    ControlFlow::Continue(())
                };
                self.map.trees.scan(tree, root, from, to, visit).await?;
            }
        }
        let backlog = &mut self.shared.state.borrow_mut().backlog;
        backlog.segments.extend(found);
        backlog.is_complete = true;
        Ok(())
    }
}
