//! The numbers that a host writes to both pools in turn.

use super::CutRunError;
use array::volume::VolumeDevice;
use std::{cell::Cell, sync::Arc};
use world::{BlockDevice, Buffer, ByteOffset, Stability};

const BLOCK: usize = 4096;

/// A host's block in both pools. Number n goes to pool n modulo 2, once n - 1 was answered.
#[derive(Debug, Default)]
pub struct Chain {
    /// Index of the block.
    block: u64,
    /// The last number whose write was begun.
    begun: Cell<u64>,
    /// The last number whose write was answered.
    answered: Cell<u64>,
}

impl Chain {
    pub fn new(block: u64) -> Self {
        Self { block, ..Self::default() }
    }

    pub fn begun(&self) -> u64 {
        self.begun.get()
    }

    pub fn answered(&self) -> u64 {
        self.answered.get()
    }

    /// Writes the next number.
    ///
    /// # Errors
    ///
    /// The pool refuses it: the chain ends here.
    pub async fn write_next(&self, devices: &[VolumeDevice; 2]) -> world::IoResult<()> {
        let number = self.begun.get() + 1;
        self.begun.set(number);
        let mut data = Buffer::zeroed(BLOCK);
        data.as_chunks_mut().0.fill(number.to_le_bytes());
        let device = &devices[(number % 2) as usize];
        device.write(self.at(), vec![Arc::new(data)], Stability::Volatile).await?;
        self.answered.set(number);
        Ok(())
    }

    /// Goes on after a crash behind all numbers that may have been written: both pools get one.
    ///
    /// # Errors
    ///
    /// A pool refuses it.
    pub async fn go_on(&self, devices: &[VolumeDevice; 2]) -> world::IoResult<()> {
        self.write_next(devices).await?;
        self.write_next(devices).await
    }

    /// The number in a pool, or in a snapshot of it; 0 before the first.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is torn.
    pub async fn read(&self, device: &dyn BlockDevice) -> Result<u64, CutRunError> {
        let read = device.read(self.at(), vec![Buffer::zeroed(BLOCK)]).await;
        let read = read.map_err(|error| CutRunError::Broken(format!("a read failed: {error}")))?;
        let (words, _) = read[0].as_chunks();
        let number = u64::from_le_bytes(words[0]);
        if words.iter().any(|word| *word != words[0]) {
            return Err(CutRunError::Broken(format!("block {} has parts of two writes", self.block)));
        }
        Ok(number)
    }

    /// Checks the numbers that the two parts of a cut have: they follow each other, none that was answered
    /// before the cut is missing, and none is there that was begun after it.
    ///
    /// # Errors
    ///
    /// The numbers contradict each other, or the bounds.
    pub fn check(&self, found: [u64; 2], (answered, begun): (u64, u64)) -> Result<(), CutRunError> {
        let (last, other) = (found[0].max(found[1]), found[0].min(found[1]));
        let is_whole = last == 0 || other == last - 1;
        if is_whole && (answered..=begun).contains(&last) {
            return Ok(());
        }
        Err(CutRunError::Broken(format!(
            "block {}: the cut has {} and {}, where {answered} was answered before it and {begun} begun before it \
             ended",
            self.block, found[0], found[1]
        )))
    }

    fn at(&self) -> ByteOffset {
        ByteOffset(self.block * BLOCK as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_has_numbers_that_follow_each_other() {
        let check = |found, bounds| Chain::new(0).check(found, bounds).is_ok();
        assert!(check([0, 0], (0, 1)));
        assert!(check([6, 7], (6, 8)));
        assert!(check([8, 7], (8, 8)));
        assert!(!check([6, 9], (6, 9)), "8 is missing");
        assert!(!check([6, 5], (7, 8)), "7 was answered before");
        assert!(!check([8, 9], (6, 8)), "9 was not begun");
        assert!(!check([7, 7], (6, 8)), "no number is in both");
    }
}
