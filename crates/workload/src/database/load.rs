//! What drives the storage: so many threads, a rate that is held, or the most of either within limits.

use super::search::Axis;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What drives the storage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Closed loop: sessions of each group, every one beginning anew when it has ended.
    Threads {
        /// Sessions of one storage group.
        per_group: u32,
    },
    /// Open loop: a held rate of database reads and writes.
    Mailboxes {
        /// Mailboxes on all groups together.
        count: u64,
        /// Database reads and writes a second of one mailbox.
        iops_each: f64,
    },
    /// Open loop: the highest rate within limits is searched for, then held.
    Maximum {
        /// How it is searched for.
        probe: ProbePlan,
    },
    /// Closed loop: the number of sessions that does most within limits is searched for, then held.
    TunedThreads {
        /// How it is searched for.
        probe: ProbePlan,
    },
}

impl Load {
    /// Database reads and writes a second that are asked for from the beginning; none in a closed loop,
    /// and none where they are searched for.
    pub fn target_iops(&self) -> Option<f64> {
        match self {
            Self::Mailboxes { count, iops_each } => Some(*count as f64 * iops_each),
            Self::Threads { .. } | Self::Maximum { .. } | Self::TunedThreads { .. } => None,
        }
    }

    /// Whether operations arrive at a rate while it is measured, rather than when sessions are ready.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Mailboxes { .. } | Self::Maximum { .. })
    }

    /// What is searched over; none if the load is given.
    pub fn searched_over(&self) -> Option<Axis> {
        match self {
            Self::Maximum { .. } => Some(Axis::Rate),
            Self::TunedThreads { .. } => Some(Axis::Threads),
            Self::Threads { .. } | Self::Mailboxes { .. } => None,
        }
    }

    /// How the load is searched for; none if it is given.
    pub fn probe(&self) -> Option<&ProbePlan> {
        match self {
            Self::Maximum { probe } | Self::TunedThreads { probe } => Some(probe),
            Self::Threads { .. } | Self::Mailboxes { .. } => None,
        }
    }
}

/// How the most within limits is searched for: probe by probe, then holds of the run's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePlan {
    /// Time a new load is given to settle before it is looked at, at most, in seconds.
    pub settle_s: u64,
    /// Time it is then measured, in seconds.
    pub measure_s: u64,
    /// Probes at most.
    pub probes_max: u32,
    /// Holds at most: one that breaks a limit is followed by one of less.
    pub holds_max: u32,
}

/// A probe is measured over one window of the maxima, if the run is long enough.
const MEASURE_S: (u64, u64) = (5, super::plan::WINDOW.as_secs());
/// A load that has not settled after twice the time it is measured, or after a minute, is measured all the same.
const SETTLE_MAX_S: u64 = 60;
/// Who wants shorter probes than this has no patience for settling either; what is fast settles within it all the
/// same.
const SETTLE_MIN_S: u64 = 2;
/// What the search needs from a guess that is off by a factor of hundred, with two thirds of the probes tried
/// twice: storage that others use, too, has its spells.
const PROBES_MAX: u32 = 35;
/// The first, and those that step back: as many as fit into ten minutes, within these bounds.
const HOLDS_MAX: (u32, u32) = (4, 8);
/// Seconds all holds of a short run may take together.
const HOLDS_S: u64 = 600;
/// A probe may take this much longer, for what is under way to end and groups to meet.
const BETWEEN_S: u64 = 1;

impl ProbePlan {
    /// What suits a run of `duration`, unless told how long a probe is measured.
    pub fn fitting(duration: Duration, measure: Option<Duration>) -> Self {
        let share = |part: u64, (least, most): (u64, u64)| (duration.as_secs() / part).clamp(least, most);
        let measure_s = measure.map_or_else(|| share(8, MEASURE_S), |span| span.as_secs().max(1));
        Self {
            settle_s: if measure_s < SETTLE_MIN_S { measure_s } else { (2 * measure_s).min(SETTLE_MAX_S) },
            measure_s,
            probes_max: PROBES_MAX,
            holds_max: (HOLDS_S / duration.as_secs().max(1)).clamp(HOLDS_MAX.0.into(), HOLDS_MAX.1.into())
                as u32,
        }
    }

    /// One probe, in seconds, if it takes as long as it may.
    pub fn probe_s(&self) -> u64 {
        self.settle_s + self.measure_s + BETWEEN_S
    }

    /// All probes, in seconds, if every one that is allowed is needed.
    pub fn seconds_max(&self) -> u64 {
        u64::from(self.probes_max) * self.probe_s()
    }

    /// Holds of `duration_s` beyond the one that is the run, and settling before each, in seconds, if every
    /// one that is allowed is needed.
    pub fn further_holds_s(&self, duration_s: u64) -> u64 {
        let further = u64::from(self.holds_max.saturating_sub(1));
        further * (duration_s + BETWEEN_S) + u64::from(self.holds_max) * self.settle_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_suit_the_length_of_the_run() {
        let of = |seconds| {
            let plan = ProbePlan::fitting(Duration::from_secs(seconds), None);
            (plan.settle_s, plan.measure_s, plan.seconds_max(), plan.holds_max)
        };
        assert_eq!(of(10), (10, 5, 560, 8));
        assert_eq!(of(60), (14, 7, 770, 8));
        assert_eq!(of(120), (30, 15, 1610, 5));
        assert_eq!(of(7200), (30, 15, 1610, 4), "one window of the maxima");
        let told = ProbePlan::fitting(Duration::from_secs(60), Some(Duration::from_secs(30)));
        assert_eq!(told.measure_s, 30);
    }
}
