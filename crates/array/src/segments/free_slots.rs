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
    /// Slots that are taken only if no other is free; a slot that was taken once is not among them.
    last: FixedBitSet,
    /// Start of the next search: slots are allocated in rising order, so that consecutive segments are
    /// adjacent.
    next: usize,
}

impl FreeSlots {
    /// A drive of `count` slots, all free.
    pub fn all(count: u32) -> Self {
        let mut slots = FixedBitSet::with_capacity(count as usize);
        slots.insert_range(..);
        Self { slots, free: count, last: FixedBitSet::new(), next: 0 }
    }

    /// Adds free slots at the end.
    pub fn grow(&mut self, count: u32) {
        let before = self.all_slots();
        assert!(count > before, "{count} slots are more than {before}");
        self.slots.grow(count as usize);
        self.slots.insert_range(before as usize..);
        self.free += count - before;
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
            if self.last.contains(index) {
                self.last.remove(index);
            }
        }
        is_free
    }

    pub fn is_free(&self, slot: SlotNumber) -> bool {
        self.slots.contains(slot.0 as usize)
    }

    /// Takes a slot only if no other is free.
    pub fn take_last(&mut self, slot: SlotNumber) {
        if self.is_free(slot) {
            self.last.grow(self.slots.len());
            self.last.insert(slot.0 as usize);
        }
    }

    /// Takes the next free slot, wrapping around at the end of the drive.
    pub fn take_next(&mut self) -> Option<SlotNumber> {
        let preferred = self.first_from(self.next, &self.last).or_else(|| self.first_from(0, &self.last));
        let slot = SlotNumber(preferred.or_else(|| self.slots.minimum())? as u32);
        assert!(self.take(slot), "a slot that was found free is");
        self.next = slot.0 as usize + 1;
        Some(slot)
    }

    /// Makes a slot the next to be taken, if it is free.
    pub fn set_next(&mut self, slot: SlotNumber) {
        self.next = slot.0 as usize;
    }

    /// The first free slot from `from` on that is not among `but`.
    fn first_from(&self, from: usize, but: &FixedBitSet) -> Option<usize> {
        let words = self.slots.as_slice();
        let word = |index: usize| words[index] & !but.as_slice().get(index).copied().unwrap_or(0);
        let (first, bit) = (from / WORD_BITS, from % WORD_BITS);
        if first >= words.len() {
            return None;
        }
        let begun = word(first) & (usize::MAX << bit);
        if begun != 0 {
            return Some(first * WORD_BITS + begun.trailing_zeros() as usize);
        }
        let behind = (first + 1..words.len()).find(|&index| word(index) != 0)?;
        Some(behind * WORD_BITS + word(behind).trailing_zeros() as usize)
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

    #[test]
    fn slots_that_are_added_are_free_and_the_others_stay_as_they_were() {
        let mut slots = FreeSlots::all(3);
        assert_eq!([slots.take_next(), slots.take_next()], [0, 1].map(|slot| Some(SlotNumber(slot))));
        slots.grow(130);
        assert_eq!((slots.all_slots(), slots.free()), (130, 128));
        let rest: Vec<u32> = (0..128).filter_map(|_| slots.take_next()).map(|slot| slot.0).collect();
        assert_eq!((rest, slots.take_next()), ((2..130).collect(), None));
    }

    #[test]
    fn slots_that_are_kept_for_last_are_taken_last_and_are_like_the_others_then() {
        let mut slots = FreeSlots::all(5);
        for slot in [0, 1, 3, 9] {
            slots.take_last(SlotNumber(slot));
        }
        let mut taken = || slots.take_next().map(|slot| slot.0);
        assert_eq!([taken(), taken(), taken(), taken()], [Some(2), Some(4), Some(0), Some(1)]);
        slots.give_back(SlotNumber(0));
        assert_eq!(slots.take_next(), Some(SlotNumber(0)), "only 3 is left of those");
        assert_eq!((slots.take_next(), slots.take_next()), (Some(SlotNumber(3)), None));
    }
}
