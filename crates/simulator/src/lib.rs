//! Whole rooms in the simulated world, broken on purpose and held to what they promise.
//!
//! A *run* follows from its seed alone: set-up, work, order of tasks, service times, crashes and faults. It
//! crashes the room under test several times, at any await, recovers it over what the drives kept, and
//! compares what it finds with a model that was told only what was begun and what was acknowledged.
//!
//! [`database`] does so with the mailbox database. Reading order there: [`database::plan`] (what a seed
//! decides), [`database::history`] (what may and must be there), [`database::session`] (the work),
//! [`database::incarnation`] (from opening to a crash), [`database::run()`] (all of it).

pub mod database;
