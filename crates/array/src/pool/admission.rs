//! Admission: which writes of hosts are let in, which wait for room, and which are refused.
//!
//! A write takes room twice. What it adds must be within what is usable ([`Pool::wait_for_left`]): what only replaces blocks
//! that no snapshot keeps adds nothing, so that overwrites go on in a full pool. And it needs segments for the log
//! ([`Pool::admit`]), which cleaning gains. Neither is refused because of what was counted or cleaned before it came: room
//! that was freed a moment before, by a discard or a deletion, is waited for.
//!
//! Invariants:
//!
//! 1. A write is refused for want of segments only if a round of cleaning that began after it came gained nothing, or
//!    nothing happened since a round that gained nothing.
//! 2. What was let in, and is on its way into the tables, is in `Usage` (`pending`). So writes at once add no more than is
//!    usable, all together.
//! 3. Whoever waits is let in or refused: each round gains segments, or is the one that refuses.

use super::{Pool, Purpose, shared::State};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, GRAIN_BYTES, record::PAYLOAD_BLOCKS_MAX},
    log::log_shape,
    simulation::sometimes::{self, Sometimes},
};
use std::{
    cell::{Cell, RefCell},
    time::Duration,
};
use tokio::sync::MutexGuard;

/// Tables in RAM hold at most so many times what brings about a checkpoint.
const TABLES_MAX: usize = 3;
/// How long to wait before looking again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Checkpoints that one write waits for, where others that came later may take what they free.
const CHECKPOINTS_AWAITED_MAX: u32 = 3;

/// What those who wait for room and those who gain it tell each other.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Segments that each of those who wait wants.
    wanted: RefCell<Vec<u64>>,
    /// Rounds of cleaning that have begun.
    rounds: Cell<u64>,
    /// The last of them that gained nothing.
    round_in_vain: Cell<u64>,
    /// Writes that were refused for want of room.
    refused: Cell<u64>,
}

/// What cleaning depends on: while it stays the same, so does what a round gains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleaningBasis {
    pub log_position_next: u64,
    pub slot_changes: u64,
    pub drive_changes: u64,
}

impl Admission {
    /// Segments that somebody waits for, at most.
    pub fn wanted(&self) -> u64 {
        self.wanted.borrow().iter().copied().max().unwrap_or(0)
    }

    /// A round of cleaning begins: its number.
    pub fn begin_round(&self) -> u64 {
        self.rounds.set(self.rounds.get() + 1);
        self.rounds.get()
    }

    /// A round gained nothing, and none would: those who came before it began are refused.
    pub fn end_in_vain(&self, round: u64) {
        assert!(round <= self.rounds.get() && round > self.round_in_vain.get(), "round {round} ends once");
        self.round_in_vain.set(round);
    }

    /// Writes that were refused for want of room.
    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

/// Somebody who waits for segments, until it is dropped.
struct RoomWait<'a> {
    admission: &'a Admission,
    wanted: u64,
    /// Rounds of cleaning that had begun when it came.
    came: u64,
    is_listed: Cell<bool>,
}

impl<'a> RoomWait<'a> {
    fn new(admission: &'a Admission, wanted: u64) -> Self {
        Self { admission, wanted, came: admission.rounds.get(), is_listed: Cell::new(false) }
    }

    fn list(&self) {
        if !self.is_listed.replace(true) {
            self.admission.wanted.borrow_mut().push(self.wanted);
        }
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        if self.is_listed.get() {
            let mut wanted = self.admission.wanted.borrow_mut();
            let place = wanted.iter().position(|&wanted| wanted == self.wanted).expect("it was listed");
            wanted.swap_remove(place);
        }
    }
}

/// A write that waits for what was deleted to be counted.
#[derive(Debug, Default)]
pub(super) struct DeletionWait {
    checkpoints: u32,
}

