//! Integration tests of the daemon's threads: simulated, and real ones with clients of others.

mod real_threads;
mod simulated;
