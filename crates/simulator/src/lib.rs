//! Whole rooms in the simulated world, broken on purpose and held to what they promise.
//!
//! A *run* follows from its seed alone: set-up, work, order of tasks, service times, crashes and faults. It
//! crashes the room under test several times, at any await, recovers it over what the drives kept, and
//! compares what it finds with a model that was told only what was begun and what was acknowledged.
//!
//! [`database`] does so with the mailbox database. Reading order there: [`database::plan`] (what a seed
//! decides), [`database::history`] (what may and must be there), [`database::session`] (the work),
//! [`database::incarnation`] (from opening to a crash), [`database::run()`] (all of it).
//!
//! [`array`](mod@array) does so with whole pools of drives. Reading order there: [`array::plan`] (what a seed decides),
//! [`array::atlas`] (what drives may do, and what is owed all the same), [`array::content`] and [`array::register`]
//! (what a sector holds, and may hold), [`array::model`], [`array::host`] and [`array::administrator`] (the work),
//! [`array::inspection`], [`array::incarnation`], [`array::foreign`] (a second reader of the format), [`array::run()`].

pub mod array;
pub mod database;

mod failure;

pub use failure::Failure;
