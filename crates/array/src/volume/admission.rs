//! Admission of host writes. A write passes these steps, in this order, before it is appended to the log:
//!
//! 1. **Rate limits** of its volume (`rate_limiter`). First, since a write that waits here must hold nothing.
//! 2. **Tables and segments** ([`Admission::admit`]): the tables in RAM have room for its entries, and the
//!    log has segments for its blocks. First come, first served. Before its blocks are locked, since this may
//!    take as long as a checkpoint or a round of cleaning, and others may want the blocks.
//! 3. **Delay** near the reserve, so that cleaning keeps up. Writes are delayed side by side.
//! 4. **Block locks** (`block_locks`). From here on nobody else changes its blocks; those in part are read.
//! 5. **Promise** of usable space ([`Admission::promise`]), within the pool and the bounds of volumes. Behind
//!    the locks, since the blocks may have to be looked up: a write that only replaces blocks that no
//!    snapshot keeps adds nothing, so overwrites continue in a full pool.
//! 6. **Turn at the log** (`fair_queue`), shared fairly among volumes by bytes.
//! 7. **Last check** ([`Admission::enter`]): admitted writes may have used the segments, and a snapshot may
//!    keep blocks that the write was to replace. If so, steps 2, 5 and 6 are repeated.
//!
//! Every wait ends by a notification or, for steps 1 and 3, at a moment known in advance. A write is never
//! refused because of a count or a round of cleaning from before it arrived: space that a discard or a
//! deletion freed a moment earlier is waited for.
//!
//! Invariants:
//!
//! 1. A write is refused for lack of segments only if a round of cleaning that began after its arrival gained
//!    nothing, or nothing happened since a round that gained nothing.
//! 2. Admitted writes on their way into the tables are in `BranchUsage` (`pending`), so that concurrent
//!    writes together add no more than the usable space.
//! 3. Every waiting write is admitted or refused in the end: each round gains segments, or is the one that
//!    refuses.

use super::{
    fair_queue::{FairQueue, QueueTicket},
    space_promise::WriteScope,
};
use crate::{
    engine::{ChangeLock, Checkpoints, Purpose, RoomWait, Shared, SpacePromise, UsageCounter},
    error::{Error, Result},
    format::{BLOCK_BYTES, GRAIN_BYTES, VolumeNumber, record::PAYLOAD_BLOCKS_MAX},
    simulation::sometimes::{self, Sometimes},
};
use std::{rc::Rc, time::Duration};
use tokio::sync::Mutex;

/// Limit of the bytes of host writes in the log's queue: two batches.
const LOGGED_AT_ONCE_MAX: u64 = 2 << 20;
/// The tables in RAM hold at most so many times the number of entries that triggers a checkpoint.
const TABLES_MAX: usize = 3;
/// Shorter delays are skipped.
const DELAY_MIN: Duration = Duration::from_millis(1);
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
    /// Held by the write that waits for tables and segments; the others queue for it in the order of arrival.
    room_order: Mutex<()>,
    /// The same for writes that wait for others to use or release their promises.
    pub(super) promise_order: Mutex<()>,
}

