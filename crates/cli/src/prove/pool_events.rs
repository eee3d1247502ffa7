//! Events of the pools of `spindle prove --pool`, printed as they happen.

use crate::{
    console::Console,
    pool::reporter::{EventOutput, report_events},
};
use array::pool::events::PoolEventReader;
use runs::pools::open::{PoolEvents, PoolNames};
use serving::pool::events::{KnownDrive, PoolContext};
use world::{LocalFuture, World};

/// Prints on standard error, on any thread.
pub struct PoolEventPrinter {
    /// As JSON objects.
    pub as_json: bool,
    /// Notes are left out.
    pub is_quiet: bool,
}

impl PoolEvents for PoolEventPrinter {
    fn follow(&self, world: &World, events: PoolEventReader, pool: PoolNames) -> LocalFuture<()> {
        let drives = pool.drives.into_iter().enumerate().map(|(index, path)| KnownDrive {
            drive: None,
            given: Some(index),
            name: path.display().to_string(),
            path,
        });
        let context = PoolContext { folder: None, name: pool.pool, drives: drives.collect() };
        let output = if self.as_json { EventOutput::JsonAside } else { EventOutput::Lines };
        let console = Console::new(self.as_json, self.is_quiet);
        Box::pin(report_events(world.clone(), events, context, console, output))
    }
}
