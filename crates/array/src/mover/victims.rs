//! Which segments are worth emptying: those with the least alive, as many as give the room that is wanted.
//!
//! What is moved costs a read and its writes; what is left alone a little longer dies for nothing. So a round takes no
//! more than it must, and none that has much more alive than those that had to be taken.

use crate::{
    format::{BLOCK_GRAINS, SegmentKind, SegmentNumber, row::SegmentState},
    log::{log_shape, room_blocks},
    pool::{Pool, Purpose},
};

/// Victims of one round at most: what they hold is free only with the checkpoint after it.
const VICTIMS_MAX: usize = 512;

/// Others are like a victim if they have more alive by a segment's room by this: so many that a checkpoint, which rewrites
/// every leaf that random writes touched, is worth its while.
const ALIKE: u32 = 4;

/// Where victims have no more than a quarter of a segment alive, a round gains up to so many times what it must: moving that
/// costs less than one more checkpoint, which with snapshots rewrites most of the history.
const LARGER: u64 = 4;

/// What a round may take, and what it is for.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Grains that fit into one segment.
    room: u32,
    /// Segments that may be filled.
    targets_max: u64,
    /// Segments that are to be gained.
    wanted: u64,
    /// Grains that may be moved.
    moved_max: u64,
}

impl Pool {
    /// Segments to empty in one round: mirrors, or such of one copy.
    pub(super) fn victims(&self) -> Vec<SegmentNumber> {
        let mirrors = self.victims_among(true);
        if mirrors.is_empty() { self.victims_among(false) } else { mirrors }
    }

    fn victims_among(&self, mirrors: bool) -> Vec<SegmentNumber> {
        let space = self.space();
        // What a round takes must be there beside what it gives back, which is more.
        let free = space.free_for(Purpose::Upkeep);
        let state = self.shared.state.borrow();
        let geometry = self.shared.drives.geometry();
        let shape = log_shape(geometry.slot_blocks(), usize::from(geometry.log_copies));
        let limits = Limits {
            room: room_blocks(shape) * BLOCK_GRAINS as u32,
            targets_max: free.div_ceil(2),
            wanted: space.cleaning_round(),
            moved_max: (self.moves_max() * BLOCK_GRAINS) as u64,
        };
        let mut candidates: Vec<(u32, SegmentNumber)> = state
            .segments
            .iter()
            .filter(|(number, row)| {
                row.state == SegmentState::Sealed
                    && row.kind != SegmentKind::Nodes
                    && row.shape.is_mirror() == mirrors
                    && row.live_grains > 0
                    && self.shared.drives.copies_there(&row.slots) > 0
                    && !state.unreadable.contains(number)
            })
            .map(|(number, row)| (row.live_grains, number))
            .collect();
        candidates.sort_unstable();
        let live: Vec<u32> = candidates.iter().map(|(live, _)| *live).collect();
        let count = victims_of(&live, limits);
        candidates.into_iter().take(count).map(|(_, number)| number).collect()
    }
}

/// How many of the segments with the least alive are emptied: of `live`, which ascends.
fn victims_of(live: &[u32], limits: Limits) -> usize {
    let Limits { room, targets_max, wanted, moved_max } = limits;
    let (mut moved, mut best, mut gained) = (0_u64, 0, 0);
    // The last one that had to be taken for a segment to be gained.
    let mut dearest: Option<u32> = None;
    for (index, &alive) in live.iter().take(VICTIMS_MAX).enumerate() {
        let count = index as u64 + 1;
        let targets = (moved + u64::from(alive)).div_ceil(u64::from(room));
        // What fits into one is the cheapest there is.
        let is_worth_it = dearest.is_none_or(|dearest| targets == 1 || alive <= dearest + room / ALIKE);
        let is_too_much = targets > targets_max || moved + u64::from(alive) > moved_max.max(room.into());
        let is_enough = gained >= wanted && (alive > room / ALIKE || gained >= LARGER * wanted);
        if is_enough || is_too_much || !is_worth_it {
            break;
        }
        moved += u64::from(alive);
        if targets < count {
            dearest.get_or_insert(alive);
        }
        if count > targets + gained {
            (best, gained) = (index + 1, count - targets);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { room: 100, targets_max: 1000, wanted: 1, moved_max: 1 << 40 };

    #[test]
    fn no_more_are_emptied_than_give_what_is_wanted() {
        assert_eq!(victims_of(&[10, 20, 30, 90], LIMITS), 2);
        assert_eq!(victims_of(&[10, 20, 30, 90], Limits { wanted: 2, ..LIMITS }), 3);
        assert_eq!(victims_of(&[60; 3], LIMITS), 3);
        assert_eq!(victims_of(&[75; 4], LIMITS), 4);
        assert_eq!(victims_of(&[50; 200], Limits { wanted: 40, ..LIMITS }), 80);
    }

    #[test]
    fn of_those_that_are_mostly_dead_a_round_takes_more_than_it_must() {
        let some = Limits { wanted: 5, ..LIMITS };
        assert_eq!(victims_of(&[12; 200], some), 23, "three segments hold what is alive in 23");
        assert_eq!(victims_of(&[25; 200], some), 27);
        assert_eq!(victims_of(&[26; 200], some), 7);
        assert_eq!(victims_of(&[12; 200], Limits { targets_max: 1, ..some }), 8);
    }

    #[test]
    fn those_that_have_much_more_alive_are_left_to_die() {
        let many = Limits { wanted: 100, ..LIMITS };
        assert_eq!(victims_of(&[10, 20, 30, 90], many), 3);
        assert_eq!(victims_of(&[40, 60, 61], many), 2);
        assert_eq!(victims_of(&[60, 60, 60, 90, 90, 90], many), 3);
        assert_eq!(victims_of(&[40, 42, 44, 46, 90], many), 4);
    }

    #[test]
    fn nothing_is_gained_from_full_segments_or_without_room_to_write_to() {
        assert_eq!(victims_of(&[100; 50], LIMITS), 0);
        assert_eq!(victims_of(&[75; 50], Limits { targets_max: 2, ..LIMITS }), 0);
        assert_eq!(victims_of(&[75; 50], Limits { targets_max: 3, ..LIMITS }), 4);
        assert_eq!(victims_of(&[60; 50], Limits { moved_max: 100, ..LIMITS }), 0);
        assert_eq!(victims_of(&[10], LIMITS), 0);
        assert_eq!(victims_of(&[], LIMITS), 0);
    }
}
