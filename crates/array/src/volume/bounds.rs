//! How much a volume may take.

/// Bytes, multiples of 4096, that a volume and its snapshots may and can always take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Kept for it: no other volume can take that.
    pub reserve_bytes: u64,
    /// It may take no more; 0 is all there is.
    pub limit_bytes: u64,
}
