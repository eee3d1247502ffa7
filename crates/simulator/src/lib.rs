//! Simulates whole rooms, injects crashes and faults, and checks their guarantees.
//!
//! A *run* follows from its seed alone: set-up, work, order of tasks, service times, crashes and faults. It
//! crashes the room under test several times, at any await, recovers it from what the drives kept, and
//! compares the result with a model that only knows which operations were begun and acknowledged.
//!
//! [`database`] tests the mailbox database. Reading order there: [`database::plan`] (the decisions of a
//! seed), [`database::history`] (the rows that may and must exist), [`database::session`] (the work),
//! [`database::incarnation`] (from opening to a crash), [`database::run()`] (a whole run).
//!
//! [`array`](mod@array) tests whole pools of drives. Reading order there: [`array::plan`] (the decisions of a
//! seed), [`array::fault_model`] (faults of drives, and the guarantees under them), [`array::register`] (what
//! a sector may hold), [`array::model`], [`array::host`] and [`array::administrator`] (the work),
//! [`array::inspection`], [`array::incarnation`], [`array::independent_reader`] (a second reader of the
//! format), [`array::run()`].
//!
//! [`cuts`] tests cuts over two pools.

pub mod array;
pub mod cuts;
pub mod database;

mod failure;

pub use failure::SeedFailure;