impl Pool {
    /// Whether the drives have room for so many bytes of hosts.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.space().free_for(Purpose::Hosts) >= self.segments_for(bytes)
    }

    /// Segments that so many bytes of hosts begin at most.
    fn segments_for(&self, bytes: u64) -> u64 {
        let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
        // Each record has a header; the fullest that is.
        let records = blocks.div_ceil(PAYLOAD_BLOCKS_MAX as u64);
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        (blocks + records).div_ceil(u64::from(shape.data_blocks())).max(1)
    }

    /// Segments that somebody waits for, at most.
    pub(crate) fn room_wanted(&self) -> u64 {
        self.admission.wanted()
    }

    /// Lets one in at a time who changes the catalogue so that it grows, when there is room for that. Who waits for room
    /// keeps nobody from deleting.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub(super) async fn admit_rows(&self) -> Result<MutexGuard<'_, ()>> {
        let wait = RoomWait::new(&self.admission, 1);
        loop {
            self.shared.check_has_space()?;
            let one_at_a_time = self.changing.lock().await;
            self.shared.check_runs()?;
            if self.space().free_for(Purpose::Comfort) > 0 {
                return Ok(one_at_a_time);
            }
            drop(one_at_a_time);
            self.wait_for_cleaning(&wait).await?;
        }
    }

    /// Lets a host's write in, when there is room for it: in the tables, and on the drives.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub(crate) async fn admit(&self, bytes: usize) -> Result<()> {
        let mut is_delayed = false;
        let wait = RoomWait::new(&self.admission, self.segments_for(bytes as u64));
        loop {
            self.shared.check_runs()?;
            self.shared.check_has_space()?;
            if self.are_tables_full() {
                self.shared.world.sleep(LOOK_AGAIN).await;
                continue;
            }
            let space = self.space();
            if space.free_for(Purpose::Hosts) >= wait.wanted {
                let delay = space.delay();
                if is_delayed || delay < LOOK_AGAIN {
                    return Ok(());
                }
                sometimes::reached(Sometimes::HostHeldUp);
                self.shared.world.sleep(delay).await;
                is_delayed = true;
                continue;
            }
            self.wait_for_cleaning(&wait).await.inspect_err(|_| self.count_refusal())?;
        }
    }

    /// Waits a moment for cleaning to gain segments, unless a round that began after somebody came could not.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: what is alive leaves nothing to clean.
    async fn wait_for_cleaning(&self, wait: &RoomWait<'_>) -> Result<()> {
        if self.admission.round_in_vain.get() > wait.came {
            return Err(self.full());
        }
        wait.list();
        self.shared.world.sleep(LOOK_AGAIN).await;
        Ok(())
    }

    /// Waits a moment for others to leave the log's queue.
    pub(crate) async fn wait_for_others(&self) {
        self.shared.world.sleep(LOOK_AGAIN).await;
    }

    /// Whether data may take so many grains more.
    pub(super) fn has_left(&self, added: u64) -> bool {
        let space = self.space();
        let used = space.used_bytes / GRAIN_BYTES as u64 + self.usage.borrow().pending_of_all();
        used + added <= space.usable_bytes / GRAIN_BYTES as u64
    }

    /// Waits for what was overwritten, discarded or deleted so far to be counted, if that may leave as much as a write adds.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: it leaves less.
    pub(super) async fn wait_for_left(&self, added: u64, wait: &mut DeletionWait) -> Result<()> {
        let is_exact = {
            let state = self.shared.state.borrow();
            // Nothing that is in the tables makes it less than what the trees have, but for deletions.
            let usable = self.space().usable_bytes / GRAIN_BYTES as u64;
            let is_over = state.segments.live_grains() + added > usable;
            let is_counted = state.table.is_empty() && state.merging.is_none();
            !state.may_shrink() && (is_over || is_counted)
        };
        if is_exact || wait.checkpoints >= CHECKPOINTS_AWAITED_MAX {
            self.count_refusal();
            return Err(self.full());
        }
        self.shared.check_has_space()?;
        self.checkpoint_of_now().await?;
        if !self.shared.state.borrow().has_leftovers() {
            wait.checkpoints += 1;
        }
        Ok(())
    }

    fn count_refusal(&self) {
        self.admission.refused.set(self.admission.refused.get() + 1);
    }

    /// Why somebody is refused.
    fn full(&self) -> Error {
        sometimes::reached(Sometimes::HostRefused);
        let out_of_space = self.shared.drives.out_of_space();
        if out_of_space.is_empty() { Error::Full } else { Error::OutOfSpace(out_of_space) }
    }

    /// What a round of cleaning would depend on now.
    pub(super) fn cleaning_basis(&self) -> CleaningBasis {
        CleaningBasis {
            log_position_next: self.lane.tail().position_next().0,
            slot_changes: self.shared.state.borrow().segments.slot_changes(),
            drive_changes: self.shared.drives.changes(),
        }
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

impl State {
    /// Whether checkpoints may find that less is used than the trees have: something was discarded or deleted.
    pub fn may_shrink(&self) -> bool {
        self.deletions_taken > self.deletions_merged || self.has_leftovers()
    }
}
