//! What a run must keep within: limits as data, with source and place.

use super::{plan::RunClass, setting::nearest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const LIMITS: &str = include_str!("limits.toml");

/// Names of the sets in the file, for suggestions; a test keeps them equal.
const NAMES: [&str; 1] = ["jetstress"];

/// Something measured that has a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Latency of transactional database reads, averaged over the measured time, of the volume
    /// where it is longest.
    DatabaseReadAverageMs,
    /// The longest average of such reads over one window (15 s), of any volume.
    DatabaseReadWindowMaximumMs,
    /// Latency of database writes, averaged, of the volume where it is longest.
    DatabaseWriteAverageMs,
    /// Latency of log writes, averaged, of the volume where it is longest.
    LogWriteAverageMs,
    /// The longest average of log writes over one window, of any volume.
    LogWriteWindowMaximumMs,
    /// Page faults that found no free cache page, a second, averaged over the measured time.
    PageFaultStallsPerSecond,
    /// Transactional I/O a second, as a share of what was asked for.
    AchievedPercentOfTarget,
    /// Damaged pages and log segments: found by verification, the background scan or the engine.
    ChecksumErrors,
    /// Records that came back other than they were written, or not at all.
    ContentErrors,
    /// I/O operations that failed.
    IoErrors,
}

impl Measure {
    /// Name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::DatabaseReadAverageMs => "Database read latency, average",
            Self::DatabaseReadWindowMaximumMs => "Database read latency, worst window",
            Self::DatabaseWriteAverageMs => "Database write latency, average",
            Self::LogWriteAverageMs => "Log write latency, average",
            Self::LogWriteWindowMaximumMs => "Log write latency, worst window",
            Self::PageFaultStallsPerSecond => "Page-fault stalls a second, average",
            Self::AchievedPercentOfTarget => "Transactional I/O, share of target",
            Self::ChecksumErrors => "Checksum errors",
            Self::ContentErrors => "Wrong or missing records",
            Self::IoErrors => "I/O errors",
        }
    }

    /// Whether more is better: then the limit is a floor.
    pub fn is_floor(self) -> bool {
        self == Self::AchievedPercentOfTarget
    }
}

/// One limit.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// What is limited; its name says the unit.
    pub measure: Measure,
    /// The most (or least, see [`Measure::is_floor`]) that passes.
    limit: f64,
    /// The same for a stress run, if it differs.
    stress_limit: Option<f64>,
    /// Who says so, and where.
    pub source: String,
}

impl Limit {
    /// The limit for runs of `class`.
    pub fn value(&self, class: RunClass) -> f64 {
        match (class, self.stress_limit) {
            (RunClass::Stress, Some(limit)) => limit,
            _ => self.limit,
        }
    }
}

/// The limits one kind of test judges by.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSet {
    /// Short name.
    pub name: String,
    /// Whose limits, in a line.
    pub summary: String,
    /// The limits, in the order a verdict lists them.
    #[serde(rename = "limit")]
    pub limits: Vec<Limit>,
}

#[derive(Deserialize)]
struct LimitFile {
    set: Vec<LimitSet>,
}

/// Why limits were refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// No set has this name.
    #[error("no limit set is called {name:?}{}", .nearest.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The name it may have meant.
        nearest: Option<&'static str>,
    },
}

impl LimitSet {
    /// The built-in set `name`.
    pub fn load(name: &str) -> Result<Self, LimitsError> {
        let file: LimitFile = toml::from_str(LIMITS).expect("the built-in limits parse; a test sees to it");
        file.set.into_iter().find(|set| set.name == name).ok_or_else(|| LimitsError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, NAMES.into_iter()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_limits_parse_and_are_named() {
        let file: LimitFile = toml::from_str(LIMITS).unwrap();
        assert_eq!(file.set.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), NAMES);
        assert!(file.set.iter().flat_map(|set| &set.limits).all(|limit| !limit.source.is_empty()));
    }

    #[test]
    fn stress_runs_have_laxer_maxima_and_the_same_averages() {
        let set = LimitSet::load("jetstress").unwrap();
        let of =
            |measure, class| set.limits.iter().find(|limit| limit.measure == measure).unwrap().value(class);
        assert_eq!(of(Measure::DatabaseReadWindowMaximumMs, RunClass::Performance), 50.0);
        assert_eq!(of(Measure::DatabaseReadWindowMaximumMs, RunClass::Stress), 100.0);
        assert_eq!(of(Measure::DatabaseReadAverageMs, RunClass::Stress), 20.0);
        assert_eq!(of(Measure::LogWriteAverageMs, RunClass::Smoke), 10.0);
    }
}
