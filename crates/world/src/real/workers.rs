//! Threads for computation: arithmetic over bytes that would block an executor.
//!
//! A job owns all it touches and waits only for messages; the world stays on the thread that submits it.

use super::plain::Pool;
use std::{future::Future, num::NonZeroUsize};

/// A pool of threads that run jobs in order of submission. Dropping it waits for all of them.
pub struct Workers {
    pool: Pool,
    count: NonZeroUsize,
}

impl Workers {
    /// At most `count` threads, started on demand.
    pub fn new(count: NonZeroUsize) -> Self {
        Self { pool: Pool::of("spindle-work", count.get()), count }
    }

    /// Number of threads, at most.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Runs `work` on the next free thread and returns its completion. The work is done even if no one awaits
    /// it.
    ///
    /// # Panics
    /// The future panics if the work did.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        self.pool.start(work)
    }
}
