//! Figures of an open pool: what hosts and drives did, and what the pool does about its space and its copies.
//!
//! ```text
//! host ─ NBD, iSCSI ─▶ meter of the volume ─▶ pool ─▶ meter of the drive ─▶ drive
//! ```
//!
//! The two sides are counted apart, because caches, copies and cleaning lie between them. [`PoolMeters`] has the meters,
//! [`FiguresCollector`] makes one value of them and of the pool's own counts, [`PoolFigures`]. Nobody here knows how the
//! figures are shown.

mod collector;
mod meters;
mod values;

pub use collector::FiguresCollector;
pub use meters::{DriveLabel, MeteredDrive, MeteredPoint, PoolMeters};
pub use values::{
    DriveTraffic, JobFigures, PoolFigures, RedundancyFigures, ScrubFigures, SpaceFigures, VolumeTraffic,
};
