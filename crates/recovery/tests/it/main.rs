//! Tests of the room, most of them on real filesystems of this machine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod delivered_mails;
mod filesystems;
mod maildirs;
mod partitions;
