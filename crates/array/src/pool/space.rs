//! Room: how much there is, how much of it data may fill, and what segments may be taken for.
//!
//! A pool is full when data fills `usable_bytes`. Beyond that some segments stay unfilled, in whatever parts of segments
//! they lie: so many that a round of cleaning always gains a segment. So overwrites, which add nothing, go on in a full pool.
//!
//! Hosts leave the reserve alone: it is for checkpoints, cleaning and deletions, so that a pool that is full can still be
//! opened and emptied. Before they meet it they are slowed down, the more the nearer it is, so that cleaning can keep up.
//! `admission` says which writes are let in.
//!
//! Of the reserve each [`Purpose`] leaves a part to those behind it. The last part, a third, is for checkpoints alone, and
//! for the opening, which is one: that takes a segment of log and, for the trees' nodes that it writes, less than the
//! trees take at most. It gives back what the incarnation before had under way; so a pool can be opened as often as it
//! crashes, also without one of three drives, whose slots had a third of what was free.

use super::{
    Pool,
    shared::{Shared, State},
};
use crate::{
    format::{
        BLOCK_GRAINS, GRAIN_BYTES, MemberIndex, MirroredSegment, RedundancyClass, SegmentKind,
        segment::SUCCESSORS_MAX,
    },
    log::{log_shape, room_blocks},
    mover::{Urgency, VICTIMS_MAX},
};
use std::time::Duration;

/// Share of all segments that hosts leave alone, in percent; and so many at least, if that is no more than a third.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_SEGMENTS_MIN: u64 = 32;
/// Share of all segments that data leaves unfilled at least, in percent.
const UNFILLED_PERCENT: u64 = 2;
/// Segments that are open at any time, so that data cannot fill them: the log's and its successors, and those of nodes and of
/// the catalogue.
const OPEN_SEGMENTS: u64 = 1 + SUCCESSORS_MAX as u64 + 2;
/// Segments that the widest round leaves of what upkeep may take: for the log, which says what was moved. And one for so
/// many that it fills: their moves take that much log.
const WIDEST_ROUND_LEAVES: u64 = 3;
const TARGETS_A_LOG_SEGMENT: u64 = 64;
/// Hosts are slowed down when no more than this is free beyond the reserve, in percent of all segments; and so many at
/// least.
const NEAR_PERCENT: u64 = 2;
const NEAR_SEGMENTS_MIN: u64 = 2;
/// Times that, below which cleaning is urgent, below which there is cleaning, and below which a checkpoint is made early.
const URGENT_NEAR: u64 = 2;
const CLEAN_NEAR: u64 = 3;
const CHECKPOINT_NEAR: u64 = 4;
/// Times that, below which what is mostly dead is cleaned, if that is much: each checkpoint for want of room costs more.
const EARLY_NEAR: u64 = 6;
/// The longest a write is held up at once. The delay grows with the square of what is missing.
const DELAY_MAX: Duration = Duration::from_millis(20);
/// The room of a pool, in segments but for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All there are on the drives that are there.
    pub segments: u64,
    /// Those nothing lies in.
    pub free: u64,
    /// Those hosts leave alone.
    pub reserve: u64,
    /// What hosts can store at most, in bytes: all of it with the copies the pool has, but for what rests in one. Then the pool
    /// is full.
    pub usable_bytes: u64,
    /// What is stored for them and still needed, in bytes: as of the last checkpoint, and all that was written since.
    pub used_bytes: u64,
}

/// How full a pool is, of what hosts can store. The numbers are percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// From 80 % on: time to order drives.
    Full80 = 80,
    /// From 90 % on: time to add them.
    Full90 = 90,
    /// From 95 % on: hosts will soon be refused.
    Full95 = 95,
    /// Nothing more can be stored.
    Full100 = 100,
}

/// What segments are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// What hosts write.
    Hosts,
    /// What a pool can do without for a while: copies that were lost, segments the log may go on in, more volumes and
    /// snapshots.
    Comfort,
    /// What gives room back: cleaning, and the log, for deletions.
    Upkeep,
    /// Checkpoints, and the opening.
    Checkpoint,
}

