//! Integration tests of the daemon's threads: simulated, and real ones with clients of others; and of its
//! journal.

mod journal;
mod journal_damage;
mod real_threads;
mod served_changes;
mod simulated;
mod site_crashes;
