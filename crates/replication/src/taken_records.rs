//! Progress of a pool's log, as the sender of one part has seen it.
//!
//! Invariants:
//!
//! 1. All commands of the part up to `complete` are in the log, all of each.
//! 2. `marks` ascend in both; all records at or behind a mark's position have only stamps of the part above its stamp.

use array::format::{Position, Stamp};
use std::collections::VecDeque;

/// Marks at most; then every other one is forgotten, and the pin moves in larger steps.
const MARKS_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct TakenRecords {
    complete: Stamp,
    /// The highest stamp that came, complete or not.
    last: Stamp,
    offered: Position,
    taken: Position,
    marks: VecDeque<(Stamp, Position)>,
    /// The last mark that the peer passed.
    passed: Option<(Stamp, Position)>,
}

impl TakenRecords {
    /// Of a part that has everything up to `complete`.
    pub fn new(complete: Stamp) -> Self {
        let none = Position(0);
        Self { complete, last: complete, offered: none, taken: none, marks: VecDeque::new(), passed: None }
    }

    pub fn complete(&self) -> Stamp {
        self.complete
    }

    /// The highest stamp that came.
    pub fn last(&self) -> Stamp {
        self.last
    }

    /// Position of the last record that was offered.
    pub fn offered(&self) -> Position {
        self.offered
    }

    /// Position of the last record that was taken.
    pub fn taken(&self) -> Position {
        self.taken
    }

    pub fn note_offered(&mut self, position: Position) {
        self.offered = self.offered.max(position);
    }

    /// Notes a cut: everything up to its stamp was taken.
    pub fn note_cut(&mut self, stamp: Stamp) {
        self.complete = self.complete.max(stamp);
        self.last = self.last.max(stamp);
    }

    /// Notes a record with stamps of the part, if it has some, of which the last may go on. True if more is complete
    /// now.
    pub fn note_taken(
        &mut self,
        position: Position,
        stamps: impl Iterator<Item = Stamp>,
        goes_on: bool,
    ) -> bool {
        assert!(position > self.taken, "records are taken in order");
        self.taken = position;
        let before = self.complete;
        for stamp in stamps {
            assert!(stamp >= self.last, "stamps of a part ascend");
            if stamp > self.last {
                self.complete = self.last;
            }
            self.last = stamp;
        }
        if !goes_on {
            self.complete = self.last;
        }
        if self.complete == self.last && self.complete > before {
            self.mark();
        }
        self.complete > before
    }

    fn mark(&mut self) {
        if self.marks.len() == MARKS_MAX {
            let mut nth = 0;
            self.marks.retain(|_| {
                nth += 1;
                nth % 2 == 0
            });
        }
        self.marks.push_back((self.complete, Position(self.taken.0 + 1)));
    }

    /// A mark that the peer has passed, other than the last one: a peer that crashes may say that it lacks the last
    /// command that it confirmed, since it cannot tell whether it has all of it. `None` if there is no new one.
    pub fn behind(&mut self, confirmed: Stamp) -> Option<(Stamp, Position)> {
        let mut behind = None;
        while let Some(mark) = self.marks.pop_front_if(|(stamp, _)| *stamp <= confirmed) {
            behind = self.passed.replace(mark).or(behind);
        }
        behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_complete_with_its_last_record() {
        let mut taken = TakenRecords::new(Stamp(5));
        let stamps = |all: &[u64]| all.iter().map(|&stamp| Stamp(stamp)).collect::<Vec<_>>().into_iter();
        assert!(taken.note_taken(Position(1), stamps(&[6, 7, 7]), true));
        assert_eq!(taken.complete(), Stamp(6));
        assert!(!taken.note_taken(Position(2), stamps(&[7]), true));
        assert!(taken.note_taken(Position(3), stamps(&[]), false), "a record of others follows");
        assert_eq!((taken.complete(), taken.behind(Stamp(6))), (Stamp(7), None));
        assert!(!taken.note_taken(Position(9), stamps(&[]), false));
        assert!(taken.note_taken(Position(10), stamps(&[8]), false));
        assert_eq!(taken.behind(Stamp(7)), None, "the last command that was confirmed is kept");
        assert_eq!(taken.behind(Stamp(8)), Some((Stamp(7), Position(4))));
    }
}
