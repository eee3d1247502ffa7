//! Victim selection: the segments with the least live data, as many as are needed for the room that is
//! wanted.
//!
//! A move costs a read and its writes, and blocks in segments left alone die for free. So a round takes no
//! segment with much more live data than the ones it needs. Of two with as little live data it prefers the
//! cold one: blocks that a snapshot sees stay, blocks that hosts overwrite often die soon. If only mostly
//! live segments are left, rounds are large, since each costs a checkpoint. In a full pool a usual round may
//! gain nothing; then the widest round fills all that upkeep may take except what the log needs. It gains a
//! segment as long as no more is stored than is usable.

use super::Mover;
use crate::{
    engine::{PoolSpace, Purpose, VICTIMS_MAX},
    format::{BLOCK_GRAINS, SegmentKind, SegmentNumber, row::SegmentState},
    log::room_blocks,
    simulation::sometimes::{self, Sometimes},
};
use std::time::Duration;

/// Further victims may have more live data than the needed ones by the room of a segment divided by this:
/// enough to make the checkpoint, which rewrites every leaf that random writes touched, worth its cost.
const ALIKE: u32 = 4;

/// A segment is mostly dead if at most its room divided by this is live.
const MOSTLY_DEAD: u32 = 3;

/// A round takes no longer than this if it gains anything: hosts live on the free segments meanwhile, and the
/// checkpoint after it, of 15 to 60 ms, is a fraction of it.
const ROUND_TIME: Duration = Duration::from_millis(100);

/// A round of cold segments suffices if it gains the wanted segments divided by this. That is better than
/// moving more live data, or data that dies soon.
const ENOUGH_ONE_IN: u64 = 4;

/// Limits and goal of a round.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Grains that fit into one segment.
    room: u32,
    /// Segments that may be filled.
    targets_max: u64,
    /// Segments to gain.
    wanted: u64,
    /// Grains that may be moved.
    moved_max: u64,
    /// A round that gains anything moves no more grains than this, so that it ends in time.
    moved_in_time: u64,
}

impl Limits {
    /// Segments that a round of cold segments must gain to leave all others alone.
    fn enough(&self) -> u64 {
        self.wanted.div_ceil(ENOUGH_ONE_IN)
    }
}

/// A segment that can be emptied.
struct Candidate {
    number: SegmentNumber,
    live_grains: u32,
    /// Few of its blocks die without being moved.
    is_cold: bool,
}

/// Forecast of cleaning, as of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outlook {
    /// A round of cold, mostly dead segments gains several times the minimum: worth it ahead of need.
    pub is_much_mostly_dead: bool,
    /// Only hot segments are mostly dead, and they will free as much as a round.
    pub will_room_come: bool,
}

/// Victims of a round, and the segments gained.
struct Round {
    victims: Vec<SegmentNumber>,
    gained: u64,
}

impl Mover {
    /// The victims of one round: all mirrored, or all of one copy.
    pub(super) fn victims(&self) -> Vec<SegmentNumber> {
        let candidates = [self.candidates(true), self.candidates(false)];
        let space = self.shared.space();
        // The widest round moves blocks that might die soon, so it is only for need.
        let may_be_widest =
            space.is_held_up() || space.free_for(Purpose::Hosts) < self.shared.demand.wanted();
        let widest = may_be_widest.then(|| self.limits_of_widest(space));
        let limits = [Some(self.limits(space)), widest].into_iter().flatten();
        let mut rounds =
            limits.flat_map(|limits| candidates.iter().map(move |candidates| best_round(candidates, limits)));
        rounds.find(|victims| !victims.is_empty()).unwrap_or_default()
    }

    /// The forecast, cached until the next checkpoint.
    pub(crate) fn outlook(&self) -> Outlook {
        let as_of = self.shared.state.borrow().checkpoint;
        if let Some((_, known)) = self.outlook.get().filter(|(known, _)| *known == as_of) {
            return known;
        }
        let (limits, candidates) = (self.limits(self.shared.space()), self.candidates(true));
        let gained = round_of_mostly_dead(&candidates, limits).gained;
        let dying = candidates.iter().filter(|candidate| !candidate.is_cold);
        let dead: u64 = dying.map(|dying| u64::from(limits.room.saturating_sub(dying.live_grains))).sum();
        let will_die = dead >= limits.enough() * u64::from(limits.room);
        let outlook = Outlook {
            is_much_mostly_dead: gained >= 2 * limits.enough(),
            will_room_come: will_die && gained < limits.enough() && !self.has_destage_victims(),
        };
        self.outlook.set(Some((as_of, outlook)));
        outlook
    }

