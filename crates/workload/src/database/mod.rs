//! The database load: real mailbox databases under real transactions, the test that Jetstress was.
//!
//! A [`RunPlan`](plan::RunPlan) has a profile, groups and databases, a load and a duration. [`run`](run()) executes it
//! with one thread for each storage group: *create* the databases (or attach to them), *fill* the cache under load,
//! *measure*, *verify* every page and log file. It returns [`RunResults`](results::RunResults);
//! [`RunVerdict::of`](crate::verdict::RunVerdict::of) judges them, and [`document`](mod@document) makes a report.
//!
//! A module uses only those above it:
//!
//! ```text
//! plan          profile, load, set-up of a run; caveats and estimate
//! load          databases, operations, sessions, background scan
//! measure       samples, pools below the files, verification
//! results       values: outcome of a group, results of a run, verdict, mailbox count
//! record        entries of the record file, and recovery of results from it
//! run           groups, load search, driver
//! document      the report of one run
//! comparison    the report of several runs; uses results only
//! ```

pub mod comparison;
pub mod document;
pub mod load;
pub mod measure;
pub mod plan;
pub mod record;
pub mod results;
pub mod run;

pub use load::error::Error;
pub use run::driver::{GroupPlacement, OpenGroup, RunEnvironment, prepare, run};
