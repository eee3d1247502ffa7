//! Notices of a keeper to people.

use std::collections::BTreeMap;

/// A problem that lasts until it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetProblem {
    /// Rounds fail.
    Failing,
    /// A pool does not answer, and something depends on it.
    Waiting,
    /// Points that this catalogue does not have, and does not take: backups that lack points, or of another catalogue.
    Strays,
    /// Points that were to be removed are left.
    Left,
    /// A pool is full, and no backup may go.
    Full,
    /// Nothing was verified for a day, though a backup waits for it.
    Unverified,
    /// No drill was good for a long time.
    Undrilled,
    /// A backup waits for its copy in the vault for a day.
    Uncopied,
    /// A backup is proven, and logs that it has cannot go.
    Unreleased,
}

/// A line for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetNotice {
    /// Something that went well, or as the rules want it.
    Note(String),
    /// Something that is lost, or was not made.
    Warning(String),
    Began(SetProblem, String),
    Ended(SetProblem),
}

impl SetProblem {
    pub const ALL: [Self; 9] = [
        Self::Failing,
        Self::Waiting,
        Self::Strays,
        Self::Left,
        Self::Full,
        Self::Unverified,
        Self::Undrilled,
        Self::Uncopied,
        Self::Unreleased,
    ];

    /// A word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Waiting => "waiting",
            Self::Strays => "strays",
            Self::Left => "left",
            Self::Full => "full",
            Self::Unverified => "unverified",
            Self::Undrilled => "undrilled",
            Self::Uncopied => "uncopied",
            Self::Unreleased => "unreleased",
        }
    }

    /// The state after its end, for people.
    pub fn ended(self) -> &'static str {
        match self {
            Self::Failing => "backups are made again",
            Self::Waiting => "the pools answer again",
            Self::Strays => "no point is left that this catalogue does not have",
            Self::Left => "what was left is removed",
            Self::Full => "there is room again, or backups may go",
            Self::Unverified => "backups are verified again, or none waits for it",
            Self::Undrilled => "a drill was good",
            Self::Uncopied => "backups are copied to the vault again",
            Self::Unreleased => "logs go again once a proven backup has them",
        }
    }
}

/// The problems that last, and lines that were not said yet.
#[derive(Default)]
pub(super) struct SaidProblems {
    lasting: BTreeMap<SetProblem, String>,
    pub news: Vec<SetNotice>,
}

impl SaidProblems {
    pub fn note(&mut self, text: impl Into<String>) {
        self.news.push(SetNotice::Note(text.into()));
    }

    pub fn warn(&mut self, text: impl Into<String>) {
        self.news.push(SetNotice::Warning(text.into()));
    }

    /// The problem as it is now; `None` if it is over. It is said if it has become another.
    pub fn set(&mut self, problem: SetProblem, text: Option<String>) {
        let before = self.lasting.get(&problem);
        match text {
            Some(text) if before != Some(&text) => {
                self.lasting.insert(problem, text.clone());
                self.news.push(SetNotice::Began(problem, text));
            }
            None if before.is_some() => {
                self.lasting.remove(&problem);
                self.news.push(SetNotice::Ended(problem));
            }
            _ => {}
        }
    }

    pub fn lasting(&self) -> &BTreeMap<SetProblem, String> {
        &self.lasting
    }
}