    fn limits(&self, space: PoolSpace) -> Limits {
        // A round writes its targets before its victims are free.
        let free = space.free_for(Purpose::Upkeep);
        let drives = &self.shared.drives;
        let shape = drives.mirror_shape(drives.copies().data);
        Limits {
            room: room_blocks(shape) * BLOCK_GRAINS as u32,
            targets_max: free.div_ceil(2),
            wanted: space.cleaning_round(),
            moved_max: (self.checkpoints.moves_max() * BLOCK_GRAINS) as u64,
            moved_in_time: self.moving_rate.get().blocks_in(ROUND_TIME) * BLOCK_GRAINS as u64,
        }
    }

    /// Limits of the widest round.
    fn limits_of_widest(&self, space: PoolSpace) -> Limits {
        Limits {
            targets_max: space.widest_round(),
            moved_max: u64::MAX,
            moved_in_time: u64::MAX,
            ..self.limits(space)
        }
    }

    /// Segments that can be emptied, in ascending order of live data.
    fn candidates(&self, mirrors: bool) -> Vec<Candidate> {
        // A pin keeps them, however empty they are.
        let pinned = self.shared.subscribers.pins.segments();
        let state = self.shared.state.borrow();
        let mut candidates: Vec<Candidate> = state
            .segments
            .iter()
            .filter(|(number, row)| {
                row.state == SegmentState::Sealed
                    && row.kind != SegmentKind::Nodes
                    && row.shape.is_mirror() == mirrors
                    && row.live_grains > 0
                    && self.shared.drives.copies_there(&row.slots) > 0
                    && !state.unreadable.contains(number)
                    && !pinned.contains(number)
            })
            .map(|(number, row)| {
                let is_cold = state.segments.is_cold(number);
                Candidate { number, live_grains: row.live_grains, is_cold }
            })
            .collect();
        candidates.sort_unstable_by_key(|candidate| (candidate.live_grains, candidate.number));
        candidates
    }
}

/// Chooses a round. Hot segments become free without work, so cold ones go first as long as they are at least
/// half dead.
fn best_round(candidates: &[Candidate], limits: Limits) -> Vec<SegmentNumber> {
    let is_enough = |round: &Round| round.gained >= limits.enough();
    let mostly_dead = Some(round_of_mostly_dead(candidates, limits)).filter(is_enough);
    // Of segments that are not mostly dead only the minimum: more of them dies until the next round.
    let least = Limits { wanted: limits.enough(), ..limits };
    let half_dead = || Some(round_of(cold(candidates, limits.room / 2), least)).filter(is_enough);
    let Some(round) = mostly_dead.or_else(half_dead) else {
        return round_of(candidates.iter(), limits).victims;
    };
    sometimes::reached_if(candidates.iter().any(|candidate| !candidate.is_cold), Sometimes::LeftToDie);
    round.victims
}

/// A round of cold, mostly dead segments.
fn round_of_mostly_dead(candidates: &[Candidate], limits: Limits) -> Round {
    round_of(cold(candidates, limits.room / MOSTLY_DEAD), limits)
}

/// Cold segments with at most `live_max` grains.
fn cold(candidates: &[Candidate], live_max: u32) -> impl Iterator<Item = &Candidate> {
    candidates.iter().filter(move |candidate| candidate.is_cold && candidate.live_grains <= live_max)
}

/// A round of `candidates`, in ascending order of live data.
fn round_of<'c>(candidates: impl Iterator<Item = &'c Candidate>, limits: Limits) -> Round {
    let (live, mut victims): (Vec<u32>, Vec<SegmentNumber>) =
        candidates.take(VICTIMS_MAX).map(|candidate| (candidate.live_grains, candidate.number)).unzip();
    let (count, gained) = victims_of(&live, limits);
    victims.truncate(count);
    Round { victims, gained }
}

