//! Sets of volumes that are backed up together, as the site file has them (`docs/protect.md`).
//!
//! Reading order: [`wanted`] (the sets of a site file, checked), [`points`] (points of backups in the pools).

pub mod points;
pub mod wanted;

pub use wanted::{WantedFreeze, WantedSet, wanted_sets};
