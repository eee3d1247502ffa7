//! Rooms in the simulated world.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

/// Whole pools.
mod array;

/// The mailbox database.
mod database;
