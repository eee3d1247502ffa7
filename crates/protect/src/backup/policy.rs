//! Limits of a backup, and what happens to a cut that no freeze covers.

use std::time::Duration;
use thiserror::Error;

/// Longest freeze unless people choose another (a volume's hold of writes is limited to it as well).
const BUDGET: Duration = Duration::from_secs(10);
/// Longest freeze that can be chosen: that of Exchange's writer for volume shadow copies.
const BUDGET_MAX: Duration = Duration::from_secs(20);
/// Longest preparation. Work goes on meanwhile.
const PREPARATION_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a step that undoes something.
const UNDOING_MAX: Duration = Duration::from_secs(20);

/// Fate of a cut that was not covered by a freeze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UncoveredCut {
    #[default]
    Remove,
    /// Kept with the label *crash*; a cut is taken even if nothing could be frozen.
    KeepAsCrash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupPolicy {
    budget: Duration,
    pub preparation_max: Duration,
    pub undoing_max: Duration,
    pub uncovered: UncoveredCut,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("a freeze of {} ms is impossible; it must be 1 ms to {} s", .0.as_millis(), BUDGET_MAX.as_secs())]
pub struct BackupPolicyError(Duration);

impl BackupPolicy {
    /// A policy with that budget for the freeze.
    ///
    /// # Errors
    /// The budget is zero or more than 20 s.
    pub fn with_budget(budget: Duration) -> Result<Self, BackupPolicyError> {
        if budget < Duration::from_millis(1) || budget > BUDGET_MAX {
            return Err(BackupPolicyError(budget));
        }
        Ok(Self { budget, ..Self::default() })
    }

    /// The same policy with another fate of uncovered cuts.
    pub fn with_uncovered(self, uncovered: UncoveredCut) -> Self {
        Self { uncovered, ..self }
    }

    /// Longest time from the beginning of the freeze to the thaw.
    pub fn budget(&self) -> Duration {
        self.budget
    }
}

impl Default for BackupPolicy {
    fn default() -> Self {
        Self {
            budget: BUDGET,
            preparation_max: PREPARATION_MAX,
            undoing_max: UNDOING_MAX,
            uncovered: UncoveredCut::Remove,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_has_bounds() {
        let budget = |ms| BackupPolicy::with_budget(Duration::from_millis(ms)).map(|policy| policy.budget());
        assert_eq!(budget(20_000), Ok(Duration::from_secs(20)));
        let refusal = budget(20_001).expect_err("too long").to_string();
        assert_eq!(refusal, "a freeze of 20001 ms is impossible; it must be 1 ms to 20 s");
        assert!(budget(0).is_err());
        assert_eq!(BackupPolicy::default().budget(), Duration::from_secs(10));
    }
}
