//! Writes to a volume: split into blocks, blocks in part completed from the current version, then appended to
//! the log as one command.

use super::{
    BlockPart, block_locks::BlockSpan, check_range, device::Volume, given_queue::QueueSignal, io_error,
    pieces, space_promise::WriteScope,
};
use crate::{
    engine::{HostCommand, StageClock},
    error::Result,
    format::{BLOCK_BYTES, BlockIndex, BlockKey, BranchNumber, SECTOR_BYTES, Stamp},
    log::LogItem,
    simulation::canary::{self, Canary},
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, IoResult, Stability, buffer::BUFFER_ALIGNMENT};

/// The stamp of a write.
#[derive(Clone, Copy, Debug)]
pub(super) enum WriteStamp {
    /// The next one of the pool.
    Next,
    /// The one that the write had in another pool.
    Given(Stamp),
    /// The same, for blocks that are missing of a write that was given before.
    Again(Stamp),
}

/// Terms under which a write enters the log.
pub(super) struct WriteTerms {
    pub stability: Stability,
    pub stamp: WriteStamp,
    /// Sent when the write has entered the log's queue.
    pub queued: QueueSignal,
}

impl WriteTerms {
    fn of_host(stability: Stability) -> Self {
        Self { stability, stamp: WriteStamp::Next, queued: QueueSignal::none() }
    }

    /// Of a write with a given stamp.
    pub fn given(stamp: WriteStamp, queued: QueueSignal) -> Self {
        Self { stability: Stability::Stable, stamp, queued }
    }
}

impl Volume {
    /// Writes with the stamp that the write had in another pool, of which this volume is a replica. Otherwise
    /// as a stable write of a host, one after the other: each is awaited before the next is begun.
    ///
    /// # Errors
    ///
    /// The stamp is not above every stamp that the volume's branch may have; or an error of a write.
    pub async fn apply_write(&self, at: ByteOffset, from: &[Arc<Buffer>], stamp: Stamp) -> IoResult<()> {
        self.apply_queued(at, from, stamp, QueueSignal::none()).await
    }

    /// As [`Self::apply_write`], with a signal when the write enters the log's queue.
    pub(super) async fn apply_queued(
        &self,
        at: ByteOffset,
        from: &[Arc<Buffer>],
        stamp: Stamp,
        queued: QueueSignal,
    ) -> IoResult<()> {
        self.write_stamped(at, from, WriteTerms::given(WriteStamp::Given(stamp), queued)).await?;
        self.wait_for_release("write").await
    }

    pub(super) async fn write_range(
        &self,
        at: ByteOffset,
        from: &[Arc<Buffer>],
        stability: Stability,
    ) -> IoResult<()> {
        self.write_stamped(at, from, WriteTerms::of_host(stability)).await
    }

    pub(super) async fn write_stamped(
        &self,
        at: ByteOffset,
        from: &[Arc<Buffer>],
        terms: WriteTerms,
    ) -> IoResult<()> {
        let length: usize = from.iter().map(|buffer| buffer.len()).sum();
        let check = || match terms.stamp {
            WriteStamp::Next => self.check_writable(),
            WriteStamp::Given(_) | WriteStamp::Again(_) => self.check_changeable(),
        };
        check().map_err(|error| io_error("write", &error))?;
        check_range("write", at, length as u64, self.size_bytes())?;
        if length == 0 {
            return Ok(());
        }
        let clock = self.host.stages.begin();
        self.wait_for_rate(length).await;
        self.host.admission.admit(length).await.map_err(|error| io_error("write", &error))?;
        let _timed = self.host.throttle.begin(HostCommand::Write, length);
        let cut: Vec<BlockPart> = pieces(at, length).collect();
        let (first, last) = (cut[0], cut[cut.len() - 1]);
        let span = BlockSpan {
            blocks: first.block..=last.block,
            first_in_part: !first.is_whole(),
            last_in_part: !last.is_whole(),
            is_alone: false,
        };
        let _held = self.locks.lock(span).await;
        // It may have become a replica while the command waited.
        check().map_err(|error| io_error("write", &error))?;
        // The volume may have shrunk while the command waited. Blocks after its end would reappear when it
        // grows again.
        check_range("write", at, length as u64, self.size_bytes())?;
        let done = self.write_blocks(&cut, from, terms, clock.as_ref()).await;
        done.map_err(|error| io_error("write", &error))?;
        if let Some(clock) = clock {
            clock.end_write();
        }
        Ok(())
    }

