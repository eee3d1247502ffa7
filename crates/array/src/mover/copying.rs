//! Copies of slots: missing ones, and those that replace slots on leaving or on fuller drives.
//!
//! Sealed segments are copied slot for slot, several at once, spread over the source and target drives. The
//! segment's row then refers to the new slot, durably with the next checkpoint. A crash before that leaves
//! the row unchanged, so only the work is repeated.
//!
//! Invariant: only one of the goals is pursued at a time (`rebuilding` is held), so no segment gets two new
//! slots at once.

use super::{Mover, old_copies::OldCopy};
use crate::{
    engine::{PARALLELISM_MAX, Purpose, Urgency},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, CheckpointNumber, MemberIndex, SegmentNumber, SegmentUse, SlotAddress, row::SegmentRow,
    },
    redundancy::{Placement, Reconstruction},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
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
    sync::Arc,
    time::Duration,
};
use world::{BoxedFuture, Job, Stability};

/// Window of segments from which the one with the least busy drives is chosen.
const CHOICE_WINDOW: usize = 64;
/// Copies written before their drives are flushed; one flush of a drive covers all of them.
const COMMIT_COPIES: usize = 16;
/// Slow copying flushes after so long.
const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// Checkpoints after which a slot that was moved is needed no more: the row of its segment may be part of
/// the one under way already.
pub(super) const CHECKPOINTS_KEPT: u64 = 2;

/// The purpose of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyGoal {
    /// The segment lacks a copy.
    Missing,
    /// A copy lies on a leaving drive.
    Leaving,
    /// A copy lies on a drive that is fuller than others.
    Level,
}

/// One copy to make.
#[derive(Clone, Debug)]
pub(super) struct CopyJob {
    pub goal: CopyGoal,
    pub number: SegmentNumber,
    pub segment_use: SegmentUse,
    pub plan: Reconstruction,
    /// Slots that the segment keeps: those on present drives.
    pub kept: Vec<SlotAddress>,
    /// The slot that the new one replaces; `None` if the segment was written with too few drives.
    pub replaced: Option<SlotAddress>,
    /// The drive of the new slot; `None` for any.
    pub target: Option<MemberIndex>,
    /// A slot with a copy of any age, to be completed.
    pub old_copy: Option<SlotAddress>,
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

impl CopyJob {
    /// True if the row is still that of the segment to copy, and has the slot to replace.
    fn is_still_wanted(&self, row: Option<&SegmentRow>) -> bool {
        row.is_some_and(|row| {
            let has_it = |replaced: &SlotAddress| row.slots.contains(replaced);
            row.segment_use == self.segment_use && self.replaced.as_ref().is_none_or(has_it)
        })
    }
}

impl Mover {
    fn job_of(&self, goal: CopyGoal) -> &Job {
        match goal {
            CopyGoal::Missing => &self.rebuild_job,
            CopyGoal::Leaving => &self.emptying_job,
            CopyGoal::Level => &self.levelling_job,
        }
    }

