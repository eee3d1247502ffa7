//! Why a number was refused: one line each.

use crate::units::SizeError;
use thiserror::Error;

/// Why a number was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FigureError {
    /// No figure has this name.
    #[error("no figure is called {name:?}{}", suggestion(.nearest))]
    Unknown {
        name: String,
        /// The name it may have meant.
        nearest: Option<String>,
    },
    /// It is no assignment.
    #[error("{0:?} sets nothing; write a name and a value, such as database_overhead=15%")]
    NoAssignment(String),
    /// It is no number.
    #[error("{key}: {text:?} is not {example}")]
    NotANumber {
        key: String,
        /// As it was written.
        text: String,
        example: String,
    },
    /// It is no size.
    #[error("{key}: {source}")]
    Size { key: String, source: SizeError },
    /// A bare number below 1 where percent are meant.
    #[error("{key}: {bare} may mean {bare}% or {share}%; write \"{bare}%\" or \"{share}%\"")]
    BareFraction {
        key: String,
        /// As it was written.
        bare: String,
        /// The same as a part of one, in percent.
        share: String,
    },
    /// It is one that makes no sense.
    #[error("{key}: {shown} is out of range, {range} make sense")]
    OutOfRange {
        key: String,
        /// As it was written.
        shown: String,
        range: String,
    },
    /// It is a part of what comes whole.
    #[error("{key}: {shown} is not a whole number, and it counts what comes whole")]
    NotWhole {
        key: String,
        /// As it was written.
        shown: String,
    },
    /// Nobody says so.
    #[error("{key}: it has no source; say where the value is from")]
    NoSource { key: String },
    /// A curve that has no value somewhere.
    #[error("{key}: {problem}")]
    Curve { key: String, problem: &'static str },
}

/// The end of an error message that suggests a name.
pub(crate) fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}
