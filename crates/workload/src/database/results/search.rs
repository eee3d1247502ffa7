//! Results of a load search: passive data.

use crate::{
    measure::processor::BusiestThread,
    search::{Judgement, SearchAxis, SearchBound},
    verdict::limits::Measure,
};
use report::prose::{counted, number};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One trial of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResults {
    /// From 1.
    pub number: u32,
    /// True if it was a hold.
    pub holds: bool,
    /// IOPS of all groups, or threads of each.
    pub level: f64,
    /// Measured time, in seconds; shorter than planned if the trial was lost.
    pub measured_s: f64,
    /// Database IOPS.
    pub achieved_iops: f64,
    /// Average latency of database reads on the slowest volume.
    pub read_ms: Option<f64>,
    /// Average latency of database writes on the slowest volume.
    pub write_ms: Option<f64>,
    /// Average latency of log writes on the slowest volume.
    pub log_ms: Option<f64>,
    /// Highest average read latency of one window.
    pub read_worst_ms: Option<f64>,
    /// Highest average log write latency of one window.
    pub log_worst_ms: Option<f64>,
    /// Page faults a second that found no free cache page.
    pub stalls_per_second: f64,
    /// Operations waiting to start at the end.
    pub backlog: u64,
    pub judgement: Judgement,
    pub broken: Vec<Measure>,
    /// Time to steady state; None if the trial was measured before reaching it.
    #[serde(default)]
    pub settled_s: Option<f64>,
    /// If known.
    #[serde(default)]
    pub busiest: Option<BusiestThread>,
    /// True if every session of a group was busy most of the time while operations waited.
    #[serde(default)]
    pub sessions_full: bool,
}

/// Trials and result of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResults {
    pub axis: SearchAxis,
    /// The level held last; None if the run ended before a hold.
    pub held: Option<f64>,
    /// The reason the level is no higher.
    pub bound: SearchBound,
    /// Maximum sessions of a group; 0 in records of versions that did not store it.
    #[serde(default)]
    pub sessions_max: u32,
    /// In order.
    pub trials: Vec<TrialResults>,
}

impl SearchResults {
    /// Results of a search that has not started.
    pub fn none_yet(axis: SearchAxis, sessions_max: u32) -> Self {
        Self { axis, held: None, bound: SearchBound::Unfinished, sessions_max, trials: Vec::new() }
    }

    /// The thread whose processor limited the search, if one did.
    pub fn limiting_thread(&self) -> Option<BusiestThread> {
        let full = |trial: &&TrialResults| trial.judgement == Judgement::Processor;
        let last = self.trials.iter().rev().filter(full).find_map(|trial| trial.busiest);
        last.filter(|_| self.bound == SearchBound::Processor)
    }

    /// The held database IOPS; None in a search over threads.
    pub fn target_iops(&self) -> Option<f64> {
        self.held.filter(|_| self.axis == SearchAxis::Rate)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    pub axis: SearchAxis,
    /// The current level.
    pub level: f64,
    /// From 1.
    pub probe: u32,
    /// Usual time of the probes that are done.
    pub done: Duration,
    /// Estimated remaining time.
    pub left: Duration,
}

/// Describes a level: `1,250 IOPS`, `12 threads a group`.
pub fn describe_level(axis: SearchAxis, level: f64) -> String {
    match axis {
        SearchAxis::Rate if level < 100.0 => format!("{} IOPS", number(level, 1)),
        SearchAxis::Rate => format!("{} IOPS", number(level, 0)),
        SearchAxis::Threads => format!("{} a group", counted(level as u64, "thread")),
    }
}
