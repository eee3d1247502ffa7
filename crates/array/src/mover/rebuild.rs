//! Rebuild: segments that lost a copy get a new one on another drive, outside the failure sets of the others.
//!
//! Sealed segments are copied (`copying`), or completed where a drive that came back still has a copy
//! (`old_copies`). Open segments wait until the log and the trees have moved on, which a rebuild triggers.

use super::{
    Mover,
    copying::{CopyGoal, CopyJob},
};
use crate::{
    error::Result,
    format::{
        RowKey, SegmentNumber,
        row::{SegmentRow, SegmentState},
    },
    log::LogItem,
    redundancy::SegmentLayout,
    simulation::sometimes::{Sometimes, UnderWay},
};
use std::{collections::VecDeque, rc::Rc};

/// Rounds without a copy, after which the rest is left for later.
const FRUITLESS_ROUNDS_MAX: u32 = 3;

/// Segments that lack copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DegradedSegments {
    /// Mirrored segments with a copy on an absent drive.
    pub segments: u64,
    /// Those of them that are still open and wait for the next checkpoint or two.
    pub still_written: u64,
    /// Segments of raid0 volumes on absent drives. They had one copy, so they cannot be rebuilt.
    pub lost: u64,
}

impl Mover {
    /// Segments that lack copies. Reads the rows of all segments.
    pub fn degraded(&self) -> DegradedSegments {
        let drives = &self.shared.drives;
        let state = self.shared.state.borrow();
        let mut degraded = DegradedSegments::default();
        for (_, row) in state.segments.iter() {
            let there = drives.copies_there(&row.slots);
            let segment = SegmentLayout::of(row);
            if !segment.scheme().is_redundant() {
                degraded.lost += u64::from(segment.is_lost(there));
            } else if segment.missing(there, drives.copies_wanted(row.kind)) > 0 {
                degraded.segments += 1;
                degraded.still_written += u64::from(row.state == SegmentState::Open);
            }
        }
        degraded
    }

    /// Makes the missing copies, as far as there is room, and returns when they are durable. The pool also
    /// does this in the background.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub async fn rebuild(self: &Rc<Self>) -> Result<()> {
        // The task continues if the caller is dropped: a write into a slot must not outlive the rebuild.
        let mover = Rc::clone(self);
        self.rebuild_held.set(None);
        self.shared.world.spawn("rebuild", async move { mover.rebuild_all().await }).await
    }

    /// As [`Self::rebuild`]. The future must not be dropped before it ends.
    pub(crate) async fn rebuild_all(&self) -> Result<()> {
        let _one_at_a_time = self.rebuilding.lock().await;
        let _running = self.rebuild_job.begin();
        let mut fruitless_rounds = 0;
        loop {
            self.shared.check_runs()?;
            // Updates the counters, which only this does.
            self.rebuild_progress();
            let under_way = UnderWay::begin(Sometimes::CutWhileRebuilding);
            let taken_over = self.take_over_old_copies().await;
            let jobs = self.with_old_copies(self.to_copy()).await;
            let copied = taken_over + self.copy_all(CopyGoal::Missing, jobs).await;
            under_way.end();
            let degraded = self.degraded();
            fruitless_rounds = if copied > 0 { 0 } else { fruitless_rounds + 1 };
            let is_over = degraded.segments == 0 || fruitless_rounds == FRUITLESS_ROUNDS_MAX;
            let is_cancelled = self.rebuild_job.is_cancelled();
            if copied == 0 && (is_over || is_cancelled || self.throttle.is_closed()) {
                return Ok(());
            }
            if copied == 0 && degraded.still_written > 0 {
                self.move_log_on().await?;
            }
            self.checkpoints.make().await?;
        }
    }

    /// Moves the log on to a segment that has all its copies, by logging a row again, in case no host writes.
    async fn move_log_on(&self) -> Result<()> {
        let _nobody_changes_it = self.shared.lock_changes().await;
        let row = {
            let state = self.shared.state.borrow();
            // The row with the highest number: another one may be removed before this is logged.
            state.catalogue.volumes().last().map(|(number, row)| (number, row.encode()))
        };
        // Without volumes the log is empty.
        let Some((number, bytes)) = row else { return Ok(()) };
        self.log.append(vec![LogItem::Put { row: RowKey::of_volume(number), bytes }]).await
    }

    fn to_copy(&self) -> VecDeque<CopyJob> {
        let drives = &self.shared.drives;
        let state = self.shared.state.borrow();
        let job = |(number, row): (SegmentNumber, &SegmentRow)| {
            // The next checkpoint frees a segment without live data.
            if row.state != SegmentState::Sealed || row.live_grains == 0 {
                return None;
            }
            let segment = SegmentLayout::of(row);
            let is_present = |member| drives.has(member);
            if segment.missing(drives.copies_there(&row.slots), drives.copies_wanted(row.kind)) == 0 {
                return None;
            }
            let lost = row.slots.iter().position(|slot| !is_present(slot.member));
            Some(CopyJob {
                goal: CopyGoal::Missing,
                number,
                segment_use: row.segment_use,
                plan: segment.plan_reconstruction(lost.unwrap_or(row.slots.len()), is_present)?,
                kept: row.slots.iter().copied().filter(|slot| is_present(slot.member)).collect(),
                replaced: lost.map(|index| row.slots[index]),
                target: None,
                old_copy: None,
            })
        };
        state.segments.iter().filter_map(job).collect()
    }
}
