//! Heat: which segments are still losing live data.
//!
//! Data that hosts overwrite often dies within seconds, so its segments become free at no cost; data that a
//! snapshot holds stays. Both may have equally little alive. They differ in the live data of some segments of
//! log ago.

use crate::format::{SegmentNumber, SegmentUse, row::SegmentRow};

/// A segment is hot if it lost more than one in so many of its live grains.
const LOST_ONE_IN: u32 = 8;

/// Live grains of segments, by number.
type Live = Vec<Option<(SegmentUse, u32)>>;

/// Two snapshots of the live grains of each segment. Invariant: between the two, and between the later one
/// and the next, at least `span` segments are begun. Empty if there is no snapshot yet.
#[derive(Debug, Default)]
pub(super) struct Heat {
    earlier: Live,
    later: Live,
    /// Next segment use at the later snapshot.
    noted: SegmentUse,
}

impl Heat {
    /// Takes a snapshot before a checkpoint changes the live grains, if `span` segments were begun since the
    /// last one.
    pub fn note(&mut self, rows: &[Option<SegmentRow>], now: SegmentUse, span: u64) {
        if now.0 >= self.noted.0 + span {
            let live = rows.iter().map(|row| row.as_ref().map(|row| (row.segment_use, row.live_grains)));
            self.earlier = std::mem::replace(&mut self.later, live.collect());
            self.noted = now;
        }
    }

    /// True if the segment lost little since the earlier snapshot. False if it did not exist then, or was not
    /// full.
    pub fn is_cold(&self, number: SegmentNumber, row: &SegmentRow) -> bool {
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
        redundancy::{Raid1, RedundancyScheme},
    };

    const SPAN: u64 = 10;

    fn row(segment_use: u64, live_grains: u32) -> SegmentRow {
        let (kind, state, slots) = (SegmentKind::Log, SegmentState::Sealed, Vec::new());
        SegmentRow {
            segment_use: SegmentUse(segment_use),
            kind,
            state,
            shape: Raid1.shape(256, 2),
            slots,
            live_grains,
        }
    }

    fn is_cold(heat: &Heat, number: u32, row: &SegmentRow) -> bool {
        heat.is_cold(SegmentNumber(number), row)
    }

    #[test]
    fn a_segment_is_cold_if_it_lost_little_for_a_while() {
        let mut heat = Heat::default();
        assert!(is_cold(&heat, 0, &row(1, 500)), "without a snapshot every segment is cold");
        for turn in 1..=2 {
            heat.note(&[Some(row(1, 800)), Some(row(2, 800))], SegmentUse(turn * SPAN), SPAN);
        }
        for (live, cold) in [(800, true), (700, true), (699, false), (0, false), (801, false)] {
            assert_eq!(is_cold(&heat, 1, &row(2, live)), cold, "{live} of 800");
        }
        assert!(!is_cold(&heat, 1, &row(3, 800)), "another segment of that number");
        assert!(!is_cold(&heat, 2, &row(4, 800)), "a number that was not there");
    }

    #[test]
    fn checkpoints_in_quick_succession_change_nothing() {
        let mut heat = Heat::default();
        for (live, now) in [(800, 10), (400, 20), (390, 21), (380, 29)] {
            heat.note(&[Some(row(1, live))], SegmentUse(now), SPAN);
        }
        assert!(!is_cold(&heat, 0, &row(1, 380)), "it is compared with what was a span before");
        heat.note(&[Some(row(1, 380))], SegmentUse(30), SPAN);
        assert!(is_cold(&heat, 0, &row(1, 370)));
    }
}
