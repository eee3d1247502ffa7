//! Emptying: what lies on drives that leave is copied elsewhere; a drive on which nothing lies gives up its
//! vote, and is let go.
//!
//! 1. The log moves on to segments on other drives, and checkpoints close the open segments of nodes.
//! 2. Sealed segments are copied slot for slot (`copying`), from the leaving drive itself: a copy of another
//!    drive that has gone bad must not replace the last good one.
//! 3. A slot becomes free when a checkpoint without it is complete, and its readers are done.
//! 4. When all slots of the drive are free, a generation takes its vote (`membership`).
//!
//! Missing copies are made first. Everything may be interrupted: the row says *leaving*, and the next opening
//! goes on.

use super::{
    Mover,
    copying::{CopyGoal, CopyJob},
};
use crate::{
    engine::{
        Purpose,
        events::{BackgroundTask, EventKind},
        spawn_repeated,
    },
    error::Result,
    format::{
        DriveId, MemberIndex, SegmentNumber,
        row::{SegmentRow, SegmentState},
    },
    redundancy::{Reconstruction, SegmentLayout},
    simulation::{
        canary::{self, Canary},
        sometimes::{Sometimes, UnderWay},
    },
};
use std::{
    collections::{BTreeSet, VecDeque},
    rc::Rc,
    time::Duration,
};
use world::Moment;

/// Slots of one round: a checkpoint follows, and missing copies have their turn.
const ROUND_SLOTS: usize = 128;
/// Rounds without a change, after which the rest is left for later.
const FRUITLESS_ROUNDS_MAX: u32 = 3;
/// Pause before another attempt, when nothing could be copied.
const EMPTY_AGAIN: Duration = Duration::from_secs(5);

/// A drive that is present and leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingDrive {
    pub drive: DriveId,
    /// Bytes of its slots in use.
    pub left_bytes: u64,
    pub problem: Option<EmptyingProblem>,
}

/// A reason why a drive cannot be emptied at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyingProblem {
    /// The other drives present are fewer than the copies.
    TooFewDrives { others: usize, copies: usize },
    /// Only the reserve is left on the others.
    NoRoom,
}

impl Mover {
    /// Starts the background task, unless it runs. To be called when a drive leaves.
    pub(crate) fn begin_emptying(self: &Rc<Self>) {
        if !self.is_emptying.replace(true) {
            let empty = async |mover: &Self| mover.empty_some().await;
            spawn_repeated(("array emptying", BackgroundTask::Emptying), self, empty);
        }
        self.log.move_on();
        self.shared.wakes.wake(BackgroundTask::Emptying);
    }

    /// The drives that leave, and what lies on them.
    pub fn leaving(&self) -> Vec<LeavingDrive> {
        let shared = &self.shared;
        let slot_bytes = u64::from(shared.drives.geometry().slot_bytes);
        let problem = self.emptying_problem();
        let drive = |member: MemberIndex| {
            let used = shared.state.borrow().segments.slots_of(member).1;
            LeavingDrive {
                drive: shared.superblock.borrow().members[usize::from(member.0)].drive,
                left_bytes: used * slot_bytes,
                problem,
            }
        };
        shared.drives.leaving_members().into_iter().map(drive).collect()
    }

    pub(super) fn emptying_problem(&self) -> Option<EmptyingProblem> {
        let drives = &self.shared.drives;
        let (others, copies) = (drives.staying_members().len(), drives.copies().most());
        if others < copies {
            return Some(EmptyingProblem::TooFewDrives { others, copies });
        }
        (self.shared.space().free_for(Purpose::Comfort) == 0).then_some(EmptyingProblem::NoRoom)
    }

    /// Counts what is left to do.
    pub(super) fn count_leaving(&self) {
        let slot_bytes = u64::from(self.shared.drives.geometry().slot_bytes);
        self.emptying_job.set_lacking(self.used_on_leaving() * slot_bytes);
    }

    /// Empties the leaving drives as far as that is possible now. Returns the moment at which the rest is
    /// tried again.
    async fn empty_some(&self) -> Result<Option<Moment>> {
        let drives = &self.shared.drives;
        // Emptying that was cancelled waits for a drive to come or go.
        if drives.leaving_members().is_empty() || self.emptying_held.get() == Some(drives.changes()) {
            return Ok(None);
        }
        let emptied = self.empty_all().await;
        self.shared.report_outcome(BackgroundTask::Emptying, &emptied)?;
        Ok(Some(self.shared.world.now() + EMPTY_AGAIN))
    }

