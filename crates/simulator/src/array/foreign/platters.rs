//! The drives, as they lie there.

use std::rc::Rc;
use world::sim::SimDrive;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// All drives that may be a pool's.
#[derive(Clone)]
pub struct Platters(pub Vec<Rc<SimDrive>>);

impl Platters {
    /// Bytes of a drive, from `at` on. Behind its end there are none.
    pub fn read(&self, drive: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0[drive].peek(at, &mut bytes);
        bytes
    }
}
