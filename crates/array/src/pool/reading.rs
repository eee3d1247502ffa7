//! Reading what is stored: the first copy of each block that is right.
//!
//! Each block has its checksum, which is bound to branch, block and stamp: a copy that is rotten, stale, lost or of
//! somewhere else is passed over, and written again from a good one.

use super::{Shared, turns::Turns};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockChecksum, BlockKey, SegmentBlock, SegmentNumber, SlotAddress, SlotBlock},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
};
use std::sync::Arc;
use world::{Buffer, Stability};

/// Blocks read at once from one place at most.
const RUN_BLOCKS_MAX: usize = 256;
/// Neighbouring blocks that are read from the same copy.
const TURN_BLOCKS: u32 = 64;

/// Blocks that lie one behind the other in a segment.
pub(crate) struct StoredRun {
    /// Which segment.
    pub segment: SegmentNumber,
    /// Where in its data the first one lies.
    pub at: SegmentBlock,
    /// What each is, and its checksum.
    pub blocks: Vec<(BlockKey, BlockChecksum)>,
}

/// A copy that has some blocks wrong.
struct BadCopy {
    slot: SlotAddress,
    /// Of the slot, where the run begins.
    block: u32,
    /// Which blocks of the run.
    wrong: Vec<usize>,
}

impl StoredRun {
    /// Whether a block that lies there is the next one of the run.
    pub fn is_followed_by(&self, segment: SegmentNumber, at: SegmentBlock) -> bool {
        let count = self.blocks.len();
        self.segment == segment && self.at.0 + count as u32 == at.0 && count < RUN_BLOCKS_MAX
    }
}

impl Shared {
    /// Looks at every copy of a run, and mends those that are wrong.
    ///
    /// # Errors
    ///
    /// A block that no copy has right.
    pub(crate) async fn scrub_run(&self, run: &StoredRun) -> Result<()> {
        self.read_copies(run, true).await.map(drop)
    }

    /// All blocks of a run, each from a copy that has it right.
    ///
    /// # Errors
    ///
    /// A block that no copy has right.
    pub(crate) async fn read_run(&self, run: &StoredRun) -> Result<Buffer> {
        self.read_copies(run, false).await
    }

    /// From the first copy that is right, or after looking at `all` of them.
    async fn read_copies(&self, run: &StoredRun, all: bool) -> Result<Buffer> {
        let count = run.blocks.len();
        let copies = self.copies_of(run.segment, run.at)?;
        let turn = (run.at.0 / TURN_BLOCKS) as usize % copies.len().max(1);
        let mut good: Option<(Buffer, Vec<usize>)> = None;
        let (mut bad, mut error) = (Vec::new(), None);
        let in_turn = copies[turn..].iter().chain(&copies[..turn]).copied();
        let mut turns = Turns::new(self, in_turn, count, all);
        while let Some((slot, block, read)) = turns.next().await {
            let wrong = match read {
                Ok(data) => {
                    let wrong = self.wrong_blocks(run, &data);
                    if wrong.is_empty() && bad.is_empty() && !all {
                        turns.end();
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
                bad.push(BadCopy { slot, block, wrong });
            }
            if good.as_ref().is_some_and(|(_, wrong)| wrong.is_empty()) && !all {
                break;
            }
        }
        turns.end();
        match good {
            Some((data, wrong)) if wrong.is_empty() => {
                self.mend_run(&data, bad).await;
                Ok(data)
            }
            Some((_, wrong)) => Err(unreadable(run.blocks[wrong[0]].0)),
            None => Err(error.unwrap_or_else(|| unreadable(run.blocks[0].0))),
        }
    }

    /// Where the copies of a block lie: slot, and block in it.
    fn copies_of(&self, segment: SegmentNumber, at: SegmentBlock) -> Result<Vec<(SlotAddress, u32)>> {
        let state = self.state.borrow();
        let row = state.segments.readable(segment).ok_or(Error::NoSegment(segment))?;
        let places =
            row.shape.copies(at).map(|SlotBlock { slot_index, block }| (row.slots[slot_index], block));
        Ok(places.collect())
    }

    /// Which blocks of a run are not what they should be.
    fn wrong_blocks(&self, run: &StoredRun, data: &[u8]) -> Vec<usize> {
        if canary::is(Canary::SkipCrc) {
            return Vec::new();
        }
        let blocks = run.blocks.iter().zip(data.chunks_exact(BLOCK_BYTES)).enumerate();
        let wrong =
            blocks.filter(|(_, ((key, checksum), bytes))| self.seed.checksum(*key, bytes) != *checksum);
        wrong.map(|(index, _)| index).collect()
    }

    /// Writes again what a copy had wrong. A drive that cannot be written is found by whoever relies on a write.
    async fn mend_run(&self, data: &Buffer, bad: Vec<BadCopy>) {
        for BadCopy { slot, block, wrong } in bad {
            for index in wrong {
                let right = Buffer::copy_of(&data[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES]);
                let write =
                    self.drives.write(slot, block + index as u32, vec![Arc::new(right)], Stability::Stable);
                if let Some(write) = write
                    && write.await.is_ok()
                {
                    sometimes::reached(Sometimes::BlockMended);
                    self.mended.set(self.mended.get() + 1);
                }
            }
        }
    }
}

fn unreadable(key: BlockKey) -> Error {
    sometimes::reached(Sometimes::BlockLost);
    Error::Unreadable { block: key.block, branch: key.branch }
}

/// Takes over the blocks that `data` has right and `known` has not.
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
