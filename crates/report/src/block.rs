//! The blocks of a section.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Mark};
use crate::chart::{Distribution, LineChart};
use crate::curve::CurveChart;
use crate::measurement::Measurement;
use crate::table::Table;
use crate::unit::Unit;

/// One block of a section. In JSON, `kind` names the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Block {
    Paragraph(Paragraph),
    KeyValues(KeyValues),
    Table(Table),
    /// Measured values with their limits.
    Limits(LimitTable),
    /// Values over time.
    LineChart(LineChart),
    /// Values against a varied setting.
    Curve(CurveChart),
    /// Distribution of values.
    Distribution(Distribution),
    /// Lines with their times.
    Log(LogBlock),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paragraph {
    /// Plain text.
    pub text: String,
}

/// Named values, in reading order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeyValues {
    pub rows: Vec<KeyValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyValue {
    pub key: String,
    pub value: Cell,
    /// A remark, such as a reference value; may be empty.
    pub note: String,
}

/// The limits of a run with the measured values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LimitTable {
    pub checks: Vec<LimitCheck>,
}

/// One measured value with its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitCheck {
    /// Name of the value: "Database reads, average".
    pub what: String,
    /// In `unit`.
    pub measured: Measurement,
    pub relation: Relation,
    /// In `unit`; absent if the value is only reported.
    pub limit: Measurement,
    /// Unit of value and limit.
    pub unit: Unit,
    /// Digits after the point.
    pub decimals: u8,
    /// None if not judged.
    pub passed: Option<bool>,
    /// Citation of the limit.
    pub source: String,
}

/// Direction of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// The value may not exceed the limit.
    AtMost,
    /// The value must reach the limit.
    AtLeast,
}

/// Oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogBlock {
    pub lines: Vec<LogLine>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Formatted time: the crate that builds the report owns the clock.
    pub time: String,
    pub text: String,
}

impl KeyValues {
    /// Appends a row.
    #[must_use]
    pub fn row(mut self, key: impl Into<String>, value: impl Into<Cell>) -> Self {
        self.rows.push(KeyValue { key: key.into(), value: value.into(), note: String::new() });
        self
    }

    /// Appends a row with a remark.
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
    pub fn mark(&self) -> Mark {
        match self.passed {
            Some(true) => Mark::Pass,
            Some(false) => Mark::Fail,
            None => Mark::NotJudged,
        }
    }

    /// Measured value / limit: a maximum is broken above 1, a minimum below 1. None if either is absent or
    /// the ratio is not finite.
    pub(crate) fn share(&self) -> Option<f64> {
        let share = self.measured.get()? / self.limit.get()?;
        (share.is_finite() && share >= 0.0).then_some(share)
    }

    /// The limit with its direction: `≤ 20 ms`; empty if there is none.
    pub(crate) fn limit_shown(&self) -> String {
        if self.limit == Measurement::NONE {
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

    pub(crate) fn measured_shown(&self) -> String {
        Cell::number(self.measured, self.unit.clone(), self.decimals).shown(&Unit::One)
    }
}

impl LogBlock {
    /// Appends a line.
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
