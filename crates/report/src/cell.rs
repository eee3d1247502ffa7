//! Table cells: typed values with their text form.

use serde::{Deserialize, Serialize};

use crate::measurement::Measurement;
use crate::quantity::{self, ABSENT};
use crate::unit::Unit;

/// One value of a table, key–value row or limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Cell {
    /// No value belongs here (unlike a number that was not measured).
    Empty,
    Text {
        /// Plain text; every renderer escapes it.
        text: String,
    },
    /// A number with a fixed number of decimals, so that columns align.
    Number {
        /// In `unit`.
        value: Measurement,
        /// Not repeated if the column names it already.
        unit: Unit,
        /// Digits after the point.
        decimals: u8,
    },
    /// A time span, shown in the unit that reads best.
    Duration {
        seconds: Measurement,
    },
    /// A size, shown scaled by 1024.
    Bytes {
        bytes: u64,
    },
    Mark {
        mark: Mark,
    },
}

/// Judgement of one line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Within the limit.
    Pass,
    /// Beyond the limit.
    Fail,
    /// Notable, without effect on the verdict.
    Warning,
    /// Reported without being judged.
    NotJudged,
}

impl Mark {
    /// The word shown for the mark.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Warning => "warning",
            Self::NotJudged => "not judged",
        }
    }
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// A number with `decimals` digits after the point; `–` if it is not finite.
    pub fn number(value: impl Into<Measurement>, unit: impl Into<Unit>, decimals: u8) -> Self {
        Self::Number { value: value.into(), unit: unit.into(), decimals }
    }

    pub fn count(count: u64) -> Self {
        Self::number(count as f64, Unit::One, 0)
    }

    /// A time span.
    pub fn seconds(seconds: impl Into<Measurement>) -> Self {
        Self::Duration { seconds: seconds.into() }
    }

    /// A size.
    pub fn bytes(bytes: u64) -> Self {
        Self::Bytes { bytes }
    }

    pub fn mark(mark: Mark) -> Self {
        Self::Mark { mark }
    }

    /// Text form; the unit is left out if it equals `column_unit`.
    /// The cell in words, with its unit.
    pub fn words(&self) -> String {
        self.shown(&Unit::One)
    }

    pub(crate) fn shown(&self, column_unit: &Unit) -> String {
        match self {
            Self::Empty => String::new(),
            Self::Text { text } => text.clone(),
            Self::Number { value, unit, decimals } => match value.get() {
                None => ABSENT.to_owned(),
                Some(value) => {
                    let digits = quantity::number(value, *decimals);
                    match unit {
                        Unit::One => digits,
                        unit if unit == column_unit => digits,
                        Unit::Percent => format!("{digits}\u{a0}%"),
                        unit => format!("{digits}\u{a0}{unit}"),
                    }
                }
            },
            Self::Duration { seconds } => seconds.get().map_or(ABSENT.to_owned(), quantity::span),
            Self::Bytes { bytes } => quantity::bytes(*bytes),
            Self::Mark { mark } => mark.word().to_owned(),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<Mark> for Cell {
    fn from(mark: Mark) -> Self {
        Self::mark(mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_said_once_by_the_column_or_by_the_cell() {
        let cell = Cell::number(14.2, Unit::Milliseconds, 1);
        assert_eq!(cell.shown(&Unit::Milliseconds), "14.2");
        assert_eq!(cell.shown(&Unit::One), "14.2\u{a0}ms");
        assert_eq!(cell.shown(&Unit::Seconds), "14.2\u{a0}ms");
    }

    #[test]
    fn an_unmeasured_number_is_a_dash() {
        assert_eq!(Cell::number(f64::NAN, Unit::Milliseconds, 1).shown(&Unit::One), "–");
        assert_eq!(Cell::seconds(f64::INFINITY).shown(&Unit::One), "–");
        assert_eq!(Cell::Empty.shown(&Unit::One), "");
    }
}
