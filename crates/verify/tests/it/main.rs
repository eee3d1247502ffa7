//! The checks from outside: files made by the engine, and files written here from the description of the
//! format.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

/// Files of every form, written from the description of the format.
mod written;

/// Runs all checks on a database in memory.
mod whole;

/// Detection of file types, with damaged starts too.
mod kinds;

/// Databases in all forms, sound and with one defect.
mod databases;

/// Logs in both formats, sound and with one defect.
mod logs;

/// Logs of the engine in a simulated world, with power cuts.
mod group_logs;

/// Random changes: each must be detected.
mod mutated;

/// Arbitrary input to every check.
mod hostile;

/// The maker of mailbox databases from the engine's own tests.
#[allow(dead_code)]
#[path = "../../../maildb/tests/it/model.rs"]
mod model;

mod ours;

/// Whole runs at each level, over folders and devices.
mod recovered;

/// Counts compared with independent readers.
mod readers;
