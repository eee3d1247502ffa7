//! Who writes which blocks of a volume: a block that is written in part is read first, and nobody else may write it
//! until that is done.
//!
//! Invariant: no block is written in part by one command and in any way by another.

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

/// Blocks of one command; those at its ends may be written in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// All of them, in order.
    pub blocks: RangeInclusive<u64>,
    /// The first one is written in part.
    pub first_in_part: bool,
    /// The last one is written in part.
    pub last_in_part: bool,
}

impl Span {
    /// Blocks that are written whole.
    pub fn whole(blocks: RangeInclusive<u64>) -> Self {
        Self { blocks, first_in_part: false, last_in_part: false }
    }

    fn in_part(&self) -> impl Iterator<Item = u64> {
        let first = self.first_in_part.then_some(*self.blocks.start());
        first.into_iter().chain(self.last_in_part.then_some(*self.blocks.end()))
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        if canary::is(Canary::BlocksNotLocked) {
            return false;
        }
        self.in_part().any(|block| other.blocks.contains(&block))
            || other.in_part().any(|block| self.blocks.contains(&block))
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct BlockLocks {
    /// By the order of their commands.
    held: RefCell<BTreeMap<u64, Span>>,
    /// Commands so far.
    commands: Cell<u64>,
    /// Somebody keeps everybody else out.
    is_closed: Cell<bool>,
    freed: Notify,
}

/// Held until it is dropped.
#[derive(Debug)]
pub struct Held {
    locks: Rc<BlockLocks>,
    /// Of the command; none of one that keeps everybody else out.
    number: Option<u64>,
}

impl BlockLocks {
    /// Waits until nobody writes these blocks in a way that conflicts.
    pub async fn lock(self: &Rc<Self>, span: Span) -> Held {
        loop {
            let freed = self.freed.notified();
            let conflicts = self.held.borrow().values().any(|held| held.conflicts_with(&span));
            if !conflicts && !self.is_closed.get() {
                let number = self.commands.get() + 1;
                self.commands.set(number);
                self.held.borrow_mut().insert(number, span);
                return Held { locks: Rc::clone(self), number: Some(number) };
            }
            sometimes::reached_if(conflicts, Sometimes::WriteWaited);
            freed.await;
        }
    }

    /// Keeps new writers out, and waits until those there are done.
    pub async fn close(self: &Rc<Self>) -> Held {
        loop {
            let freed = self.freed.notified();
            if !self.is_closed.replace(true) {
                break;
            }
            freed.await;
        }
        let closed = Held { locks: Rc::clone(self), number: None };
        loop {
            let freed = self.freed.notified();
            if self.held.borrow().is_empty() {
                return closed;
            }
            freed.await;
        }
    }
}

impl Drop for Held {
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

    fn span(blocks: RangeInclusive<u64>, first_in_part: bool, last_in_part: bool) -> Span {
        Span { blocks, first_in_part, last_in_part }
    }

    #[test]
    fn only_blocks_written_in_part_keep_others_out() {
        let whole = span(2..=5, false, false);
        assert!(!whole.conflicts_with(&span(4..=9, false, false)), "whole blocks have an order in the log");
        assert!(whole.conflicts_with(&span(5..=9, true, false)));
        assert!(span(5..=9, true, false).conflicts_with(&whole));
        assert!(!whole.conflicts_with(&span(6..=9, true, true)));
        assert!(!whole.conflicts_with(&span(1..=9, true, true)), "its ends lie elsewhere");
        assert!(span(3..=3, true, true).conflicts_with(&span(3..=3, true, true)));
    }
}
