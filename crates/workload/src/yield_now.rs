//! Cooperative yielding.
//!
//! A session whose pages are all cached and whose commits are lazy never waits. Without yielding it would
//! monopolise the thread and starve clock, log and other sessions.

use std::{future::poll_fn, task::Poll};

/// Completes after the tasks that are ready now have run.
pub async fn yield_now() {
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
