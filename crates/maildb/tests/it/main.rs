//! The mailbox database from outside: what goes in comes out, whatever happens between.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

/// A group under test: a folder, a table, and a model of what must be in it.
mod model;

/// The same on a simulated drive.
mod simulated;

/// Many records at once, at the end of a table.
mod bulk_load;

/// Pages that became zeros.
mod blank;

/// What every reader of bytes must keep to, whatever the bytes.
mod decoders;

/// Files in memory, that are read at once.
mod memory;

/// Files with bytes changed at random.
mod mutated;

/// Killed in the middle of work, again and again.
mod crash;

/// Storage that fails, fills up, forgets or lies.
mod faults;

/// Several databases in one storage group.
mod groups;

/// Cases that once went wrong, or that a careful reader thought would.
mod hard_cases;

/// A folder whose files fail on demand.
mod hostile;

/// Golden images as text.
#[allow(dead_code)]
#[path = "../../../array/tests/it/dump.rs"]
mod dump;

/// The last separators of branches.
mod separators;

/// Third-party readers see every row.
mod readers;

/// Mixed operations at every page size, compared with the model, checked by the verifier.
mod mixed;

/// Pages that are not what was written there last, and how that is found out.
mod stamps;

/// Power lost in the middle of page writes.
mod torn;

/// A crash in the middle of a large rollback.
mod undo;
