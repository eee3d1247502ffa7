//! Served storage: the folders and drives of pools, devices of other machines, and exports with their identities and rights.
//!
//! [`pool`] opens a pool by its folder: its record lists the drives, a search finds them by their superblocks, and while
//! the pool is open its status is published. [`export`] serves files, devices, volumes and snapshots over NBD and iSCSI.
//! [`remote`] opens devices of other machines by their URIs, with [`certificates`]. [`figures`] counts what a pool and its
//! hosts do.
//!
//! Invariants:
//!
//! 1. Nothing here prints, reads the environment or ends the process: the caller takes
//!    [`Notices`](notices::Notices) and follows events.
//! 2. A refused request changes nothing.

pub mod certificates;
pub mod export;
pub mod figures;
pub mod notices;
pub mod pool;
pub mod remote;
pub mod step_times_file;
pub mod uuid;
