//! Space accounting: how much there is, how much data may fill, and which purposes may take a segment.
//!
//! A pool is full when data fills `usable_bytes`. Beyond that some segments' worth of space stays unfilled,
//! spread over any segments: enough for every round of cleaning to gain a segment. Overwrites, which add
//! nothing, therefore continue in a full pool.
//!
//! Hosts may not use the reserve. It is for checkpoints, cleaning and deletions, so that a full pool can
//! still be opened and emptied. Near the reserve host writes are delayed, more so the less is left, so that
//! cleaning keeps up. `admission` decides which writes are admitted.
//!
//! Sparing keeps room for lost drives out of all this: the *spare* is as large as the largest drives, as many as
//! the superblock says, and lies on all of them. A loss makes the spare smaller, so what hosts can store stays the
//! same. The room that the missing copies of a lost drive take stays closed to hosts until they are made.
//!
//! Each [`Purpose`] leaves a part of the reserve to those after it. The last third is for checkpoints alone,
//! and for the opening, which makes one: that takes a log segment and fewer segments for nodes than the trees
//! occupy. It frees what the previous incarnation had under way, so a pool can be reopened after any number
//! of crashes, even without one of three drives, whose slots were a third of the free ones.

use super::{
    Urgency,
    shared::{Shared, State},
};
use crate::{
    format::{
        BLOCK_GRAINS, GRAIN_BYTES, MemberIndex, MirroredSegment, RedundancyClass, SegmentKind,
        segment::SUCCESSORS_MAX,
    },
    log::room_blocks,
    redundancy::{Placement, scheme_of_class},
};
use std::time::Duration;

/// Reserve as percent of all segments, and its minimum, which is capped at a third.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_SEGMENTS_MIN: u64 = 32;
/// Victims of one round of cleaning, at most: the checkpoint after the round frees them all at once.
pub(crate) const VICTIMS_MAX: usize = 512;
/// Minimum share of segments that data leaves unfilled, in percent.
const UNFILLED_PERCENT: u64 = 2;
/// Segments that are always open, so that data cannot fill them: the log's and its successors, those of nodes
/// and of the catalogue.
const OPEN_SEGMENTS: u64 = 1 + SUCCESSORS_MAX as u64 + 2;
/// Segments of the upkeep's share that the widest round leaves to the log, which records the moves; and the
/// number of target segments whose moves fill one log segment.
const WIDEST_ROUND_LEAVES: u64 = 3;
const TARGETS_A_LOG_SEGMENT: u64 = 64;
/// Host writes are delayed when no more than this is free beyond the reserve, in percent of all segments,
/// with a minimum.
const NEAR_PERCENT: u64 = 2;
const NEAR_SEGMENTS_MIN: u64 = 2;
/// Multiples of that: segments that a checkpoint leaves to hosts, and limits below which cleaning runs, and a
/// checkpoint is made early.
const CHECKPOINT_LEAVES_NEAR: u64 = 2;
const CLEAN_NEAR: u64 = 3;
const CHECKPOINT_NEAR: u64 = 4;
/// Multiple below which mostly dead segments are cleaned, if there are many: with less space each checkpoint
/// costs more.
const EARLY_NEAR: u64 = 6;
/// The longest delay of a write. The delay grows with the square of the missing space.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// Space of a pool: segments, and bytes of host data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// All segments on present drives, without the spare.
    pub segments: u64,
    /// Empty segments, of the spare and others.
    pub free: u64,
    /// Segments that are kept for the loss of drives.
    pub spare: u64,
    /// Segments that the missing copies of lost drives will take.
    pub rebuild: u64,
    /// Segments that hosts may not use.
    pub reserve: u64,
    /// The most that hosts can store, in bytes: mirrored data with all copies, raid0 data with one. The pool
    /// is full then.
    pub usable_bytes: u64,
    /// Live host data, in bytes, as of the last checkpoint, plus everything written since.
    pub used_bytes: u64,
}

/// Numbers that change when segments have to be counted again: changes of slots, changes of drives, and the drives
/// for which room is kept.
pub type SpaceBasis = (u64, u64, u8);

/// Usage alarms, with their levels in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// Time to order drives.
    Full80 = 80,
    /// Time to add them.
    Full90 = 90,
    /// Writes will soon be refused.
    Full95 = 95,
    /// Nothing more can be stored.
    Full100 = 100,
}

/// Purposes of a segment, in ascending priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Writes of hosts.
    Hosts,
    /// Deferrable: rebuilding copies, successors of the log, new volumes and snapshots.
    Comfort,
    /// Work that frees space: cleaning, and the log, for deletions.
    Upkeep,
    /// Checkpoints, and the opening.
    Checkpoint,
}

impl PoolSpace {
    /// The room of so many segments, before usage is known.
    pub(super) fn of_segments(segments: u64, free: u64) -> Self {
        let reserve = (segments * RESERVE_PERCENT / 100).max(RESERVE_SEGMENTS_MIN).min(segments / 3);
        Self { segments, free, spare: 0, rebuild: 0, reserve, usable_bytes: 0, used_bytes: 0 }
    }

