//! Copies take turns: the next one is asked when the one before is wrong, or takes long.

use super::Shared;
use crate::{
    error::Result,
    format::SlotAddress,
    simulation::sometimes::{self, Sometimes},
};
use std::collections::VecDeque;
use world::{Buffer, LocalFuture};

/// A copy that may be read: where, and the read, if it was begun.
type Turn = (SlotAddress, u32, Option<LocalFuture<Result<Buffer>>>);

/// Copies of the same blocks, in the order they are asked in.
pub(super) struct Turns<'s> {
    shared: &'s Shared,
    blocks: usize,
    left: VecDeque<Turn>,
    /// Every copy is wanted, however long it takes.
    is_patient: bool,
}

impl<'s> Turns<'s> {
    /// Of `blocks` blocks from a block of each slot on, those whose drives are there.
    pub fn new(
        shared: &'s Shared,
        copies: impl IntoIterator<Item = (SlotAddress, u32)>,
        blocks: usize,
        is_patient: bool,
    ) -> Self {
        let there = copies.into_iter().filter(|(slot, _)| shared.drives.has(slot.member));
        let left = there.map(|(slot, block)| (slot, block, None)).collect();
        Self { shared, blocks, left, is_patient }
    }

    /// What the next copy holds; none when all were asked.
    pub async fn next(&mut self) -> Option<(SlotAddress, u32, Result<Buffer>)> {
        loop {
            let (slot, block, begun) = self.left.pop_front()?;
            let mut reading = begun.unwrap_or_else(|| self.begin(slot, block));
            if self.is_patient || self.left.is_empty() {
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

    /// The rest is not needed. What was begun goes on, so that a drive that never answers is seen.
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
