//! Hedged reads: the next source is read if the one before is wrong or slow.

use super::Shared;
use crate::{
    error::Result,
    redundancy::SlotSource,
    simulation::sometimes::{self, Sometimes},
};
use std::collections::VecDeque;
use world::{Buffer, LocalFuture};

/// A source, and the read, if it was begun.
type Attempt = (SlotSource, Option<LocalFuture<Result<Buffer>>>);

/// Sources of the same blocks, in the order in which they are read.
pub(super) struct HedgedRead<'s> {
    shared: &'s Shared,
    blocks: usize,
    left: VecDeque<Attempt>,
    /// Reads every source to the end, however long it takes.
    reads_all: bool,
}

impl<'s> HedgedRead<'s> {
    /// A read of `blocks` blocks from the sources on present drives.
    pub fn new(
        shared: &'s Shared,
        sources: impl IntoIterator<Item = SlotSource>,
        blocks: usize,
        reads_all: bool,
    ) -> Self {
        let there = sources.into_iter().filter(|source| shared.drives.has(source.slot.member));
        let left = there.map(|source| (source, None)).collect();
        Self { shared, blocks, left, reads_all }
    }

    /// Data of the next source; `None` after the last one.
    pub async fn next(&mut self) -> Option<(SlotSource, Result<Buffer>)> {
        loop {
            let (source, begun) = self.left.pop_front()?;
            let mut reading = begun.unwrap_or_else(|| self.begin(source));
            if self.reads_all || self.left.is_empty() {
                return Some((source, reading.await));
            }
            match self.shared.watch.is_done_soon(&mut reading).await {
                Some(read) => return Some((source, read)),
                None => {
                    sometimes::reached(Sometimes::OtherCopyAsked);
                    self.left.push_back((source, Some(reading)));
                }
            }
        }
    }

    /// Ends without reading the rest. Reads under way continue, so that a drive that never answers is
    /// noticed.
    pub fn end(self) {
        for (_, begun) in self.left {
            if let Some(reading) = begun {
                self.shared.world.spawn("late read", async move { drop(reading.await) });
            }
        }
    }

    fn begin(&self, SlotSource { slot, block }: SlotSource) -> LocalFuture<Result<Buffer>> {
        let (drives, blocks) = (self.shared.drives.clone(), self.blocks);
        Box::pin(async move { drives.read(slot, block, blocks).await })
    }
}
