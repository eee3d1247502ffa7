//! The map: the location of every version of every block, and which versions are still visible.
//!
//! Changes since the last checkpoint are in a [`MapTable`] in memory; everything older is in two trees:
//! *head* with the newest version of each block, and *history* with versions that only points see. A
//! [`Merge`] moves a table into the trees; [`Sources::look_up`] consults all of them.
//!
//! A version is kept if it is the newest of a branch that has a head, or if a point of the branch
//! ([`Points`]) lies in its lifetime. So:
//!
//! * deleting a branch clears its head flag and discards all its blocks, in one interval. Versions its points
//!   see, and through them its children, stay;
//! * deleting a point removes it from the points and adds it to [`Reclaim`]. The checkpoints that follow
//!   remove the versions it alone saw; the last of them reports completion;
//! * a discard may take several checkpoints. The rest is an interval a branch and stamp; it has to be passed
//!   to the next table, and again when a pool is opened, before any other change.

mod branch_space;
mod branch_table;
mod branches;
mod discards;
mod extents;
mod lifetimes;
mod liveness;
mod lookup;
mod merge;
mod next_block;
mod points;
mod reclaim;
mod reclaimable;
mod resolution;
mod space;
mod table;

pub use branch_space::{BranchSpace, BranchSpaceQuery};
pub use branches::{Branch, Branches};
pub use extents::ExtentPart;
pub use liveness::LivenessQuery;
pub use lookup::{Lookup, PartialLookup, Sources};
pub use merge::{Budget, Merge, MergeOutcome};
pub use points::Points;
pub use reclaim::{Reclaim, ReclaimPlan, ReclaimProgress};
pub use reclaimable::ReclaimableQuery;
pub use resolution::{BlockMapping, DeadVersion, VersionLookup};
pub use space::LiveGrains;
pub use table::{MapTable, PastVersion, VersionTrace};
