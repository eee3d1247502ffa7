//! The mover: relocates live blocks so that whole segments become free.
//!
//! ```text
//! victim ─▶ contents: keys of all blocks written there
//!            └▶ those that the map still points to there ─▶ read, checksum verified
//!                 └▶ data segment: blocks, then its summary, stable
//!                      └▶ log: the segment's row and a move for each block ─▶ tables
//!                           └▶ next checkpoint frees the victim
//! ```
//!
//! A move counts only if its key still points to the old location when its record is applied, so host and
//! mover never wait for each other. `throttle` limits the mover's share of the drives' time. After a crash
//! before the moves are stable, nothing refers to the new segment.

mod cleaner;
mod contents;
mod data_segment;
mod destage;
mod drives;
mod nodes;
mod progress;
mod rebuild;
mod reverse_map;
mod scrub;
mod scrub_segments;
mod throttle;
mod victim;
mod victims;

pub use cleaner::CleaningResult;
pub use nodes::NodeRoom;
pub use progress::RebuildProgress;
pub use rebuild::DegradedSegments;
pub use scrub::{ScrubProgress, ScrubResult};
pub use throttle::{ThrottleFigures, ThrottleSetting};

pub(crate) use destage::Backlog;
pub(crate) use progress::Progress;
pub(crate) use rebuild::set_slot_index;
pub(crate) use reverse_map::ReverseMap;
pub(crate) use throttle::{HostCommand, Throttle, Urgency};
pub(crate) use victims::{Outlook, VICTIMS_MAX};
