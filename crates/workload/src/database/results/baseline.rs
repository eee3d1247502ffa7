//! Baseline figures: the same work on the same storage by another path, for comparison.

use crate::{
    database::results::{LatencySummary, RunResults, figures::RunFigures},
    verdict::VerdictOutcome,
};
use serde::{Deserialize, Serialize};

/// Figures of a run on one path. None where nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    pub answer: VerdictOutcome,
    pub iops: Option<f64>,
    pub reads: Option<f64>,
    pub writes: Option<f64>,
    /// Operations of the sessions a second.
    pub operations: Option<f64>,
    /// Database reads of the slowest volume.
    pub read: LatencySummary,
    /// Database writes of the slowest volume.
    pub write: LatencySummary,
    /// Log writes of the slowest volume.
    pub log: LatencySummary,
    /// Operations of the sessions, from their intended start.
    pub operation: LatencySummary,
    /// Processors that Spindle used.
    pub processors: Option<f64>,
}

impl PathFigures {
    pub fn of(results: &RunResults, answer: VerdictOutcome) -> Self {
        let figures = RunFigures::of(results);
        Self {
            answer,
            iops: figures.iops,
            reads: figures.reads,
            writes: figures.writes,
            operations: figures.operations,
            read: figures.read,
            write: figures.write,
            log: figures.log,
            operation: figures.operation,
            processors: figures.processors,
        }
    }
}
