//! A volume: what its head reads and writes.

use super::{
    block_locks::{BlockLocks, Held, Span},
    caps::{Caps, Rates},
    check_range,
    gate::Pass,
    io_error,
};
use crate::{
    error::{Error, Result},
    format::{
        BlockCount, BlockIndex, BranchNumber, Interval, SECTOR_BYTES, VolumeNumber,
        row::{VolumeRow, VolumeState, WriteCache},
    },
    log::Part,
    pool::{Pool, Promised},
};
use futures_util::TryFutureExt;
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability, with_deadline,
};

/// A volume of an open pool. See the module's documentation.
pub struct Volume {
    pub(super) pool: Rc<Pool>,
    number: VolumeNumber,
    pub(super) locks: Rc<BlockLocks>,
    caps: Caps,
    /// Its writes may wait although its setting says otherwise.
    is_cache_forced: Cell<bool>,
}

impl Volume {
    pub(crate) fn new(pool: Rc<Pool>, number: VolumeNumber) -> Self {
        Self { pool, number, locks: Rc::default(), caps: Caps::default(), is_cache_forced: Cell::default() }
    }

    /// Whether its setting lets writes that do not ask to be stable wait for the next flush.
    pub fn has_write_cache(&self) -> bool {
        self.with_row(|row| row.write_cache == WriteCache::On) == Some(true)
    }

    /// Lets writes that do not ask to be stable wait, as with the write cache on, until the pool is closed. The setting on
    /// the drives stays as it is.
    pub fn force_write_cache(&self) {
        self.is_cache_forced.set(true);
    }

    /// What it holds when it is full, as of now; nothing if it was deleted.
    pub fn size_bytes(&self) -> u64 {
        self.with_row(|row| row.sectors * SECTOR_BYTES).unwrap_or(0)
    }

    /// The branch of its head.
    ///
    /// # Errors
    ///
    /// It was deleted.
    pub(super) fn branch(&self) -> Result<BranchNumber> {
        let branch = self.with_row(|row| row.branch);
        branch.ok_or_else(|| Error::NoVolume(format!("number {}", self.number)))
    }

    /// None once it was deleted, whether or not its space is back.
    fn with_row<T>(&self, look: impl FnOnce(&VolumeRow) -> T) -> Option<T> {
        let state = self.pool.shared.state.borrow();
        state.catalogue.volume(self.number).filter(|row| row.state == VolumeState::Live).map(look)
    }

    /// Waits until the volume may have another command of so many bytes.
    pub(super) async fn wait_for_caps(&self, bytes: usize) {
        let rates =
            self.with_row(|row| Rates { iops_max: row.iops_max, kib_per_second_max: row.kib_per_second_max });
        self.caps.wait(&self.pool.shared.world, rates.unwrap_or_default(), bytes).await;
    }

    /// Sees to it that the pool and the volume's bounds have room for blocks that are to be written.
    pub(super) async fn promise(&self, first: BlockIndex, count: u64) -> Result<Promised> {
        self.pool.promise(self.number, first, count).await
    }

    /// Waits for the volume's turn to log so many bytes.
    pub(super) async fn wait_for_turn(&self, bytes: usize) -> Pass {
        self.pool.gate.enter(self.number, bytes as u64).await
    }

    /// Nobody writes until what is given back is dropped; writes under way are done.
    pub(crate) async fn hold_writes(&self) -> Held {
        self.locks.close().await
    }

    /// Whether it was deleted meanwhile.
    pub(super) fn check_is_there(&self) -> Result<()> {
        self.branch().map(drop)
    }

    /// Logs what a host asked for, which is promised to be stable unless it may wait and the write cache is on.
    pub(super) fn log(&self, parts: Vec<Part>, stability: Stability) -> LocalFuture<Result<()>> {
        let is_cached = self.has_write_cache() || self.is_cache_forced.get();
        match stability {
            Stability::Volatile if is_cached => self.pool.lane.append_volatile(parts),
            _ => self.pool.lane.append(parts),
        }
    }

    async fn discard_range(&self, at: ByteOffset, length: u64) -> IoResult<()> {
        self.check_is_there().map_err(|error| io_error("discard", &error))?;
        check_range("discard", at, length, self.size_bytes())?;
        // Only whole blocks are let go: the rest of a block in part still holds what the host wrote.
        let block_bytes = crate::format::BLOCK_BYTES as u64;
        let (first, end) = (at.0.div_ceil(block_bytes), (at.0 + length) / block_bytes);
        if first >= end {
            return Ok(());
        }
        self.wait_for_caps(0).await;
        let _held = self.locks.lock(Span::whole(first..=end - 1)).await;
        let _turn = self.wait_for_turn(crate::format::BLOCK_BYTES).await;
        let branch = self.branch().map_err(|error| io_error("discard", &error))?;
        let done = {
            let stamp = self.pool.shared.state.borrow_mut().next_stamp();
            let interval =
                Interval { branch, first: BlockIndex(first), count: BlockCount(end - first), stamp };
            self.log(vec![Part::Discard(interval)], Stability::Volatile)
        };
        done.await.map_err(|error| io_error("discard", &error))
    }
}

impl Volume {
    /// Answers a command when it is done, or with an error when the pool has waited for space for too long. The command goes
    /// on, and keeps what it holds.
    async fn answer_in_time(
        &self,
        what: &str,
        mut command: impl Future<Output = IoResult<()>> + Unpin,
    ) -> IoResult<()> {
        let shared = &self.pool.shared;
        loop {
            if let Some(answer) = with_deadline(shared.space_wait.has_been_too_long(), &mut command).await {
                return answer;
            }
            let out_of_space = shared.drives.out_of_space();
            if !out_of_space.is_empty() {
                return Err(io_error(what, &Error::OutOfSpace(out_of_space)));
            }
        }
    }
}

/// Volumes are handed around in an Rc: a command that was begun goes on when nobody waits for it.
#[derive(Clone)]
pub struct VolumeDevice(pub Rc<Volume>);

impl BlockDevice for VolumeDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.0.size_bytes()), sector: SECTOR_BYTES as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let volume = Rc::clone(&self.0);
        let world = volume.pool.shared.world.clone();
        Box::pin(world.spawn("volume read", async move { volume.read_range(at, into).await }))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let volume = Rc::clone(&self.0);
        let world = volume.pool.shared.world.clone();
        let own = Rc::clone(&volume);
        let command =
            world.spawn("volume write", async move { volume.write_range(at, &from, stability).await });
        Box::pin(async move { own.answer_in_time("write", command).await })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (volume, pool) = (Rc::clone(&self.0), &self.0.pool);
        let stopped = pool.shared.check_runs();
        // Also without a write cache: it may have been switched off a moment ago.
        let synced = pool.lane.sync();
        Box::pin(async move {
            stopped.map_err(|error| io_error("flush", &error))?;
            let synced = synced.map_err(|error| io_error("flush", &error));
            volume.answer_in_time("flush", synced).await
        })
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let volume = Rc::clone(&self.0);
        let world = volume.pool.shared.world.clone();
        let own = Rc::clone(&volume);
        let command = world.spawn("volume discard", async move { volume.discard_range(at, length.0).await });
        Box::pin(async move { own.answer_in_time("discard", command).await })
    }
}
