//! A flat set of named files: all that a database needs of a filesystem.
//!
//! A folder of a real filesystem is one ([`crate::real`]); a raw device carved into named extents
//! is another, and so is any simulated device. Names are plain (no separators).

use crate::{BlockDevice, ByteCount, IoResult, LocalFuture, Resizable};
use std::rc::Rc;

/// An open file: a device that can change its size.
pub trait File: BlockDevice + Resizable {}

impl<T: BlockDevice + Resizable> File for T {}

/// One file of a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryEntry {
    /// Its plain name.
    pub name: String,
    /// Its size.
    pub size: ByteCount,
}

/// A flat set of named files.
pub trait Directory {
    /// Where this is, for messages: a path or a device name.
    fn describe(&self) -> String;

    /// All files, by name.
    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>>;

    /// Opens an existing file; `NotFound` if there is none.
    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>>;

    /// Makes a file of `size` bytes that read as zero and are allocated; `AlreadyExists` if there
    /// is one. The name is stable only after [`Directory::sync`].
    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>>;

    /// Gives `from` the name `to`, replacing a file of that name in one step.
    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>>;

    /// Removes a file. Handles open on it stay valid until dropped.
    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>>;

    /// Makes every create, rename and remove done so far survive power loss.
    fn sync(&self) -> LocalFuture<IoResult<()>>;

    /// Bytes that new files may still take.
    fn free(&self) -> LocalFuture<IoResult<ByteCount>>;
}