    async fn write_blocks(
        &self,
        cut: &[BlockPart],
        from: &[Arc<Buffer>],
        terms: WriteTerms,
        clock: Option<&StageClock>,
    ) -> Result<()> {
        let is_too_early = canary::is(Canary::StampBeforeItsTurn);
        let too_early = if is_too_early { Some(self.next_stamp(self.branch()?)) } else { None };
        let mut blocks = Vec::with_capacity(cut.len());
        for piece in cut {
            blocks.push((BlockIndex(piece.block), self.whole_block(piece, from).await?));
        }
        let (first, count) = (blocks[0].0, blocks.len() as u64);
        let _admitted = self.host.admission.enter(self.number, WriteScope::Blocks(first, count)).await?;
        let branch = self.branch()?;
        let done = {
            // The stamp and the place in the log's queue are taken at the same moment, so their orders agree.
            let stamp = match terms.stamp {
                WriteStamp::Given(stamp) => self.host.shared.state.borrow_mut().take_stamp(branch, stamp)?,
                WriteStamp::Again(stamp) => {
                    self.host.shared.state.borrow_mut().retake_stamp(branch, stamp)?
                }
                WriteStamp::Next => too_early.unwrap_or_else(|| self.next_stamp(branch)),
            };
            let parts = blocks.into_iter().map(|(block, data)| {
                let key = BlockKey { branch, block, stamp };
                LogItem::Write { key, data }
            });
            self.log_timed(parts.collect(), terms.stability, clock.map(|clock| Rc::clone(&clock.device)))
        };
        terms.queued.send();
        if let Some(clock) = clock {
            clock.leave_queue();
        }
        done.await
    }

    /// True if blocks of which it has no version are those of a source elsewhere.
    pub(super) fn is_importing(&self) -> bool {
        let branch = self.branch();
        branch.is_ok_and(|branch| self.host.shared.state.borrow().catalogue.is_importing(branch))
    }

    fn next_stamp(&self, branch: BranchNumber) -> Stamp {
        self.host.shared.state.borrow_mut().next_stamp_of([branch])
    }

    /// The complete block, read and modified if the command writes a part of it.
    async fn whole_block(&self, piece: &BlockPart, from: &[Arc<Buffer>]) -> Result<Arc<Buffer>> {
        if piece.is_whole()
            && let Some(buffer) = uncopied(from, piece.at)
        {
            return Ok(buffer);
        }
        let is_blind = canary::is(Canary::ImportPartialWriteOverZeroes) && self.is_importing();
        let mut block = if piece.is_whole() || is_blind {
            Buffer::zeroed(BLOCK_BYTES)
        } else {
            self.read_block(BlockIndex(piece.block)).await?
        };
        copy_from(from, piece.at, &mut block[piece.start..piece.start + piece.length]);
        Ok(Arc::new(block))
    }

    /// The block in which a volume of `sectors` would end, zeroed after the end; `None` if the size is a
    /// multiple of the block size.
    pub(crate) async fn block_cut_at(&self, sectors: u64) -> Result<Option<(BlockIndex, Arc<Buffer>)>> {
        let end = sectors * SECTOR_BYTES;
        let within = (end % BLOCK_BYTES as u64) as usize;
        if within == 0 {
            return Ok(None);
        }
        let block = BlockIndex(end / BLOCK_BYTES as u64);
        let mut data = self.read_block(block).await?;
        data[within..].fill(0);
        Ok(Some((block, Arc::new(data))))
    }
}

/// The block at byte `at` of the command, if it lies in one buffer and is aligned there.
fn uncopied(from: &[Arc<Buffer>], at: usize) -> Option<Arc<Buffer>> {
    let mut start = 0;
    for buffer in from {
        if at < start + buffer.len() {
            let range = at - start..at - start + BLOCK_BYTES;
            if range == (0..buffer.len()) {
                return Some(Arc::clone(buffer));
            }
            let is_part = range.start.is_multiple_of(BUFFER_ALIGNMENT) && range.end <= buffer.len();
            return is_part.then(|| Arc::new(Buffer::part_of(buffer, range)));
        }
        start += buffer.len();
    }
    None
}

/// Copies bytes of the command from byte `at`.
fn copy_from(from: &[Arc<Buffer>], at: usize, into: &mut [u8]) {
    let (mut start, mut done) = (0, 0);
    for buffer in from {
        let end = start + buffer.len();
        let wanted = at + done;
        if wanted < end && done < into.len() {
            let part = &buffer[wanted - start..];
            let count = part.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&part[..count]);
            done += count;
        }
        start = end;
    }
    assert_eq!(done, into.len(), "the command has these bytes");
}
