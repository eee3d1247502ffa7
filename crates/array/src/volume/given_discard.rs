//! Discards and writes of zeroes with given stamps, under the rules of `given_write`. Each is one entry of the log, so
//! a crash leaves no part of it.

use super::{block_locks::BlockSpan, check_range, device::Volume, given_queue::QueueSignal, io_error};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockCount, BlockIndex, BranchNumber, Interval, Stamp},
    log::LogItem,
};
use world::{ByteOffset, IoResult, Stability};

/// Blocks that are looked up to tell a repeated discard from a write with its stamp.
const LOOKED_UP_BLOCKS: u64 = 4096;

impl Volume {
    /// Writes zeroes with the stamp that the command had in another pool, unless that is done. Returns false if it was.
    ///
    /// # Errors
    ///
    /// The last command of the branch has this stamp, and was a write of these blocks; or an error of a write.
    pub async fn ensure_zeroes(&self, first: BlockIndex, count: BlockCount, stamp: Stamp) -> IoResult<bool> {
        self.ensure_zeroes_queued((first, count), stamp, QueueSignal::none()).await
    }

    /// As [`Volume::ensure_zeroes`], of a discard.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn ensure_discard(&self, first: BlockIndex, count: BlockCount, stamp: Stamp) -> IoResult<bool> {
        self.ensure_discard_queued((first, count), stamp, QueueSignal::none()).await
    }

    /// As [`Self::ensure_zeroes`], with a signal when the command enters the log's queue.
    pub(super) async fn ensure_zeroes_queued(
        &self,
        blocks: (BlockIndex, BlockCount),
        stamp: Stamp,
        queued: QueueSignal,
    ) -> IoResult<bool> {
        self.ensure_interval("write zeroes", blocks, (stamp, queued), LogItem::Zeroes).await
    }

    /// As [`Self::ensure_discard`], with a signal when the command enters the log's queue.
    pub(super) async fn ensure_discard_queued(
        &self,
        blocks: (BlockIndex, BlockCount),
        stamp: Stamp,
        queued: QueueSignal,
    ) -> IoResult<bool> {
        self.ensure_interval("discard", blocks, (stamp, queued), LogItem::Discard).await
    }

    async fn ensure_interval(
        &self,
        what: &str,
        (first, count): (BlockIndex, BlockCount),
        (stamp, queued): (Stamp, QueueSignal),
        item: fn(Interval) -> LogItem,
    ) -> IoResult<bool> {
        let failed = |error: Error| io_error(what, &error);
        self.check_changeable().map_err(failed)?;
        let block_bytes = BLOCK_BYTES as u64;
        let at = ByteOffset(first.0.saturating_mul(block_bytes));
        check_range(what, at, count.0.saturating_mul(block_bytes), self.size_bytes())?;
        if count.0 == 0 {
            return Ok(false);
        }
        let _held = self.locks.lock(BlockSpan::whole(first.0..=first.0 + count.0 - 1)).await;
        let _turn = self.host.admission.queue.enter(self.number, block_bytes).await;
        let branch = self.branch().map_err(failed)?;
        let last = self.host.shared.state.borrow().last_stamp_of(branch);
        if stamp <= last {
            if stamp == last {
                self.check_not_written(branch, (first, count), stamp).await.map_err(failed)?;
            }
            self.wait_for_release(what).await?;
            return Ok(false);
        }
        let done = {
            let stamp = self.host.shared.state.borrow_mut().take_stamp(branch, stamp).map_err(failed)?;
            self.log(vec![item(Interval { branch, first, count, stamp })], Stability::Stable)
        };
        queued.send();
        done.await.map_err(failed)?;
        self.wait_for_release(what).await?;
        Ok(true)
    }

    /// Fails if a write of the last stamp is in the first blocks of a range.
    async fn check_not_written(
        &self,
        branch: BranchNumber,
        (first, count): (BlockIndex, BlockCount),
        last: Stamp,
    ) -> Result<()> {
        let _reading = self.host.shared.begin_reading();
        let mapped = self.host.map.map_of(branch, first, count.0.min(LOOKED_UP_BLOCKS), None).await?;
        let is_of_it = mapped.iter().flatten().any(|mapping| {
            mapping.branch == branch && mapping.version.birth == last && !mapping.version.is_zero()
        });
        if is_of_it { Err(Error::StampTaken { branch, stamp: last, last }) } else { Ok(()) }
    }
}
