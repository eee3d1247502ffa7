//! Blocks of a point that are read together and sent as one frame.
//!
//! Invariant: the ranges ascend, and have as many blocks together as were counted.

use crate::frame::PassBlock;
use array::{
    error::Error,
    format::{BLOCK_BYTES, BlockIndex},
    volume::SnapshotDevice,
};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::{ops::Range, sync::Arc};
use world::{BlockDevice, Buffer, ByteOffset};

/// Reads that are under way at once: hosts read the same drives.
const READS_AT_ONCE: usize = 16;

#[derive(Debug, Default)]
pub(super) struct GatheredBlocks {
    ranges: Vec<Range<u64>>,
    count: u64,
}

impl GatheredBlocks {
    /// Takes the first of `blocks` out of it, until there are `most`. False if they lie before what is here: then nothing is
    /// taken.
    pub fn take_from(&mut self, blocks: &mut Range<u64>, most: u64) -> bool {
        if self.ranges.last().is_some_and(|last| blocks.start < last.end) {
            return false;
        }
        let end = blocks.end.min(blocks.start + most.saturating_sub(self.count));
        if end > blocks.start {
            self.count += end - blocks.start;
            self.ranges.push(blocks.start..end);
            blocks.start = end;
        }
        true
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Reads them, in ascending order.
    pub async fn read(self, point: &SnapshotDevice) -> Result<Vec<PassBlock>, Error> {
        let reads = stream::iter(self.ranges).map(|range| read(point, range)).buffered(READS_AT_ONCE);
        let all: Vec<Vec<PassBlock>> = reads.try_collect().await?;
        let all = all.concat();
        assert_eq!(all.len() as u64, self.count, "each block is read once");
        Ok(all)
    }
}

async fn read(point: &SnapshotDevice, blocks: Range<u64>) -> Result<Vec<PassBlock>, Error> {
    let count = (blocks.end - blocks.start) as usize;
    let at = ByteOffset(blocks.start * BLOCK_BYTES as u64);
    let read = point.read(at, vec![Buffer::zeroed(count * BLOCK_BYTES)]).await;
    let whole = Arc::new(read.map_err(Error::Copy)?.remove(0));
    let part =
        |index: usize| Arc::new(Buffer::part_of(&whole, index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES));
    let block =
        |index: usize| PassBlock { block: BlockIndex(blocks.start + index as u64), data: part(index) };
    Ok((0..count).map(block).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scattered_blocks_fill_a_frame_and_what_is_too_much_stays() {
        let mut gathered = GatheredBlocks::default();
        let mut single = 3..4;
        assert!(gathered.take_from(&mut single, 8) && single.is_empty());
        let mut long = 10..30;
        assert!(gathered.take_from(&mut long, 8));
        assert_eq!((gathered.count(), long.clone()), (8, 17..30));
        // A full one takes nothing, and one goes back to what lies before alone.
        assert!(gathered.take_from(&mut long, 8));
        assert_eq!((gathered.count(), long), (8, 17..30));
        assert!(!gathered.take_from(&mut (5..6), 16));
        assert_eq!(gathered.ranges, [3..4, 10..17]);
    }
}
