//! Series of samples: the volumes and pools that have some.

use array::format::{PoolId, VolumeId};

/// Identity of a series: it stays when the volume or the pool gets another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesKey {
    pub pool: PoolId,
    /// `None` for the sum of the pool, with the snapshots of it that are served.
    pub volume: Option<VolumeId>,
}

/// A series by its names as they were last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSeries {
    pub key: SeriesKey,
    pub pool: String,
    /// Empty for the sum of the pool.
    pub volume: String,
    /// Of the volume, or of all volumes of the pool.
    pub size_bytes: u64,
}
