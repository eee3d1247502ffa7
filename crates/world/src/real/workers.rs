//! Threads for pure work: arithmetic over bytes that would keep an executor from its devices.
//!
//! What is handed over owns all it touches and waits for nothing but messages; the world stays with the
//! thread that hands it over.

use super::plain::Pool;
use std::{future::Future, num::NonZeroUsize};

/// A few threads that do what they are given, in the order they are given it. Dropping it waits until all of
/// that is done.
pub struct Workers {
    pool: Pool,
    count: NonZeroUsize,
}

impl Workers {
    /// At most `count` threads, started one by one as they are needed.
    pub fn new(count: NonZeroUsize) -> Self {
        Self { pool: Pool::of("spindle-work", count.get()), count }
    }

    /// How many there are at most.
    pub fn count(&self) -> usize {
        self.count.get()
    }

    /// Starts `work` on one of the threads, as soon as one is free; the future is its answer. It is done even if
    /// nobody waits for that.
    ///
    /// # Panics
    /// The future, if the work did.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        self.pool.start(work)
    }
}
