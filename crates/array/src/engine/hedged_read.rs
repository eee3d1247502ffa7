//! Hedged reads: the next copy is read if the one before is wrong or slow.

use super::Shared;
use crate::{
    error::Result,
    format::SlotAddress,
    simulation::sometimes::{self, Sometimes},
};
use std::collections::VecDeque;
use world::{Buffer, LocalFuture};

/// A copy to read: its slot and block, and the read, if it was begun.
type Attempt = (SlotAddress, u32, Option<LocalFuture<Result<Buffer>>>);

/// Copies of the same blocks, in the order in which they are read.
pub(super) struct HedgedRead<'s> {
    shared: &'s Shared,
    blocks: usize,
    left: VecDeque<Attempt>,
    /// Reads every copy to the end, however long it takes.
    reads_all: bool,
}

impl<'s> HedgedRead<'s> {
    /// A read of `blocks` blocks from the copies on present drives.
    pub fn new(
        shared: &'s Shared,
        copies: impl IntoIterator<Item = (SlotAddress, u32)>,
        blocks: usize,
        reads_all: bool,
    ) -> Self {
        let there = copies.into_iter().filter(|(slot, _)| shared.drives.has(slot.member));
        let left = there.map(|(slot, block)| (slot, block, None)).collect();
        Self { shared, blocks, left, reads_all }
    }

    /// Data of the next copy; `None` after the last one.
    pub async fn next(&mut self) -> Option<(SlotAddress, u32, Result<Buffer>)> {
        loop {
            let (slot, block, begun) = self.left.pop_front()?;
            let mut reading = begun.unwrap_or_else(|| self.begin(slot, block));
            if self.reads_all || self.left.is_empty() {
                return Some((slot, block, reading.await));
            }
            match self.shared.watch.is_done_soon(&mut reading).await {
                Some(read) => return Some((slot, block, read)),
                None => {
                    sometimes::reached(Sometimes::OtherCopyAsked);
                    self.left.push_back((slot, block, Some(reading)));
                }
            }
        }
    }

    /// Ends without reading the rest. Reads under way continue, so that a drive that never answers is
    /// noticed.
    pub fn end(self) {
        for (_, _, begun) in self.left {
            if let Some(reading) = begun {
                self.shared.world.spawn("late read", async move { drop(reading.await) });
            }
        }
    }

    fn begin(&self, slot: SlotAddress, block: u32) -> LocalFuture<Result<Buffer>> {
        let (drives, blocks) = (self.shared.drives.clone(), self.blocks);
        Box::pin(async move { drives.read(slot, block, blocks).await })
    }
}
