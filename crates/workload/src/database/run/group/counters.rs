//! Counters of a group's measured time.

use super::recording::RecordingPosition;
use crate::{
    database::{
        load::{operation::OperationReading, scan::ScanTotals},
        measure::{pools::PoolFacts, sample::Sample},
        results::{LateResults, outcome::FillOutcome},
    },
    meter::MeterReading,
    pacing::PacingState,
};
use maildb::Statistics;
use std::time::Duration;
use world::Moment;

/// Position relative to the judged part.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) enum JudgingState {
    #[default]
    Before,
    /// In the judged part, which began then.
    Since(Moment),
    Over,
}

/// Seconds in which operations waited and no session was idle.
#[derive(Clone, Copy, Default)]
pub(super) struct SessionShortage {
    pub(super) all: u32,
    pub(super) without_sessions: u32,
}

/// Recent throughput, as a decaying sum.
#[derive(Clone, Copy, Default)]
pub(super) struct RecentThroughput {
    pub(super) io: u64,
    pub(super) operations: u64,
    pub(super) span_s: f64,
}

impl RecentThroughput {
    pub(super) fn followed_by(self, io: u64, operations: u64, span_s: f64) -> Self {
        Self {
            io: self.io / 2 + io,
            operations: self.operations / 2 + operations,
            span_s: self.span_s / 2.0 + span_s,
        }
    }

    pub(super) fn iops(self) -> f64 {
        if self.span_s > 0.0 { self.io as f64 / self.span_s } else { 0.0 }
    }
}

/// Counters of the measured time.
#[derive(Default)]
pub(super) struct MeasuredCounters {
    pub(super) fill: FillOutcome,
    pub(super) judging: JudgingState,
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
    /// Snapshots at the start and the end of the judged part.
    pub(super) pools: (Vec<PoolFacts>, Vec<PoolFacts>),
    pub(super) recording: RecordingPosition,
}

impl MeasuredCounters {
    /// Processor time between the two readings, in seconds.
    pub(super) fn thread_cpu_s(&self) -> Option<f64> {
        let (before, after) = (self.thread_cpu.0?, self.thread_cpu.1?);
        Some(after.saturating_sub(before).as_secs_f64())
    }
}
