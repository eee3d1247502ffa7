//! Work on several pools at once, each on its own thread: snapshots, and clones and rollbacks of groups
//! ([the decision](../../../../docs/decisions/2026-11-27-groups-through-the-server.md)).
//!
//! Invariants:
//!
//! 1. A pool is in one such work at a time (`places`): orders of two of them never wait for each other.
//! 2. Nothing is locked in a pool before the threads of all pools have taken their orders (`parts`).
//! 3. A pool's thread waits for others for a bounded time: [`GATHER_MAX`] here, and the bounds of the steps in `array`.
//! 4. What ended early is settled (`settling`) only while no other such work is under way in its pools.

mod cutting;
mod parts;
mod places;
mod settling;

pub use cutting::{SharedCut, SharedCutPart, is_in_all, take_in_all};
pub use parts::{PartsRefusal, with_all_pools};
pub use places::{HeldPlaces, OperationPlaces};
pub use settling::{SettledOnline, settle, show_settled};

use std::time::Duration;

/// Time for the threads of all pools to take their orders, and for other work over them to end.
pub const GATHER_MAX: Duration = Duration::from_secs(5);
