//! Ebb: which segments are dying by themselves.
//!
//! What hosts overwrite often dies within seconds, and its segments come free for nothing; what a snapshot sees of the same
//! blocks stays. Both may have as little alive. They are told apart by how much was alive some segments of log ago.

use crate::format::{SegmentNumber, SegmentUse, row::SegmentRow};

/// A segment that lost more than one in so many of its grains since is dying.
const LOST_ONE_IN: u32 = 8;

/// What was alive in segments, by number.
type Live = Vec<Option<(SegmentUse, u32)>>;

/// What was alive in each segment, twice. Invariant: between the two, and between the later one and the next, as many
/// segments are begun as was asked for, or more. Empty: that is not known yet.
#[derive(Debug, Default)]
pub(super) struct Ebb {
    earlier: Live,
    later: Live,
    /// When that was.
    noted: SegmentUse,
}

impl Ebb {
    /// A checkpoint is about to change what is alive: notes it, if `span` segments were begun since the last note.
    pub fn note(&mut self, rows: &[Option<SegmentRow>], now: SegmentUse, span: u64) {
        if now.0 >= self.noted.0 + span {
            let live = rows.iter().map(|row| row.as_ref().map(|row| (row.segment_use, row.live_grains)));
            self.earlier = std::mem::replace(&mut self.later, live.collect());
            self.noted = now;
        }
    }

    /// Whether about as much of a segment was alive before. Of one that was not there yet, or not full, nobody knows.
    pub fn has_settled(&self, number: SegmentNumber, row: &SegmentRow) -> bool {
        let lost_little = |before: u32| {
            let lost = before.checked_sub(row.live_grains);
            lost.is_some_and(|lost| lost <= before / LOST_ONE_IN)
        };
        match self.earlier.get(number.0 as usize).copied().flatten() {
            Some((segment_use, before)) => segment_use == row.segment_use && lost_little(before),
            None => self.earlier.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{SegmentKind, row::SegmentState},
        log::log_shape,
    };

    const SPAN: u64 = 10;

    fn row(segment_use: u64, live_grains: u32) -> SegmentRow {
        let (kind, state, slots) = (SegmentKind::Log, SegmentState::Sealed, Vec::new());
        SegmentRow {
            segment_use: SegmentUse(segment_use),
            kind,
            state,
            shape: log_shape(256, 2),
            slots,
            live_grains,
        }
    }

    fn has_settled(ebb: &Ebb, number: u32, row: &SegmentRow) -> bool {
        ebb.has_settled(SegmentNumber(number), row)
    }

    #[test]
    fn a_segment_has_settled_when_it_lost_little_for_a_while() {
        let mut ebb = Ebb::default();
        assert!(has_settled(&ebb, 0, &row(1, 500)), "as long as nothing is known, all have");
        for turn in 1..=2 {
            ebb.note(&[Some(row(1, 800)), Some(row(2, 800))], SegmentUse(turn * SPAN), SPAN);
        }
        for (live, settled) in [(800, true), (700, true), (699, false), (0, false), (801, false)] {
            assert_eq!(has_settled(&ebb, 1, &row(2, live)), settled, "{live} of 800");
        }
        assert!(!has_settled(&ebb, 1, &row(3, 800)), "another segment of that number");
        assert!(!has_settled(&ebb, 2, &row(4, 800)), "a number that was not there");
    }

    #[test]
    fn checkpoints_in_quick_succession_change_nothing() {
        let mut ebb = Ebb::default();
        for (live, now) in [(800, 10), (400, 20), (390, 21), (380, 29)] {
            ebb.note(&[Some(row(1, live))], SegmentUse(now), SPAN);
        }
        assert!(!has_settled(&ebb, 0, &row(1, 380)), "it is compared with what was a span before");
        ebb.note(&[Some(row(1, 380))], SegmentUse(30), SPAN);
        assert!(has_settled(&ebb, 0, &row(1, 370)));
    }
}
