//! Confidence of a number.

use serde::{Deserialize, Serialize};

/// Confidence of a number, from printed to assumed. The order is that of trust, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Given by the administrator of this plan.
    #[serde(alias = "user")]
    Given,
    /// Printed in one of the papers (docs/sources.md).
    Seed,
    /// Read in the vendor's own documents.
    Documented,
    /// Arithmetic on the above.
    Computed,
    /// Read in someone else's.
    Secondary,
    /// From memory, not verified.
    Recalled,
    /// Chosen here, for want of a source.
    Assumed,
}

impl Confidence {
    /// All of them, the best first.
    pub const ALL: [Self; 7] = [
        Self::Given,
        Self::Seed,
        Self::Documented,
        Self::Computed,
        Self::Secondary,
        Self::Recalled,
        Self::Assumed,
    ];

    /// As tables show it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Seed => "paper",
            Self::Documented => "documented",
            Self::Computed => "computed",
            Self::Secondary => "second-hand",
            Self::Recalled => "recalled",
            Self::Assumed => "assumed",
        }
    }

    /// Meaning in one line.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Given => "you said so",
            Self::Seed => "printed in one of the five papers",
            Self::Documented => "read in the vendor's or the standard's own documents",
            Self::Computed => "follows from those",
            Self::Secondary => "read in someone else's",
            Self::Recalled => "remembered, not verified",
            Self::Assumed => "chosen here, for want of a source",
        }
    }

    /// The less trusted of both: what rests on two numbers is as good as the worse.
    pub fn weaker(self, other: Self) -> Self {
        self.max(other)
    }
}
