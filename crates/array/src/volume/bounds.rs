//! Bounds on the space of a volume.

/// Bounds on what a volume and its snapshots store, in bytes, multiples of 4096.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Space reserved for the volume; other volumes cannot take it.
    pub reserve_bytes: u64,
    /// The most it may store; 0 means unlimited.
    pub limit_bytes: u64,
}
