//! Free space that several simulated drives share: sparse files on one filesystem, thin LUNs of one array.

use std::{cell::Cell, rc::Rc};

/// A number of free 4 KiB blocks. Cheap to clone; clones share the space.
///
/// A drive on it ([`SimDrive::put_on`](super::SimDrive::put_on)) takes a block for each of its own blocks at
/// the first write. A write that needs more blocks than are free fails with "no space".
#[derive(Clone, Debug)]
pub struct SimFilesystem {
    free_blocks: Rc<Cell<u64>>,
}

impl SimFilesystem {
    pub fn new(free_blocks: u64) -> Self {
        Self { free_blocks: Rc::new(Cell::new(free_blocks)) }
    }

    pub fn free_blocks(&self) -> u64 {
        self.free_blocks.get()
    }

    /// Sets the free blocks: another user filled the filesystem, or made room.
    pub fn set_free_blocks(&self, free_blocks: u64) {
        self.free_blocks.set(free_blocks);
    }

    /// Takes blocks; false if fewer are free, and nothing is taken then.
    pub(super) fn take(&self, blocks: u64) -> bool {
        let left = self.free_blocks.get().checked_sub(blocks);
        left.inspect(|&left| self.free_blocks.set(left)).is_some()
    }
}
