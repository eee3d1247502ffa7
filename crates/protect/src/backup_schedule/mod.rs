//! Schedules of backups, `COUNTxPERIOD[@TIME]`, as arithmetic over times and filled slots.
//!
//! A schedule divides time into *slots*. A backup fills the slots of all schedules that are due when it is made.
//!
//! Invariants:
//!
//! 1. A slot is known by its period and the moment at which it starts, in UTC. It is filled once at most, whatever the
//!    clock does.
//! 2. Slots of hours and longer follow civil time in the schedule's zone: a doubled hour belongs to one slot, and a slot
//!    whose time is skipped starts at the end of the gap. Slots of minutes follow UTC.
//! 3. What was missed is made up by one backup, at once.
//! 4. A slot that a clock in the future filled does not stop the schedule, and a clock that was set back does not stop
//!    it for longer than a slot and a tenth: then the next slot is filled, by the monotonic clock.
//! 5. The newest filled slot is the one of the highest sequence number, never the one of the latest time.
//!
//! Reading order: [`period`] (grammar of a period), [`schedule`] (grammar of a schedule), [`zone`], [`slots`] (moments of
//! slots), [`filled`] (filled slots), [`schedule_set`] (up to eight schedules, and which are due), [`kind`] (whether the
//! application is frozen), [`backup_name()`].

pub mod backup_name;
pub mod filled;
pub mod kind;
pub mod period;
pub mod schedule;
pub mod schedule_set;
pub mod slots;
pub mod zone;

pub use backup_name::{backup_name, set_and_sequence_of, time_in_name};
pub use filled::{FilledSlot, FilledSlots};
pub use kind::{BackupKind, FreezeLimit};
pub use period::{PeriodUnit, SchedulePeriod};
pub use schedule::{BackupSchedule, BackupScheduleError};
pub use schedule_set::{ClockReading, DueSlot, SCHEDULES_MAX, ScheduleProgress, ScheduleSet, SlotOccasion};
pub use slots::{MissedSlots, ScheduleSlot};
pub use zone::{ScheduleZone, day_start, moment_ms};
