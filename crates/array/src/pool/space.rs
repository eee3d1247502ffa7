//! Room: how much there is, who may still write, and how fast.
//!
//! Hosts leave the reserve alone: it is for checkpoints, cleaning and deletions, so that a pool that is full can still be
//! opened and emptied. Before they meet it they are slowed down, the more the nearer it is, so that cleaning can keep
//! up. They are refused only when what is alive leaves nothing to clean for them.
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
    error::{Error, Result},
    format::{BLOCK_BYTES, BLOCK_GRAINS, GRAIN_BYTES, MemberIndex, record::PAYLOAD_BLOCKS_MAX},
    log::{log_shape, room_blocks},
    mover::Urgency,
    simulation::sometimes::{self, Sometimes},
};
use std::time::Duration;
use tokio::sync::MutexGuard;

/// Share of all segments that hosts leave alone, in percent; and so many at least, if that is no more than a third.
const RESERVE_PERCENT: u64 = 2;
const RESERVE_SEGMENTS_MIN: u64 = 32;
/// Segments that are open at any time, of which nobody can say that hosts may fill them: the log's and its next, and those of
/// nodes and of the catalogue.
const OPEN_SEGMENTS: u64 = 4;
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
/// Tables in RAM hold at most so many times what brings about a checkpoint.
const TABLES_MAX: usize = 3;
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// The room of a pool, in segments but for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// All there are on the drives that are there.
    pub segments: u64,
    /// Those nothing lies in.
    pub free: u64,
    /// Those hosts leave alone.
    pub reserve: u64,
    /// What hosts can store at most, in bytes: all of it with the copies the pool has, but for what rests in one.
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
    fn delay(&self) -> Duration {
        let near = self.near();
        let missing = (near - self.free_for(Purpose::Hosts).min(near)) as f64 / near as f64;
        DELAY_MAX.mul_f64(missing * missing)
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
        let in_tables = state.table.added() + state.merging.as_ref().map_or(0, |table| table.added());
        let used_grains = state.segments.live_grains() + u64::try_from(in_tables).unwrap_or(0);
        let usable_bytes = room.usable_bytes + self.saved_grains(&state) * GRAIN_BYTES as u64;
        Space { used_bytes: used_grains * GRAIN_BYTES as u64, usable_bytes, ..room }
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

    /// Whether the drives have room for so many bytes of a host.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.space().free_for(Purpose::Hosts) >= self.segments_for(bytes)
    }

    /// Segments that so many bytes of a host begin at most, if nobody else writes.
    fn segments_for(&self, bytes: usize) -> u64 {
        let blocks = bytes.div_ceil(BLOCK_BYTES) as u64;
        // Each record has a header; the fullest that is.
        let records = blocks.div_ceil(PAYLOAD_BLOCKS_MAX as u64);
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        (blocks + records).div_ceil(u64::from(shape.data_blocks())).max(1)
    }

    /// Lets one in at a time who changes the catalogue so that it grows, when there is room for that. Who waits for room
    /// keeps nobody from deleting.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub(super) async fn admit_rows(&self) -> Result<MutexGuard<'_, ()>> {
        loop {
            self.shared.check_has_space()?;
            let one_at_a_time = self.changing.lock().await;
            self.shared.check_runs()?;
            if self.space().free_for(Purpose::Comfort) > 0 {
                return Ok(one_at_a_time);
            }
            drop(one_at_a_time);
            self.wait_for_cleaning(1).await?;
        }
    }

    /// Lets a host's write in, when there is room for it: in the tables, and on the drives.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub(crate) async fn admit(&self, bytes: usize) -> Result<()> {
        let mut is_delayed = false;
        let wanted = self.segments_for(bytes);
        loop {
            self.shared.check_runs()?;
            self.shared.check_has_space()?;
            if self.are_tables_full() {
                self.shared.world.sleep(LOOK_AGAIN).await;
                continue;
            }
            let space = self.space();
            if space.free_for(Purpose::Hosts) >= wanted {
                let delay = space.delay();
                if is_delayed || delay < LOOK_AGAIN {
                    return Ok(());
                }
                sometimes::reached(Sometimes::HostHeldUp);
                self.shared.world.sleep(delay).await;
                is_delayed = true;
                continue;
            }
            let refused = |_: &Error| self.refused_writes.set(self.refused_writes.get() + 1);
            self.wait_for_cleaning(wanted).await.inspect_err(refused)?;
        }
    }

    /// Waits a moment for cleaning to give so many segments, unless it cannot.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: what is alive leaves nothing to clean.
    async fn wait_for_cleaning(&self, wanted: u64) -> Result<()> {
        // What has not come to rest gives room by it.
        let is_full = self.space().is_full() && self.shared.state.borrow().backlog.is_empty();
        if is_full || self.cannot_clean.get() {
            sometimes::reached(Sometimes::HostRefused);
            let out_of_space = self.shared.drives.out_of_space();
            return Err(if out_of_space.is_empty() { Error::Full } else { Error::OutOfSpace(out_of_space) });
        }
        self.room_wanted.set(self.room_wanted.get().max(wanted));
        self.shared.world.sleep(LOOK_AGAIN).await;
        Ok(())
    }

    /// Blocks one round of cleaning may move: what leaves room in the tables for hosts.
    pub(crate) fn moves_max(&self) -> usize {
        self.setting.table_entries / 2
    }

    fn are_tables_full(&self) -> bool {
        let state = self.shared.state.borrow();
        let merging = state.merging.as_ref().map_or(0, |table| table.len());
        state.table.len() + merging >= TABLES_MAX * self.setting.table_entries
    }
}

impl Shared {
    /// The room there is, but for what is used of it.
    pub(super) fn count_room(&self, state: &State) -> Space {
        let geometry = self.drives.geometry();
        let (there, copies) = (self.drives.members(), usize::from(geometry.log_copies));
        let segments = state.segments.all_segments(copies, &there);
        let reserve = (segments * RESERVE_PERCENT / 100).max(RESERVE_SEGMENTS_MIN).min(segments / 3);
        let shape = log_shape(geometry.slot_blocks(), copies);
        let segment_grains = u64::from(room_blocks(shape)) * BLOCK_GRAINS as u64;
        Space {
            segments,
            free: state.segments.free_segments(copies, &self.drives.members_with_space()),
            reserve,
            usable_bytes: (segments - reserve).saturating_sub(OPEN_SEGMENTS)
                * segment_grains
                * GRAIN_BYTES as u64,
            used_bytes: 0,
        }
    }

    /// Whether a segment may be taken.
    pub(crate) fn has_segment_for(&self, purpose: Purpose) -> bool {
        self.count_room(&self.state.borrow()).free_for(purpose) > 0
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
