//! Refusals of requests to a site's server, by their kind: callers of the API are answered by it.

use report::Refusal;
use std::fmt;

/// The reason for which a request was not done, with the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowRefusal {
    pub kind: RowRefusalKind,
    pub refusal: Refusal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRefusalKind {
    /// It names something that is not there.
    NotFound,
    /// Something else has its name.
    Exists,
    /// It makes no sense.
    Bad,
    /// Hosts use what would be taken from them.
    InUse,
    /// Somebody else has changed the row since the caller saw it.
    Stale,
    /// A pool does not answer. The refusal says what was done.
    NoAnswer,
    /// The present state does not allow it.
    Refused,
}

impl RowRefusal {
    pub fn not_found(problem: String) -> Self {
        Self { kind: RowRefusalKind::NotFound, refusal: Refusal::new(problem, "list what there is") }
    }

    pub fn exists(problem: String) -> Self {
        Self {
            kind: RowRefusalKind::Exists,
            refusal: Refusal::new(problem, "change it, or use another name"),
        }
    }

    pub fn bad(problem: String, next: String) -> Self {
        Self { kind: RowRefusalKind::Bad, refusal: Refusal::new(problem, next) }
    }

    pub fn in_use(problem: String) -> Self {
        let next = "log the host out first, or use ⟨force⟩: its session ends then";
        Self { kind: RowRefusalKind::InUse, refusal: Refusal::new(problem, next) }
    }

    pub fn no_answer(problem: String, next: &str) -> Self {
        Self { kind: RowRefusalKind::NoAnswer, refusal: Refusal::new(problem, next) }
    }

    pub fn stale() -> Self {
        let refusal = Refusal::new("it has changed since", "look at it again");
        Self { kind: RowRefusalKind::Stale, refusal }
    }
}

impl From<Refusal> for RowRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { kind: RowRefusalKind::Refused, refusal }
    }
}

impl From<RowRefusal> for Refusal {
    fn from(refused: RowRefusal) -> Self {
        refused.refusal
    }
}

impl fmt::Display for RowRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.refusal.fmt(f)
    }
}
