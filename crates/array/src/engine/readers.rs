//! Readers of the pool. A segment is not reused while a reader that may reference it is active.

use crate::format::CheckpointNumber;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use tokio::sync::Notify;

/// Active readers by the checkpoint that was complete when they began. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Readers(Rc<Active>);

#[derive(Debug, Default)]
struct Active {
    since: RefCell<BTreeMap<CheckpointNumber, u64>>,
    ended: Notify,
    /// Someone waits for a reader to end.
    is_end_awaited: Cell<bool>,
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
        *self.0.since.borrow_mut().entry(checkpoint).or_default() += 1;
        ReadGuard { readers: self.clone(), since: checkpoint }
    }

    /// The checkpoint that was complete when the oldest reader began.
    pub fn oldest(&self) -> Option<CheckpointNumber> {
        self.0.since.borrow().keys().next().copied()
    }

    /// Waits until all readers of one checkpoint have ended.
    ///
    /// A caller that checks a condition must not await anything between the check and this.
    pub async fn end(&self) {
        self.0.is_end_awaited.set(true);
        self.0.ended.notified().await;
    }
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let mut since = self.readers.0.since.borrow_mut();
        let count = since.get_mut(&self.since).expect("a reader that ends has begun");
        *count -= 1;
        if *count == 0 {
            since.remove(&self.since);
            if self.readers.0.is_end_awaited.take() {
                self.readers.0.ended.notify_waiters();
            }
        }
    }
}
