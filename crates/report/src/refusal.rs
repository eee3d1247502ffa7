//! A refusal: one line that says why Spindle does not begin or cannot go on, and the remedy.

use std::fmt;

/// A problem and its remedy, shown as one line: `problem; remedy`. What was refused has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    problem: String,
    remedy: String,
}

impl Refusal {
    /// Neither part ends with a full stop; the remedy may be empty. Line breaks become blanks.
    ///
    /// # Panics
    ///
    /// If `problem` is empty.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let refusal = Self { problem: one_line(&problem.into()), remedy: one_line(&remedy.into()) };
        assert!(!refusal.problem.is_empty(), "a refusal names its problem");
        refusal
    }

    /// The line without the remedy.
    pub fn problem(&self) -> &str {
        &self.problem
    }

    /// Empty if there is none.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

/// A message of the kernel or of a library may hold line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.remedy.as_str() {
            "" => write!(f, "{}", self.problem),
            remedy => write!(f, "{}; {remedy}", self.problem),
        }
    }
}

impl std::error::Error for Refusal {}