impl Space {
    /// Segments that are left alone.
    pub(crate) fn left_by(&self, purpose: Purpose) -> u64 {
        match purpose {
            Purpose::Hosts => self.reserve,
            Purpose::Comfort => self.reserve / 2,
            Purpose::Upkeep => self.reserve.div_ceil(3),
            Purpose::Checkpoint => 0,
        }
    }

    /// Segments that may be taken.
    pub(crate) fn free_for(&self, purpose: Purpose) -> u64 {
        self.free.saturating_sub(self.left_by(purpose))
    }

    /// Segments that the widest round of cleaning may fill.
    pub(crate) fn widest_round(&self) -> u64 {
        let left = self.free_for(Purpose::Upkeep).saturating_sub(WIDEST_ROUND_LEAVES);
        (left - left.div_ceil(TARGETS_A_LOG_SEGMENT)).min(VICTIMS_MAX as u64 - 1)
    }

    /// Segments that data may fill, where nodes need `node_segments`. Of the others so many are dead or empty when it does that
    /// the widest round that the reserve has room for gains one: of n segments that have as much alive, t + 1 fit into t if n / t
    /// are dead.
    fn fillable(&self, node_segments: u64) -> u64 {
        let at_full = Self { free: self.reserve, ..*self };
        let open = OPEN_SEGMENTS + node_segments;
        let left = self.segments.saturating_sub(self.reserve);
        let dead = left.saturating_sub(open).div_ceil(at_full.widest_round().max(1)) + 1;
        left.saturating_sub((open + dead).max(self.segments * UNFILLED_PERCENT / 100))
    }

    /// Whether nothing more can be stored, however much is cleaned.
    pub fn is_full(&self) -> bool {
        self.used_bytes >= self.usable_bytes
    }

    /// Used of what is usable, in percent.
    pub fn used_percent(&self) -> f64 {
        self.used_bytes as f64 / self.usable_bytes.max(1) as f64 * 100.0
    }

    /// How near the pool is to being full: for as long as it is, not when it comes to be.
    pub fn alarm(&self) -> Option<Alarm> {
        let levels = [Alarm::Full100, Alarm::Full95, Alarm::Full90, Alarm::Full80];
        levels.into_iter().find(|&level| self.used_bytes * 100 >= self.usable_bytes * level as u64)
    }

    /// How long a write is held up for cleaning to keep up.
    pub(super) fn delay(&self) -> Duration {
        let near = self.near();
        let missing = (near - self.free_for(Purpose::Hosts).min(near)) as f64 / near as f64;
        DELAY_MAX.mul_f64(missing * missing)
    }

    /// Whether writes are held up.
    pub(crate) fn is_held_up(&self) -> bool {
        self.free_for(Purpose::Hosts) <= self.near()
    }

    /// How much depends on cleaning: hosts are held up, or will be.
    pub(crate) fn cleaning_urgency(&self) -> Urgency {
        if self.free_for(Purpose::Hosts) <= URGENT_NEAR * self.near() {
            Urgency::Awaited
        } else {
            Urgency::CanWait
        }
    }

    /// Whether segments should be cleaned now; a host waits for so many.
    pub(crate) fn wants_cleaning(&self, wanted: u64) -> bool {
        self.free_for(Purpose::Hosts) <= (CLEAN_NEAR * self.near()).max(wanted)
    }

    /// Whether segments may be cleaned ahead of need, if that is cheap.
    pub(crate) fn may_clean_early(&self) -> bool {
        self.free_for(Purpose::Hosts) <= EARLY_NEAR * self.near()
    }

    /// Whether a checkpoint should free what was overwritten, if that is much.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.free_for(Purpose::Hosts) <= CHECKPOINT_NEAR * self.near()
    }

    /// Segments of log that are worth a checkpoint: a few, or as many as are left.
    pub(crate) fn checkpoint_after(&self) -> u64 {
        let left = self.free_for(Purpose::Hosts).saturating_sub(URGENT_NEAR * self.near());
        left.max(self.near() / 2)
    }

    /// Segments that one round of cleaning is to gain: a checkpoint is made for all of them together, so many at once.
    pub(crate) fn cleaning_round(&self) -> u64 {
        2 * self.near()
    }

    /// The room below which hosts are held up.
    pub(crate) fn near(&self) -> u64 {
        (self.segments * NEAR_PERCENT / 100).max(NEAR_SEGMENTS_MIN)
    }
}

