//! What a search tells: its trials, and what came of it. Passive data.

use super::super::{
    limits::Measure,
    processor::BusiestThread,
    search::{Axis, Bound, Judgement},
};
use report::prose::{counted, number};
use serde::{Deserialize, Serialize};

/// How one trial went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialResults {
    /// From 1.
    pub number: u32,
    /// Whether it was the run proper.
    pub holds: bool,
    /// What was tried: I/O a second of all groups, or threads of each.
    pub level: f64,
    /// Seconds measured; less than planned if it was lost before.
    pub measured_s: f64,
    /// Database reads and writes a second.
    pub achieved_iops: f64,
    /// Average latency of database reads on the slowest volume, in milliseconds.
    pub read_ms: Option<f64>,
    /// Average latency of database writes on the slowest volume, in milliseconds.
    pub write_ms: Option<f64>,
    /// Average latency of log writes on the slowest volume, in milliseconds.
    pub log_ms: Option<f64>,
    /// The longest average read latency of one window, in milliseconds.
    pub read_worst_ms: Option<f64>,
    /// The longest average log write latency of one window, in milliseconds.
    pub log_worst_ms: Option<f64>,
    /// Page faults a second that found no free cache page.
    pub stalls_per_second: f64,
    /// Operations that waited to begin when it ended.
    pub backlog: u64,
    /// What it was worth.
    pub judgement: Judgement,
    /// The limits it broke.
    pub broken: Vec<Measure>,
    /// Seconds until throughput had settled; none if it was measured before.
    #[serde(default)]
    pub settled_s: Option<f64>,
    /// The thread that used most of its processor, where that is known.
    #[serde(default)]
    pub busiest: Option<BusiestThread>,
    /// Whether every session of a group was busy for most of the time, and more operations waited.
    #[serde(default)]
    pub sessions_full: bool,
}

/// A search and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResults {
    /// What was searched over.
    pub axis: Axis,
    /// What was held in the end; none if the run ended before.
    pub held: Option<f64>,
    /// Why it went no higher.
    pub bound: Bound,
    /// Sessions a group could have; 0 in the record of a program that did not tell.
    #[serde(default)]
    pub sessions_max: u32,
    /// Every trial, in order.
    pub trials: Vec<TrialResults>,
}

impl SearchResults {
    /// Of a search over `axis` with so many sessions a group that has not begun.
    pub fn none_yet(axis: Axis, sessions_max: u32) -> Self {
        Self { axis, held: None, bound: Bound::Unfinished, sessions_max, trials: Vec::new() }
    }

    /// The thread whose processor kept the search from going higher, if that is what did.
    pub fn limiting_thread(&self) -> Option<BusiestThread> {
        let full = |trial: &&TrialResults| trial.judgement == Judgement::Processor;
        let last = self.trials.iter().rev().filter(full).find_map(|trial| trial.busiest);
        last.filter(|_| self.bound == Bound::Processor)
    }

    /// Database reads and writes a second that were asked for in the end; none if it were threads.
    pub fn target_iops(&self) -> Option<f64> {
        self.held.filter(|_| self.axis == Axis::Rate)
    }
}

/// Where a search stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SearchProgress {
    /// What is searched over.
    pub axis: Axis,
    /// What is being tried.
    pub level: f64,
    /// Which probe it is, from 1.
    pub probe: u32,
    /// Share of the search that is done, guessed.
    pub fraction: f64,
    /// Time it will go on for, guessed, in seconds.
    pub left_s: f64,
}

/// `1,250 I/O a second`, `12 threads a group`.
pub fn words(axis: Axis, level: f64) -> String {
    match axis {
        Axis::Rate if level < 100.0 => format!("{} IOPS", number(level, 1)),
        Axis::Rate => format!("{} IOPS", number(level, 0)),
        Axis::Threads => format!("{} a group", counted(level as u64, "thread")),
    }
}
