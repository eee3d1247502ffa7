//! The free slots of one drive. Invariant: `free` counts the bits that are set.

use crate::{
    format::SlotNumber,
    simulation::canary::{self, Canary},
};
use fixedbitset::FixedBitSet;

const WORD_BITS: usize = usize::BITS as usize;

/// Free slots of one drive.
#[derive(Debug)]
pub struct FreeSlots {
    slots: FixedBitSet,
    free: u32,
    /// Start of the next search: slots are allocated in rising order, so that consecutive segments are
    /// adjacent.
    next: usize,
}

impl FreeSlots {
    /// A drive of `count` slots, all free.
    pub fn all(count: u32) -> Self {
        let mut slots = FixedBitSet::with_capacity(count as usize);
        slots.insert_range(..);
        Self { slots, free: count, next: 0 }
    }

    /// Number of free slots.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Number of slots of the drive.
    pub fn all_slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Takes a given slot; false if it is not free, or does not exist.
    pub fn take(&mut self, slot: SlotNumber) -> bool {
        let index = slot.0 as usize;
        let is_free = self.slots.contains(index);
        if is_free {
            self.slots.remove(index);
            self.free -= 1;
        }
        is_free
    }

    /// Takes the next free slot, wrapping around at the end of the drive.
    pub fn take_next(&mut self) -> Option<SlotNumber> {
        let slot = SlotNumber(self.first_from(self.next).or_else(|| self.slots.minimum())? as u32);
        assert!(self.take(slot), "a slot that was found free is");
        self.next = slot.0 as usize + 1;
        Some(slot)
    }

    /// Makes a slot the next to be taken, if it is free.
    pub fn set_next(&mut self, slot: SlotNumber) {
        self.next = slot.0 as usize;
    }

    fn first_from(&self, from: usize) -> Option<usize> {
        let words = self.slots.as_slice();
        let (first, bit) = (from / WORD_BITS, from % WORD_BITS);
        let begun = words.get(first)? & (usize::MAX << bit);
        if begun != 0 {
            return Some(first * WORD_BITS + begun.trailing_zeros() as usize);
        }
        let behind = words[first + 1..].iter().position(|&word| word != 0)? + first + 1;
        Some(behind * WORD_BITS + words[behind].trailing_zeros() as usize)
    }

    /// Frees a slot.
    pub fn give_back(&mut self, slot: SlotNumber) {
        let index = slot.0 as usize;
        assert!(!self.slots.contains(index), "slot {slot} was not taken");
        self.slots.insert(index);
        self.free += 1;
        if canary::is(Canary::SegmentReusedBeforeCheckpoint) {
            // At once, not on the next round.
            self.next = index;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_given_round_the_drive() {
        let mut slots = FreeSlots::all(130);
        let first: Vec<u32> = (0..130).filter_map(|_| slots.take_next()).map(|slot| slot.0).collect();
        assert_eq!(first, (0..130).collect::<Vec<_>>());
        assert_eq!((slots.free(), slots.take_next()), (0, None));
        for slot in [3, 64, 129] {
            slots.give_back(SlotNumber(slot));
        }
        assert_eq!(slots.take_next(), Some(SlotNumber(3)), "the end was reached");
        assert_eq!(slots.take_next(), Some(SlotNumber(64)));
        slots.give_back(SlotNumber(3));
        assert_eq!(slots.take_next(), Some(SlotNumber(129)), "on, not back");
        assert_eq!(slots.take_next(), Some(SlotNumber(3)));
        assert!(!slots.take(SlotNumber(3)) && !slots.take(SlotNumber(130)));
    }
}
