//! Limits, and the verdict over a run: values that name no kind of load.
//!
//! [`limits`] are data with sources; [`class`] and [`judged_part`] say how much of a run is judged, and as what. The
//! module of each kind of load judges its own results and returns a [`RunVerdict`].

pub mod class;
pub mod judged_part;
pub mod limits;

pub use report::VerdictOutcome;

use class::RunClass;
use limits::Measure;
use serde::{Deserialize, Serialize};

/// One limit with its measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictRow {
    pub measure: Measure,
    /// The worst volume, if there are several.
    pub place: Option<String>,
    /// None if nothing was measured.
    pub measured: Option<f64>,
    /// The maximum that passes, or the minimum if the metric is a floor.
    pub limit: f64,
    /// None if nothing was judged.
    pub passed: Option<bool>,
    /// Citation of the limit.
    pub source: String,
}

/// The answer, with every limit it is based on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunVerdict {
    pub answer: VerdictOutcome,
    pub class: RunClass,
    pub rows: Vec<VerdictRow>,
}

impl RunVerdict {
    pub fn broken(&self) -> impl Iterator<Item = &VerdictRow> {
        self.rows.iter().filter(|row| row.passed == Some(false))
    }
}
