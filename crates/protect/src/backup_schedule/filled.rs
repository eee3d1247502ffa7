//! Filled slots of a schedule, remembered as runs.
//!
//! Invariants:
//!
//! 1. A slot that was noted is in a run.
//! 2. Within a run, neighbours lie at most two slots apart: a clock that jumps far ahead begins a run of its own and does
//!    not fill the time between.
//! 3. The last run holds the slot that was noted last.
//! 4. There are [`RUNS_MAX`] runs at most: older ones are forgotten.

use super::SchedulePeriod;
use crate::UnixSecond;

/// Each outage of more than a slot begins a run. Only a clock that is set back over all of these finds slots of a run that was
/// forgotten, and fills them once more.
pub const RUNS_MAX: usize = 1_024;

/// A slot that a backup filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilledSlot {
    pub period: SchedulePeriod,
    pub start: UnixSecond,
}

/// Slots of one period, in the order of sequence numbers of the backups that filled them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilledSlots {
    runs: Vec<SlotRun>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotRun {
    first: UnixSecond,
    last: UnixSecond,
}

impl FilledSlots {
    /// Notes that a backup filled a slot.
    pub fn note(&mut self, slot: FilledSlot) {
        let neighbours_s = slot.period.longest_s(2);
        if let Some(run) = self.runs.last_mut() {
            let distance_s = slot.start.0.saturating_sub(run.last.0);
            if (0..=neighbours_s).contains(&distance_s) {
                run.last = slot.start;
                return;
            }
        }
        if self.runs.len() == RUNS_MAX {
            self.runs.remove(0);
        }
        self.runs.push(SlotRun { first: slot.start, last: slot.start });
        assert!(self.holds(slot.start));
    }

    /// Notes that a backup with a lower sequence number than the last one's filled a slot.
    pub fn note_earlier(&mut self, slot: FilledSlot) {
        if !self.holds(slot.start) && self.runs.len() < RUNS_MAX {
            self.runs.insert(0, SlotRun { first: slot.start, last: slot.start });
        }
    }

    /// First and last slot of each run, in order.
    pub fn runs(&self) -> impl ExactSizeIterator<Item = (UnixSecond, UnixSecond)> {
        self.runs.iter().map(|run| (run.first, run.last))
    }

    /// The slots of these runs; `None` if there are too many, or one ends before it begins.
    pub fn of_runs(runs: impl IntoIterator<Item = (UnixSecond, UnixSecond)>) -> Option<Self> {
        let runs: Vec<SlotRun> = runs.into_iter().map(|(first, last)| SlotRun { first, last }).collect();
        let are_right = runs.len() <= RUNS_MAX && runs.iter().all(|run| run.first <= run.last);
        are_right.then_some(Self { runs })
    }

    /// Start of the slot that was filled last, by sequence number.
    pub fn last(&self) -> Option<UnixSecond> {
        self.runs.last().map(|run| run.last)
    }

    /// True if the slot that starts there was filled, or passed over between two that were.
    pub fn holds(&self, start: UnixSecond) -> bool {
        self.run_of(start).is_some()
    }

    /// Start of the last slot in the run that holds `start`.
    pub(super) fn end_of_run(&self, start: UnixSecond) -> Option<UnixSecond> {
        self.run_of(start).map(|run| run.last)
    }

    fn run_of(&self, start: UnixSecond) -> Option<&SlotRun> {
        self.runs.iter().rev().find(|run| (run.first..=run.last).contains(&start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_in_a_row_are_one_run_and_a_far_one_fills_nothing_between() {
        let mut filled = FilledSlots::default();
        let period: SchedulePeriod = "1h".parse().unwrap();
        let mut note = |hour: i64| filled.note(FilledSlot { period, start: UnixSecond(hour * 3600) });
        [10, 11, 13, 16, 10_000, 17, 18].into_iter().for_each(&mut note);
        let holds = |hour: i64| filled.holds(UnixSecond(hour * 3600));
        for hour in [10, 11, 12, 13, 16, 17, 18, 10_000] {
            assert!(holds(hour), "{hour}");
        }
        for hour in [9, 14, 15, 19, 5_000, 10_001] {
            assert!(!holds(hour), "{hour}");
        }
        assert_eq!(filled.runs.len(), 4);
        filled.note_earlier(FilledSlot { period, start: UnixSecond(5 * 3600) });
        assert!(filled.holds(UnixSecond(5 * 3600)));
        assert_eq!(filled.last(), Some(UnixSecond(18 * 3600)));
        assert_eq!(FilledSlots::of_runs(filled.runs()), Some(filled));
    }

    #[test]
    fn the_oldest_of_too_many_runs_are_forgotten() {
        let mut filled = FilledSlots::default();
        let period: SchedulePeriod = "1h".parse().unwrap();
        let slot = |hour: i64| FilledSlot { period, start: UnixSecond(hour * 3600) };
        (0..=RUNS_MAX as i64).for_each(|run| filled.note(slot(run * 10)));
        assert_eq!(filled.runs().len(), RUNS_MAX);
        assert!(!filled.holds(UnixSecond(0)) && filled.holds(UnixSecond(36_000)));
        filled.note_earlier(slot(-50));
        assert!(!filled.holds(UnixSecond(-50 * 3600)), "there is no room before them");
        let backwards = [(UnixSecond(1), UnixSecond(0))];
        assert_eq!(FilledSlots::of_runs(backwards), None);
        assert_eq!(FilledSlots::of_runs(vec![(UnixSecond(0), UnixSecond(1)); RUNS_MAX + 1]), None);
    }
}
