//! Reads of stored blocks, from the first right copy.
//!
//! The checksum of a block is bound to branch, block and stamp. A corrupt, stale, lost or misdirected copy is
//! skipped, and repaired from a right one.

use super::{Shared, hedged_read::HedgedRead};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockChecksum, BlockKey, SegmentBlock, SegmentNumber},
    redundancy::{SegmentLayout, SlotSource},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::sync::Arc;
use world::{Buffer, Stability};

/// Blocks of one read from a drive, at most.
const RUN_BLOCKS_MAX: usize = 256;
/// Neighbouring blocks that are read from the same copy.
const TURN_BLOCKS: u32 = 64;

/// Adjacent blocks of a segment.
pub(crate) struct StoredRun {
    pub segment: SegmentNumber,
    /// Location of the first block in the segment's data.
    pub at: SegmentBlock,
    /// Key and checksum of each block.
    pub blocks: Vec<(BlockKey, BlockChecksum)>,
}

/// A copy with wrong blocks.
struct BadCopy {
    /// Of the first block of the run.
    source: SlotSource,
    /// Indices of the wrong blocks in the run.
    wrong: Vec<usize>,
}

impl StoredRun {
    /// True if the block at this location is the next one of the run.
    pub fn is_followed_by(&self, segment: SegmentNumber, at: SegmentBlock) -> bool {
        let count = self.blocks.len();
        self.segment == segment && self.at.0 + count as u32 == at.0 && count < RUN_BLOCKS_MAX
    }
}

impl Shared {
    /// Checks every copy of a run, and repairs wrong ones.
    ///
    /// # Errors
    ///
    /// A block is right on no copy.
    pub(crate) async fn scrub_run(&self, run: &StoredRun) -> Result<()> {
        self.read_copies(run, true).await.map(drop)
    }

    /// Reads a run; blocks may come from different copies.
    ///
    /// # Errors
    ///
    /// A block is right on no copy.
    pub(crate) async fn read_run(&self, run: &StoredRun) -> Result<Buffer> {
        self.read_copies(run, false).await
    }

    /// Reads until all blocks are right; with `all`, every copy.
    async fn read_copies(&self, run: &StoredRun, all: bool) -> Result<Buffer> {
        let count = run.blocks.len();
        let sources = self.sources_of(run.segment, run.at)?;
        let turn = (run.at.0 / TURN_BLOCKS) as usize % sources.len().max(1);
        let mut good: Option<(Buffer, Vec<usize>)> = None;
        let (mut bad, mut error) = (Vec::new(), None);
        let in_turn = sources[turn..].iter().chain(&sources[..turn]).copied();
        let mut hedged = HedgedRead::new(self, in_turn, count, all);
        while let Some((source, read)) = hedged.next().await {
            let wrong = match read {
                Ok(data) => {
                    let wrong = self.wrong_blocks(run, &data);
                    if wrong.is_empty() && bad.is_empty() && !all {
                        hedged.end();
                        return Ok(data);
                    }
                    match &mut good {
                        Some((known, known_wrong)) => take_over(known, known_wrong, &data, &wrong),
                        None => good = Some((data, wrong.clone())),
                    }
                    wrong
                }
                Err(failed) => {
                    error = Some(failed);
                    (0..count).collect()
                }
            };
            if !wrong.is_empty() {
                bad.push(BadCopy { source, wrong });
            }
            if good.as_ref().is_some_and(|(_, wrong)| wrong.is_empty()) && !all {
                break;
            }
        }
        hedged.end();
        match good {
            Some((data, wrong)) if wrong.is_empty() => {
                self.repair_run(&data, bad).await;
                Ok(data)
            }
            Some((_, wrong)) => Err(unreadable(run.blocks[wrong[0]].0)),
            None => Err(error.unwrap_or_else(|| unreadable(run.blocks[0].0))),
        }
    }

    /// Sources of a block, on present and absent drives.
    pub(super) fn sources_of(&self, segment: SegmentNumber, at: SegmentBlock) -> Result<Vec<SlotSource>> {
        let state = self.state.borrow();
        let row = state.segments.readable(segment).ok_or(Error::NoSegment(segment))?;
        Ok(SegmentLayout::of(row).plan_read(at))
    }

    /// Indices of the blocks whose checksum is wrong.
    fn wrong_blocks(&self, run: &StoredRun, data: &[u8]) -> Vec<usize> {
        if canary::is(Canary::SkipCrc) {
            return Vec::new();
        }
        let blocks = run.blocks.iter().zip(data.chunks_exact(BLOCK_BYTES)).enumerate();
        let wrong =
            blocks.filter(|(_, ((key, checksum), bytes))| self.seed.checksum(*key, bytes) != *checksum);
        wrong.map(|(index, _)| index).collect()
    }

    /// Repairs wrong copies. Errors are ignored: a drive that fails is detected by the next write that
    /// matters.
    async fn repair_run(&self, data: &Buffer, bad: Vec<BadCopy>) {
        for BadCopy { source: SlotSource { slot, block }, wrong } in bad {
            for index in wrong {
                let right = Buffer::copy_of(&data[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES]);
                let write =
                    self.drives.write(slot, block + index as u32, vec![Arc::new(right)], Stability::Stable);
                if let Some(write) = write
                    && write.await.is_ok()
                {
                    sometimes::reached(Sometimes::BlockRepaired);
                    self.repaired.set(self.repaired.get() + 1);
                }
            }
        }
    }
}

fn unreadable(key: BlockKey) -> Error {
    sometimes::reached(Sometimes::BlockLost);
    Error::Unreadable { block: key.block, branch: key.branch }
}

/// Copies the blocks that are right in `data` and wrong in `known`.
fn take_over(known: &mut Buffer, known_wrong: &mut Vec<usize>, data: &[u8], wrong: &[usize]) {
    known_wrong.retain(|index| {
        if wrong.contains(index) {
            return true;
        }
        sometimes::reached(Sometimes::RunFromSeveralCopies);
        let range = index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES;
        known[range.clone()].copy_from_slice(&data[range]);
        false
    });
}
