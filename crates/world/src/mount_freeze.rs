//! Mounted filesystems that can be frozen: their writes wait, and what was written is stable.

use crate::{IoResult, LocalFuture};
use std::time::Duration;

/// A mounted filesystem during one freeze at a time.
///
/// Whichever process dies: it thaws at the deadline of its freeze at the latest, and when this is dropped.
pub trait FreezableMount {
    fn mount_point(&self) -> String;

    /// Writes back what it can while work goes on, so that the freeze is short.
    fn prepare(&self) -> LocalFuture<IoResult<()>>;

    /// Freezes it for at most so long from now on. `Busy` if it is frozen by someone else.
    fn freeze(&self, within: Duration) -> LocalFuture<IoResult<()>>;

    /// Thaws what `freeze` froze, and nothing that someone else froze.
    fn thaw(&self) -> LocalFuture<IoResult<MountThaw>>;
}

/// The end of a freeze, as the thaw found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountThaw {
    /// It was frozen until this thaw.
    First,
    /// The deadline had thawed it.
    DeadlineFirst,
    /// Someone else had thawed it.
    OtherFirst,
    /// It was never frozen.
    NotFrozen,
}
