//! The free space that several simulated drives share: sparse files on one filesystem, thin LUNs of one array.

use std::{cell::Cell, rc::Rc};

/// Free blocks of 4 KiB of a filesystem. Cheap to clone; clones are one.
///
/// A drive that lies on it ([`SimDrive::put_on`](super::SimDrive::put_on)) takes a block for each block of its own that
/// was never written before. A write that needs more blocks than are free is answered with "no space".
#[derive(Clone, Debug)]
pub struct Filesystem {
    free_blocks: Rc<Cell<u64>>,
}

impl Filesystem {
    /// A filesystem with so many blocks of 4 KiB free.
    pub fn new(free_blocks: u64) -> Self {
        Self { free_blocks: Rc::new(Cell::new(free_blocks)) }
    }

    /// Blocks of 4 KiB that are free now.
    pub fn free_blocks(&self) -> u64 {
        self.free_blocks.get()
    }

    /// Somebody else fills it, or makes room: so many blocks of 4 KiB are free from now on.
    pub fn set_free_blocks(&self, free_blocks: u64) {
        self.free_blocks.set(free_blocks);
    }

    /// Takes blocks; false, and nothing taken, if fewer are free.
    pub(super) fn take(&self, blocks: u64) -> bool {
        let left = self.free_blocks.get().checked_sub(blocks);
        left.inspect(|&left| self.free_blocks.set(left)).is_some()
    }
}