/// Number of victims among segments with `live` grains, in ascending order, and of segments gained.
fn victims_of(live: &[u32], limits: Limits) -> (usize, u64) {
    let Limits { room, targets_max, wanted, moved_max, moved_in_time } = limits;
    let (mut moved, mut best, mut gained) = (0_u64, 0, 0);
    // The live data of the last victim that was needed to gain a segment.
    let mut dearest: Option<u32> = None;
    for (index, &alive) in live.iter().enumerate() {
        let count = index as u64 + 1;
        let targets = (moved + u64::from(alive)).div_ceil(u64::from(room));
        // Victims that fit into one target are the cheapest.
        let is_worth_it = dearest.is_none_or(|dearest| targets == 1 || alive <= dearest + room / ALIKE);
        let is_too_much = targets > targets_max || moved + u64::from(alive) > moved_max.max(room.into());
        let is_late = gained > 0 && moved + u64::from(alive) > moved_in_time;
        if gained >= wanted || is_too_much || is_late || !is_worth_it {
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
    (best, gained)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { room: 100, targets_max: 1000, wanted: 1, moved_max: 1 << 40, moved_in_time: 1 << 40 };

    fn count_of(live: &[u32], limits: Limits) -> usize {
        victims_of(live, limits).0
    }

    /// Victims among candidates given as live grains, and true for cold ones.
    fn numbers_of(candidates: &[(u32, bool)], limits: Limits) -> Vec<u32> {
        let candidates: Vec<_> = (0..)
            .zip(candidates)
            .map(|(number, &(live_grains, is_cold))| Candidate {
                number: SegmentNumber(number),
                live_grains,
                is_cold,
            })
            .collect();
        best_round(&candidates, limits).iter().map(|number| number.0).collect()
    }

    #[test]
    fn a_round_takes_no_more_victims_than_it_needs() {
        assert_eq!(count_of(&[10, 20, 30, 90], LIMITS), 2);
        assert_eq!(count_of(&[10, 20, 30, 90], Limits { wanted: 2, ..LIMITS }), 3);
        assert_eq!(count_of(&[60; 3], LIMITS), 3);
        assert_eq!(count_of(&[75; 4], LIMITS), 4);
        assert_eq!(count_of(&[50; 200], Limits { wanted: 40, ..LIMITS }), 80);
        assert_eq!(
            victims_of(&[12; 200], Limits { wanted: 20, ..LIMITS }),
            (23, 20),
            "three hold what is alive in 23"
        );
        assert_eq!(victims_of(&[12; 200], Limits { wanted: 20, targets_max: 1, ..LIMITS }), (8, 7));
    }

    #[test]
    fn a_round_of_half_dead_segments_gains_less_than_one_of_mostly_dead_ones() {
        let some = Limits { wanted: 20, ..LIMITS };
        assert_eq!(numbers_of(&[(12, true); 200], some).len(), 23, "three segments hold what is alive in 23");
        assert_eq!(numbers_of(&[(25, true); 200], some).len(), 27);
        assert_eq!(numbers_of(&[(34, true); 200], some).len(), 8, "a quarter is enough");
        assert_eq!(numbers_of(&[(60, true); 200], some).len(), 50);
    }

    #[test]
    fn hot_segments_are_left_to_die_unless_the_cold_ones_are_mostly_live() {
        let (dying, cold) = ((5, false), |live| (live, true));
        assert_eq!(numbers_of(&[dying, dying, cold(10), cold(30), cold(40)], LIMITS), [2, 3]);
        assert_eq!(numbers_of(&[dying, dying, cold(40), cold(45)], LIMITS), [2, 3]);
        assert_eq!(numbers_of(&[dying, dying, cold(51), cold(55)], LIMITS), [0, 1]);
        assert_eq!(
            numbers_of(&[dying; 12], Limits { wanted: 2, ..LIMITS }),
            [0, 1, 2],
            "no larger a round of these"
        );
    }

    #[test]
    fn segments_with_much_more_live_data_are_left_to_die() {
        let many = Limits { wanted: 100, ..LIMITS };
        assert_eq!(count_of(&[10, 20, 30, 90], many), 3);
        assert_eq!(count_of(&[40, 60, 61], many), 2);
        assert_eq!(count_of(&[60, 60, 60, 90, 90, 90], many), 3);
        assert_eq!(count_of(&[40, 42, 44, 46, 90], many), 4);
    }

    #[test]
    fn nothing_is_gained_from_full_segments_or_without_room_for_targets() {
        assert_eq!(count_of(&[100; 50], LIMITS), 0);
        assert_eq!(count_of(&[75; 50], Limits { targets_max: 2, ..LIMITS }), 0);
        assert_eq!(count_of(&[75; 50], Limits { targets_max: 3, ..LIMITS }), 4);
        assert_eq!(count_of(&[60; 50], Limits { moved_max: 100, ..LIMITS }), 0);
        let many = Limits { wanted: 20, ..LIMITS };
        assert_eq!(victims_of(&[60; 50], Limits { moved_in_time: 600, ..many }), (10, 4));
        assert_eq!(victims_of(&[90; 50], Limits { moved_in_time: 600, ..many }), (10, 1), "it gains one");
        assert_eq!(count_of(&[10], LIMITS), 0);
        assert_eq!(count_of(&[], LIMITS), 0);
    }
}
