//! Integration tests: backups in simulated time, histories of schedules, and what keeps the backups of sets.

/// Backups of things that fail, hang and die.
mod backups;

mod histories;
mod keeping;

/// Backups of this machine's filesystems.
mod real;
