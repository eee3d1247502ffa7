//! Admission of host writes: a write is admitted, waits for space, or is refused.
//!
//! A write needs two kinds of space. The blocks that it adds must fit into the usable space
//! ([`Pool::wait_for_left`]); a write that only replaces blocks that no snapshot keeps adds nothing, so
//! overwrites continue in a full pool. And the log needs segments for it ([`Pool::admit`]), which cleaning
//! supplies. A write is never refused because of a count or a round of cleaning from before it arrived: space
//! that a discard or a deletion freed a moment earlier is waited for.
//!
//! Invariants:
//!
//! 1. A write is refused for lack of segments only if a round of cleaning that began after its arrival gained
//!    nothing, or nothing happened since a round that gained nothing.
//! 2. Admitted writes on their way into the tables are in `BranchUsage` (`pending`), so that concurrent writes
//!    together add no more than the usable space.
//! 3. Every waiting write is admitted or refused in the end: each round gains segments, or is the one that
//!    refuses.

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

/// The tables in RAM hold at most so many times the number of entries that triggers a checkpoint.
const TABLES_MAX: usize = 3;
/// Delay before a condition is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Checkpoints that one write waits for, since later writes may take the space that they free.
const CHECKPOINTS_AWAITED_MAX: u32 = 3;

/// State shared by writes that wait for space, and cleaning.
#[derive(Debug, Default)]
pub(super) struct Admission {
    /// Segments wanted, one entry for each waiting write.
    wanted: RefCell<Vec<u64>>,
    /// Rounds of cleaning begun.
    rounds: Cell<u64>,
    /// The last round that gained nothing.
    round_in_vain: Cell<u64>,
    /// Writes refused for lack of space.
    refused: Cell<u64>,
}

/// Inputs of cleaning. While they are unchanged, another round gains as much as the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleaningBasis {
    pub log_position_next: u64,
    pub slot_changes: u64,
    pub drive_changes: u64,
}

impl Admission {
    /// The largest number of segments that a write waits for.
    pub fn wanted(&self) -> u64 {
        self.wanted.borrow().iter().copied().max().unwrap_or(0)
    }

    /// Returns the number of the new round.
    pub fn begin_round(&self) -> u64 {
        self.rounds.set(self.rounds.get() + 1);
        self.rounds.get()
    }

    /// Records that `round` gained nothing and that none would: writes that waited when it began are refused.
    pub fn end_in_vain(&self, round: u64) {
        assert!(round <= self.rounds.get() && round > self.round_in_vain.get(), "round {round} ends once");
        self.round_in_vain.set(round);
    }

    pub fn refused(&self) -> u64 {
        self.refused.get()
    }
}

/// A write waiting for segments. It stops waiting on drop.
struct RoomWait<'a> {
    admission: &'a Admission,
    wanted: u64,
    /// Rounds of cleaning that had begun when the write arrived.
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

/// A write that waits until deletions are counted.
#[derive(Debug, Default)]
pub(super) struct DeletionWait {
    checkpoints: u32,
}

impl Pool {
    /// True if hosts may fill the segments that `bytes` bytes need.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.space().free_for(Purpose::Hosts) >= self.segments_for(bytes)
    }

    /// Segments that `bytes` bytes from hosts begin, at most.
    fn segments_for(&self, bytes: u64) -> u64 {
        let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
        // Each record has a header, and holds this many blocks at most.
        let records = blocks.div_ceil(PAYLOAD_BLOCKS_MAX as u64);
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        (blocks + records).div_ceil(u64::from(shape.data_blocks())).max(1)
    }

    /// The largest number of segments that a write waits for.
    pub(crate) fn room_wanted(&self) -> u64 {
        self.admission.wanted()
    }

    /// Locks the catalogue for a change that makes it grow, once there is room for it. The lock is not held
    /// while this waits, so deletions proceed.
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

    /// Admits a host write once the tables and the drives have room.
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

    /// Waits briefly for cleaning to gain segments.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: a round that began after this write arrived gained nothing.
    async fn wait_for_cleaning(&self, wait: &RoomWait<'_>) -> Result<()> {
        if self.admission.round_in_vain.get() > wait.came {
            return Err(self.full());
        }
        wait.list();
        self.shared.world.sleep(LOOK_AGAIN).await;
        Ok(())
    }

    /// Waits briefly for other commands to leave the log's queue.
    pub(crate) async fn wait_for_others(&self) {
        self.shared.world.sleep(LOOK_AGAIN).await;
    }

    /// True if data may grow by `added` grains.
    pub(super) fn has_left(&self, added: u64) -> bool {
        let space = self.space();
        let used = space.used_bytes / GRAIN_BYTES as u64 + self.usage.borrow().pending_of_all();
        used + added <= space.usable_bytes / GRAIN_BYTES as u64
    }

    /// Makes a checkpoint that counts all overwrites, discards and deletions, if those may leave enough room.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: they leave less than the write adds.
    pub(super) async fn wait_for_left(&self, added: u64, wait: &mut DeletionWait) -> Result<()> {
        let is_exact = {
            let state = self.shared.state.borrow();
            // Apart from deletions, entries in the tables never make the usage smaller than what the trees
            // have.
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

    /// The error of a refusal.
    fn full(&self) -> Error {
        sometimes::reached(Sometimes::HostRefused);
        let out_of_space = self.shared.drives.out_of_space();
        if out_of_space.is_empty() { Error::Full } else { Error::OutOfSpace(out_of_space) }
    }

    pub(super) fn cleaning_basis(&self) -> CleaningBasis {
        CleaningBasis {
            log_position_next: self.lane.tail().position_next().0,
            slot_changes: self.shared.state.borrow().segments.slot_changes(),
            drive_changes: self.shared.drives.changes(),
        }
    }

    /// Blocks that one round of cleaning may move: it leaves room in the tables for hosts.
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
    /// True if a checkpoint may find less in use than the trees have, because of discards or deletions.
    pub fn may_shrink(&self) -> bool {
        self.deletions_taken > self.deletions_merged || self.has_leftovers()
    }
}
