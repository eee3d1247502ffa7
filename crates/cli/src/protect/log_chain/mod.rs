//! Databases of a backup brought forward with logs that were written after it.
//!
//! Spindle's engine keeps its log on a volume of the set, so each later backup has a copy of it, and the live volume the newest
//! one. The chain of its generations is proven before anything changes, on snapshots that are only read; then it is joined into
//! the log of the restored volumes, and the engine recovers them.
//!
//! Reading order: `log_arguments` (what a person wants), `devices`, `backup_groups` (storage groups on the volumes of a backup),
//! `later_logs` (copies of a log, newest first), `proof`, `chained_logs` (all of it), `one_database` (one that comes
//! back among the others), `empty_groups` (of a dial tone), `merged_groups` (joined with it).

mod backup_groups;
mod chained_logs;
mod devices;
mod empty_groups;
mod later_logs;
mod log_arguments;
mod merged_groups;
mod one_database;
mod proof;

pub use backup_groups::BackupGroup;
pub use chained_logs::{BroughtForwardRow, ChainedLogs, LogPlan};
pub use later_logs::{live_clone_name, temporary_clone_name};
pub use log_arguments::{LogArguments, LogSource, LogWish};
pub use merged_groups::MergedDatabase;
