//! A file of a few MiB in which a program keeps its own state, such as a small database.
//!
//! Unlike a [`BlockDevice`](crate::BlockDevice) it is synchronous, grows, and takes any offset and length:
//! its users write little, and wait for it.

use crate::IoResult;
use std::fmt;

/// An open file.
///
/// A write or a new size counts for every later read at once, and survives a power cut only after
/// [`sync`](StateFile::sync). After a sync that failed nothing is known about the changes since the one before,
/// and a later sync that succeeds says nothing about them either.
pub trait StateFile: Send + Sync + fmt::Debug {
    /// The file's place, for messages.
    fn name(&self) -> &str;

    /// Bytes.
    fn size(&self) -> IoResult<u64>;

    /// Fills `into`; `OutOfRange` if the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> IoResult<()>;

    /// Writes all of `bytes`; the file grows if it ends before. After an error any part of them may be written.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> IoResult<()>;

    /// Cuts the file off, or lets it grow by zeroes.
    fn set_size(&self, size: u64) -> IoResult<()>;

    /// Makes all changes survive a power cut. The name may not: see [`StateFile::sync_name`].
    fn sync(&self) -> IoResult<()>;

    /// Makes the file's name survive a power cut, also if it took the name of another file.
    fn sync_name(&self) -> IoResult<()>;

    /// An empty file beside this one that can take its place, and is as private. What a crash left of one before is gone. If it is
    /// dropped without having taken the place, it is removed.
    fn begin_successor(&self) -> IoResult<Box<dyn StateFile>>;

    /// Gives this successor the name of its predecessor, at once: who opens the name finds one or the other. The
    /// contents must be stable before; the name is stable after [`StateFile::sync_name`]. After an error either may have the name.
    ///
    /// # Panics
    ///
    /// If it is no successor, or has taken the place before.
    fn take_place(&mut self) -> IoResult<()>;
}
