//! Integration tests of the real world: every device and directory against the rules of its trait.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod device;
mod directory;
mod fio;
mod host;
mod sockets;
mod threads_and_time;

use std::{path::Path, time::Duration};
use world::{
    World,
    real::{RealOptions, run},
};

/// Runs `test` with io_uring (where there is one), with helper threads, and looking before each sleep, each in a
/// fresh folder.
fn in_both_worlds(test: impl AsyncFn(World, &Path)) {
    let looking = RealOptions { look: Duration::from_micros(50), ..RealOptions::default() };
    for options in [RealOptions::default(), RealOptions::plain(true), looking] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        run(7, options, async |world| test(world, folder.path()).await);
    }
}
