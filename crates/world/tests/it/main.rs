//! Integration tests of the real world: every device and directory against the rules of its trait.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod device;
mod directory;
mod fio;
mod host;
mod sockets;
mod threads_and_time;

use std::path::Path;
use world::{
    World,
    real::{RealOptions, run},
};

/// Runs `test` once with io_uring (where there is one) and once with helper threads, each in a
/// fresh folder.
fn in_both_worlds(test: impl AsyncFn(World, &Path)) {
    for force_plain in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        run(7, RealOptions { force_plain }, async |world| test(world, folder.path()).await);
    }
}
