//! The early end of an incarnation at a moment that a task chooses: for states that a crash at a random moment
//! seldom meets.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    task::{Poll, Waker},
};

#[derive(Default)]
pub struct EarlyEnd {
    /// This incarnation may end so.
    is_allowed: Cell<bool>,
    is_due: Cell<bool>,
    waiting: RefCell<Option<Waker>>,
}

impl EarlyEnd {
    /// Begins an incarnation, which may end early or not.
    pub fn begin(&self, is_allowed: bool) {
        self.is_allowed.set(is_allowed);
        self.is_due.set(false);
        self.waiting.take();
    }

    pub fn is_allowed(&self) -> bool {
        self.is_allowed.get()
    }

    /// Ends the incarnation, with everything under way as it is.
    pub fn end(&self) {
        assert!(self.is_allowed.get(), "this incarnation ends completely");
        self.is_due.set(true);
        if let Some(waiting) = self.waiting.take() {
            waiting.wake();
        }
    }

    /// Waits for the early end.
    pub async fn wait(&self) {
        poll_fn(|context| {
            if self.is_due.get() {
                return Poll::Ready(());
            }
            *self.waiting.borrow_mut() = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
