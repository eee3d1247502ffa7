//! Threads of this process behind the trait.

use super::{RealOptions, spawn_thread};
use crate::{IoError, IoResult, ThreadEnd, ThreadMain, ThreadStarter};

/// Starts threads with the same options.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealThreads {
    pub seed: u64,
    pub options: RealOptions,
}

impl ThreadStarter for RealThreads {
    fn start(&self, name: &str, main: ThreadMain) -> IoResult<ThreadEnd> {
        let options = RealOptions { panics_end: true, ..self.options };
        let thread = spawn_thread(name, self.seed, options, main);
        let thread =
            thread.map_err(|error| IoError::from_os(error, format!("starting the thread {name}")))?;
        Ok(Box::pin(thread.outcome()))
    }
}
