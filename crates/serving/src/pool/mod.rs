//! Pools by their folders, and work on their drives that is not the array's.

pub mod add_drive;
pub mod advice;
pub mod branching;
pub mod copying;
pub mod create;
pub mod cut;
pub mod damaged;
pub mod departure;
pub mod difference;
pub mod domains;
pub mod drive_search;
pub mod events;
pub mod failure_sets;
pub mod filling;
pub mod folder;
pub mod group;
pub mod growth;
pub mod import;
pub mod levelling;
pub mod limits;
pub mod losses;
pub mod note;
pub mod record;
pub mod salvage;
pub mod snapshot_room;
pub mod sparing;
pub mod status;

mod drive_opening;
mod drive_space;
mod joining_drive;
mod mapfile;
mod publisher;
mod remote_drive;
mod sighting;
mod unused;
