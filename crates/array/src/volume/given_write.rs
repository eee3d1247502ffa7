//! Writes with given stamps that may be there already: a follower gets them again after a crash, or when its
//! confirmation was lost.
//!
//! A follower applies the commands of a branch in the order of their stamps: each is in the log's queue before the next
//! is begun (`given_queue`). Nobody else writes the branch. The log keeps that order, and a crash leaves a prefix of its
//! records, however many of them went to the drives at once. So
//!
//! * a stamp above all of the branch is new,
//! * a stamp below the last one was applied, all of it,
//! * of the command with the last stamp a crash may have left a part: each block is looked up.
//!
//! The stamps of a branch are exact after a checkpoint and after a replay, so this holds then, too.
//!
//! A stamp below the last one may be of a command that is still in the log's queue: a follower that may send commands
//! again waits first for those that it has begun. With the last stamp it need not. What is under way with it is of other
//! blocks of the same command, and an older version on its way into the tables is missing as much as one that is there.

use super::{
    check_range,
    device::Volume,
    given_queue::QueueSignal,
    io_error,
    write::{WriteStamp, WriteTerms},
};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, BranchNumber, Stamp},
};
use std::{ops::Range, sync::Arc};
use world::{Buffer, ByteOffset, IoResult};

impl Volume {
    /// As [`Volume::apply_write`], but what is there of the write is not written again. Whole blocks only, one
    /// buffer each. Returns the number of blocks that were missing.
    ///
    /// # Errors
    ///
    /// The stamp is not above those of the branch, and a block has an older version: this is not a write that was
    /// applied before. Or an error of a write.
    ///
    /// # Panics
    ///
    /// If it is not of whole blocks.
    pub async fn ensure_write(&self, at: ByteOffset, from: &[Arc<Buffer>], stamp: Stamp) -> IoResult<u64> {
        self.ensure_write_queued(at, from, stamp, QueueSignal::none()).await
    }

    /// As [`Self::ensure_write`], with a signal when the missing blocks have entered the log's queue. It is dropped unsent
    /// if none was missing.
    pub(super) async fn ensure_write_queued(
        &self,
        at: ByteOffset,
        from: &[Arc<Buffer>],
        stamp: Stamp,
        queued: QueueSignal,
    ) -> IoResult<u64> {
        let block_bytes = BLOCK_BYTES as u64;
        assert!(at.0.is_multiple_of(block_bytes), "it begins with a block");
        assert!(from.iter().all(|buffer| buffer.len() == BLOCK_BYTES), "a buffer is a block");
        let (first, count) = (BlockIndex(at.0 / block_bytes), from.len() as u64);
        check_range("write", at, count * block_bytes, self.size_bytes())?;
        if count == 0 {
            return Ok(0);
        }
        let branch = self.branch().map_err(|error| io_error("write", &error))?;
        let last = self.host.shared.state.borrow().last_stamp_of(branch);
        if stamp > last {
            self.apply_queued(at, from, stamp, queued).await?;
            return Ok(count);
        }
        let missing = self.missing_blocks((branch, last), first, count, stamp).await;
        let missing = missing.map_err(|error| io_error("write", &error))?;
        let mut queued = Some(queued);
        for (index, run) in missing.iter().enumerate() {
            let (start, end) = (run.start as usize, run.end as usize);
            let place = ByteOffset(at.0 + run.start * block_bytes);
            let signal = queued.take_if(|_| index + 1 == missing.len()).unwrap_or_default();
            let terms = WriteTerms::given(WriteStamp::Again(stamp), signal);
            self.write_stamped(place, &from[start..end], terms).await?;
        }
        self.wait_for_release("write").await?;
        Ok(missing.iter().map(|run| run.end - run.start).sum())
    }

    /// Runs of blocks, counted from the first of the command, that lack its version.
    async fn missing_blocks(
        &self,
        (branch, last): (BranchNumber, Stamp),
        first: BlockIndex,
        count: u64,
        stamp: Stamp,
    ) -> Result<Vec<Range<u64>>> {
        let _reading = self.host.shared.begin_reading();
        let mapped = self.host.map.map_of(branch, first, count, None).await?;
        let mut missing: Vec<Range<u64>> = Vec::new();
        for (index, mapping) in (0..).zip(mapped) {
            // Of another branch: this one has no version, or a discard hid it and the parent's.
            let birth =
                mapping.filter(|mapping| mapping.branch == branch).map(|mapping| mapping.version.birth);
            if birth.is_some_and(|birth| birth >= stamp) {
                continue;
            }
            if stamp < last {
                // Discarded since; or the volume was rolled back since, to an older version.
                if mapping.is_none_or(|mapping| mapping.branch != branch) {
                    continue;
                }
                return Err(Error::StampTaken { branch, stamp, last });
            }
            match missing.last_mut().filter(|run| run.end == index) {
                Some(run) => run.end += 1,
                None => missing.push(index..index + 1),
            }
        }
        Ok(missing)
    }
}
