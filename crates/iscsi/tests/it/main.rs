//! Integration tests of SCSI and iSCSI: commands to a unit over a simulated drive, our initiator and target,
//! and tgt.

// Tests play the user: they start programs and look at files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod access;
mod changed_rights;
mod discovery;
mod exclusive_units;
mod extended_copy;
mod initiator;
mod malformed_sessions;
mod medium;
mod non_medium;
mod persistent_reserve;
mod portal;
mod random_commands;
mod removable_medium;
mod scene;
mod sessions;
mod tgt;
mod thresholds;
mod two_portals;
mod withholding;
