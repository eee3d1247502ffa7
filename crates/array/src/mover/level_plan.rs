//! Plan of levelling: which drives give slots, and which get them, until all are about equally full.
//!
//! The *fill* of a drive is the share of its slots that segments name. The *mean* is the fill that all drives
//! would have if they were equally full. A move takes a slot from a drive that is not below the mean without
//! it to one that is not above the mean with it.
//!
//! Levelling ends: a move from a drive of `c` slots with `u` named to one of `d` slots with `v` named changes
//! the sum of u²/c over all drives by 1/c + 1/d - 2 (u/c - v/d). Both stay on their sides of the mean, so
//! u/c - 1/c ≥ v/d + 1/d, and the change is at most -(1/c + 1/d): the sum falls with each move, and it is never
//! negative. A drive is on one side in the whole plan, so this holds for any part of the plan, in any order.

use crate::format::{DriveId, MemberIndex};

/// Drives are level if the fullest one and the emptiest differ by no more than this, in hundredths of a percent.
const LEVEL_WITHIN: u64 = 300;
/// Levelling ends when they differ by no more than this.
const END_WITHIN: u64 = 200;
/// Levelling begins by itself when they differ by more than this.
const BEGIN_ABOVE: u64 = 500;
/// And by more than allocation alone brings about: it makes the numbers of free slots about equal, if the drives
/// have about the same size.
const BEGIN_ABOVE_SLOTS: u64 = 16;

/// The slots of a drive of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveFill {
    pub drive: DriveId,
    pub used_bytes: u64,
    /// Used or free.
    pub slot_bytes: u64,
}

impl DriveFill {
    pub fn percent(&self) -> f64 {
        self.used_bytes as f64 / self.slot_bytes.max(1) as f64 * 100.0
    }
}

/// Slots of a drive, as levelling sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotUse {
    pub member: MemberIndex,
    pub slots: u64,
    pub named: u64,
    /// It may get slots.
    pub is_target: bool,
}

/// The moves that are planned so far, and those that may follow.
#[derive(Clone, Debug)]
pub(super) struct LevelPlan {
    drives: Vec<SlotUse>,
    all_slots: u64,
    all_named: u64,
}

impl SlotUse {
    /// In hundredths of a percent.
    fn fill(&self) -> u64 {
        self.named * 10_000 / self.slots
    }
}

impl LevelPlan {
    /// A plan for drives that stay.
    pub fn new(drives: impl IntoIterator<Item = SlotUse>) -> Self {
        let drives: Vec<_> = drives.into_iter().filter(|drive| drive.slots > 0).collect();
        assert!(
            drives.iter().all(|drive| drive.named <= drive.slots),
            "more is used than there is: {drives:?}"
        );
        let all_slots = drives.iter().map(|drive| drive.slots).sum();
        let all_named = drives.iter().map(|drive| drive.named).sum();
        Self { drives, all_slots, all_named }
    }

    /// The difference of the fullest and the emptiest drive, in hundredths of a percent.
    fn spread(&self) -> u64 {
        let fills = self.drives.iter().map(SlotUse::fill);
        fills.clone().max().unwrap_or(0) - fills.min().unwrap_or(0)
    }

    /// True if the drives are about equally full.
    pub fn is_level(&self) -> bool {
        self.spread() <= LEVEL_WITHIN
    }

    /// True if no more moves are worth it.
    pub fn is_done(&self) -> bool {
        self.spread() <= END_WITHIN
    }

    /// True if the drives differ so much that levelling begins without a request.
    pub fn is_uneven(&self) -> bool {
        let least = self.drives.iter().map(|drive| drive.slots).min().unwrap_or(0);
        let free = self.drives.iter().map(|drive| drive.slots - drive.named);
        let free_spread = free.clone().max().unwrap_or(0) - free.min().unwrap_or(0);
        self.spread() > BEGIN_ABOVE
            && self.spread() * least > BEGIN_ABOVE_SLOTS * 10_000
            && free_spread > BEGIN_ABOVE_SLOTS
    }

    /// Slots to move until the drives are about level, if no segment stands in the way.
    pub fn lacking_slots(&self) -> u64 {
        if self.is_done() {
            return 0;
        }
        let (mut above, mut below) = (0, 0);
        for drive in &self.drives {
            let (mean, margin) = (drive.slots * self.all_named / self.all_slots, drive.slots / 100);
            above += drive.named.saturating_sub(mean + margin);
            below += mean.saturating_sub(drive.named + margin);
        }
        above.max(below)
    }

    /// Drives that may give a slot, the fullest first.
    pub fn sources(&self) -> Vec<MemberIndex> {
        let mut sources: Vec<_> = self.drives.iter().filter(|drive| self.may_give(drive)).collect();
        sources.sort_by_key(|drive| (std::cmp::Reverse(drive.fill()), drive.member));
        sources.into_iter().map(|drive| drive.member).collect()
    }