/// A write that may be appended to the log. To be dropped when it is in the tables, or has failed.
pub(super) struct AdmittedWrite {
    _promise: SpacePromise,
    _ticket: QueueTicket,
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
            room_order: Mutex::default(),
            promise_order: Mutex::default(),
        }
    }

    /// True if hosts may fill the segments that `bytes` bytes need.
    fn has_room(&self, bytes: u64) -> bool {
        self.shared.space().free_for(Purpose::Hosts) >= self.segments_for(bytes)
    }

    /// Segments that `bytes` bytes from hosts begin, at most.
    fn segments_for(&self, bytes: u64) -> u64 {
        let blocks = bytes.div_ceil(BLOCK_BYTES as u64);
        // Each record has a header, and holds this many blocks at most.
        let records = blocks.div_ceil(PAYLOAD_BLOCKS_MAX as u64);
        let drives = &self.shared.drives;
        let shape = drives.mirror_shape(drives.copies().log);
        (blocks + records).div_ceil(u64::from(shape.data_blocks())).max(1)
    }

    /// Locks the catalogue for a change that makes it grow, once there is room for it. The lock is not held
    /// while this waits, so deletions proceed.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub async fn admit_rows(&self) -> Result<ChangeLock> {
        let wait = RoomWait::new(&self.shared.demand, 1);
        loop {
            self.shared.check_has_space()?;
            let one_at_a_time = self.shared.lock_changes().await;
            self.shared.check_runs()?;
            if self.shared.space().free_for(Purpose::Comfort) > 0 {
                return Ok(one_at_a_time);
            }
            drop(one_at_a_time);
            self.wait_for_cleaning(&wait).await?;
        }
    }

    /// Admits a host write once the tables and the drives have room, and delays it near the reserve.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]; or the pool has stopped.
    pub async fn admit(&self, bytes: usize) -> Result<()> {
        let wait = RoomWait::new(&self.shared.demand, self.segments_for(bytes as u64));
        self.wait_for_room(&wait).await?;
        let delay = self.shared.space().delay();
        if delay >= DELAY_MIN {
            sometimes::reached(Sometimes::HostHeldUp);
            self.shared.world.sleep(delay).await;
            // Others may have used the room.
            self.wait_for_room(&wait).await?;
        }
        Ok(())
    }

    /// Waits until the tables have room, and hosts may fill the segments that are wanted.
    async fn wait_for_room(&self, wait: &RoomWait<'_>) -> Result<()> {
        let _in_order = match self.room_order.try_lock() {
            Ok(first) => first,
            Err(_) => self.room_order.lock().await,
        };
        loop {
            self.shared.check_runs()?;
            self.shared.check_has_space()?;
            if self.are_tables_full() {
                self.shared.demand.change().await;
                continue;
            }
            if self.shared.space().free_for(Purpose::Hosts) >= wait.wanted {
                return Ok(());
            }
            self.wait_for_cleaning(wait).await.inspect_err(|_| self.count_refusal())?;
        }
    }

    /// Waits for a change after which there may be enough segments.
    ///
    /// # Errors
    ///
    /// [`Error::Full`]: a round that began after this write arrived gained nothing.
    async fn wait_for_cleaning(&self, wait: &RoomWait<'_>) -> Result<()> {
        if wait.is_in_vain() {
            return Err(self.full());
        }
        wait.list();
        self.shared.note_shortage();
        self.shared.demand.change().await;
        Ok(())
    }

    /// Promises the write of some blocks its space, and waits for its turn at the log. Commands admitted
    /// earlier may have used the segments meanwhile: there must be room for all that have their turn.
    ///
    /// # Errors
    ///
    /// Those of [`Self::promise`] and [`Self::admit`].
    pub(super) async fn enter(&self, volume: VolumeNumber, scope: WriteScope) -> Result<AdmittedWrite> {
        let bytes = scope.count() * BLOCK_BYTES as u64;
        loop {
            let promise = self.promise(volume, scope).await?;
            let ticket = self.queue.enter(volume, bytes).await;
            let is_enough = promise.is_enough(self.shared.state.borrow().catalogue.points());
            if is_enough && self.has_room(self.queue.inside()) {
                return Ok(AdmittedWrite { _promise: promise, _ticket: ticket });
            }
            drop((promise, ticket));
            self.queue.leave().await;
            self.admit(bytes as usize).await?;
        }
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
            self.count_refusal();
            return Err(self.full());
        }
        self.shared.check_has_space()?;
        self.checkpoints.make_of_now().await?;
        if !self.shared.state.borrow().has_leftovers() {
            wait.checkpoints += 1;
        }
        Ok(())
    }

    fn count_refusal(&self) {
        self.shared.demand.count_refusal();
        self.shared.note_shortage();
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
