//! Readers of the pool. A segment is not reused while a reader that may reference it is active.

use crate::format::CheckpointNumber;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

/// Active readers by the checkpoint that was complete when they began. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers {
    since: Rc<RefCell<BTreeMap<CheckpointNumber, u64>>>,
}

/// An active reader; it ends on drop.
#[derive(Debug)]
pub(crate) struct ReadGuard {
    readers: Readers,
    since: CheckpointNumber,
}

impl Readers {
    /// Registers a reader that begins when `checkpoint` is complete.
    pub fn begin(&self, checkpoint: CheckpointNumber) -> ReadGuard {
        *self.since.borrow_mut().entry(checkpoint).or_default() += 1;
        ReadGuard { readers: self.clone(), since: checkpoint }
    }

    /// The checkpoint that was complete when the oldest reader began.
    pub fn oldest(&self) -> Option<CheckpointNumber> {
        self.since.borrow().keys().next().copied()
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let mut since = self.readers.since.borrow_mut();
        let count = since.get_mut(&self.since).expect("a reader that ends has begun");
        *count -= 1;
        if *count == 0 {
            since.remove(&self.since);
        }
    }
}
