//! Locks on the blocks of a volume. A command that writes a block in part reads it first; no other command
//! may write that block until it is done.
//!
//! Filling a branch locks blocks alone: it copies only what no command has written, and has to know that none
//! does meanwhile.
//!
//! Invariant: no block is written in part by one command, or locked alone, while another writes it in any
//! way.

use crate::simulation::{
    canary::{self, Canary},
    sometimes::{self, Sometimes},
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    ops::RangeInclusive,
    rc::Rc,
};
use tokio::sync::Notify;

/// Blocks of one command. The first and the last one may be written in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BlockSpan {
    pub blocks: RangeInclusive<u64>,
    pub first_in_part: bool,
    pub last_in_part: bool,
    /// No other command may have any of the blocks.
    pub is_alone: bool,
}

impl BlockSpan {
    /// A span that writes every block whole.
    pub fn whole(blocks: RangeInclusive<u64>) -> Self {
        Self { blocks, first_in_part: false, last_in_part: false, is_alone: false }
    }

    /// A span that no other command may have.
    pub fn alone(blocks: RangeInclusive<u64>) -> Self {
        Self { is_alone: true, ..Self::whole(blocks) }
    }

    fn in_part(&self) -> impl Iterator<Item = u64> {
        let first = self.first_in_part.then_some(*self.blocks.start());
        first.into_iter().chain(self.last_in_part.then_some(*self.blocks.end()))
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        if canary::is(Canary::BlocksNotLocked) {
            return false;
        }
        let overlaps = self.blocks.start() <= other.blocks.end() && other.blocks.start() <= self.blocks.end();
        if self.is_alone || other.is_alone {
            return overlaps;
        }
        self.in_part().any(|block| other.blocks.contains(&block))
            || other.in_part().any(|block| self.blocks.contains(&block))
    }
}

/// The locks that commands of one volume hold.
#[derive(Debug, Default)]
pub(crate) struct BlockLocks {
    /// Keyed by the number of the command.
    held: RefCell<BTreeMap<u64, BlockSpan>>,
    commands: Cell<u64>,
    /// [`BlockLocks::close`] holds all blocks.
    is_closed: Cell<bool>,
    freed: Notify,
}

/// A lock on the blocks of one command, or on all; released on drop.
#[derive(Debug)]
pub(crate) struct BlockLock {
    locks: Rc<BlockLocks>,
    /// Number of the command; `None` for a lock on all blocks.
    number: Option<u64>,
}

impl BlockLocks {
    /// Waits until no command holds a block that conflicts with `span`.
    pub async fn lock(self: &Rc<Self>, span: BlockSpan) -> BlockLock {
        loop {
            let freed = self.freed.notified();
            let conflicts = self.held.borrow().values().any(|held| held.conflicts_with(&span));
            if !conflicts && !self.is_closed.get() {
                let number = self.commands.get() + 1;
                self.commands.set(number);
                self.held.borrow_mut().insert(number, span);
                return BlockLock { locks: Rc::clone(self), number: Some(number) };
            }
            sometimes::reached_if(conflicts, Sometimes::WriteWaited);
            freed.await;
        }
    }

    /// Locks all blocks: no new command begins, and this waits for those that hold locks.
    pub async fn close(self: &Rc<Self>) -> BlockLock {
        loop {
            let freed = self.freed.notified();
            if !self.is_closed.replace(true) {
                break;
            }
            freed.await;
        }
        let closed = BlockLock { locks: Rc::clone(self), number: None };
        loop {
            let freed = self.freed.notified();
            if self.held.borrow().is_empty() {
                return closed;
            }
            freed.await;
        }
    }
}

impl Drop for BlockLock {
    fn drop(&mut self) {
        match self.number {
            Some(number) => {
                let held = self.locks.held.borrow_mut().remove(&number);
                assert!(held.is_some(), "command {number} held its blocks");
            }
            None => self.locks.is_closed.set(false),
        }
        self.locks.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(blocks: RangeInclusive<u64>, first_in_part: bool, last_in_part: bool) -> BlockSpan {
        BlockSpan { first_in_part, last_in_part, ..BlockSpan::whole(blocks) }
    }

    #[test]
    fn only_blocks_written_in_part_conflict() {
        let whole = span(2..=5, false, false);
        assert!(!whole.conflicts_with(&span(4..=9, false, false)), "whole blocks have an order in the log");
        assert!(whole.conflicts_with(&span(5..=9, true, false)));
        assert!(span(5..=9, true, false).conflicts_with(&whole));
        assert!(!whole.conflicts_with(&span(6..=9, true, true)));
        assert!(!whole.conflicts_with(&span(1..=9, true, true)), "its ends lie elsewhere");
        assert!(span(3..=3, true, true).conflicts_with(&span(3..=3, true, true)));
    }

    #[test]
    fn blocks_locked_alone_conflict_with_all_others() {
        let alone = BlockSpan::alone(4..=9);
        for other in [span(9..=12, false, false), span(1..=4, false, false), BlockSpan::alone(5..=5)] {
            assert!(alone.conflicts_with(&other) && other.conflicts_with(&alone));
        }
        assert!(!alone.conflicts_with(&span(10..=12, true, true)));
    }
}
