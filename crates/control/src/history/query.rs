//! Samples of a series over a period.

use super::{DAY_SECONDS, day::SLOT_SECONDS, sample::IoSample};
use thiserror::Error;

/// Most samples of an answer.
const SAMPLES_MAX: i64 = 31 * DAY_SECONDS / SLOT_SECONDS;

/// The time from one sample to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryStep {
    Second,
    Minute,
    FiveMinutes,
}

/// A period, with its end left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryPeriod {
    pub from_unix_s: i64,
    pub to_unix_s: i64,
    /// `None` for the finest one that the period has.
    pub step: Option<HistoryStep>,
}

/// Samples of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryAnswer {
    pub step: HistoryStep,
    /// Time of the first sample.
    pub first_unix_s: i64,
    /// One after the other; `None` where nothing was recorded.
    pub samples: Vec<Option<IoSample>>,
}

/// A period that is not answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeriodRefusal {
    #[error("the period ends before it begins")]
    Backwards,
    /// With the longest one of this step.
    #[error("a period at this step has at most {0} seconds")]
    TooLong(i64),
}

impl HistoryStep {
    pub const ALL: [Self; 3] = [Self::Second, Self::Minute, Self::FiveMinutes];

    pub fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::FiveMinutes => SLOT_SECONDS,
        }
    }
}

impl HistoryPeriod {
    /// # Errors
    ///
    /// It ends before it begins, or has more samples than an answer.
    pub(super) fn check(&self) -> Result<(), PeriodRefusal> {
        let seconds = self.to_unix_s.checked_sub(self.from_unix_s).filter(|seconds| *seconds > 0);
        let seconds = seconds.ok_or(PeriodRefusal::Backwards)?;
        let longest = SAMPLES_MAX * self.step.unwrap_or(HistoryStep::FiveMinutes).seconds();
        if seconds > longest { Err(PeriodRefusal::TooLong(longest)) } else { Ok(()) }
    }

    /// The slots of a step that begin in the period, or around its begin.
    pub(super) fn slots(&self, step_s: i64) -> std::ops::Range<i64> {
        let first = self.from_unix_s.div_euclid(step_s);
        first..(self.to_unix_s - 1).div_euclid(step_s) + 1
    }
}
