//! The pieces a section is made of.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Mark};
use crate::chart::{Distribution, LineChart};
use crate::curve::Curve;
use crate::reading::Reading;
use crate::table::Table;
use crate::unit::Unit;

/// One piece of a section. In JSON `kind` says which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    /// Running text.
    Paragraph(Paragraph),
    /// Named values.
    KeyValues(KeyValues),
    /// Rows under columns.
    Table(Table),
    /// What was judged, against what.
    Limits(LimitTable),
    /// Values over time.
    LineChart(LineChart),
    /// Values against what was varied.
    Curve(Curve),
    /// Values by size.
    Distribution(Distribution),
    /// Lines with their times.
    Log(Log),
}

/// Running text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paragraph {
    /// Plain text, one paragraph.
    pub text: String,
}

/// Named values, in the order they are to be read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyValues {
    /// The rows.
    pub rows: Vec<KeyValue>,
}

/// One named value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyValue {
    /// What it is.
    pub key: String,
    /// The value.
    pub value: Cell,
    /// A remark, such as what it is compared with; may be empty.
    pub note: String,
}

/// Every limit a run was held to, with what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitTable {
    /// One limit each.
    pub checks: Vec<LimitCheck>,
}

/// One measured value held against one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitCheck {
    /// What was measured: "Database reads, average".
    pub what: String,
    /// The value found, in `unit`.
    pub measured: Reading,
    /// On which side of the limit it must lie.
    pub relation: Relation,
    /// The limit, in `unit`; absent if the value is only reported.
    pub limit: Reading,
    /// The unit of both.
    pub unit: Unit,
    /// Digits after the point for both.
    pub decimals: u8,
    /// The judgement; absent if it was not judged.
    pub passed: Option<bool>,
    /// Where the limit is published.
    pub source: String,
}

/// On which side of its limit a value must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The value may not exceed the limit.
    AtMost,
    /// The value must reach the limit.
    AtLeast,
}

/// Lines with their times, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// The lines.
    pub lines: Vec<LogLine>,
}

/// One line of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When, as it is to be shown: the building room owns the clock and its format.
    pub time: String,
    /// What happened.
    pub text: String,
}

impl KeyValues {
    /// The same rows and one more.
    #[must_use]
    pub fn row(mut self, key: impl Into<String>, value: impl Into<Cell>) -> Self {
        self.rows.push(KeyValue { key: key.into(), value: value.into(), note: String::new() });
        self
    }

    /// The same rows and one more with a remark.
    #[must_use]
    pub fn row_with_note(
        mut self,
        key: impl Into<String>,
        value: impl Into<Cell>,
        note: impl Into<String>,
    ) -> Self {
        self.rows.push(KeyValue { key: key.into(), value: value.into(), note: note.into() });
        self
    }
}

impl LimitCheck {
    /// The judgement as a mark.
    pub fn mark(&self) -> Mark {
        match self.passed {
            Some(true) => Mark::Pass,
            Some(false) => Mark::Fail,
            None => Mark::NotJudged,
        }
    }

    /// The measured value as a share of the limit, 1 being all of it: a ceiling is broken above 1, a
    /// floor below. None without a measured value or with nothing to divide by.
    pub(crate) fn share(&self) -> Option<f64> {
        let share = self.measured.get()? / self.limit.get()?;
        (share.is_finite() && share >= 0.0).then_some(share)
    }

    /// The limit with the side it bounds: `≤ 20 ms`; empty if there is none.
    pub(crate) fn limit_shown(&self) -> String {
        if self.limit == Reading::NONE {
            return String::new();
        }
        let sign = match self.relation {
            Relation::AtMost => '≤',
            Relation::AtLeast => '≥',
        };
        format!(
            "{sign}\u{a0}{}",
            Cell::number(self.limit, self.unit.clone(), self.decimals).shown(&Unit::One)
        )
    }

    /// The measured value with its unit.
    pub(crate) fn measured_shown(&self) -> String {
        Cell::number(self.measured, self.unit.clone(), self.decimals).shown(&Unit::One)
    }
}

impl Log {
    /// Adds a line that happened after the others.
    pub fn push(&mut self, time: impl Into<String>, text: impl Into<String>) {
        self.lines.push(LogLine { time: time.into(), text: text.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(measured: f64, relation: Relation, limit: f64) -> LimitCheck {
        LimitCheck {
            what: "x".to_owned(),
            measured: measured.into(),
            relation,
            limit: limit.into(),
            unit: Unit::Milliseconds,
            decimals: 1,
            passed: None,
            source: String::new(),
        }
    }

    #[test]
    fn the_share_of_a_limit_is_what_was_measured_of_it_on_either_side() {
        assert_eq!(check(30.0, Relation::AtMost, 20.0).share(), Some(1.5));
        assert_eq!(check(15.0, Relation::AtLeast, 30.0).share(), Some(0.5));
        assert_eq!(check(0.0, Relation::AtMost, 0.0).share(), None);
        assert_eq!(check(f64::NAN, Relation::AtMost, 20.0).share(), None);
    }

    #[test]
    fn a_limit_shows_its_side() {
        assert_eq!(check(1.0, Relation::AtMost, 20.0).limit_shown(), "≤\u{a0}20.0\u{a0}ms");
        assert_eq!(check(1.0, Relation::AtLeast, f64::NAN).limit_shown(), "");
    }
}
