//! Real mailbox databases under real transactions: the test that Jetstress was.
//!
//! A [`RunPlan`](plan::RunPlan) says what to do: a profile, groups and databases, a load, a duration.
//! [`run`] does it, one thread a storage group: *create* the databases (or attach to
//! them), *fill* the cache under load, *measure*, *verify* every page and log file. It gives
//! [`RunResults`](results::RunResults); [`RunVerdict`](verdict::RunVerdict) holds those against published
//! limits, and [`document`](mod@document) makes them a report.
//!
//! Reading order: [`setting`], [`profile`], [`limits`], [`judged_part`], [`setup`], [`plan`] (what is asked
//! for), [`caveats`], [`estimate`] (what it is worth and costs);
//! [`mail_record`], [`mail_table`], [`key_space`], [`create`](mod@create) (the databases);
//! [`operation`], [`pacing`], [`session`], [`scan`] (the load); [`meter`], [`measure`], [`verify`]
//! (what is seen of it); [`pools`], [`group`], [`progress`], [`kernel`], [`search`], [`record`], [`driver`] (the run);
//! [`results`], [`verdict`], [`mailboxes`], [`document`](mod@document) (the answer).

pub mod setting;

pub mod profile;

pub mod limits;

pub mod load;

pub mod judged_part;

pub mod setup;

pub mod plan;

pub mod caveats;

pub mod estimate;

pub mod mail_record;

pub mod mail_table;

pub mod key_space;

pub mod create;

pub mod operation;

pub mod pacing;

pub mod session;

pub mod scan;

pub mod meter;

pub mod measure;

pub mod verify;

pub mod pools;

pub mod baseline;

pub mod group;

pub mod progress;

pub mod search;

mod steady_state;

pub mod significance;

pub mod processor;

pub mod kernel;

pub mod record;

pub mod trial;

pub mod load_search;

pub mod driver;

pub mod results;

mod assemble;

pub mod verdict;

pub mod mailboxes;

pub mod document;

pub mod comparison;

pub mod error;

pub mod time_span;

mod yield_now;

pub use driver::{GroupPlacement, OpenGroup, RunEnvironment, prepare, run};
pub use error::Error;
