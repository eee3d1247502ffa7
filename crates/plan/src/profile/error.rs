//! Why a profile was refused: one line each.

use crate::{
    demand::Mode,
    figure::{FigureError, suggestion},
};
use thiserror::Error;

/// Why a profile was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ProfileError {
    /// It is no profile file.
    #[error("{0}")]
    Parse(String),
    /// It has no users.
    #[error("there are no users to plan for; say how many, such as --users 5000")]
    NoUsers,
    /// It has more than there are people.
    #[error("more than {0} users make no sense")]
    TooManyUsers(u64),
    /// It has more tiers than a table shows.
    #[error("{tiers} tiers of users; at most {most} make sense")]
    TooManyTiers { tiers: usize, most: usize },
    /// Two tiers have one name.
    #[error("two tiers are called {0:?}; give each a name of its own")]
    SameName(String),
    /// A name that a table cannot show.
    #[error("a tier is called {0:?}; give it a name of letters, digits and the like")]
    BadName(String),
    /// A database without even itself.
    #[error("0 copies keep nothing; 1 is a database without a further copy")]
    NoCopy,
    /// More copies than any server keeps.
    #[error("{copies} copies make no sense; {most} are the most that any mail server keeps")]
    TooManyCopies { copies: u32, most: u32 },
    /// Mode and copies contradict each other.
    #[error("mode {} with {copies} {}; {}", .mode.word(), if *.copies == 1 { "copy" } else { "copies" }, remedy(*.mode))]
    ModeAgainstCopies {
        /// The mode asked for.
        mode: Mode,
        /// The copies asked for.
        copies: u32,
    },
    /// Something by a name that is none.
    #[error("no {what} is called {name:?}{}", or_known(.nearest, .known))]
    Unknown {
        what: &'static str,
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
        /// The name it may have meant.
        nearest: Option<String>,
    },
    /// A figure was refused, or a value as figures are.
    #[error(transparent)]
    Figure(#[from] FigureError),
}

fn remedy(mode: Mode) -> &'static str {
    match mode {
        Mode::Copies => "at least 2 copies are needed for it",
        Mode::StandAlone | Mode::BackupWindow => "more copies are mode copies",
    }
}

/// The name probably meant, or all known names.
fn or_known(nearest: &Option<String>, known: &str) -> String {
    match nearest {
        Some(_) => suggestion(nearest),
        None => format!("; there are {known}"),
    }
}
