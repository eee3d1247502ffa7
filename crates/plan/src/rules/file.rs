//! Rule sets as files.

use crate::figure::{Confidence, Curve, CurveKind, Figure, FigureError, NumberText, Point};
use serde::{Deserialize, Deserializer};
use thiserror::Error;

/// The file that declares every figure.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Common {
    pub figure: Vec<Figure>,
    pub curve: Vec<CurveChange>,
}

/// A file that changes figures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleFile {
    pub name: String,
    pub title: String,
    pub based_on: Option<String>,
    #[serde(default)]
    pub figure: Vec<FigureChange>,
    #[serde(default)]
    pub curve: Vec<CurveChange>,
}

/// A figure with another value.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureChange {
    pub key: String,
    pub value: NumberText,
    pub source: String,
    pub confidence: Confidence,
}

/// A curve, or one with other points.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CurveChange {
    pub key: String,
    meaning: Option<String>,
    by: String,
    #[serde(deserialize_with = "current_unit")]
    unit: String,
    kind: CurveKind,
    points: Vec<Point>,
    source: String,
    confidence: Confidence,
}

impl CurveChange {
    /// The curve it makes of the one there was; none if it is new and does not say what it means.
    pub fn over(&self, before: Option<&Curve>) -> Option<Curve> {
        let meaning = self.meaning.clone().or_else(|| before.map(|curve| curve.meaning.clone()))?;
        Some(Curve {
            key: self.key.clone(),
            meaning,
            by: self.by.clone(),
            unit: self.unit.clone(),
            kind: self.kind,
            points: self.points.clone(),
            source: self.source.clone(),
            confidence: self.confidence,
        })
    }
}

/// Reads a unit. Rule files written before IOPS was called so say "I/O/s".
fn current_unit<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    let unit = String::deserialize(reader)?;
    Ok(if unit == "I/O/s" { "IOPS".to_owned() } else { unit })
}

/// Why there are no such rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RulesError {
    /// No rule set has this name.
    #[error("no rule set is called {name:?}{}", crate::figure::suggestion(.nearest))]
    Unknown {
        name: String,
        /// The name it may have meant.
        nearest: Option<String>,
    },
    /// The file is not one.
    #[error("{0}")]
    Parse(String),
    /// One of its figures makes no sense.
    #[error(transparent)]
    Figure(#[from] FigureError),
}

impl RulesError {
    /// The parser's message in one line.
    pub(super) fn parse(text: &str, error: &toml::de::Error) -> Self {
        Self::Parse(crate::toml_text::problem(text, error))
    }
}
