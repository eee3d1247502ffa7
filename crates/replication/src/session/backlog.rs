//! Answered writes that the far side has not confirmed: their bytes, and the age of the oldest.
//!
//! Invariants:
//!
//! 1. Entries of a part ascend in stamps and in time, and are all above what was confirmed.
//! 2. A part has at most one entry for each [`GRAIN`] of time, and one for each cut of a pass while nothing is streamed:
//!    so a line that is down for days costs no memory.
//! 3. Writes behind the cut of a pass are in no entry with those before it: else hosts that never rest would keep what a
//!    pass has brought from being confirmed.

use crate::cut::GroupCut;
use array::format::Stamp;
use std::{collections::VecDeque, time::Duration};
use world::Moment;

/// Writes that began within this time are one entry.
const GRAIN: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
struct BacklogEntry {
    /// The highest stamp of its writes.
    stamp: Stamp,
    bytes: u64,
    since: Moment,
}

/// Unconfirmed writes of a group.
#[derive(Clone, Debug)]
pub(super) struct Backlog {
    parts: Vec<VecDeque<BacklogEntry>>,
    /// Parts of which a cut was taken, and nothing was written since.
    are_cut: Vec<bool>,
}

impl Backlog {
    pub fn new(parts: usize) -> Self {
        Self { parts: vec![VecDeque::new(); parts], are_cut: vec![false; parts] }
    }

    pub fn add(&mut self, part: usize, stamp: Stamp, bytes: u64, now: Moment, is_streamed: bool) {
        let entries = &mut self.parts[part];
        let is_cut = std::mem::take(&mut self.are_cut[part]);
        match entries.back_mut() {
            Some(last) if !is_cut && (!is_streamed || now.since(last.since) < GRAIN) => {
                last.stamp = last.stamp.max(stamp);
                last.bytes += bytes;
            }
            _ => entries.push_back(BacklogEntry { stamp, bytes, since: now }),
        }
    }

    /// A cut of a part is taken: everything that was added lies before it.
    pub fn cut(&mut self, part: usize) {
        self.are_cut[part] = true;
    }

    pub fn confirm(&mut self, cut: &GroupCut) {
        for (entries, &stamp) in self.parts.iter_mut().zip(cut.stamps()) {
            while entries.pop_front_if(|entry| entry.stamp <= stamp).is_some() {}
        }
    }

    /// Makes one entry of all, as long as nothing is streamed.
    pub fn collapse(&mut self) {
        for entries in &mut self.parts {
            let Some(mut first) = entries.pop_front() else { continue };
            for entry in entries.drain(..) {
                (first.stamp, first.bytes) = (entry.stamp, first.bytes + entry.bytes);
            }
            entries.push_back(first);
        }
    }

    pub fn bytes(&self) -> u64 {
        self.parts.iter().flatten().map(|entry| entry.bytes).sum()
    }

    /// Age of the oldest; zero if there is none.
    pub fn age(&self, now: Moment) -> Duration {
        let oldest = self.parts.iter().filter_map(VecDeque::front).map(|entry| entry.since).min();
        oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(stamps: [u64; 2]) -> GroupCut {
        GroupCut::new(stamps.map(Stamp).into())
    }

    #[test]
    fn the_oldest_unconfirmed_write_of_any_part_counts() {
        let at = |ms: u64| Moment(ms * 1_000_000);
        let mut backlog = Backlog::new(2);
        assert_eq!((backlog.bytes(), backlog.age(at(9))), (0, Duration::ZERO));
        for (part, stamp, ms) in [(0, 1, 0), (0, 2, 3), (1, 7, 4), (0, 3, 20)] {
            backlog.add(part, Stamp(stamp), 100, at(ms), true);
        }
        assert_eq!((backlog.bytes(), backlog.age(at(30))), (400, Duration::from_millis(30)));
        backlog.confirm(&cut([1, 6]));
        assert_eq!(backlog.bytes(), 400, "the writes of one moment go together");
        backlog.confirm(&cut([2, 6]));
        assert_eq!((backlog.bytes(), backlog.age(at(30))), (200, Duration::from_millis(26)));
        backlog.collapse();
        backlog.add(0, Stamp(9), 100, at(40), false);
        assert_eq!((backlog.bytes(), backlog.parts[0].len()), (300, 1));
        backlog.confirm(&cut([8, 7]));
        assert_eq!(backlog.bytes(), 200, "the write with stamp 9 is not confirmed");
        backlog.confirm(&cut([9, 7]));
        assert_eq!(backlog.bytes(), 0);
    }

    #[test]
    fn a_pass_confirms_what_lies_before_its_cut_although_hosts_never_rest() {
        let at = |ms: u64| Moment(ms * 1_000_000);
        let mut backlog = Backlog::new(2);
        for stamp in 1..100 {
            backlog.add(0, Stamp(stamp), 10, at(stamp), false);
            if stamp % 20 == 0 {
                backlog.cut(0);
            }
            if stamp % 20 == 10 && stamp > 20 {
                backlog.confirm(&cut([stamp - 10, 0]));
                assert_eq!((backlog.bytes(), backlog.parts[0].len()), (100, 1));
            }
        }
        assert_eq!(backlog.age(at(99)), Duration::from_millis(18));
        backlog.collapse();
        assert_eq!(backlog.parts[0].len(), 1);
    }
}
