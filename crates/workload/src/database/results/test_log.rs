//! The phases of a run, and its test log.

use serde::{Deserialize, Serialize};

/// Phase of a run, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Databases are created, or existing ones are scanned.
    #[default]
    Create,
    /// The load runs until the cache is full.
    Fill,
    /// The highest load within limits is searched for.
    Search,
    /// The load is measured.
    Measure,
    /// Every page and log file is checked.
    Verify,
    Done,
}

impl Phase {
    pub fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Fill => "fill",
            Self::Search => "search",
            Self::Measure => "measure",
            Self::Verify => "verify",
            Self::Done => "done",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestLogLine {
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    pub text: String,
}
