//! The witness: leases, fences and what a restart keeps.

mod files;

mod lines;
mod model;
mod rules;
