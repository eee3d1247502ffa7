//! The waist: everything that stores bytes at addresses.
//!
//! A file, a raw drive, a fault injector, a meter, later a volume, a snapshot, an iSCSI session or
//! a timing model: all are a [`BlockDevice`], and any may stand on any. The trait stays this small;
//! what only some devices can do is a capability trait of its own ([`Resizable`], [`Sparse`]).
//!
//! Rules every implementation keeps:
//!
//! 1. Offsets and lengths are multiples of [`Geometry::sector`]; anything else is `Unaligned`.
//! 2. An operation that would touch bytes past the end changes nothing and is `OutOfRange`.
//! 3. A started operation runs to completion. Dropping its future abandons the answer, never the
//!    buffers: the device owns those until it is done with them.
//! 4. Operations in flight at once may complete in any order; overlapping ones have no order.
//! 5. A `Stable` write that returned Ok survives power loss. A `flush` that returned Ok makes every
//!    write that completed before the flush *started* survive it.
//! 6. An error says nothing about which of the bytes were written.

use crate::{Buffer, ByteCount, ByteOffset, IoResult, LocalFuture};
use std::sync::Arc;

/// Shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable bytes; a multiple of `sector`.
    pub size: ByteCount,
    /// Unit of every offset and length, in bytes: 512 or 4096.
    pub sector: u32,
}

/// What a completed write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Accepted; survives power loss only after a later `flush`.
    Volatile,
    /// On stable storage (forced unit access).
    Stable,
}

/// Something that stores bytes at addresses. See the module's rules.
pub trait BlockDevice {
    /// Size and sector, as of now.
    fn geometry(&self) -> Geometry;

    /// Fills `into`, one after the other, from `at` on; gives the buffers back full.
    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>>;

    /// Writes `from`, one after the other, from `at` on.
    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>>;

    /// Makes every write completed so far survive power loss.
    fn flush(&self) -> LocalFuture<IoResult<()>>;

    /// Says that the bytes are no longer needed; they read as anything until written again.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>>;
}

/// A device whose size can change.
pub trait Resizable {
    /// Sets the size. Added bytes are allocated (no later write to them meets "no space") and read
    /// as zero; the new size is stable when this returns.
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>>;
}

/// A device that knows where it holds nothing, and can come to hold nothing without being written.
pub trait Sparse {
    /// Makes the bytes read as zeroes. They keep the space they have, and get what they lack, if `keeps_space`; else
    /// they may give it up. `Unsupported` if that cannot be done without writing them; then nothing was changed.
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>>;

    /// What lies from `at` on: pieces one behind the other, which cover at least one byte, and `length` at most.
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>>;
}

/// A piece of a [`Sparse`] device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of it.
    pub length: ByteCount,
    /// It takes no space.
    pub is_hole: bool,
    /// It reads as zeroes. Not set, it may all the same.
    pub is_zero: bool,
}
