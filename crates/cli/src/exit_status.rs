//! Exit status of the program, which scripts rely on.

use report::VerdictOutcome;
use std::process::ExitCode;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It passed, or did what was asked.
    Pass,
    /// It ran, and a limit was broken.
    Fail,
    /// It gave no answer: it was refused, or ended early.
    NoAnswer,
}

impl ExitStatus {
    /// The ending for a report's answer.
    pub fn of(outcome: Option<VerdictOutcome>) -> Self {
        match outcome {
            Some(VerdictOutcome::Pass) => Self::Pass,
            Some(VerdictOutcome::Fail) => Self::Fail,
            Some(VerdictOutcome::Incomplete) | None => Self::NoAnswer,
        }
    }

    /// 0 pass, 1 fail, 2 no answer.
    pub fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Pass => 0,
            Self::Fail => 1,
            Self::NoAnswer => 2,
        })
    }
}
