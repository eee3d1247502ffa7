//! Classes of runs.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Minimum of a performance test (HP Continuous Access, HP EVA8000, AMI 2008 and Dell 2010: two hours).
const PERFORMANCE: Duration = Duration::from_secs(2 * 3600);
/// Minimum of a stress test (AMI 2008: 24 hours).
const STRESS: Duration = Duration::from_secs(24 * 3600);

/// Class of a run by its duration; says how much the verdict proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunClass {
    /// Shorter than two hours: a functional check that proves little.
    Smoke,
    /// At least two hours.
    Performance,
    /// At least 24 hours; some maxima have higher limits.
    Stress,
}

impl RunClass {
    pub fn of(span: Duration) -> Self {
        match span {
            span if span >= STRESS => Self::Stress,
            span if span >= PERFORMANCE => Self::Performance,
            _ => Self::Smoke,
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Smoke => "Smoke test",
            Self::Performance => "Performance test",
            Self::Stress => "Stress test",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_begin_at_two_and_at_24_hours() {
        let class = |seconds| RunClass::of(Duration::from_secs(seconds));
        assert_eq!(class(7199), RunClass::Smoke);
        assert_eq!(class(7200), RunClass::Performance);
        assert_eq!(class(86_399), RunClass::Performance);
        assert_eq!(class(86_400), RunClass::Stress);
    }
}
