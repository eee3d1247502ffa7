//! Why a number was refused: one line each.

use crate::units::SizeError;
use thiserror::Error;

/// Why a number was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FigureError {
    /// No figure has this name.
    #[error("no figure is called {name:?}{}", suggestion(.nearest))]
    Unknown {
        /// What was asked for.
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
        /// Which figure.
        key: String,
        /// What was given.
        text: String,
        /// What it should have been.
        example: String,
    },
    /// It is no size.
    #[error("{key}: {source}")]
    Size {
        /// Which figure.
        key: String,
        /// What is wrong with it.
        source: SizeError,
    },
    /// A bare number below 1 where percent are meant.
    #[error("{key}: {bare} may mean {bare}% or {share}%; write \"{bare}%\" or \"{share}%\"")]
    BareFraction {
        /// Which figure.
        key: String,
        /// What was given.
        bare: String,
        /// The same as a part of one, in percent.
        share: String,
    },
    /// It is one that makes no sense.
    #[error("{key}: {shown} is out of range, {range} make sense")]
    OutOfRange {
        /// Which figure.
        key: String,
        /// What was given.
        shown: String,
        /// What is accepted.
        range: String,
    },
    /// It is a part of what comes whole.
    #[error("{key}: {shown} is not a whole number, and it counts what comes whole")]
    NotWhole {
        /// Which figure.
        key: String,
        /// What was given.
        shown: String,
    },
    /// Nobody says so.
    #[error("{key}: it has no source; say where the value is from")]
    NoSource {
        /// Which figure.
        key: String,
    },
    /// A curve that has no value somewhere.
    #[error("{key}: {problem}")]
    Curve {
        /// Which curve.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// How an error says what may have been meant.
pub(crate) fn suggestion(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}
