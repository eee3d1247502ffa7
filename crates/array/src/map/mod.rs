//! The map: which version of which block lies where, and which versions somebody still sees.
//!
//! What was written since the last checkpoint is in a [`Table`] in memory; everything older is in two trees, *head* with
//! the newest version of each block and *history* with what only points see.

mod branches;
mod extents;
mod points;
mod space;
mod table;
mod version;

pub use branches::{Branch, Branches};
pub use extents::Piece;
pub use points::Points;
pub use space::LiveGrains;
pub use table::{Past, Table};
pub use version::{Dead, Found, Mapped, Version};
