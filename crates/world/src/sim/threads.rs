//! Simulated threads: tasks of one node. They share its clock and its fate.

use crate::{IoResult, ThreadEnd, ThreadMain, Threads, World};

/// Starts threads as tasks of a world. A panic of the main function ends the simulation, like any other panic.
pub struct SimThreads(pub World);

impl Threads for SimThreads {
    fn start(&self, _name: &str, main: ThreadMain) -> IoResult<ThreadEnd> {
        let thread = self.0.spawn("thread", main(self.0.clone()));
        Ok(Box::pin(async move {
            thread.await;
            Ok(())
        }))
    }
}
