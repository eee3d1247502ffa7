//! The judged part of the time under load.
//!
//! Some papers judged a part of a longer run: HP Continuous Access the middle four hours of eight, IBM 2008
//! the last four of ten. The rest is run, sampled, charted and verified too, but averages, worst windows and
//! rates come from the judged part alone.

use crate::time_span::TimeSpan;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Position and length of the judged part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedPart {
    #[default]
    All,
    Middle {
        seconds: u64,
    },
    Last {
        seconds: u64,
    },
}

/// A part of the time under load, in whole seconds from the start of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub from_s: u64,
    pub to_s: u64,
}

impl TimeRange {
    pub fn length_s(self) -> u64 {
        self.to_s - self.from_s
    }
}

impl JudgedPart {
    /// Length in seconds; None for the whole run.
    pub fn seconds(self) -> Option<u64> {
        match self {
            Self::All => None,
            Self::Middle { seconds } | Self::Last { seconds } => Some(seconds),
        }
    }

    /// The part of a run of `duration_s`.
    ///
    /// # Panics
    /// If the part is longer than the run; a checked plan excludes that.
    pub fn part(self, duration_s: u64) -> TimeRange {
        let length_s = self.seconds().unwrap_or(duration_s);
        assert!(length_s <= duration_s, "the plan was checked: the part is within the run");
        let from_s = match self {
            Self::All => 0,
            Self::Middle { .. } => (duration_s - length_s) / 2,
            Self::Last { .. } => duration_s - length_s,
        };
        TimeRange { from_s, to_s: from_s + length_s }
    }

    /// The part scaled from a run of `planned_s` to one of `duration_s`, at least one second long.
    #[must_use]
    pub fn scaled(self, planned_s: u64, duration_s: u64) -> Self {
        let scale = |seconds: u64| (seconds * duration_s / planned_s.max(1)).clamp(1, duration_s.max(1));
        match self {
            Self::All => Self::All,
            Self::Middle { seconds } => Self::Middle { seconds: scale(seconds) },
            Self::Last { seconds } => Self::Last { seconds: scale(seconds) },
        }
    }
}

impl fmt::Display for JudgedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Middle { seconds } => write!(f, "the middle {}", TimeSpan(*seconds)),
            Self::Last { seconds } => write!(f, "the last {}", TimeSpan(*seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3600;

    #[test]
    fn the_judged_parts_of_the_papers_have_the_right_position() {
        let part = |judged: JudgedPart, hours| {
            let TimeRange { from_s, to_s } = judged.part(hours * HOUR);
            (from_s / HOUR, to_s / HOUR)
        };
        let four = 4 * HOUR;
        assert_eq!(part(JudgedPart::Middle { seconds: four }, 8), (2, 6), "HP Continuous Access");
        assert_eq!(part(JudgedPart::Last { seconds: four }, 10), (6, 10), "IBM 2008");
        assert_eq!(part(JudgedPart::All, 2), (0, 2));
        assert_eq!(part(JudgedPart::Middle { seconds: four }, 4), (0, 4));
    }

    #[test]
    fn a_shorter_run_judges_the_same_share() {
        let scaled = |judged: JudgedPart, planned, duration| judged.scaled(planned, duration).to_string();
        let four = 4 * HOUR;
        assert_eq!(scaled(JudgedPart::Middle { seconds: four }, 8 * HOUR, 60), "the middle 30 s");
        assert_eq!(scaled(JudgedPart::Last { seconds: four }, 10 * HOUR, 60), "the last 24 s");
        assert_eq!(scaled(JudgedPart::Last { seconds: four }, 10 * HOUR, 1), "the last 1 s");
        assert_eq!(scaled(JudgedPart::All, 8 * HOUR, 60), "all");
    }
}
