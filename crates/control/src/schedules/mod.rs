//! Snapshots by schedules ([the decision](../../../../docs/decisions/2026-11-27-schedules.md)): the schedules of the site file
//! that was applied, for as long as clients are accepted.
//!
//! Reading order: `wanted` (the schedules of a site file, checked), `round` (one order to a pool: what is due is taken, what
//! is too many is pruned), `progress` (what is known, due and was said; plain state), `schedule_view` (what others see of it),
//! `keeper` (the flow over them).
//!
//! Invariants:
//!
//! 1. Only snapshots with a schedule's note are pruned, by the schedule of that name, on volumes that it has.
//! 2. Nothing is remembered over a restart but by the snapshots in the pools.
//! 3. A pool has one order of the schedules at a time, and no pool's order waits for another pool's.
//! 4. A problem is said once, until it has ended.

pub(crate) mod keeper;
pub(crate) mod progress;
pub(crate) mod round;
mod schedule_view;
pub(crate) mod wanted;

pub use schedule_view::{ScheduleView, ScheduledVolume};
pub use wanted::WantedSchedule;
