//! Integration tests of the real world: devices and directories against the rules of their traits.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod device;
mod directory;
mod fio;
mod freeze;
mod host;
mod programs;
mod sockets;
mod threads_and_time;

use std::{path::Path, time::Duration};
use world::{
    World,
    real::{RealOptions, run},
};

/// Runs `test` with io_uring (where available), with helper threads, and with busy polling, each in a fresh
/// folder.
fn in_each_engine(test: impl AsyncFn(World, &Path)) {
    let busy_poll = RealOptions { busy_poll: Duration::from_micros(50), ..RealOptions::default() };
    for options in [RealOptions::default(), RealOptions::plain(true), busy_poll] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        run(7, options, async |world| test(world, folder.path()).await);
    }
}
