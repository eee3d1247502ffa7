//! Integration tests of SCSI and iSCSI: whole commands to a unit over a simulated drive, our two ends, and a target of others.

// Tests play the user: they start programs and look at files.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod admitting;
mod asking;
mod copying;
mod discovery;
mod hostile;
mod initiating;
mod loading;
mod media;
mod reserving;
mod scene;
mod sessions;
mod sharing;
mod spoiled;
mod tgt;
