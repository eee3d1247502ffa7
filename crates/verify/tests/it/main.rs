//! The judges from outside: files made by the engine, and files written here by the description of the format.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

/// Files of every form, written by the description of the format.
mod written;

/// A database whose bytes are all there, judged.
mod whole;

/// What a file is, however damaged its beginning.
mod kinds;

/// Databases in all forms, sound and with one thing wrong.
mod databases;

/// Logs in both formats, sound and with one thing wrong.
mod logs;

/// Files with bytes changed at random: what is changed is told.
mod mutated;

/// What every judge must keep to, whatever the bytes.
mod hostile;

/// What makes a mailbox database, from the engine's own tests.
#[allow(dead_code)]
#[path = "../../../maildb/tests/it/model.rs"]
mod model;

/// Files made by our engine.
mod ours;

/// Other readers count as we do.
mod readers;
