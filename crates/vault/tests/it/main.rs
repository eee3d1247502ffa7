//! Integration tests: vaults in simulated time with faults, and vaults that restic judges.

// Tests play the user: they start programs and look at files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod damaged;
mod decoder_bytes;
mod decoders;
mod judged_by_restic;
mod locked;
mod object_store;
mod simulated;
mod volumes;
