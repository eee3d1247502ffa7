//! Checks inside the caller's world: files are read through a [`Directory`](world::Directory) and judged between
//! reads, on one thread.
//!
//! For callers that already run in a world, real or simulated: a run that checks what it wrote, the simulator, tests
//! of the engine. [`crate::running`] is for whole folders, with threads, progress and resumption.

mod blank;
mod chunks;
mod database;
mod logs;
mod pages;

pub use database::{DatabaseReport, PageDamage, verify_database, verify_database_with_stamps};
pub use logs::{LogFileReport, LogReport, verify_logs};
pub use pages::verify_trees;
