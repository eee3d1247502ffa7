//! The block device: the one trait everything that stores bytes at addresses implements.
//!
//! A file, a raw drive, a fault injector, a meter, a volume, a snapshot, an iSCSI session: all are a
//! [`BlockDevice`], and each may be stacked on another. The trait stays this small; a capability that only
//! some devices have is a trait of its own ([`Resizable`], [`Sparse`]).
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

use crate::{Buffer, ByteCount, ByteOffset, IoResult, LocalFuture, SampledLatencies};
use std::{rc::Rc, sync::Arc};

/// Shape of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Usable bytes; a multiple of `sector`.
    pub size: ByteCount,
    /// Unit of every offset and length, in bytes: 512 or 4096.
    pub sector: u32,
}

/// Durability a completed write promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stability {
    /// Accepted; survives power loss only after a later `flush`.
    Volatile,
    /// On stable storage (forced unit access).
    Stable,
}

/// A store of bytes at addresses; implementations keep the rules above.
pub trait BlockDevice {
    fn geometry(&self) -> Geometry;

    /// True if it may be out of reach for a while and come back as it was: a device on another machine.
    fn may_be_away(&self) -> bool {
        false
    }

    /// Counts how long the answers to this device's clients wait until they are sent, if somebody wants to know.
    fn replies(&self) -> Option<Rc<SampledLatencies>> {
        None
    }

    /// Fills the buffers of `into` in order, starting at offset `at`, and returns them full.
    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>>;

    /// Writes the buffers of `from` in order, starting at offset `at`.
    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>>;

    /// Makes every write completed so far survive power loss.
    fn flush(&self) -> LocalFuture<IoResult<()>>;

    /// Declares the bytes unused. Until they are written again, a read may return any value.
    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>>;
}

/// A device whose size can change.
pub trait Resizable {
    /// Sets the size. Added bytes are allocated (no later write to them meets "no space") and read
    /// as zero; the new size is stable when this returns.
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>>;
}

/// A device that tracks holes: ranges that take no space and read as zero.
pub trait Sparse {
    /// Makes the bytes read as zero. With `keeps_space` the range stays allocated (and missing space is
    /// allocated); without it the device may free the space. `Unsupported` if the device would have to write
    /// the zeroes; nothing has changed then.
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>>;

    /// Lists the extents from `at` on, adjacent and in order. They cover at least one byte and at most
    /// `length`.
    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>>;
}

/// A run of bytes of a [`Sparse`] device with one allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub length: ByteCount,
    /// The run takes no space.
    pub is_hole: bool,
    /// The run is known to read as zero. It may read as zero without this flag.
    pub is_zero: bool,
}
