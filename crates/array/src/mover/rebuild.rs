//! Rebuild: segments that lost a copy get a new one on another drive, outside the failure sets of the others.
//!
//! Sealed segments are copied slot for slot, several at once, spread over the source and target drives. The
//! segment's row then refers to the new slot, durably with the next checkpoint. A crash before that leaves
//! the row unchanged, so only the work is repeated. Open segments wait until the log and the trees have moved
//! on, which a rebuild triggers.

use super::Mover;
use crate::{
    engine::{PARALLELISM_MAX, Purpose, Urgency},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, MemberIndex, RowKey, SegmentNumber, SegmentUse, SlotAddress,
        row::{SegmentRow, SegmentState},
    },
    log::LogItem,
    redundancy::{Placement, Reconstruction, SegmentLayout},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes, UnderWay},
    },
};
use futures_util::{
    StreamExt,
    future::{LocalBoxFuture, join_all},
    stream::FuturesUnordered,
};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::Stability;

/// Window of segments from which the one with the least busy drives is chosen.
const CHOICE_WINDOW: usize = 64;
/// Copies written before their drives are flushed; one flush of a drive covers all of them.
const COMMIT_COPIES: usize = 16;
/// A slow rebuild flushes after so long.
const COMMIT_AFTER: Duration = Duration::from_secs(1);
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

/// One copy to make.
#[derive(Clone, Debug)]
struct CopyJob {
    number: SegmentNumber,
    segment_use: SegmentUse,
    plan: Reconstruction,
    /// Slots that the segment keeps: those on present drives.
    kept: Vec<SlotAddress>,
    /// The slot that the new one replaces; `None` if the segment was written with too few drives.
    lost: Option<SlotAddress>,
}

/// A copy that is written, but not stable yet.
struct WrittenCopy {
    job: CopyJob,
    to: SlotAddress,
    /// Counted as under way until it is committed.
    bytes: u64,
}

/// Result of one part of a round.
enum Step {
    Written(WrittenCopy),
    GivenUp,
    /// Copies committed.
    Committed(u64),
}

