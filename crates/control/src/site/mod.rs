//! The site that the daemon serves: from its file to pools, volumes, targets and exports
//! ([the decision](../../../../docs/decisions/2026-11-26-a-site-is-served.md)).
//!
//! Reading order: [`wanted`] (a site file, checked), [`wanted_dr_group`] and [`known_dr_group`], [`changes`] (the steps from what is there to what is wanted; pure),
//! [`places`] (making and opening pools), [`server`] (the site while it is served), [`planning`] (its plan), `applying` (the
//! steps, done), `dr_group_making`, `dr_groups_waiting` (those whose other site is not connected), `apply_progress`, `pool_answers` (time limits, and going on with what a pool missed), `late_pools` (those that are not open in time), `closed_pools` (those that did not open, tried again), `kept_documents` (what pools keep of the site), [`adoption`] (a file of pools that are there), `printing` (the site as a file), [`power`] (the site on a battery), [`handle`] (the site from other threads) and `requests` (their
//! answers); then changes without a file: [`row_change`] (one row of the site; pure), [`row_refusal`], `row_changing` (it is
//! planned), `row_layers` (the versions of the site that pools serve), `row_sessions` (hosts that lose something), `row_applying`
//! (it is done and taken back), [`file_merge`] (what counts when the file is applied again); [`moved_volumes`] (volumes that
//! are in other pools by now; pure) and [`volume_following`] (what serves them follows).
//!
//! Invariants:
//!
//! 1. What the file lacks stays. Data are destroyed only by name, and never because a file changed.
//! 2. Exports, targets and rights hold no data: they are what the file says.
//! 3. A site that was applied as a whole has no changes left.
//! 4. What was changed without a file outlives a start with the same file, and is named there.

pub mod adoption;
mod apply_progress;
mod applying;
pub mod changes;
mod closed_pools;
pub(crate) mod dr_group_making;
mod dr_group_steps;
mod dr_groups_waiting;
pub mod file_merge;
pub mod handle;
mod kept_documents;
pub mod known_dr_group;
mod late_pools;
mod locked_volumes;
pub mod moved_volumes;
pub mod places;
pub mod planning;
mod pool_answers;
pub mod power;
mod printing;
mod requests;
mod row_applying;
pub mod row_change;
mod row_changing;
mod row_layers;
mod row_merge;
pub mod row_refusal;
mod row_sessions;
pub mod server;
mod settling;
pub mod volume_following;
pub mod wanted;
pub mod wanted_dr_group;
mod wanted_pool;

pub use changes::{SiteAction, SiteChange, SiteChanges, SiteStep};
pub use places::{FolderPlaces, PoolPlaces};
pub use printing::{printed_closed_site, printed_site};
pub use server::SiteServer;
pub use wanted::{SiteContext, WantedSite};
pub use wanted_pool::{WantedDrives, WantedPool, WantedVolume};
