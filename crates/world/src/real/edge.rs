//! A descriptor of our own (eventfd, timerfd) that the executor watches beside everything else.
//!
//! It is never read: the executor polls edge-triggered, and the kernel makes an edge of each
//! completion and each expiry.

use std::{io, os::fd::OwnedFd, sync::Arc};
use tokio::io::{Interest, unix::AsyncFd};

/// Watches `descriptor` for becoming readable; needs an executor around it.
pub(super) fn watch(descriptor: &Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the shared OwnedFd inside the AsyncFd keeps the descriptor open, and always the same
    // one, for as long as it is registered.
    #[allow(unsafe_code)]
    let watched = unsafe { AsyncFd::register_with_interest(Arc::clone(descriptor), Interest::READABLE) };
    Ok(watched?)
}
