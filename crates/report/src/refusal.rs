//! A refusal: one line that says why Spindle does not begin or cannot go on, and the remedy.

use std::fmt;

/// A problem and its remedy, shown as one line: `problem; remedy`. What was refused has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    problem: String,
    remedy: String,
    cause: RefusalCause,
}

/// The origin of a refusal: programs decide by it whether to ask otherwise, or to call somebody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefusalCause {
    /// The request, or the present state.
    #[default]
    Request,
    /// Drives failed, or data on them are damaged.
    Storage,
    /// The pool had stopped.
    StoppedPool,
}

impl Refusal {
    /// Neither part ends with a full stop; the remedy may be empty. Line breaks become blanks.
    ///
    /// # Panics
    ///
    /// If `problem` is empty.
    pub fn new(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        let (problem, remedy) = (one_line(&problem.into()), one_line(&remedy.into()));
        let refusal = Self { problem, remedy, cause: RefusalCause::Request };
        assert!(!refusal.problem.is_empty(), "a refusal names its problem");
        refusal
    }

    /// The same of another cause.
    pub fn caused_by(self, cause: RefusalCause) -> Self {
        Self { cause, ..self }
    }

    pub fn cause(&self) -> RefusalCause {
        self.cause
    }

    /// The same with another problem, which may tell more.
    pub fn with_problem(&self, problem: impl Into<String>) -> Self {
        Self::new(problem, &self.remedy).caused_by(self.cause)
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
