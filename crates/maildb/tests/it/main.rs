//! The mailbox database from outside: rows written are rows read, whatever happens in between.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

/// A group under test: a folder, a table, and a model of what must be in it.
mod model;

/// The same on a simulated drive.
mod simulated;

mod bulk_load;

/// Pages that became zeros.
mod blank;

/// Rules for every decoder, whatever the bytes.
mod decoders;

/// Read-only files in memory.
mod memory;

/// Logs that are kept until they are released.
mod kept_logs;

/// Files with bytes changed at random.
mod mutated;

/// A process killed in the middle of its work.
mod crash;

/// Storage that fails, fills up, forgets or lies.
mod faults;

/// Groups frozen for a cut.
mod freeze;

/// Several databases in one storage group.
mod groups;

mod hard_cases;

/// A folder whose files fail on demand.
mod hostile;

/// Backups brought forward with later logs.
mod joined_logs;

/// Golden images as text.
#[allow(dead_code)]
#[path = "../../../array/tests/it/dump.rs"]
mod dump;

/// The last separators of branches.
mod separators;

/// One database put back beside a log that went on.
mod put_back;

/// Third-party readers see every row.
mod readers;

/// Mixed operations at every page size, compared with the model, checked by the verifier.
mod mixed;

mod stamps;

mod torn;

/// A crash in the middle of a large rollback.
mod undo;

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
