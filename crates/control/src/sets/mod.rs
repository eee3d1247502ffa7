//! Sets of volumes that are backed up together, as the site file has them (`docs/protect.md`).
//!
//! Reading order: [`wanted`] (the sets of a site file, checked).

pub mod wanted;

pub use wanted::{SetVolume, WantedFreeze, WantedSet, wanted_sets};