impl Pool {
    /// The room there is. Costs little: what takes slots, or gives them back, is rare beside writes.
    pub fn space(&self) -> Space {
        let state = self.shared.state.borrow();
        let as_of = (state.segments.slot_changes(), self.shared.drives.changes());
        let known = self.space_known.get().filter(|(known, _)| *known == as_of);
        let (_, room) = known.unwrap_or_else(|| {
            let counted = (as_of, self.shared.count_room(&state));
            self.space_known.set(Some(counted));
            counted
        });
        debug_assert_eq!(room, self.shared.count_room(&state), "what is known as of {as_of:?}");
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        let grains = |blocks: u32| u64::from(blocks) * BLOCK_GRAINS as u64;
        let node_segments = state.segments.node_grains().div_ceil(grains(shape.data_blocks()));
        let usable_grains =
            room.fillable(node_segments) * grains(room_blocks(shape)) + self.saved_grains(&state);
        let in_tables = state.table.added() + state.merging.as_ref().map_or(0, |table| table.added());
        let in_trees = state.segments.live_grains();
        // Overwritten versions are in the trees until the next checkpoint. No more than is usable was let in.
        let used_grains = (in_trees + u64::try_from(in_tables).unwrap_or(0)).min(usable_grains.max(in_trees));
        let [used_bytes, usable_bytes] =
            [used_grains, usable_grains].map(|grains| grains * GRAIN_BYTES as u64);
        Space { used_bytes, usable_bytes, ..room }
    }

    /// What can be stored beside what rests in one copy, and could not if that had as many as all else. What a drive had
    /// alone that is not there takes no room at all.
    fn saved_grains(&self, state: &State) -> u64 {
        let drives = &self.shared.drives;
        let copies = drives.copies_wanted().max(1) as u64;
        let saved = |(member, grains): (MemberIndex, u64)| match drives.has(member) {
            true => grains * (copies - 1) / copies,
            false => grains,
        };
        state.segments.raid0_grains().map(saved).sum()
    }
}

impl Shared {
    /// The room there is, in segments.
    fn count_room(&self, state: &State) -> Space {
        let (there, copies) = (self.drives.members(), usize::from(self.drives.geometry().log_copies));
        let segments = state.segments.all_segments(copies, &there);
        let reserve = (segments * RESERVE_PERCENT / 100).max(RESERVE_SEGMENTS_MIN).min(segments / 3);
        let free = state.segments.free_segments(copies, &self.drives.members_with_space());
        Space { segments, free, reserve, usable_bytes: 0, used_bytes: 0 }
    }

    /// Takes a segment of log or data, if its purpose may have one: of one copy for blocks of raid0 volumes.
    pub(crate) fn take_segment(
        &self,
        purpose: Purpose,
        kind: SegmentKind,
        class: RedundancyClass,
    ) -> Option<MirroredSegment> {
        let mut state = self.state.borrow_mut();
        if self.count_room(&state).free_for(purpose) == 0 {
            return None;
        }
        let (copies, there) =
            (usize::from(self.drives.geometry().log_copies), self.drives.members_with_space());
        let segment = match class {
            RedundancyClass::Raid0 => state.segments.allocate_raid0(&there),
            _ => state.segments.allocate(kind, copies, &there),
        };
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

    fn space(free: u64, used_bytes: u64) -> Space {
        Space { segments: 1000, free, reserve: 32, usable_bytes: 1000, used_bytes }
    }

    #[test]
    fn alarms_hold_as_long_as_the_pool_is_that_full() {
        let alarms = [799, 800, 899, 900, 949, 950, 1000].map(|used| space(0, used).alarm());
        assert_eq!(alarms.map(|alarm| alarm.map_or(0, |alarm| alarm as u8)), [0, 80, 80, 90, 90, 95, 100]);
        assert!(space(0, 1000).is_full() && !space(0, 999).is_full());
    }

    #[test]
    fn writes_are_held_up_the_more_the_less_is_left() {
        let delays = [1000, 52, 42, 32, 0].map(|free| space(free, 0).delay());
        assert_eq!(delays, [Duration::ZERO, Duration::ZERO, DELAY_MAX / 4, DELAY_MAX, DELAY_MAX]);
    }
}
