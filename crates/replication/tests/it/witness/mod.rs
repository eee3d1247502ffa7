//! The witness: leases, fences and what a restart keeps.

mod files;
mod model;
mod rules;
