//! Letting other tasks of the thread have their turn.
//!
//! A session whose pages are all cached and whose commits are lazy never has to wait; without a
//! pause it would keep the thread for itself, and clock, log and other sessions would stand still.

use std::{future::poll_fn, task::Poll};

/// Completes when the tasks that are ready now have run.
pub async fn give_turn() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
