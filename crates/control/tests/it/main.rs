//! Integration tests of the daemon's threads: simulated, and real ones with clients of others; and of its
//! journal and its metrics.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod journal;
mod journal_damage;
mod metrics;
mod monitoring;
mod real_threads;
mod simulated;
mod site_crashes;
