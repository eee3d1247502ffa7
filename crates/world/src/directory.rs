//! A flat set of named files: the part of a filesystem that a database needs.
//!
//! Implementations are a folder of a real filesystem ([`crate::real`]), a raw device divided into named
//! extents, and simulated devices. Names are plain (no separators).

use crate::{BlockDevice, ByteCount, IoResult, LocalFuture, Resizable};
use std::rc::Rc;

/// An open file: a device that can change its size.
pub trait File: BlockDevice + Resizable {}

impl<T: BlockDevice + Resizable> File for T {}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    pub name: String,
    pub size: ByteCount,
}

/// A flat set of named files.
pub trait Directory {
    /// The location for messages: a path or a device name.
    fn describe(&self) -> String;

    /// All files, sorted by name.
    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>>;

    /// Opens an existing file; `NotFound` if there is none.
    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>>;

    /// Creates a file of `size` bytes that are allocated and read as zero; `AlreadyExists` if the name is
    /// taken. The name is stable only after [`Directory::sync`].
    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>>;

    /// Renames `from` to `to` and atomically replaces a file of that name.
    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>>;

    /// Removes a file. Handles open on it stay valid until dropped.
    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>>;

    /// Makes all completed creates, renames and removes survive power loss.
    fn sync(&self) -> LocalFuture<IoResult<()>>;

    /// Bytes available to new files.
    fn free(&self) -> LocalFuture<IoResult<ByteCount>>;
}
