//! A volume as a block device: commands on its head.

use super::{
    HostPath, MOVED_END,
    block_locks::{BlockLock, BlockLocks, BlockSpan},
    check_range,
    command_gate::{CommandGate, EnteredCommand},
    io_error,
    rate_limiter::{RateLimiter, Rates},
};
use crate::{
    engine::{DeviceTime, HostsEnds},
    error::{Error, Result},
    format::{
        BlockCount, BlockIndex, BranchNumber, Interval, SECTOR_BYTES, VolumeNumber,
        row::{VolumeRow, VolumeState, WriteCache},
    },
    log::LogItem,
};
use futures_util::TryFutureExt;
use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability, with_deadline,
};

/// A volume of an open pool.
pub struct Volume {
    pub(super) host: Rc<HostPath>,
    pub(super) number: VolumeNumber,
    pub(super) locks: Rc<BlockLocks>,
    gate: Rc<CommandGate>,
    limiter: RateLimiter,
    /// [`Volume::force_write_cache`] was called.
    is_cache_forced: Cell<bool>,
}

impl Volume {
    /// All handles of a volume have the same locks and the same gate.
    pub(crate) fn new(
        host: Rc<HostPath>,
        number: VolumeNumber,
        (locks, gate): (Rc<BlockLocks>, Rc<CommandGate>),
    ) -> Self {
        Self { host, number, locks, gate, limiter: RateLimiter::default(), is_cache_forced: Cell::default() }
    }

    /// True if its setting lets writes without FUA wait for the next flush.
    pub fn has_write_cache(&self) -> bool {
        self.with_row(|row| row.write_cache == WriteCache::On) == Some(true)
    }

    /// Lets writes without FUA wait for the next flush, as with the write cache on, until the pool is closed.
    /// The setting on the drives does not change.
    pub fn force_write_cache(&self) {
        self.is_cache_forced.set(true);
    }

    /// Current size; 0 once the volume was deleted.
    pub fn size_bytes(&self) -> u64 {
        self.with_row(|row| row.sectors * SECTOR_BYTES).unwrap_or(0)
    }

    /// The branch of its head.
    ///
    /// # Errors
    ///
    /// The volume was deleted.
    pub(super) fn branch(&self) -> Result<BranchNumber> {
        let branch = self.with_row(|row| row.branch);
        branch.ok_or_else(|| Error::NoVolume(format!("number {}", self.number)))
    }

    /// `None` once the volume was deleted, even if its space was not reclaimed yet.
    fn with_row<T>(&self, look: impl FnOnce(&VolumeRow) -> T) -> Option<T> {
        let state = self.host.shared.state.borrow();
        state.catalogue.volume(self.number).filter(|row| row.state == VolumeState::Live).map(look)
    }

    /// Waits until the rate limits admit another command of `bytes` bytes.
    pub(super) async fn wait_for_rate(&self, bytes: usize) {
        let rates =
            self.with_row(|row| Rates { iops_max: row.iops_max, kib_per_second_max: row.kib_per_second_max });
        self.limiter.wait(&self.host.shared.world, rates.unwrap_or_default(), bytes).await;
    }

    /// Keeps writers out until the lock is dropped. Waits for writes under way.
    pub(crate) async fn hold_writes(&self) -> BlockLock {
        self.locks.close().await
    }

    /// Fails if the volume was deleted.
    pub(super) fn check_exists(&self) -> Result<()> {
        self.branch().map(drop)
    }

    /// True if no host changes it: a rollback left it, or it is a replica.
    pub fn is_read_only(&self) -> bool {
        let is_left = self.with_row(|row| row.left_by.is_some()) == Some(true);
        is_left || self.check_no_replica().is_err()
    }

    fn check_no_replica(&self) -> Result<()> {
        let state = self.host.shared.state.borrow();
        match state.catalogue.volume(self.number) {
            Some(row) if state.catalogue.is_replica(row) => Err(Error::Replica(row.name.clone())),
            _ => Ok(()),
        }
    }

