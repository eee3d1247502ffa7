//! The raw contents of the drives.

use std::rc::Rc;
use world::sim::SimDrive;

pub const BLOCK: usize = 4096;

/// All drives that may belong to a pool.
#[derive(Clone)]
pub struct Platters(pub Vec<Rc<SimDrive>>);

impl Platters {
    /// Reads a drive; zeroes behind its end.
    pub fn read(&self, drive: usize, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.0[drive].peek(at, &mut bytes);
        bytes
    }
}
