//! Allocation of flush journal slots.
//!
//! Invariant: a slot is free iff every page write it protects has ended and a flush of its database that
//! began after that has succeeded.

use super::super::DatabaseIndex;
use std::collections::BTreeSet;

/// Use of a slot by one database.
#[derive(Clone, Copy, Debug)]
struct SlotUse {
    database: DatabaseIndex,
    /// Page writes in progress.
    writes: u32,
    /// A flush has begun since the last of them ended.
    flushing: bool,
}

/// The states of all slots; see the invariant above.
#[derive(Debug)]
pub struct Ring {
    slots: Vec<Vec<SlotUse>>,
    /// Start of the search for a free slot: slots are used in turn.
    next: usize,
}

impl Ring {
    /// `slots` slots, all free.
    pub fn new(slots: u32) -> Self {
        assert!(slots > 0, "a journal has a slot");
        Self { slots: vec![Vec::new(); slots as usize], next: 0 }
    }

    /// A free slot, if any.
    pub fn free(&self) -> Option<u32> {
        let count = self.slots.len();
        let mut in_turn = (0..count).map(|step| (self.next + step) % count);
        in_turn.find(|&slot| self.slots[slot].is_empty()).map(|slot| slot as u32)
    }

    /// Marks a free slot as written; it protects one page write for each occurrence of a database in
    /// `writes`.
    pub fn fill(&mut self, slot: u32, writes: impl IntoIterator<Item = DatabaseIndex>) {
        let parts = &mut self.slots[slot as usize];
        assert!(parts.is_empty(), "a slot is overwritten only when nothing needs it");
        for database in writes {
            match parts.iter_mut().find(|part| part.database == database) {
                Some(part) => part.writes += 1,
                None => parts.push(SlotUse { database, writes: 1, flushing: false }),
            }
        }
        assert!(!parts.is_empty(), "a slot is written for page writes");
        self.next = (slot as usize + 1) % self.slots.len();
    }

    /// One of the page writes has ended.
    pub fn end_write(&mut self, slot: u32, database: DatabaseIndex) {
        let mut parts = self.slots[slot as usize].iter_mut();
        let part = parts.find(|part| part.database == database).expect("a slot in use knows its databases");
        part.writes = part.writes.checked_sub(1).expect("a page write ends once");
    }

    /// A flush of a database is about to start.
    pub fn begin_flush(&mut self, database: DatabaseIndex) {
        for part in self.slots.iter_mut().flatten().filter(|part| part.database == database) {
            // This flush also covers the writes of an abandoned one.
            part.flushing = part.writes == 0;
        }
    }

    /// The flush has succeeded.
    pub fn end_flush(&mut self, database: DatabaseIndex) {
        for parts in &mut self.slots {
            parts.retain(|part| part.database != database || !part.flushing);
        }
    }

    /// Databases whose flush would help to free a slot.
    pub fn databases_to_flush(&self) -> BTreeSet<DatabaseIndex> {
        self.slots.iter().flatten().filter(|part| part.writes == 0).map(|part| part.database).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: DatabaseIndex = DatabaseIndex(0);
    const B: DatabaseIndex = DatabaseIndex(1);

    fn flush(ring: &mut Ring, database: DatabaseIndex) {
        ring.begin_flush(database);
        ring.end_flush(database);
    }

    #[test]
    fn a_slot_is_free_again_after_its_writes_and_then_a_flush() {
        let mut ring = Ring::new(1);
        ring.fill(0, [A, A]);
        flush(&mut ring, A);
        ring.end_write(0, A);
        flush(&mut ring, A);
        assert_eq!(ring.free(), None, "one write has not ended");
        assert!(ring.databases_to_flush().is_empty());
        ring.end_write(0, A);
        assert_eq!(ring.databases_to_flush(), [A].into());
        flush(&mut ring, B);
        assert_eq!(ring.free(), None, "another database was flushed");
        flush(&mut ring, A);
        assert_eq!(ring.free(), Some(0));
    }

    #[test]
    fn a_write_that_ends_during_a_flush_waits_for_the_next() {
        let mut ring = Ring::new(1);
        ring.fill(0, [A]);
        ring.begin_flush(A);
        ring.end_write(0, A);
        ring.end_flush(A);
        assert_eq!(ring.free(), None);
        ring.begin_flush(A);
        // Abandoned; the next flush covers it.
        flush(&mut ring, A);
        assert_eq!(ring.free(), Some(0));
    }

    #[test]
    fn each_database_of_a_slot_needs_its_own_flush() {
        let mut ring = Ring::new(2);
        ring.fill(0, [A, B]);
        ring.end_write(0, A);
        flush(&mut ring, A);
        assert_eq!(ring.databases_to_flush(), [].into(), "a flush of A would free nothing more");
        ring.end_write(0, B);
        assert_eq!(ring.databases_to_flush(), [B].into());
        assert_eq!(ring.free(), Some(1), "in turn");
        flush(&mut ring, B);
        ring.fill(1, [A]);
        assert_eq!(ring.free(), Some(0));
    }

    #[test]
    #[should_panic(expected = "only when nothing needs it")]
    fn a_slot_in_use_is_not_overwritten() {
        let mut ring = Ring::new(1);
        ring.fill(0, [A]);
        ring.fill(0, [A]);
    }
}
