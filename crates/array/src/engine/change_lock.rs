//! The lock on the catalogue: one verb at a time changes it.
//!
//! Invariant: the lock is released only when every record that was queued under it is applied, or has failed, even if the
//! verb's caller has gone away meanwhile. The next verb computes its rows from those of this one: numbers of volumes
//! and branches, and how many branches begin at a point.

use super::Shared;
use crate::{
    error::Result,
    simulation::sometimes::{self, Sometimes},
};
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio::sync::{Mutex, OwnedMutexGuard};
use world::{LocalFuture, World};

/// Held while a verb changes the catalogue.
pub(crate) type ChangeLock = OwnedMutexGuard<()>;

/// The lock itself.
pub(crate) type CatalogueLock = Arc<Mutex<()>>;

/// A record on its way into the log, and what is held until it is applied.
pub(crate) struct LoggedUnder<L: Unpin + 'static> {
    world: World,
    rest: Option<(LocalFuture<Result<()>>, L)>,
}

impl Shared {
    /// Waits until no other verb changes the catalogue.
    pub async fn lock_changes(&self) -> ChangeLock {
        Arc::clone(&self.changing).lock_owned().await
    }

    /// Waits for records in the log's queue. What is held is given back when they are applied; if the caller goes away
    /// it is dropped then, and no earlier.
    pub fn logged_under<L: Unpin + 'static>(
        &self,
        held: L,
        logged: LocalFuture<Result<()>>,
    ) -> LoggedUnder<L> {
        LoggedUnder { world: self.world.clone(), rest: Some((logged, held)) }
    }
}

impl<L: Unpin + 'static> Future for LoggedUnder<L> {
    type Output = Result<L>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (logged, _) = self.rest.as_mut().expect("it is polled until it is ready, and not again");
        let Poll::Ready(result) = logged.as_mut().poll(context) else { return Poll::Pending };
        let (_, held) = self.rest.take().expect("it was there on the line above");
        Poll::Ready(result.map(|()| held))
    }
}

impl<L: Unpin + 'static> Drop for LoggedUnder<L> {
    fn drop(&mut self) {
        if let Some((logged, held)) = self.rest.take() {
            sometimes::reached(Sometimes::CallerWentAway);
            // Its caller is gone, so nobody is left who could be told of an error; the pool has stopped then.
            drop(self.world.spawn("verb without a caller", async move {
                let _ = logged.await;
                drop(held);
            }));
        }
    }
}