    /// Drives that may get a slot, the emptiest first.
    pub fn targets(&self) -> Vec<MemberIndex> {
        let mut targets: Vec<_> = self.drives.iter().filter(|drive| self.may_get(drive)).collect();
        targets.sort_by_key(|drive| (drive.fill(), drive.member));
        targets.into_iter().map(|drive| drive.member).collect()
    }

    /// Adds the move of a slot.
    ///
    /// # Panics
    ///
    /// The move does not bring the drives closer to each other.
    pub fn add(&mut self, source: MemberIndex, target: MemberIndex) {
        let before = self.unevenness();
        let [source, target] = [source, target].map(|member| {
            self.drives.iter().position(|drive| drive.member == member).expect("it is one of the drives")
        });
        assert!(self.may_give(&self.drives[source]) && self.may_get(&self.drives[target]), "{self:?}");
        self.drives[source].named -= 1;
        self.drives[target].named += 1;
        assert!(self.unevenness() < before, "each move brings the drives closer: {self:?}");
    }

    /// It is not below the mean without a slot.
    fn may_give(&self, drive: &SlotUse) -> bool {
        drive.named > 0 && (drive.named - 1) * self.all_slots >= self.all_named * drive.slots
    }

    /// It is not above the mean with another slot.
    fn may_get(&self, drive: &SlotUse) -> bool {
        drive.is_target && (drive.named + 1) * self.all_slots <= self.all_named * drive.slots
    }

    /// The sum that falls with each move.
    fn unevenness(&self) -> f64 {
        self.drives.iter().map(|drive| (drive.named as f64).powi(2) / drive.slots as f64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Random;

    fn plan_of(drives: &[(u64, u64)]) -> LevelPlan {
        let drive = |(index, &(slots, named)): (usize, &(u64, u64))| SlotUse {
            member: MemberIndex(index as u16),
            slots,
            named,
            is_target: true,
        };
        LevelPlan::new(drives.iter().enumerate().map(drive))
    }

    /// Moves from the fullest drive to the emptiest one, until none is left.
    fn level(plan: &mut LevelPlan) -> u64 {
        let mut moves = 0;
        while !plan.is_done()
            && let (Some(&source), Some(&target)) = (plan.sources().first(), plan.targets().first())
        {
            plan.add(source, target);
            moves += 1;
        }
        moves
    }

    #[test]
    fn a_new_drive_gets_its_share_of_the_others() {
        let mut plan = plan_of(&[(1000, 600), (1000, 600), (1000, 600), (1000, 0)]);
        assert!(plan.is_uneven());
        let lacking = plan.lacking_slots();
        let moves = level(&mut plan);
        assert_eq!(plan.drives.iter().map(|drive| drive.named).collect::<Vec<_>>(), [455, 455, 455, 435]);
        assert!(moves.abs_diff(lacking) < 20, "{moves} moves, {lacking} expected");
        assert_eq!((plan.lacking_slots(), plan.is_uneven()), (0, false));
    }

    #[test]
    fn drives_of_different_sizes_are_filled_to_the_same_percentage() {
        let mut plan = plan_of(&[(100, 90), (400, 90), (1500, 90)]);
        level(&mut plan);
        let fills: Vec<u64> = plan.drives.iter().map(|drive| drive.fill() / 100).collect();
        assert!(fills.iter().all(|fill| (12..=15).contains(fill)), "{fills:?}");
    }

    #[test]
    fn a_little_unevenness_of_small_drives_starts_nothing() {
        assert!(!plan_of(&[(100, 40), (100, 54)]).is_uneven(), "allocation does as much");
        assert!(plan_of(&[(100, 40), (100, 60)]).is_uneven());
        assert!(!plan_of(&[(1000, 440), (1000, 484)]).is_uneven(), "within five percent");
        assert!(!plan_of(&[(100, 40), (160, 100)]).is_uneven(), "as many slots are free");
        assert!(!plan_of(&[]).is_uneven() && plan_of(&[(0, 0)]).is_level());
    }

    #[test]
    fn levelling_ends_for_any_drives_and_no_move_is_taken_back() {
        let mut random = Random::new(5, "level");
        for _ in 0..500 {
            let drives: Vec<(u64, u64)> = (0..2 + random.below(6))
                .map(|_| {
                    let slots = 1 + random.below(300);
                    (slots, random.below(slots + 1))
                })
                .collect();
            let mut plan = plan_of(&drives);
            let sources = plan.sources();
            let mut moves = 0;
            while let (Some(&source), Some(&target)) = (plan.sources().last(), plan.targets().last()) {
                assert!(sources.contains(&source) && !sources.contains(&target), "{drives:?}");
                // It asserts that the sum falls.
                plan.add(source, target);
                moves += 1;
                assert!(moves <= plan.all_named, "each slot moves once at most");
            }
        }
    }
}
