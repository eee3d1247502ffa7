//! Edge-triggered waiting on descriptors of our own (eventfd, timerfd).
//!
//! The descriptor is never read: the executor polls edge-triggered, and the kernel signals an edge at each
//! completion and each expiry.

use std::{io, os::fd::OwnedFd, sync::Arc};
use tokio::io::{Interest, unix::AsyncFd};

/// Registers `descriptor` for read readiness. Call it inside the executor.
pub(super) fn watch(descriptor: &Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the shared OwnedFd inside the AsyncFd keeps the descriptor open, and always the same
    // one, for as long as it is registered.
    #[allow(unsafe_code)]
    let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(descriptor), Interest::READABLE) };
    Ok(watched?)
}
