//! The planned load: a session count, a held rate, or a search for the most of either within limits.

use crate::search::SearchAxis;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The load that drives the storage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadPlan {
    /// Closed loop: each session starts its next operation when the last has finished.
    Threads { per_group: u32 },
    /// Open loop: a held rate of database IOPS.
    Mailboxes {
        /// Mailboxes of all groups.
        count: u64,
        /// Database IOPS of one mailbox.
        iops_each: f64,
    },
    /// Open loop: searches for the highest rate within limits, then holds it.
    Maximum { probe: ProbePlan },
    /// Closed loop: searches for the session count that does the most IOPS within limits, then holds it.
    TunedThreads { probe: ProbePlan },
}

impl LoadPlan {
    /// Database IOPS that the plan gives; None in a closed loop or a search.
    pub fn target_iops(&self) -> Option<f64> {
        match self {
            Self::Mailboxes { count, iops_each } => Some(*count as f64 * iops_each),
            Self::Threads { .. } | Self::Maximum { .. } | Self::TunedThreads { .. } => None,
        }
    }

    /// True if operations arrive at a rate during measurement, whether or not a session is ready.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Mailboxes { .. } | Self::Maximum { .. })
    }

    /// The searched quantity; None if the plan gives the load.
    pub fn searched_over(&self) -> Option<SearchAxis> {
        match self {
            Self::Maximum { .. } => Some(SearchAxis::Rate),
            Self::TunedThreads { .. } => Some(SearchAxis::Threads),
            Self::Threads { .. } | Self::Mailboxes { .. } => None,
        }
    }

    /// Parameters of the search; None if the plan gives the load.
    pub fn probe(&self) -> Option<&ProbePlan> {
        match self {
            Self::Maximum { probe } | Self::TunedThreads { probe } => Some(probe),
            Self::Threads { .. } | Self::Mailboxes { .. } => None,
        }
    }
}

/// Parameters of a search: short probes, then holds of the run's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbePlan {
    /// Maximum settling time before each measurement, in seconds.
    pub settle_s: u64,
    /// Measured time of a probe, in seconds.
    pub measure_s: u64,
    pub probes_max: u32,
    /// Maximum number of holds. A hold that breaks a limit is followed by one at a lower level.
    pub holds_max: u32,
}

/// Bounds of a probe's measured time, in seconds. The upper one is a window of the maxima.
const MEASURE_S: (u64, u64) = (5, crate::measure::windows::WINDOW.as_secs());
/// A load that has not settled after twice its measured time, or a minute, is measured anyway.
const SETTLE_MAX_S: u64 = 60;
/// Probes that measure for less than this settle no longer than they measure.
const SETTLE_MIN_S: u64 = 2;
/// Enough for a start that is wrong by a factor of 100 and for repeating two thirds of the probes: shared
/// storage has disturbed periods.
const PROBES_MAX: u32 = 35;
/// Bounds of the number of holds; within them, as many as fit into [`HOLDS_S`].
const HOLDS_MAX: (u32, u32) = (4, 8);
/// Maximum time of all holds of a short run, in seconds.
const HOLDS_S: u64 = 600;
/// Allowance for draining and for the rendezvous of the groups, in seconds.
const BETWEEN_S: u64 = 1;

impl ProbePlan {
    /// Parameters for a run of `duration`; `measure` overrides the measured time of a probe.
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

    /// Maximum time of one probe, in seconds.
    pub fn probe_s(&self) -> u64 {
        self.settle_s + self.measure_s + BETWEEN_S
    }

    /// Maximum time of all probes, in seconds.
    pub fn seconds_max(&self) -> u64 {
        u64::from(self.probes_max) * self.probe_s()
    }

    /// Maximum time of the holds of `duration_s` after the first, with settling before each, in seconds.
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
