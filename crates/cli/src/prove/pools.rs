//! `prove --pool`: the same run on Spindle's own array, beside the plain path on the same storage.
//!
//! Each storage group gets two pools, one for databases and one for logs, as a pool is one thread and a group is one:
//! [`layout`] says which drive lies where, [`size`] how large it is, [`make`] makes it, [`inspect`] looks whether what
//! is there can be opened, [`open`] opens it on the group's thread, [`run`](mod@run) is the flow of both runs.

pub mod counted;
pub mod inspect;
pub mod layout;
pub mod make;
pub mod open;
pub mod run;
pub mod size;
