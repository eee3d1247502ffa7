//! Protection of volumes: backups that are consistent, when they are made, which stay, and what is known of them.
//!
//! Reading order: [`backup`] (freeze, cut, thaw, label), [`backup_schedule`] (slots in a time zone, and which are due),
//! [`retention`] (which backups stay, and why), [`catalogue`] (everything that happened to a set's backups),
//! [`verification`] (which backup is verified next), [`drilling`], [`vault_copies`], [`set_keeper`] (the flow over all of
//! these), [`set_report`] (what an auditor reads). Of snapshots without a set: [`schedule`] (due or not, and how many are pruned), [`schedule_mark`] (names and notes by which a
//! schedule knows its own snapshots), [`taking_pace`] (a bound for clocks that jump again and again). Schedules and
//! retention know neither clock nor I/O: the caller says what time it is and what there is.

pub mod backup;
pub mod backup_schedule;
pub mod byte_rate;
pub mod catalogue;
pub mod drilling;
pub mod planted;
pub mod planted_keeping;
pub mod retention;
pub mod schedule;
pub mod schedule_mark;
pub mod set_keeper;
pub mod set_report;
pub mod taking_pace;
pub mod vault_copies;
pub mod verification;

pub use schedule::{ScheduleError, SnapshotSchedule, UnixSecond};
pub use schedule_mark::ScheduleMark;
pub use taking_pace::TakingPace;
