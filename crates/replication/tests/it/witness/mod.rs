//! The witness: leases, fences and what a restart keeps.

mod model;
mod rules;
