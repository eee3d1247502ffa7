//! Admission of host writes: a write is admitted, waits for space, or is refused.
//!
//! A write needs two kinds of space. The blocks that it adds must fit into the usable space
//! ([`Admission::wait_for_left`]); a write that only replaces blocks that no snapshot keeps adds nothing, so
//! overwrites continue in a full pool. And the log needs segments for it ([`Admission::admit`]), which cleaning
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

use super::FairQueue;
use crate::{
    engine::{Checkpoints, Purpose, RoomWait, Shared, UsageCounter},
    error::{Error, Result},
    format::{BLOCK_BYTES, GRAIN_BYTES, record::PAYLOAD_BLOCKS_MAX},
    log::log_shape,
    simulation::sometimes::{self, Sometimes},
};
use std::{rc::Rc, time::Duration};
use tokio::sync::MutexGuard;

/// Limit of the bytes of host writes in the log's queue: two batches.
const LOGGED_AT_ONCE_MAX: u64 = 2 << 20;
/// The tables in RAM hold at most so many times the number of entries that triggers a checkpoint.
const TABLES_MAX: usize = 3;
/// Delay before a condition is checked again.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Checkpoints that one write waits for, since later writes may take the space that they free.
const CHECKPOINTS_AWAITED_MAX: u32 = 3;

/// A write that waits until deletions are counted.
#[derive(Debug, Default)]
pub(super) struct DeletionWait {
    checkpoints: u32,
}

/// Admission of the writes to all volumes of a pool.
pub(crate) struct Admission {
    pub(super) shared: Rc<Shared>,
    pub(super) usage: Rc<UsageCounter>,
    pub(super) checkpoints: Rc<Checkpoints>,
    /// Order of host writes to the log.
    pub(super) queue: Rc<FairQueue>,
    table_entries: usize,
}

impl Admission {
    /// `table_entries` trigger a checkpoint.
    pub fn new(usage: &Rc<UsageCounter>, checkpoints: &Rc<Checkpoints>, table_entries: usize) -> Self {
        Self {
            shared: Rc::clone(&usage.map.shared),
            usage: Rc::clone(usage),
            checkpoints: Rc::clone(checkpoints),
            queue: FairQueue::new(LOGGED_AT_ONCE_MAX),
            table_entries,
        }
    }

    /// True if hosts may fill the segments that `bytes` bytes need.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.shared.space().free_for(Purpose::Hosts) >= self.segments_for(bytes)
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

    /// Locks the catalogue for a change that makes it grow, once there is room for it. The lock is not held
    /// while this waits, so deletions proceed.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub async fn admit_rows(&self) -> Result<MutexGuard<'_, ()>> {
        let wait = RoomWait::new(&self.shared.demand, 1);
        loop {
            self.shared.check_has_space()?;
            let one_at_a_time = self.shared.changing.lock().await;
            self.shared.check_runs()?;
            if self.shared.space().free_for(Purpose::Comfort) > 0 {
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
    pub async fn admit(&self, bytes: usize) -> Result<()> {
        let mut is_delayed = false;
        let wait = RoomWait::new(&self.shared.demand, self.segments_for(bytes as u64));
        loop {
            self.shared.check_runs()?;
            self.shared.check_has_space()?;
            if self.are_tables_full() {
                self.shared.world.sleep(LOOK_AGAIN).await;
                continue;
            }
            let space = self.shared.space();
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
            self.wait_for_cleaning(&wait).await.inspect_err(|_| self.shared.demand.count_refusal())?;
        }
    }

    /// Waits briefly for cleaning to gain segments.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: a round that began after this write arrived gained nothing.
    async fn wait_for_cleaning(&self, wait: &RoomWait<'_>) -> Result<()> {
        if wait.is_in_vain() {
            return Err(self.full());
        }
        wait.list();
        self.shared.world.sleep(LOOK_AGAIN).await;
        Ok(())
    }

    /// Waits briefly for other commands to leave the log's queue.
    pub async fn wait_for_others(&self) {
        self.shared.world.sleep(LOOK_AGAIN).await;
    }

    /// True if data may grow by `added` grains.
    pub(super) fn has_left(&self, added: u64) -> bool {
        let space = self.shared.space();
        let used = space.used_bytes / GRAIN_BYTES as u64 + self.usage.pending_of_all();
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
            let usable = self.shared.space().usable_bytes / GRAIN_BYTES as u64;
            let is_over = state.segments.live_grains() + added > usable;
            let is_counted = state.table.is_empty() && state.merging.is_none();
            !state.may_shrink() && (is_over || is_counted)
        };
        if is_exact || wait.checkpoints >= CHECKPOINTS_AWAITED_MAX {
            self.shared.demand.count_refusal();
            return Err(self.full());
        }
        self.shared.check_has_space()?;
        self.checkpoints.make_of_now().await?;
        if !self.shared.state.borrow().has_leftovers() {
            wait.checkpoints += 1;
        }
        Ok(())
    }

    /// The error of a refusal.
    fn full(&self) -> Error {
        sometimes::reached(Sometimes::HostRefused);
        let out_of_space = self.shared.drives.out_of_space();
        if out_of_space.is_empty() { Error::Full } else { Error::OutOfSpace(out_of_space) }
    }

    fn are_tables_full(&self) -> bool {
        let state = self.shared.state.borrow();
        let merging = state.merging.as_ref().map_or(0, |table| table.len());
        state.table.len() + merging >= TABLES_MAX * self.table_entries
    }
}
