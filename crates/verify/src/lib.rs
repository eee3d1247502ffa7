//! The verifying room: says of files that an ESE engine wrote, Exchange's or ours, whether they are whole.
//!
//! Its judges are pure: bytes in, facts and findings out. They read nothing, know no clock, run on any thread,
//! and panic on no bytes whatever. Who reads the files, hands their bytes over and shows what was found comes
//! on top of them.
//!
//! Reading order: [`finding`] is what a judge says. [`kind`] tells what a file is by its content. [`database`] has
//! headers, pages and who owns them, [`deep`] the trees; [`log`] has log files in both formats, [`checkpoint`] and
//! [`flush_map`] the small files beside them. [`set`] takes the facts of all files of a folder and says whether
//! they can be recovered together. [`running`] reads whole folders; [`in_world`] checks databases inside the caller's
//! world.

pub mod answer;
pub mod checkpoint;
pub mod database;
pub mod deep;
pub mod finding;
pub mod flush_map;
pub mod in_world;
pub mod kind;
pub mod log;
pub mod running;
pub mod set;
pub mod signatures;

mod fields;

pub use finding::{BitFix, Finding, Part, Place, Severity};
pub use kind::{FileKind, SpindleKind, identify};
