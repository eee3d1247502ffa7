//! How far a figure can be trusted.

use serde::{Deserialize, Serialize};

/// How far a figure can be trusted, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Printed in one of the seed papers.
    Seed,
    /// Read in the vendor's own documents.
    Documented,
    /// Read in someone else's.
    Secondary,
    /// Arithmetic on the above.
    Computed,
    /// From memory, not verified.
    Recalled,
    /// Chosen here, because nobody says.
    Assumed,
    /// Given by the user.
    User,
}

impl Confidence {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Documented => "documented",
            Self::Secondary => "secondary",
            Self::Computed => "computed",
            Self::Recalled => "recalled",
            Self::Assumed => "assumed",
            Self::User => "user",
        }
    }
}
