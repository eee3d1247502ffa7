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

    /// Makes all changes survive a power cut.
    fn sync(&self) -> IoResult<()>;
}
