//! Slow operations: those that exceed what a mail server tolerates.
//!
//! An operation is *long* or *hung* by its duration, answered or not; the limits are data ([`SlowLimits`]).
//! One that never ends is noticed while under way. Invariants:
//!
//! 1. An operation is counted once: as long, then, once it is hung, as hung only.
//! 2. At most [`KEPT`] operations, the longest, are kept with details; the rest are only counted.

use crate::{
    meter::tally::{IoKind, VolumeRole},
    verdict::limits::SlowLimits,
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use world::ByteCount;

/// Maximum number of slow operations that a meter, and a run, keeps with details.
pub const KEPT: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slowness {
    /// Exceeds the first limit.
    Long,
    /// Exceeds the second limit: a server would consider its storage lost.
    Hung,
}

impl Slowness {
    /// Classifies a duration; None if it is neither long nor hung.
    pub fn of(span: Duration, limits: &SlowLimits) -> Option<Self> {
        match span.as_secs_f64() {
            span_s if span_s > limits.hung_s => Some(Self::Hung),
            span_s if span_s > limits.long_s => Some(Self::Long),
            _ => None,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Long => "long",
            Self::Hung => "hung",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SlowOperation {
    pub slowness: Slowness,
    pub kind: IoKind,
    pub volume: String,
    pub role: VolumeRole,
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Size in bytes; 0 for a flush.
    pub bytes: u64,
    /// Start, in seconds since 1970, UTC.
    pub began_unix_s: i64,
    /// Start, in seconds from the start of measurement; None if before.
    pub at_s: Option<f64>,
    /// Duration so far, in seconds.
    pub took_s: f64,
    /// True if it completed, with success or an error.
    pub answered: bool,
}

/// Displays kind and place: `read of 32 KiB at 1.2 GiB of sg1-db1.edb on /mnt/db`.
impl fmt::Display for SlowOperation {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { kind, volume, file, offset, bytes, .. } = self;
        match kind {
            IoKind::Flush => write!(f, "flush of {file} on {volume}"),
            _ => {
                let (size, offset) = (ByteCount(*bytes), ByteCount(*offset));
                write!(f, "{} of {size} at {offset} of {file} on {volume}", kind.title())
            }
        }
    }
}

/// Slow operations of one meter, or of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowTally {
    /// Long and not hung.
    pub long: u64,
    pub hung: u64,
    /// The longest ones, by start.
    pub operations: Vec<SlowOperation>,
}

impl SlowTally {
    /// Counts an operation that changes from class `before` to class `now`.
    pub(super) fn become_slow(&mut self, before: Option<Slowness>, now: Slowness) {
        assert!(before < Some(now), "an operation only becomes slower");
        match (before, now) {
            (None, Slowness::Long) => self.long += 1,
            (None, Slowness::Hung) => self.hung += 1,
            (Some(_), _) => {
                self.long -= 1;
                self.hung += 1;
            }
        }
    }

    /// Keeps the details of a counted operation.
    pub(super) fn keep(&mut self, operation: SlowOperation) {
        self.operations.push(operation);
        if self.operations.len() > KEPT {
            let times =
                self.operations.iter().enumerate().map(|(index, operation)| (operation.took_s, index));
            let (_, shortest) = times.min_by(|one, other| one.0.total_cmp(&other.0)).expect("there are some");
            self.operations.remove(shortest);
        }
    }

    /// Adds the operations of another meter.
    pub fn merge(&mut self, other: &Self) {
        self.long += other.long;
        self.hung += other.hung;
        other.operations.iter().for_each(|operation| self.keep(operation.clone()));
        self.operations.sort_by(|one, other| {
            let began = |operation: &SlowOperation| (operation.began_unix_s, operation.at_s.unwrap_or(-1.0));
            began(one).partial_cmp(&began(other)).expect("times are numbers")
        });
    }

    pub fn count(&self) -> u64 {
        self.long + self.hung
    }
}

/// Changes since the last check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlowChanges {
    /// Operations that became long, or hung without having been noticed as long.
    pub slow: u64,
    /// Operations that became hung.
    pub hung: u64,
    /// Slow operations that completed.
    pub answered: u64,
    /// The slow operation that has been under way longest.
    pub oldest: Option<SlowOperation>,
    /// The slowest operation that completed.
    pub longest: Option<SlowOperation>,
}

impl SlowChanges {
    /// Adds the changes of another meter.
    pub fn merge(&mut self, other: Self) {
        self.slow += other.slow;
        self.hung += other.hung;
        self.answered += other.answered;
        for (mine, theirs) in [(&mut self.oldest, other.oldest), (&mut self.longest, other.longest)] {
            longer(mine, theirs);
        }
    }

    pub(super) fn answer(&mut self, operation: SlowOperation) {
        self.answered += 1;
        longer(&mut self.longest, Some(operation));
    }
}

/// Keeps the longer of the two.
fn longer(mine: &mut Option<SlowOperation>, theirs: Option<SlowOperation>) {
    let took_s = |operation: &Option<SlowOperation>| operation.as_ref().map(|operation| operation.took_s);
    if took_s(&theirs) > took_s(mine) {
        *mine = theirs;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn operation(took_s: f64) -> SlowOperation {
        SlowOperation {
            slowness: Slowness::Long,
            kind: IoKind::Read,
            volume: "/mnt/db".to_owned(),
            role: VolumeRole::Database,
            file: "sg1-db1.edb".to_owned(),
            offset: 3 << 30,
            bytes: 32_768,
            began_unix_s: 1_700_000_000 + took_s as i64,
            at_s: Some(took_s),
            took_s,
            answered: true,
        }
    }

    #[test]
    fn the_limits_are_kept_when_they_are_met_to_the_second() {
        let limits = SlowLimits { long_s: 41.0, hung_s: 240.0, source: String::new() };
        let of = |span_ms| Slowness::of(Duration::from_millis(span_ms), &limits);
        assert_eq!([of(0), of(41_000), of(240_001)], [None, None, Some(Slowness::Hung)]);
        assert_eq!([of(41_001), of(240_000)], [Some(Slowness::Long); 2]);
    }

    #[test]
    fn one_that_becomes_hung_is_no_longer_counted_as_long() {
        let mut tally = SlowTally::default();
        tally.become_slow(None, Slowness::Long);
        tally.become_slow(None, Slowness::Long);
        tally.become_slow(Some(Slowness::Long), Slowness::Hung);
        assert_eq!((tally.long, tally.hung, tally.count()), (1, 1, 2));
    }

    #[test]
    fn only_the_longest_are_kept_but_all_are_counted() {
        let mut tally = SlowTally::default();
        for second in 0..1_000 {
            tally.become_slow(None, Slowness::Long);
            tally.keep(operation(f64::from(42 + (second * 7) % 1_000)));
        }
        assert_eq!((tally.long, tally.operations.len()), (1_000, KEPT));
        assert!(tally.operations.iter().all(|operation| operation.took_s >= 942.0));
    }

    #[test]
    fn an_event_says_what_and_where() {
        assert_eq!(operation(60.0).to_string(), "read of 32.0 KiB at 3.00 GiB of sg1-db1.edb on /mnt/db");
        let flush = SlowOperation { kind: IoKind::Flush, bytes: 0, ..operation(60.0) };
        assert_eq!(flush.to_string(), "flush of sg1-db1.edb on /mnt/db");
    }
}
