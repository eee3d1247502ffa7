//! Integration tests: backups in simulated time, and histories of schedules.

/// Backups of things that fail, hang and die.
mod backups;

mod histories;

/// Backups of this machine's filesystems.
mod real;
