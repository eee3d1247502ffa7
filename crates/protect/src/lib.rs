//! Protection of volumes: today the arithmetic of snapshot schedules, without clock and I/O. The caller says what time it is
//! and which snapshots there are.
//!
//! Reading order: [`schedule`] (due or not, and how many are pruned), [`schedule_mark`] (names and notes by which a schedule
//! knows its own snapshots), [`taking_pace`] (a bound for clocks that jump again and again).

pub mod schedule;
pub mod schedule_mark;
pub mod taking_pace;

pub use schedule::{ScheduleError, SnapshotSchedule, UnixSecond};
pub use schedule_mark::ScheduleMark;
pub use taking_pace::TakingPace;
