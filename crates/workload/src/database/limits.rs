//! What a run must keep within: limits as data, with source and place.

use super::{plan::RunClass, setting::nearest};
use serde::{Deserialize, Serialize};
use thiserror::Error;

const LIMITS: &str = include_str!("limits.toml");

/// Names of the sets in the file, for suggestions; a test keeps them equal.
const NAMES: [&str; 6] = ["jetstress", "eva5000", "eva8000", "snapmanager", "equallogic", "jetstress-2013"];

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
    /// I/O operations that failed, and those the kernel says failed.
    IoErrors,
    /// Device operations that took longer than a long one may, and were not hung.
    LongOperations,
    /// Device operations that took longer still, answered or not.
    HungOperations,
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
            Self::LongOperations => "Long device operations",
            Self::HungOperations => "Hung device operations",
        }
    }

    /// Whether it grows with any delay, whosever it is: a busy processor's as well as the storage's.
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
    /// The limits, in the order a verdict lists them; first the set's own, then those of every set.
    #[serde(rename = "limit")]
    pub limits: Vec<Limit>,
    /// What is watched for; none of its own in the file means that of every set.
    #[serde(default)]
    watch: Option<WatchLimits>,
}

/// What is watched for beside the averages.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchLimits {
    /// What is a slow operation.
    pub slow: SlowLimits,
    /// What is a spike.
    pub spike: SpikeRule,
}

/// From when on one operation is an event.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlowLimits {
    /// Longer than this is long, in seconds.
    pub long_s: f64,
    /// Longer than this is hung, in seconds.
    pub hung_s: f64,
    /// Who says so, and where.
    pub source: String,
}

/// From when on an operation is part of a spike: it took longer than both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpikeRule {
    /// So many times the running median of its kind on its volume.
    pub times_median: f64,
    /// This, in milliseconds.
    pub floor_ms: f64,
    /// Who says so, and why.
    pub source: String,
}

#[derive(Deserialize)]
struct LimitFile {
    /// Of sets that have none of their own.
    watch: WatchLimits,
    /// Limits of every set.
    every: Vec<Limit>,
    set: Vec<LimitSet>,
}

/// Why limits were refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LimitsError {
    /// No set has this name.
    #[error("no limit set is called {name:?}{}; there are {}", .nearest.map(|n| format!("; did you mean {n:?}?")).unwrap_or_default(), NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The name it may have meant.
        nearest: Option<&'static str>,
    },
}

impl LimitSet {
    /// Names of the built-in sets.
    pub fn names() -> [&'static str; NAMES.len()] {
        NAMES
    }

    /// The built-in set `name`.
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

    /// What is watched for.
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
    fn the_papers_judged_by_what_they_print() {
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