/// Copies under way from or to each drive.
type DriveLoad = RefCell<BTreeMap<MemberIndex, u32>>;

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
            let copied = self.copy_all().await;
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
        let _nobody_changes_it = self.shared.changing.lock().await;
        let row = {
            let state = self.shared.state.borrow();
            // The row with the highest number: another one may be removed before this is logged.
            state.catalogue.volumes().last().map(|(number, row)| (number, row.encode()))
        };
        // Without volumes the log is empty.
        let Some((number, bytes)) = row else { return Ok(()) };
        self.log.append(vec![LogItem::Put { row: RowKey::of_volume(number), bytes }]).await
    }

    /// Makes the copies that can be made now. Returns how many segments gained a copy.
    async fn copy_all(&self) -> u64 {
        let load = DriveLoad::default();
        let mut waiting = self.to_copy();
        let mut under_way = FuturesUnordered::<LocalBoxFuture<'_, Step>>::new();
        let (mut copies, mut uncommitted, mut copied) = (0, Vec::new(), 0);
        let mut committed_last = self.shared.world.now();
        loop {
            while copies < PARALLELISM_MAX
                && self.shared.check_runs().is_ok()
                && !self.rebuild_job.is_cancelled()
                && let Some((job, to)) = self.choose(&mut waiting, &load)
            {
                copies += 1;
                let load = &load;
                under_way.push(Box::pin(async move { self.copy_segment(job, to, load).await }));
            }
            let is_long_ago = self.shared.world.now().since(committed_last) >= COMMIT_AFTER;
            let is_time = uncommitted.len() >= COMMIT_COPIES || is_long_ago || copies == 0;
            if is_time && !uncommitted.is_empty() {
                committed_last = self.shared.world.now();
                let written = std::mem::take(&mut uncommitted);
                under_way.push(Box::pin(async move { Step::Committed(self.commit_copies(written).await) }));
            }
            match under_way.next().await {
                Some(Step::Written(copied)) => {
                    copies -= 1;
                    uncommitted.push(copied);
                }
                // The drive was removed; the next round finds a new target.
                Some(Step::GivenUp) => copies -= 1,
                Some(Step::Committed(count)) => copied += count,
                None => return copied,
            }
        }
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
                number,
                segment_use: row.segment_use,
                plan: segment.plan_reconstruction(lost.unwrap_or(row.slots.len()), is_present)?,
                kept: row.slots.iter().copied().filter(|slot| is_present(slot.member)).collect(),
                lost: lost.map(|index| row.slots[index]),
            })
        };
        state.segments.iter().filter_map(job).collect()
    }

    /// Of the next few segments the one with the least busy drives, and a slot for it; `None` if none is left
    /// or there is no room.
    fn choose(&self, waiting: &mut VecDeque<CopyJob>, load: &DriveLoad) -> Option<(CopyJob, SlotAddress)> {
        let space = self.shared.space();
        let has_room = space.free_for(Purpose::Comfort) > 0;
        if waiting.is_empty() || !has_room {
            sometimes::reached_if(!has_room, Sometimes::RebuildWaitsForRoom);
            return None;
        }
        let load = |member: MemberIndex| load.borrow().get(&member).copied().unwrap_or(0);
        let window = 0..waiting.len().min(CHOICE_WINDOW);
        let next = window.min_by_key(|&index| waiting[index].plan.load(load))?;
        let mut job = waiting.remove(next)?;
        job.plan.prefer_idle(load);
        let members = self.shared.drives.members_with_space();
        let placement = Placement::on(&members);
        let mut targets: Vec<MemberIndex> = placement.apart_from(&job.kept).collect();
        targets.sort_by_key(|&member| load(member));
        // The least busy drives first; if they have no room, any.
        let least = targets.first().map(|&member| load(member));
        let idle = targets.partition_point(|&member| Some(load(member)) == least);
        let segments = &mut self.shared.state.borrow_mut().segments;
        let mut allocate =
            |members: &[MemberIndex]| segments.allocate_slot(Placement { members, ..placement }, &job.kept);
        let to = allocate(&targets[..idle]).or_else(|| allocate(&targets))?;
        Some((job, to))
    }

    /// Writes a copy, not yet stable.
    async fn copy_segment(&self, job: CopyJob, to: SlotAddress, load: &DriveLoad) -> Step {
        let members: Vec<MemberIndex> = job.plan.drives_read().chain([to.member]).collect();
        for &member in &members {
            *load.borrow_mut().entry(member).or_default() += 1;
        }
        let mut done_bytes = 0;
        let copied = self.copy_slot(&job, to, &mut done_bytes).await;
        for member in &members {
            *load.borrow_mut().get_mut(member).expect("it was counted") -= 1;
        }
        match copied {
            Ok(()) => Step::Written(WrittenCopy { job, to, bytes: done_bytes }),
            Err(_) => {
                self.give_up_copy(to, done_bytes);
                Step::GivenUp
            }
        }
    }

    /// Commits copies: flushes each target drive once and updates the segments' rows. Readers in memory use
    /// the new copies from then on. On disk they count with the next checkpoint; until then an opening knows
    /// the old copies only. Returns how many rows changed.
    async fn commit_copies(&self, written: Vec<WrittenCopy>) -> u64 {
        let members: BTreeSet<MemberIndex> = written.iter().map(|copied| copied.to.member).collect();
        let flushes = members.into_iter().map(async |member| {
            let flush = self.shared.drives.device(member).map(|device| device.flush());
            self.on_target(member, flush).await.is_ok().then_some(member)
        });
        let stable: BTreeSet<MemberIndex> = join_all(flushes).await.into_iter().flatten().collect();
        let mut committed = 0;
        for WrittenCopy { job, to, bytes } in written {
            let is_stable = stable.contains(&to.member) && self.shared.drives.has(to.member);
            let mut state = self.shared.state.borrow_mut();
            // The segment may have become free meanwhile.
            let is_it = state.segments.row(job.number).is_some_and(|row| row.segment_use == job.segment_use);
            if !is_stable || !is_it {
                drop(state);
                self.give_up_copy(to, bytes);
                continue;
            }
            match job.lost {
                Some(lost) => state.segments.replace_slot(job.number, lost, to),
                None => state.segments.add_slot(job.number, to),
            }
            drop(state);
            self.rebuild_job.piece_ended(bytes);
            sometimes::reached(Sometimes::CopyRebuilt);
            committed += 1;
        }
        if committed > 0 {
            self.shared.note_unsaved_rows();
        }
        committed
    }

    fn give_up_copy(&self, to: SlotAddress, bytes: u64) {
        self.rebuild_job.piece_ended(bytes);
        sometimes::reached(Sometimes::RebuildInVain);
        self.shared.state.borrow_mut().segments.give_back_slot(to);
        self.shared.demand.note_change();
    }

    async fn copy_slot(&self, job: &CopyJob, to: SlotAddress, done_bytes: &mut u64) -> Result<()> {
        let drives = &self.shared.drives;
        let blocks = u32::from(drives.geometry().slot_blocks());
        let mut first = 0;
        while first < blocks {
            let permit = self.throttle.permit(Urgency::Urgent).await?;
            self.shared.check_runs()?;
            let count = permit.blocks_max.min(blocks - first);
            let bytes = count as usize * BLOCK_BYTES;
            permit.moves(2 * bytes);
            let is_stale = canary::is(Canary::RebuildReadsAStaleSlot);
            let stale = is_stale.then(|| Reconstruction::copy_of(job.plan.slot_index(), vec![to]));
            let plan = stale.as_ref().unwrap_or(&job.plan);
            let (data, unreadable) = drives.reconstruct(plan, first, count).await;
            self.unreadable_blocks.set(self.unreadable_blocks.get() + u64::from(unreadable));
            let write = drives.write(to, first, vec![Arc::new(data)], Stability::Volatile);
            self.on_target(to.member, write).await?;
            *done_bytes += bytes as u64;
            self.rebuild_job.piece_done(bytes as u64);
            first += count;
        }
        Ok(())
    }

    /// Waits for an operation on a target. A drive that fails for any reason but lack of space is removed.
    async fn on_target(
        &self,
        member: MemberIndex,
        begun: Option<world::LocalFuture<world::IoResult<()>>>,
    ) -> Result<()> {
        let drives = &self.shared.drives;
        let Some(begun) = begun else {
            return Err(Error::TooFewDrives { present: drives.members().len(), needed: 2 });
        };
        let Err(error) = begun.await else { return Ok(()) };
        self.shared.failed_to_write(vec![(member, error.clone())]).await?;
        Err(Error::Drive { member, error })
    }
}