    async fn empty_all(&self) -> Result<()> {
        let _one_at_a_time = self.emptying.lock().await;
        let _running = self.emptying_job.begin();
        let under_way = UnderWay::begin(Sometimes::CutWhileEmptying);
        let mut fruitless_rounds = 0;
        while fruitless_rounds < FRUITLESS_ROUNDS_MAX
            && !self.emptying_job.is_cancelled()
            && !self.throttle.is_closed()
        {
            self.shared.check_runs()?;
            self.let_go_of_empty().await?;
            self.count_leaving();
            let before = self.used_on_leaving();
            let is_hindered = matches!(self.emptying_problem(), Some(EmptyingProblem::TooFewDrives { .. }));
            if self.shared.drives.leaving_members().is_empty() || is_hindered {
                break;
            }
            let copied = {
                let _no_rebuild = self.rebuilding.lock().await;
                self.copy_all(CopyGoal::Leaving, self.to_move()).await
            };
            if canary::is(Canary::RetiredDriveHasTheLastCopy) {
                // Before the checkpoint below.
                self.let_go_of_empty().await?;
            }
            if self.is_log_on_leaving() {
                self.log.move_on();
            }
            // Copies count from this checkpoint on; it also closes the segments that are still open.
            self.checkpoints.make().await?;
            self.checkpoints.release_held();
            let is_less = self.used_on_leaving() < before;
            fruitless_rounds = if copied > 0 || is_less { 0 } else { fruitless_rounds + 1 };
        }
        under_way.end();
        Ok(())
    }

    /// Slots in use on leaving drives.
    fn used_on_leaving(&self) -> u64 {
        let state = self.shared.state.borrow();
        let leaving = self.shared.drives.leaving_members();
        leaving.into_iter().map(|member| state.segments.slots_of(member).1).sum()
    }

    /// True if the log is, or may continue, on a leaving drive.
    fn is_log_on_leaving(&self) -> bool {
        let state = self.shared.state.borrow();
        let rows = self.log.segments_in_use().into_iter().filter_map(|number| state.segments.row(number));
        let mut slots = rows.flat_map(|row| &row.slots);
        slots.any(|slot| self.shared.drives.is_leaving(slot.member))
    }

    /// The next slots to copy. The next checkpoint frees segments without live data, unless they are pinned.
    fn to_move(&self) -> VecDeque<CopyJob> {
        let drives = &self.shared.drives;
        let pinned: BTreeSet<SegmentNumber> = self.shared.subscribers.pins.segments();
        let state = self.shared.state.borrow();
        let job = |(number, row): (SegmentNumber, &SegmentRow)| {
            let is_needed = row.live_grains > 0 || pinned.contains(&number);
            if row.state != SegmentState::Sealed || !is_needed {
                return None;
            }
            let index = row.slots.iter().position(|slot| drives.is_leaving(slot.member))?;
            let leaving = row.slots[index];
            let kept: Vec<_> = row
                .slots
                .iter()
                .copied()
                .filter(|&slot| slot != leaving && drives.has(slot.member))
                .collect();
            // A raid0 segment of several slots, which nothing allocates, has no copies in its other slots.
            let others = if SegmentLayout::of(row).scheme().is_redundant() { &kept[..] } else { &[] };
            let plan = Reconstruction::moved(index, [&[leaving], others].concat());
            Some(CopyJob {
                goal: CopyGoal::Leaving,
                number,
                segment_use: row.segment_use,
                plan,
                kept,
                replaced: Some(leaving),
                target: None,
                old_copy: None,
            })
        };
        state.segments.iter().filter_map(job).take(ROUND_SLOTS).collect()
    }

    /// Takes the votes of leaving drives on which nothing lies, and lets them go.
    async fn let_go_of_empty(&self) -> Result<()> {
        for member in self.shared.drives.leaving_members() {
            if !self.shared.state.borrow().segments.has_nothing_on(member) {
                continue;
            }
            // No verb changes the members meanwhile.
            let _nobody_changes_them = self.shared.lock_changes().await;
            let drive = self.shared.drive_name(member);
            if self.shared.publish_departure(member).await? {
                self.count_leaving();
                self.shared.events.report(EventKind::DriveLeft { drive });
                self.shared.note_drive_change();
            }
        }
        Ok(())
    }
}