    /// The same with `spare` of the segments kept for the loss of drives.
    pub(super) fn without_spare(self, spare: u64) -> Self {
        assert!(spare <= self.segments, "a part of all: {spare}, {self:?}");
        Self { spare, ..Self::of_segments(self.segments - spare, self.free) }
    }

    /// Free segments that `purpose` may not use.
    pub(crate) fn left_by(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Hosts => self.reserve + self.spare + self.rebuild,
            Purpose::Comfort => self.reserve / 2 + self.spare,
            Purpose::Upkeep => self.reserve.div_ceil(3),
            Purpose::Checkpoint => 0,
        }
    }

    /// Free segments that `purpose` may use.
    pub(crate) fn free_for(&self, purpose: Purpose) -> u64 {
        self.free.saturating_sub(self.left_by(purpose))
    }

    /// Segments that the widest round of cleaning may fill.
    pub(crate) fn widest_round(&self) -> u64 {
        let left = self.free_for(Purpose::Upkeep).saturating_sub(WIDEST_ROUND_LEAVES);
        (left - left.div_ceil(TARGETS_A_LOG_SEGMENT)).min(VICTIMS_MAX as u64 - 1)
    }

    /// Segments that data may fill, if nodes occupy `node_segments`. At that level so many are dead or empty
    /// that the widest round within the reserve gains one: with n equally live segments, t + 1 fit into t if
    /// n / t are dead.
    pub(super) fn fillable(&self, node_segments: u64) -> u64 {
        let at_full = Self { free: self.reserve, spare: 0, rebuild: 0, ..*self };
        let open = OPEN_SEGMENTS + node_segments;
        let left = self.segments.saturating_sub(self.reserve);
        let dead = left.saturating_sub(open).div_ceil(at_full.widest_round().max(1)) + 1;
        left.saturating_sub((open + dead).max(self.segments * UNFILLED_PERCENT / 100))
    }

    /// True if cleaning cannot make room for more data.
    pub fn is_full(&self) -> bool {
        self.used_bytes >= self.usable_bytes
    }

    /// Percentage of the usable space in use.
    pub fn used_percent(&self) -> f64 {
        self.used_bytes as f64 / self.usable_bytes.max(1) as f64 * 100.0
    }

    /// The current alarm.
    pub fn alarm(&self) -> Option<Alarm> {
        let levels = [Alarm::Full100, Alarm::Full95, Alarm::Full90, Alarm::Full80];
        levels.into_iter().find(|&level| self.used_bytes * 100 >= self.usable_bytes * level as u64)
    }

    /// Delay of a write that lets cleaning keep up.
    pub(crate) fn delay(&self) -> Duration {
        let near = self.near();
        let missing = (near - self.free_for(Purpose::Hosts).min(near)) as f64 / near as f64;
        DELAY_MAX.mul_f64(missing * missing)
    }

    /// True if writes are delayed.
    pub(crate) fn is_held_up(&self) -> bool {
        self.free_for(Purpose::Hosts) <= self.near()
    }

    /// Urgency of cleaning: awaited if hosts are delayed. Before that it yields to them, since a pool in use is
    /// near the limit most of the time, and blocks that are left alone die.
    pub(crate) fn cleaning_urgency(&self) -> Urgency {
        if self.is_held_up() { Urgency::Awaited } else { Urgency::CanWait }
    }

    /// True if segments should be cleaned now; a write waits for `wanted` segments.
    pub(crate) fn wants_cleaning(&self, wanted: u64) -> bool {
        self.free_for(Purpose::Hosts) <= (CLEAN_NEAR * self.near()).max(wanted)
    }

    /// True if segments may be cleaned ahead of need, provided it is cheap.
    pub(crate) fn may_clean_early(&self) -> bool {
        self.free_for(Purpose::Hosts) <= EARLY_NEAR * self.near()
    }

    /// True if a checkpoint should free overwritten blocks, provided there are many.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.free_for(Purpose::Hosts) <= CHECKPOINT_NEAR * self.near()
    }

    /// Segments of log that justify a checkpoint: a few, or as many as are left.
    pub(crate) fn checkpoint_after(&self) -> u64 {
        let left = self.free_for(Purpose::Hosts).saturating_sub(CHECKPOINT_LEAVES_NEAR * self.near());
        left.max(self.near() / 2)
    }

    /// Segments that one round of cleaning should gain. One checkpoint frees them all.
    pub(crate) fn cleaning_round(&self) -> u64 {
        2 * self.near()
    }

    /// Free segments below which writes are delayed.
    pub(crate) fn near(&self) -> u64 {
        (self.segments * NEAR_PERCENT / 100).max(NEAR_SEGMENTS_MIN)
    }
}

