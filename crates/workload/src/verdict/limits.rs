//! Limit sets: the bounds a run is judged by, as data with sources.

use crate::{suggestion::nearest, verdict::class::RunClass};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const LIMITS: &str = include_str!("limits.toml");

/// Names of the sets in the file, for suggestions; a test compares them.
const NAMES: [&str; 6] = ["jetstress", "eva5000", "eva8000", "snapmanager", "equallogic", "jetstress-2013"];

/// A metric that can have a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Average latency of transactional database reads over the judged time, of the slowest volume.
    DatabaseReadAverageMs,
    /// Highest average of such reads over one window (15 s), of any volume.
    DatabaseReadWindowMaximumMs,
    /// Average latency of database writes, of the slowest volume.
    DatabaseWriteAverageMs,
    /// Average latency of log writes, of the slowest volume.
    LogWriteAverageMs,
    /// Highest average of log writes over one window, of any volume.
    LogWriteWindowMaximumMs,
    /// Page faults a second that found no free cache page, averaged over the judged time.
    PageFaultStallsPerSecond,
    /// Transactional IOPS as a share of the target.
    AchievedPercentOfTarget,
    /// Damaged pages and log segments that verification, the background scan or the engine found.
    ChecksumErrors,
    /// Records that were missing or had other content than was written.
    ContentErrors,
    /// Failed I/O operations, including those only the kernel log reports.
    IoErrors,
    /// Device operations slower than the long limit but not hung.
    LongOperations,
    /// Device operations slower than the hung limit, answered or not.
    HungOperations,
}

impl Measure {
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
            Self::LongOperations => "Long device operations",
            Self::HungOperations => "Hung device operations",
        }
    }

    /// True if any delay can worsen the metric, whether storage or a busy processor causes it.
    pub fn is_of_time(self) -> bool {
        match self {
            Self::DatabaseReadAverageMs
            | Self::DatabaseReadWindowMaximumMs
            | Self::DatabaseWriteAverageMs
            | Self::LogWriteAverageMs
            | Self::LogWriteWindowMaximumMs
            | Self::PageFaultStallsPerSecond
            | Self::AchievedPercentOfTarget => true,
            Self::ChecksumErrors
            | Self::ContentErrors
            | Self::IoErrors
            | Self::LongOperations
            | Self::HungOperations => false,
        }
    }

    /// True if larger is better, so that the limit is a minimum.
    pub fn is_floor(self) -> bool {
        self == Self::AchievedPercentOfTarget
    }
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The unit is part of its name.
    pub measure: Measure,
    /// The maximum that passes, or the minimum (see [`Measure::is_floor`]).
    limit: f64,
    /// Replaces `limit` for stress runs.
    stress_limit: Option<f64>,
    /// Citation: document and place.
    pub source: String,
}

impl Limit {
    pub fn value(&self, class: RunClass) -> f64 {
        match (class, self.stress_limit) {
            (RunClass::Stress, Some(limit)) => limit,
            _ => self.limit,
        }
    }
}

/// The limits of one published test.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSet {
    pub name: String,
    /// One line: publisher and test.
    pub summary: String,
    /// In verdict order: the set's own limits, then those common to all sets.
    #[serde(rename = "limit")]
    pub limits: Vec<Limit>,
    /// Thresholds of slow I/O; a set without its own uses the common ones.
    #[serde(default)]
    watch: Option<WatchLimits>,
}

/// Thresholds of slow I/O, applied in addition to the averages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchLimits {
    pub slow: SlowLimits,
    pub spike: SpikeRule,
}

/// Durations above which a single operation is reported.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowLimits {
    /// Above this an operation is *long*, in seconds.
    pub long_s: f64,
    /// Above this an operation is *hung*, in seconds.
    pub hung_s: f64,
    /// Citation: document and place.
    pub source: String,
}

/// Thresholds of a spike: an operation belongs to one if it exceeds both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpikeRule {
    /// Multiple of the running median latency of its kind on its volume.
    pub times_median: f64,
    /// Latency in milliseconds.
    pub floor_ms: f64,
    /// Citation and reason.
    pub source: String,
}

#[derive(Deserialize)]
struct LimitFile {
    /// For sets without their own.
    watch: WatchLimits,
    every: Vec<Limit>,
    set: Vec<LimitSet>,
}

/// A rejected limit set name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// No set has this name.
    #[error("no limit set is called {name:?}{}; there are {}", .nearest.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default(), NAMES.join(", "))]
    Unknown {
        name: String,
        /// The closest known name, if one is similar.
        nearest: Option<&'static str>,
    },
}

impl LimitSet {
    /// Names of the built-in sets.
    pub fn names() -> [&'static str; NAMES.len()] {
        NAMES
    }

    /// Loads a built-in set by name, ignoring case.
    pub fn load(name: &str) -> Result<Self, LimitsError> {
        let file: LimitFile = toml::from_str(LIMITS).expect("the built-in limits parse; a test sees to it");
        let found = file.set.into_iter().find(|set| set.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            LimitsError::Unknown { name: name.to_owned(), nearest: nearest(name, NAMES.into_iter()) }
        });
        let mut set = found?;
        set.limits.extend(file.every);
        set.watch.get_or_insert(file.watch);
        Ok(set)
    }

    /// Thresholds of slow I/O.
    pub fn watch(&self) -> &WatchLimits {
        self.watch.as_ref().expect("a loaded set has what it was not given")
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
    fn every_set_fails_a_server_that_would_be_restarted() {
        for name in NAMES {
            let set = LimitSet::load(name).unwrap();
            for measure in [Measure::LongOperations, Measure::HungOperations] {
                let limits: Vec<_> = set.limits.iter().filter(|limit| limit.measure == measure).collect();
                assert_eq!(limits.len(), 1, "{name}");
                assert_eq!(limits[0].value(RunClass::Stress), 0.0, "{name}");
            }
            let slow = &set.watch().slow;
            assert_eq!((slow.long_s, slow.hung_s), (41.0, 240.0), "{name}");
        }
    }

    #[test]
    fn the_limits_of_the_papers_are_as_printed() {
        let limit = |set: &str, measure| {
            let set = LimitSet::load(set).unwrap();
            let found = set.limits.iter().find(|limit| limit.measure == measure);
            found.map(|limit| limit.value(RunClass::Performance))
        };
        assert_eq!(limit("eva8000", Measure::DatabaseWriteAverageMs), Some(10.0), "HP EVA8000");
        assert_eq!(limit("eva5000", Measure::LogWriteAverageMs), Some(20.0), "HP Continuous Access");
        assert_eq!(
            limit("eva5000", Measure::DatabaseReadWindowMaximumMs),
            Some(40.0),
            "HP Continuous Access"
        );
        assert_eq!(limit("equallogic", Measure::DatabaseReadWindowMaximumMs), Some(100.0), "Dell 2010");
        assert_eq!(limit("jetstress-2013", Measure::DatabaseReadWindowMaximumMs), None, "averages only");
        assert_eq!(
            LimitSet::load("eva800").unwrap_err().to_string(),
            "no limit set is called \"eva800\"; did you mean \"eva8000\"?; there are jetstress, eva5000, \
             eva8000, snapmanager, equallogic, jetstress-2013"
        );
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
