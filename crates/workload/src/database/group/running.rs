//! A group's load while it runs, and what its measured part leaves behind.

use super::{
    super::{
        measure::Sample,
        meter::MeterReading,
        operation::OperationReading,
        pacing::PacingState,
        pools::PoolFacts,
        results::LateResults,
        scan::{BackgroundScan, ScanTotals},
        session::GroupLoad,
    },
    FillOutcome,
    recording::Recording,
};
use maildb::Statistics;
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{JoinHandle, Moment};

/// The load of a group while it runs.
pub(super) struct Running {
    pub(super) load: Rc<GroupLoad>,
    pub(super) sessions: Vec<JoinHandle<()>>,
    pub(super) arrivals: Option<JoinHandle<()>>,
    pub(super) scan: Option<BackgroundScan>,
    pub(super) tally: Tally,
    /// What it did of late.
    pub(super) recent: Cell<Recent>,
    /// Seconds looked at since a trial was measured, and those of them in which sessions were lacking.
    pub(super) seconds: Cell<Seconds>,
    /// Whether the storage has ceased to answer: what waits for it is given up.
    pub(super) frozen: bool,
}

/// Whether what happens is judged.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum Judging {
    /// Not yet.
    #[default]
    Before,
    /// Since then.
    Since(Moment),
    /// No more.
    Over,
}

/// How long sessions were lacking.
#[derive(Clone, Copy, Default)]
pub(super) struct Seconds {
    pub(super) all: u32,
    pub(super) without_sessions: u32,
}

/// What the load did in the last seconds, those before counting ever less.
#[derive(Clone, Copy, Default)]
pub(super) struct Recent {
    pub(super) io: u64,
    pub(super) operations: u64,
    pub(super) span_s: f64,
}

impl Recent {
    pub(super) fn followed_by(self, io: u64, operations: u64, span_s: f64) -> Self {
        Self {
            io: self.io / 2 + io,
            operations: self.operations / 2 + operations,
            span_s: self.span_s / 2.0 + span_s,
        }
    }

    /// Database reads and writes a second.
    pub(super) fn iops(self) -> f64 {
        if self.span_s > 0.0 { self.io as f64 / self.span_s } else { 0.0 }
    }
}

/// What the measured part leaves behind.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) fill: FillOutcome,
    pub(super) judging: Judging,
    pub(super) measured_s: f64,
    pub(super) load_s: f64,
    pub(super) bytes_before: Vec<u64>,
    pub(super) samples: Vec<Sample>,
    pub(super) meters: Vec<MeterReading>,
    pub(super) operations: OperationReading,
    pub(super) late: LateResults,
    pub(super) statistics: (Statistics, Statistics),
    pub(super) thread_cpu: (Option<Duration>, Option<Duration>),
    pub(super) pacing: PacingState,
    pub(super) scan: ScanTotals,
    /// Pools when what is judged began, and when it ended.
    pub(super) pools: (Vec<PoolFacts>, Vec<PoolFacts>),
    pub(super) recording: Recording,
}

impl Tally {
    /// Processor time used between the two readings, in seconds.
    pub(super) fn thread_cpu_s(&self) -> Option<f64> {
        let (before, after) = (self.thread_cpu.0?, self.thread_cpu.1?);
        Some(after.saturating_sub(before).as_secs_f64())
    }
}
