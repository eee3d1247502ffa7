//! Bound of what a promotion of a secondary may lose, from what its primary said.
//!
//! Invariants:
//!
//! 1. Everything that hosts were answered until `complete_until` is here.
//! 2. An answer is known only by what the primary says, so all later ones may be lost.

use array::format::{Stamp, WallNanoseconds};
use std::time::Duration;

/// Answers of hosts that a promotion may lose: those that the primary gave after a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossBound {
    /// Everything that was answered until then is here. By the clock of the primary.
    pub since: WallNanoseconds,
    /// Time since then, by the clock of this side: as wrong as both clocks differ.
    pub age: Duration,
    /// The primary was in sync by its last word. Then nothing is lost, unless it has gone on alone since: with a pass it
    /// does so at once, and after the loss of its line when its hold ends. Without a witness this side cannot know
    /// whether it did.
    pub was_in_sync: bool,
}

/// Statements of the primary about its answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToldAnswers {
    complete_until: Option<WallNanoseconds>,
    /// The oldest statement of which this side lacks something.
    pending: Option<(WallNanoseconds, Stamp)>,
    was_in_sync: bool,
}

impl ToldAnswers {
    /// The primary says that hosts were answered up to a stamp by then. This side has everything up to `has`.
    pub fn note_told(&mut self, at: WallNanoseconds, told: Stamp, has: Stamp) {
        if told <= has {
            self.complete_until = self.complete_until.max(Some(at));
        } else {
            self.pending.get_or_insert((at, told));
        }
        self.note_has(has);
    }

    /// This side has more.
    pub fn note_has(&mut self, has: Stamp) {
        if let Some((at, _)) = self.pending.take_if(|(_, told)| *told <= has) {
            self.complete_until = self.complete_until.max(Some(at));
        }
    }

    pub fn note_sync(&mut self, is_in_sync: bool) {
        self.was_in_sync = is_in_sync;
    }

    /// Stamps of this side are of another history than the primary's: nothing that is pending can be compared.
    pub fn forget_pending(&mut self) {
        (self.pending, self.was_in_sync) = (None, false);
    }

    /// Everything that was answered until then is here.
    pub fn complete_until(&self) -> Option<WallNanoseconds> {
        self.complete_until
    }

    /// `None` if nothing is known.
    pub fn bound(&self, now: WallNanoseconds) -> Option<LossBound> {
        let since = self.complete_until?;
        let age = Duration::from_nanos(now.0.saturating_sub(since.0));
        Some(LossBound { since, age, was_in_sync: self.was_in_sync })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> WallNanoseconds {
        WallNanoseconds(seconds * 1_000_000_000)
    }

    fn since(told: &ToldAnswers) -> Option<WallNanoseconds> {
        told.bound(at(100)).map(|bound| bound.since)
    }

    #[test]
    fn nothing_is_known_before_a_statement_that_is_complete_here() {
        let mut told = ToldAnswers::default();
        assert_eq!(told.bound(at(1)), None);
        told.note_told(at(10), Stamp(7), Stamp(6));
        assert_eq!(since(&told), None, "one answered write is missing");
        told.note_has(Stamp(7));
        assert_eq!(since(&told), Some(at(10)));
    }

    #[test]
    fn a_steady_backlog_does_not_keep_the_bound_from_moving() {
        let mut told = ToldAnswers::default();
        // Answers are always 3 stamps above the content here.
        for second in 1..50 {
            told.note_told(at(second), Stamp(second + 3), Stamp(second));
            if second > 8 {
                let since = since(&told).expect("an old statement is complete");
                assert!(since >= at(second - 7) && since < at(second - 2), "{since:?} in second {second}");
            }
        }
    }

    #[test]
    fn the_age_is_of_this_clock_and_sync_is_of_the_last_word() {
        let mut told = ToldAnswers::default();
        told.note_told(at(10), Stamp(7), Stamp(7));
        told.note_sync(true);
        let bound = LossBound { since: at(10), age: Duration::from_secs(5), was_in_sync: true };
        assert_eq!(told.bound(at(15)), Some(bound));
        assert_eq!(told.bound(at(9)).unwrap().age, Duration::ZERO, "the clocks differ");
        told.note_told(at(8), Stamp(7), Stamp(7));
        assert_eq!(since(&told), Some(at(10)), "an older frame that comes late changes nothing");
        told.note_sync(false);
        assert!(!told.bound(at(15)).unwrap().was_in_sync);
    }

    #[test]
    fn stamps_of_another_history_say_nothing() {
        let mut told = ToldAnswers::default();
        told.note_told(at(10), Stamp(7), Stamp(6));
        told.forget_pending();
        told.note_has(Stamp(1 << 33));
        assert_eq!(told.bound(at(15)), None);
    }
}
