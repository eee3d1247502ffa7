//! `prove --pool`: the same run on Spindle's own array, and on the plain path of the same storage for comparison.
//!
//! Each storage group gets two pools, one for databases and one for logs, because a pool and a group have one thread each.
//! [`layout`] assigns drives to locations, [`size`] computes their size, [`make`] makes them, [`inspect`] checks whether
//! existing ones can be opened, [`open`] opens them on the group's thread, [`run`](mod@run) is the flow of both runs.

pub mod backup_cutter;
mod counting_device;
pub mod inspect;
pub mod layout;
pub mod make;
pub mod open;
pub mod run;
pub mod size;
