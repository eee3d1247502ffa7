//! The figures of a run that another is set beside: the same work on the same storage, another way down to it.

use super::{
    comparison::figures::Figures,
    results::{LatencySummary, RunResults},
    verdict::Answer,
};
use serde::{Deserialize, Serialize};

/// What a run on a path came to. Passive data; none where nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathFigures {
    /// How it was judged.
    pub answer: Answer,
    /// Database reads and writes a second.
    pub iops: Option<f64>,
    /// Database reads a second.
    pub reads: Option<f64>,
    /// Database writes a second.
    pub writes: Option<f64>,
    /// Operations of the sessions a second.
    pub operations: Option<f64>,
    /// Database reads, where they are slowest.
    pub read: LatencySummary,
    /// Database writes, where they are slowest.
    pub write: LatencySummary,
    /// Log writes, where they are slowest.
    pub log: LatencySummary,
    /// Operations of the sessions, from their intended start.
    pub operation: LatencySummary,
    /// Processors in use by Spindle.
    pub processors: Option<f64>,
}

impl PathFigures {
    /// Those of `results`, which were judged as `answer`.
    pub fn of(results: &RunResults, answer: Answer) -> Self {
        let figures = Figures::of(results);
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
