//! Time as a dependency that callers are given: monotonic, civil, and processor time.

use crate::LocalFuture;
use std::{ops, time::Duration};

/// A point in monotonic time: nanoseconds since the world started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(pub u64);

impl Moment {
    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ops::Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0 + u64::try_from(span.as_nanos()).expect("spans are shorter than 584 years"))
    }
}

/// Civil time, UTC: seconds and nanoseconds since 1970. For names and reports, never for order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime {
    /// Whole seconds since 1970-01-01T00:00:00Z.
    pub seconds: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

/// Time since a machine's start, by a clock that never jumps and goes on while the machine sleeps. It compares moments of
/// different processes: monotonic time begins with the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineUptime {
    /// Identity of the machine. Times of two machines say nothing of each other.
    pub machine: String,
    /// Identity of this start.
    pub boot: String,
    pub up: Duration,
}

pub trait Clock {
    fn now(&self) -> Moment;

    fn wall(&self) -> WallTime;

    fn machine_uptime(&self) -> MachineUptime;

    /// Completes at `moment`, or as soon afterwards as the world can.
    fn sleep_until(&self, moment: Moment) -> LocalFuture<()>;

    /// Processor time this thread has used; `None` in a world without processors.
    fn thread_cpu(&self) -> Option<Duration> {
        None
    }
}