impl Shared {
    /// Current space. Cheap: the rows are counted only after slots were taken or freed.
    pub fn space(&self) -> PoolSpace {
        let state = self.state.borrow();
        let kept_drives = self.superblock.borrow().sparing().kept_drives;
        let as_of = (state.segments.slot_changes(), self.drives.changes(), kept_drives);
        let known = self.space_counted.get().filter(|(known, _)| *known == as_of);
        let (_, room) = known.unwrap_or_else(|| {
            let counted = (as_of, self.count_room(&state));
            self.space_counted.set(Some(counted));
            counted
        });
        debug_assert_eq!(room, self.count_room(&state), "what is known as of {as_of:?}");
        let shape = self.drives.mirror_shape(self.drives.copies().data);
        let grains = |blocks: u32| u64::from(blocks) * BLOCK_GRAINS as u64;
        let node_segments = state.segments.node_grains().div_ceil(grains(shape.data_blocks()));
        let usable_grains =
            room.fillable(node_segments) * grains(room_blocks(shape)) + self.saved_grains(&state);
        let in_tables = state.table.added() + state.merging.as_ref().map_or(0, |table| table.added());
        let in_trees = state.segments.live_grains();
        // Overwritten versions stay in the trees until the next checkpoint. Admission ensures that no more
        // than the usable space is in use.
        let used_grains = (in_trees + u64::try_from(in_tables).unwrap_or(0)).min(usable_grains.max(in_trees));
        let [used_bytes, usable_bytes] =
            [used_grains, usable_grains].map(|grains| grains * GRAIN_BYTES as u64);
        PoolSpace { used_bytes, usable_bytes, rebuild: self.rebuild_segments(), ..room }
    }

    /// Segments that the missing copies of lost drives will take, of the room that was kept for them.
    fn rebuild_segments(&self) -> u64 {
        self.rebuild_slots.get().div_ceil(self.drives.copies().most().max(1) as u64)
    }

    /// Keeps the room that was spared for `lost` drives to their missing copies, until those are made.
    pub(super) fn keep_room_to_rebuild(&self, used_slots: u64, spare_before: u64) {
        let spare = self.space().spare;
        let spent = spare_before.saturating_sub(spare) * self.drives.copies().most() as u64;
        self.rebuild_slots.set(self.rebuild_slots.get() + used_slots.min(spent));
    }

    /// A missing copy was made; or all were.
    pub(crate) fn note_rebuilt(&self, slots: u64) {
        self.rebuild_slots.set(self.rebuild_slots.get().saturating_sub(slots));
    }

    /// Grains that raid0 data saves compared with mirrored data. Raid0 data on an absent drive takes no space
    /// at all.
    pub(super) fn saved_grains(&self, state: &State) -> u64 {
        let drives = &self.drives;
        let copies = drives.copies_wanted(SegmentKind::Data).max(1) as u64;
        let saved = |(member, grains): (MemberIndex, u64)| {
            if drives.has(member) { grains * (copies - 1) / copies } else { grains }
        };
        state.segments.raid0_grains().map(saved).sum()
    }

    /// Counts segments.
    fn count_room(&self, state: &State) -> PoolSpace {
        let copies = self.drives.copies().most();
        let members = self.drives.members_with_room();
        let segments = state.segments.all_segments(copies, &members);
        let free = state.segments.free_segments(copies, &self.drives.members_for_new_data());
        let kept_drives = self.superblock.borrow().sparing().kept_drives;
        let spare = state.segments.spare_segments(copies, &members, usize::from(kept_drives));
        PoolSpace::of_segments(segments, free).without_spare(spare)
    }

    /// Allocates a segment of log or data if `purpose` may have one: with one copy for raid0 data.
    pub(crate) fn take_segment(
        &self,
        purpose: Purpose,
        kind: SegmentKind,
        class: RedundancyClass,
    ) -> Option<MirroredSegment> {
        self.note_shortage();
        let mut state = self.state.borrow_mut();
        if self.count_room(&state).free_for(purpose) == 0 {
            return None;
        }
        let (copies, there) = (self.drives.copies().of_kind(kind), self.drives.members_for_new_data());
        let (domains, sets) = (self.drives.domains(), self.drives.sets());
        let placement = Placement::on(&there, &domains).within(&sets);
        let segment = state.segments.allocate(kind, scheme_of_class(class), copies, placement);
        let left = self.count_room(&state);
        assert!(
            purpose == Purpose::Checkpoint || left.free >= left.reserve.div_ceil(3),
            "{purpose:?} took what is left to checkpoints: {left:?}"
        );
        segment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(free: u64, used_bytes: u64) -> PoolSpace {
        PoolSpace { segments: 1000, free, spare: 0, rebuild: 0, reserve: 32, usable_bytes: 1000, used_bytes }
    }

    #[test]
    fn an_alarm_lasts_while_usage_is_at_its_level() {
        let alarms = [799, 800, 899, 900, 949, 950, 1000].map(|used| space(0, used).alarm());
        assert_eq!(alarms.map(|alarm| alarm.map_or(0, |alarm| alarm as u8)), [0, 80, 80, 90, 90, 95, 100]);
        assert!(space(0, 1000).is_full() && !space(0, 999).is_full());
    }

    #[test]
    fn writes_are_delayed_more_the_less_space_is_left() {
        let delays = [1000, 52, 42, 32, 0].map(|free| space(free, 0).delay());
        assert_eq!(delays, [Duration::ZERO, Duration::ZERO, DELAY_MAX / 4, DELAY_MAX, DELAY_MAX]);
    }
}
