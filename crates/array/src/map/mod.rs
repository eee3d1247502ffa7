//! The map: which version of which block lies where, and which versions somebody still sees.
//!
//! What was written since the last checkpoint is in a [`Table`] in memory; everything older is in two trees, *head* with
//! the newest version of each block and *history* with what only points see.

mod branches;
mod discards;
mod extents;
mod figure;
mod lookup;
mod merge;
mod points;
mod reclaim;
mod space;
mod table;
mod version;

pub use branches::{Branch, Branches};
pub use extents::Piece;
pub use figure::Figure;
pub use lookup::{Lookup, Sources};
pub use merge::{Budget, Merge, Merged};
pub use points::Points;
pub use reclaim::{Reclaim, ReclaimPlan, Reclaimed};
pub use space::LiveGrains;
pub use table::{Past, Table};
pub use version::{Dead, Found, Mapped, Version};
