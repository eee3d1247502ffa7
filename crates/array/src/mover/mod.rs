//! The mover: relocates blocks that are alive, so that segments become free as a whole.
//!
//! ```text
//! victim ─▶ contents: keys of all that was written there
//!            └▶ which of them the map still points to there ─▶ read, each checked
//!                 └▶ data segment: blocks, then its summary, stable
//!                      └▶ log: the segment's row and a move for each block ─▶ tables ─▶ next checkpoint frees the victim
//! ```
//!
//! A move counts only if its key still points to the old place when its record is taken: the host is never waited for,
//! and never waits; how much of the drives' time the mover takes is for `pace` to say. A crash before the moves are stable leaves a segment that nothing points to.

mod cleaner;
mod contents;
mod data_segment;
mod drives;
mod emptying;
mod nodes;
mod pace;
mod progress;
mod rebuild;
mod recent;
mod rest;
mod scrub;
mod scrub_segments;
mod victims;

pub use cleaner::Cleaned;
pub use nodes::NodeRoom;
pub use pace::{PaceFigures, PaceSetting};
pub use progress::RebuildProgress;
pub use rebuild::Degraded;
pub use scrub::{ScrubProgress, Scrubbed};

pub(crate) use pace::{Command, Pace, Urgency};
pub(crate) use progress::Progress;
pub(crate) use rebuild::set_slot_index;
pub(crate) use recent::RecentLog;
pub(crate) use rest::Backlog;
pub(crate) use victims::{Outlook, VICTIMS_MAX};
