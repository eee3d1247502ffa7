//! Who reads the pool, and since which checkpoint: what a reader may have found is not used again before it is done.

use crate::format::CheckpointNumber;
use std::{cell::RefCell, collections::BTreeMap, rc::Rc};

/// Readers by the checkpoint that was complete when they began. Cheap to clone; clones are one.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    since: Rc<RefCell<BTreeMap<CheckpointNumber, u64>>>,
}

/// One reader; it ends when this is dropped.
#[derive(Debug)]
pub struct Reading {
    readers: Readers,
    since: CheckpointNumber,
}

impl Readers {
    /// Someone begins to read when `checkpoint` is complete.
    pub fn begin(&self, checkpoint: CheckpointNumber) -> Reading {
        *self.since.borrow_mut().entry(checkpoint).or_default() += 1;
        Reading { readers: self.clone(), since: checkpoint }
    }

    /// The checkpoint that was complete when the oldest one began.
    pub fn oldest(&self) -> Option<CheckpointNumber> {
        self.since.borrow().keys().next().copied()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut since = self.readers.since.borrow_mut();
        let count = since.get_mut(&self.since).expect("a reader that ends has begun");
        *count -= 1;
        if *count == 0 {
            since.remove(&self.since);
        }
    }
}
