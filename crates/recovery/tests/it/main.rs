//! Tests of the room on real filesystems of this machine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod filesystems;
mod maildirs;
mod partitions;