    /// Fails if hosts must not write: as [`Self::check_changeable`], or the volume is a replica.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_changeable()?;
        self.check_no_replica()
    }

    /// Fails if the volume was deleted, is what a rollback left, or was moved to another pool.
    pub(super) fn check_changeable(&self) -> Result<()> {
        let refusal = self.with_row(|row| match row {
            row if row.left_by.is_some() => Some(Error::LeftByRollback(row.name.clone())),
            row if row.name.ends_with(MOVED_END) => Some(Error::MovedElsewhere(row.name.clone())),
            _ => None,
        });
        refusal.flatten().map_or_else(|| self.check_exists(), Err)
    }

    /// Appends a command to the log: stable, unless it has no FUA and the write cache is on.
    pub(super) fn log(&self, parts: Vec<LogItem>, stability: Stability) -> LocalFuture<Result<()>> {
        self.log_timed(parts, stability, None)
    }

    /// As [`Self::log`], and adds the time that drives work for it to `device`.
    pub(super) fn log_timed(
        &self,
        parts: Vec<LogItem>,
        stability: Stability,
        device: Option<DeviceTime>,
    ) -> LocalFuture<Result<()>> {
        let is_suspended = self.host.shared.are_caches_suspended.get();
        let is_cached = !is_suspended && (self.has_write_cache() || self.is_cache_forced.get());
        let stability = if is_cached { stability } else { Stability::Stable };
        self.host.log.append_timed(parts, stability, device)
    }

    /// Waits until the log's subscribers let a command be answered that is done. Its locks and its space are
    /// released already.
    pub(super) async fn wait_for_release(&self, what: &str) -> IoResult<()> {
        let released = self.host.shared.wait_for_release_of(Some(self.number)).await;
        released.map_err(|error| io_error(what, &error))
    }

    /// A command of a host comes in, once nobody holds it off; it belongs elsewhere if the volume changed hands meanwhile.
    async fn enter(&self, what: &str) -> IoResult<EnteredCommand> {
        self.gate.enter().await.ok_or_else(|| {
            let name = self.with_row(|row| row.name.clone()).unwrap_or_default();
            io_error(what, &Error::MovedElsewhere(name))
        })
    }

    /// A command of a host begins.
    fn begin_of_host(&self, what: &str) -> IoResult<HostsEnds> {
        self.host.shared.begin_command_of_host(self.number).map_err(|error| io_error(what, &error))
    }

    /// A command of a host has succeeded, unless hosts were refused since it began.
    fn end_of_host(&self, what: &str, begun: HostsEnds) -> IoResult<()> {
        self.host.shared.end_command_of_host(self.number, begun).map_err(|error| io_error(what, &error))
    }

    /// Waits until its host may have what it read.
    async fn wait_for_read_gate(&self, at: ByteOffset, length: u64) -> IoResult<()> {
        let block_bytes = crate::format::BLOCK_BYTES as u64;
        let first = at.0 / block_bytes;
        let count = BlockCount((at.0 + length).div_ceil(block_bytes) - first);
        let passed = self.host.shared.wait_for_read_gate(self.number, BlockIndex(first), count).await;
        passed.map_err(|error| io_error("read", &error))
    }

    async fn discard_range(&self, at: ByteOffset, length: u64) -> IoResult<()> {
        self.check_writable().map_err(|error| io_error("discard", &error))?;
        check_range("discard", at, length, self.size_bytes())?;
        // A block in part keeps what the host wrote, so only whole blocks are discarded.
        let block_bytes = crate::format::BLOCK_BYTES as u64;
        let (first, end) = (at.0.div_ceil(block_bytes), (at.0 + length) / block_bytes);
        if first >= end {
            return Ok(());
        }
        self.wait_for_rate(0).await;
        let _held = self.locks.lock(BlockSpan::whole(first..=end - 1)).await;
        // It may have become a replica while the command waited.
        self.check_writable().map_err(|error| io_error("discard", &error))?;
        let _turn = self.host.admission.queue.enter(self.number, crate::format::BLOCK_BYTES as u64).await;
        let branch = self.branch().map_err(|error| io_error("discard", &error))?;
        let done = {
            let stamp = self.host.shared.state.borrow_mut().next_stamp_of([branch]);
            let interval =
                Interval { branch, first: BlockIndex(first), count: BlockCount(end - first), stamp };
            self.log(vec![LogItem::Discard(interval)], Stability::Volatile)
        };
        done.await.map_err(|error| io_error("discard", &error))
    }
}

impl Volume {
    /// Returns when the command is done, or with an error once the pool has waited too long for space on its
    /// drives. The command then continues in the background and keeps its locks.
    async fn answer_in_time(
        &self,
        what: &str,
        mut command: impl Future<Output = IoResult<()>> + Unpin,
    ) -> IoResult<()> {
        let shared = &self.host.shared;
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

/// A handle on a volume. Each command runs in a task of its own, so one that has begun completes even if its
/// caller is dropped.
#[derive(Clone)]
pub struct VolumeDevice(pub Rc<Volume>);

impl BlockDevice for VolumeDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.0.size_bytes()), sector: SECTOR_BYTES as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let volume = Rc::clone(&self.0);
        let world = volume.host.shared.world.clone();
        Box::pin(world.spawn("volume read", async move {
            let _under_way = volume.enter("read").await?;
            let begun = volume.begin_of_host("read")?;
            let length: usize = into.iter().map(|buffer| buffer.len()).sum();
            let read = volume.read_range(at, into).await?;
            volume.wait_for_read_gate(at, length as u64).await?;
            volume.end_of_host("read", begun)?;
            Ok(read)
        }))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let volume = Rc::clone(&self.0);
        let world = volume.host.shared.world.clone();
        let own = Rc::clone(&volume);
        let command = world.spawn("volume write", async move {
            let _under_way = volume.enter("write").await?;
            let begun = volume.begin_of_host("write")?;
            volume.write_range(at, &from, stability).await?;
            volume.wait_for_release("write").await?;
            volume.end_of_host("write", begun)
        });
        Box::pin(async move { own.answer_in_time("write", command).await })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (volume, host) = (Rc::clone(&self.0), &self.0.host);
        let stopped = host.shared.check_runs();
        // The write cache may have been switched off a moment ago, so this syncs in any case.
        let synced = host.log.sync();
        Box::pin(async move {
            stopped.map_err(|error| io_error("flush", &error))?;
            let synced = synced.map_err(|error| io_error("flush", &error));
            volume.answer_in_time("flush", synced).await?;
            volume.wait_for_release("flush").await
        })
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        let volume = Rc::clone(&self.0);
        let world = volume.host.shared.world.clone();
        let own = Rc::clone(&volume);
        let command = world.spawn("volume discard", async move {
            let _under_way = volume.enter("discard").await?;
            let begun = volume.begin_of_host("discard")?;
            volume.discard_range(at, length.0).await?;
            volume.wait_for_release("discard").await?;
            volume.end_of_host("discard", begun)
        });
        Box::pin(async move { own.answer_in_time("discard", command).await })
    }
}
