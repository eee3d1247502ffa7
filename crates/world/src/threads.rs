//! Threads with a world each, which only send values to each other.

use crate::{IoResult, LocalFuture, World};

/// The main function of a thread.
pub type ThreadMain = Box<dyn FnOnce(World) -> LocalFuture<()> + Send>;

/// The end of a thread: the error is the message of the panic that ended it.
pub type ThreadEnd = LocalFuture<Result<(), String>>;

/// Starts threads.
pub trait ThreadStarter {
    /// Starts a thread named `name`, of which `top` shows 15 bytes, and runs `main` in a world of its own. A panic of any of its
    /// tasks ends the thread, and no other one. Dropping the end detaches the thread.
    ///
    /// # Errors
    ///
    /// The system has no thread, or too few file handles left.
    fn start(&self, name: &str, main: ThreadMain) -> IoResult<ThreadEnd>;
}
