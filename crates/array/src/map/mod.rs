//! The map: which version of which block lies where, and which versions somebody still sees.
//!
//! What was written since the last checkpoint is in a [`Table`] in memory; everything older is in two trees, *head* with
//! the newest version of each block and *history* with what only points see. A [`Merge`] takes a table into the
//! trees; [`Sources::look_up`] asks all of them.
//!
//! A version is kept if it is the newest of a branch that has a head, or if a point of the branch ([`Points`]) lies in its
//! life. So:
//!
//! * a branch that is deleted is marked as without a head, and all its blocks are discarded, in one interval. What its points
//!   see, and through them its children, stays;
//! * a point that is deleted is taken out of the points and told to [`Reclaim`]. What it alone saw goes with the
//!   checkpoints that follow; when nothing of it is left, the last of them says so;
//! * a discard may take several checkpoints. What is left is an interval a branch and stamp; it has to be given to
//!   the next table, and again when a pool is opened, before anything else is.

mod branches;
mod discards;
mod extents;
mod figure;
mod line;
mod lookup;
mod merge;
mod points;
mod reclaim;
mod space;
mod table;
mod version;
mod whereabouts;

pub use branches::{Branch, Branches};
pub use extents::Piece;
pub use figure::Figure;
pub use lookup::{Lookup, PartialAnswer, Sources};
pub use merge::{Budget, Merge, Merged};
pub use points::Points;
pub use reclaim::{Reclaim, ReclaimPlan, Reclaimed};
pub use space::LiveGrains;
pub use table::{Past, Table, Trace};
pub use version::{Dead, Found, Mapped, Version};
pub use whereabouts::Whereabouts;