    /// Makes those of the copies that can be made now. Returns how many segments have a new slot.
    pub(super) async fn copy_all(&self, goal: CopyGoal, mut waiting: VecDeque<CopyJob>) -> u64 {
        let load = DriveLoad::default();
        let mut under_way = FuturesUnordered::<LocalBoxFuture<'_, Step>>::new();
        let (mut copies, mut uncommitted, mut copied) = (0, Vec::new(), 0);
        let mut committed_last = self.shared.world.now();
        loop {
            while copies < PARALLELISM_MAX
                && self.shared.check_runs().is_ok()
                && !self.job_of(goal).is_cancelled()
                && (goal != CopyGoal::Level || !self.is_levelling_postponed())
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

    /// Of the next few segments the one with the least busy drives, and a slot for it; `None` if none is left
    /// or there is no room.
    fn choose(&self, waiting: &mut VecDeque<CopyJob>, load: &DriveLoad) -> Option<(CopyJob, SlotAddress)> {
        let is_level = waiting.front().is_some_and(|job| job.goal == CopyGoal::Level);
        // Levelling looks at the room of each target.
        let has_room = is_level || self.shared.space().free_for(Purpose::Comfort) > 0;
        if waiting.is_empty() || !has_room {
            sometimes::reached_if(!has_room, Sometimes::RebuildWaitsForRoom);
            return None;
        }
        let load = |member: MemberIndex| load.borrow().get(&member).copied().unwrap_or(0);
        while !waiting.is_empty() {
            let window = 0..waiting.len().min(CHOICE_WINDOW);
            let next = window.min_by_key(|&index| waiting[index].plan.load(load))?;
            let mut job = waiting.remove(next)?;
            if job.goal == CopyGoal::Missing {
                job.plan.prefer_idle(load);
                return self.target_of(&job, load).map(|to| (job, to));
            }
            // Another slot may find room where this one does not.
            if let Some(to) = self.target_of(&job, load) {
                return Some((job, to));
            }
        }
        None
    }

    /// A new slot for the copy.
    fn target_of(&self, job: &CopyJob, load: impl Fn(MemberIndex) -> u32) -> Option<SlotAddress> {
        if let Some(target) = job.target {
            return self.level_slot_on(target, &job.kept);
        }
        let drives = &self.shared.drives;
        let (members, domains, sets) = (self.targets_of(job.goal), drives.domains(), drives.sets());
        let placement = Placement::on(&members, &domains).within(&sets);
        if let Some(old) = job.old_copy
            && members.contains(&old.member)
            && self.shared.state.borrow_mut().segments.take_known_slot(placement, old, &job.kept)
        {
            return Some(old);
        }
        let choices = placement.choices_beside(&job.kept);
        let segments = &mut self.shared.state.borrow_mut().segments;
        // Drives in the same set and in other domains first; if they have no room, any.
        choices.into_iter().find_map(|mut targets| {
            targets.sort_by_key(|&member| load(member));
            // The least busy drives first; if they have no room, any.
            let least = targets.first().map(|&member| load(member));
            let idle = targets.partition_point(|&member| Some(load(member)) == least);
            let mut allocate = |members: &[MemberIndex]| {
                segments.allocate_slot(Placement { members, ..placement }, &job.kept)
            };
            match job.goal {
                CopyGoal::Missing => allocate(&targets[..idle]).or_else(|| allocate(&targets)),
                // The emptiest drive: a new one gets what lay on the one that it replaces.
                CopyGoal::Leaving | CopyGoal::Level => allocate(&targets),
            }
        })
    }

    fn targets_of(&self, goal: CopyGoal) -> Vec<MemberIndex> {
        let drives = &self.shared.drives;
        match goal {
            CopyGoal::Missing => drives.members_for_new_data(),
            CopyGoal::Leaving | CopyGoal::Level => {
                drives.staying_members().into_iter().filter(|&member| drives.has_space(member)).collect()
            }
        }
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
                self.give_up_copy(&job, to, done_bytes);
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
            if !is_stable || !job.is_still_wanted(state.segments.row(job.number)) {
                drop(state);
                self.give_up_copy(&job, to, bytes);
                continue;
            }
            let kept_until = CheckpointNumber(state.checkpoint.0 + CHECKPOINTS_KEPT);
            match (job.goal, job.replaced) {
                (CopyGoal::Leaving, Some(leaving)) => {
                    state.segments.move_copy(job.number, (leaving, to), kept_until);
                    sometimes::reached(Sometimes::SlotMovedAway);
                }
                (CopyGoal::Level, Some(old)) => {
                    state.segments.move_copy(job.number, (old, to), kept_until);
                    sometimes::reached(Sometimes::SlotLevelled);
                }
                (_, Some(lost)) => state.segments.replace_slot(job.number, lost, to),
                (_, None) => state.segments.add_slot(job.number, to),
            }
            drop(state);
            self.job_of(job.goal).piece_ended(bytes);
            if job.goal == CopyGoal::Missing {
                sometimes::reached(Sometimes::CopyRebuilt);
                sometimes::reached_if(job.old_copy == Some(to), Sometimes::OldCopyCompleted);
                sometimes::reached_if(self.shared.rebuild_slots.get() > 0, Sometimes::SpareRoomUsed);
                self.shared.note_rebuilt(1);
            }
            committed += 1;
        }
        if committed > 0 {
            self.shared.note_unsaved_rows();
        }
        committed
    }

    fn give_up_copy(&self, job: &CopyJob, to: SlotAddress, bytes: u64) {
        self.job_of(job.goal).piece_ended(bytes);
        sometimes::reached(Sometimes::RebuildInVain);
        self.shared.state.borrow_mut().segments.give_back_slot(to);
        self.shared.demand.note_change();
    }

    fn copy_slot<'a>(
        &'a self,
        job: &'a CopyJob,
        to: SlotAddress,
        done_bytes: &'a mut u64,
    ) -> BoxedFuture<'a, Result<()>> {
        Box::pin(self.copy_whole_slot(job, to, done_bytes))
    }

    async fn copy_whole_slot(&self, job: &CopyJob, to: SlotAddress, done_bytes: &mut u64) -> Result<()> {
        let drives = &self.shared.drives;
        let blocks = u32::from(drives.geometry().slot_blocks());
        let urgency = match job.goal {
            CopyGoal::Missing => Urgency::Urgent,
            CopyGoal::Leaving | CopyGoal::Level => Urgency::CanWait,
        };
        if job.goal == CopyGoal::Level && canary::is(Canary::LevellingRecordsTheNewCopyFirst) {
            return Ok(());
        }
        let mut old_copy = OldCopy::of(job, to, self.shared.state.borrow().segments.row(job.number));
        let mut first = 0;
        while first < blocks {
            let permit = self.throttle.permit(urgency).await?;
            self.shared.check_runs()?;
            let count = permit.blocks_max.min(blocks - first);
            let bytes = count as usize * BLOCK_BYTES;
            permit.moves(2 * bytes);
            let is_stale = canary::is(Canary::RebuildReadsAStaleSlot);
            let stale = is_stale.then(|| Reconstruction::copy_of(job.plan.slot_index(), vec![to]));
            let plan = stale.as_ref().unwrap_or(&job.plan);
            let (data, unreadable) = drives.reconstruct(plan, first, count).await;
            if let Some(old) = &mut old_copy {
                let written = self.complete_old_copy(job, old, first, (data, unreadable)).await?;
                self.matched_bytes.set(self.matched_bytes.get() + bytes as u64 - written);
            } else {
                self.note_unreadable(unreadable);
                let write = drives.write(to, first, vec![Arc::new(data)], Stability::Volatile);
                self.on_target(to.member, write).await?;
            }
            *done_bytes += bytes as u64;
            self.job_of(job.goal).piece_done(bytes as u64);
            first += count;
        }
        Ok(())
    }

    pub(super) fn note_unreadable(&self, blocks: u32) {
        self.unreadable_blocks.set(self.unreadable_blocks.get() + u64::from(blocks));
    }

    /// Waits for an operation on a target. A drive that fails for any reason but lack of space is removed.
    pub(super) async fn on_target(
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
