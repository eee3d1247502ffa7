//! Integration tests: backups in simulated time, histories of schedules, and what keeps the backups of sets.

/// Backups of things that fail, hang and die.
mod backups;

mod histories;
mod keeping;

/// Sets and their keepers.
mod kept_sets;

/// Backups of this machine's filesystems.
mod real;

/// All of these by one seed.
mod seeded;
