//! Numbers that planning rests on: each with its unit, its source, and how far it can be trusted.
//!
//! Invariants:
//!
//! 1. A figure lies within the range that makes sense for it, whoever gave it.
//! 2. No figure is without a source.
//! 3. The points of a curve ascend; only the last may have no end.

mod confidence;
mod curve;
mod error;

pub use confidence::Confidence;
pub use curve::{Curve, CurveKind, Point};
pub use error::FigureError;
pub(crate) use error::suggestion;

use crate::units::{parse_size, shown};
use serde::{Deserialize, Serialize};

/// Source of what the administrator of this plan says.
pub const GIVEN: &str = "given";

/// One number under one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Its name in rule files and in `--set name=value`.
    pub key: String,
    /// Meaning in one line.
    pub meaning: String,
    /// Its unit as written behind the number; `%` counts hundredths, none is a bare count.
    pub unit: String,
    /// Smallest value that makes sense.
    pub least: f64,
    /// Largest value that makes sense.
    pub most: f64,
    /// The number, in `unit`.
    pub value: f64,
    pub source: String,
    pub confidence: Confidence,
    /// True if only whole numbers make sense.
    #[serde(default, skip_serializing)]
    pub whole: bool,
}

impl Figure {
    /// As formulas take it: 20 % are 0.2.
    pub fn in_formulas(&self) -> f64 {
        factor(&self.unit) * self.value
    }

    /// With its unit: `20 %`, `100 GB`.
    pub fn shown(&self) -> String {
        with_unit(self.value, &self.unit)
    }

    /// The number that a file has for it, in `unit`.
    pub(crate) fn read(&self, written: &NumberText) -> Result<f64, FigureError> {
        let number = match written {
            NumberText::Text(text) => return parse_number(&self.key, text, &self.unit),
            NumberText::Whole(number) => *number as f64,
            NumberText::Broken(number) => *number,
        };
        if self.unit == "%" {
            refuse_bare_fraction(&self.key, number)?;
        }
        Ok(number)
    }

    /// Takes `value` if it makes sense.
    pub fn change(&mut self, value: f64, source: &str, confidence: Confidence) -> Result<(), FigureError> {
        if source.trim().is_empty() {
            return Err(FigureError::NoSource { key: self.key.clone() });
        }
        if !(self.least..=self.most).contains(&value) || is_speck(value) {
            return Err(FigureError::OutOfRange {
                key: self.key.clone(),
                shown: with_unit(value, &self.unit),
                range: format!(
                    "{} to {}",
                    with_unit(self.least, &self.unit),
                    with_unit(self.most, &self.unit)
                ),
            });
        }
        if self.whole && value.fract() != 0.0 {
            return Err(FigureError::NotWhole { key: self.key.clone(), shown: shown(value) });
        }
        self.value = value;
        self.source = source.to_owned();
        self.confidence = confidence;
        Ok(())
    }
}

/// True if `value` is so small that a quotient by it overflows. Zero is not.
pub(crate) fn is_speck(value: f64) -> bool {
    value != 0.0 && value.abs() < 1e-9
}

/// Factor from `unit` to the unit of formulas.
pub fn factor(unit: &str) -> f64 {
    if unit == "%" { 0.01 } else { 1.0 }
}

/// `value` and its unit.
pub fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" => shown(value),
        unit => format!("{} {unit}", shown(value)),
    }
}

/// A number in a file: bare, or a text of one with its unit.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a number, or a text of one with its unit, is expected here")]
pub(crate) enum NumberText {
    Whole(i64),
    Broken(f64),
    Text(String),
}

impl NumberText {
    /// As it was written.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Whole(number) => number.to_string(),
            Self::Broken(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Refuses a bare `number` of percent between 0 and 1: 0.8 may be 0.8 % or 80 %.
pub(crate) fn refuse_bare_fraction(key: &str, number: f64) -> Result<(), FigureError> {
    let may_be_a_share = 0.0 < number && number < 1.0 && !is_speck(number);
    if !may_be_a_share {
        return Ok(());
    }
    // In doubles 0.07 * 100 is 7.000000000000001.
    let share = (number * 1e11).round() / 1e9;
    Err(FigureError::BareFraction { key: key.to_owned(), bare: number.to_string(), share: share.to_string() })
}

/// Reads `text` as a number of `unit`. Sizes must say their unit, and so must less than 1 %; others may.
pub fn parse_number(key: &str, text: &str, unit: &str) -> Result<f64, FigureError> {
    let text = text.trim();
    let size = match unit {
        "KB" => Some(1024.0),
        "MB" => Some(1.0),
        "GB" => Some(1.0 / 1024.0),
        _ => None,
    };
    if let Some(per_mib) = size {
        let read = parse_size(text);
        return read
            .map(|size| size.get() * per_mib)
            .map_err(|source| FigureError::Size { key: key.to_owned(), source });
    }
    let digits = text.strip_suffix(unit).unwrap_or(text).trim_end();
    let plain = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    let number = digits.parse().ok().filter(|number: &f64| plain && number.is_finite());
    let number = number.ok_or_else(|| FigureError::NotANumber {
        key: key.to_owned(),
        text: text.to_owned(),
        example: match unit {
            "" => "a number such as 12".to_owned(),
            unit => format!("a number of {unit}, such as 12{unit}"),
        },
    })?;
    if unit == "%" && digits.len() == text.len() {
        refuse_bare_fraction(key, number)?;
    }
    Ok(number)
}

/// The one of `candidates` that a misspelt `name` probably meant.
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, unit: &str, expected: Result<f64, &str>) {
        let read = parse_number("it", text, unit).map_err(|error| error.to_string());
        assert_eq!(read, expected.map_err(str::to_owned), "{text} as {unit:?}");
    }

    #[test]
    fn numbers_may_carry_their_unit_and_sizes_must() {
        check("20", "%", Ok(20.0));
        check("20%", "%", Ok(20.0));
        check("12.5 %", "%", Ok(12.5));
        check("0.8%", "%", Ok(0.8));
        check("0", "%", Ok(0.0));
        check("1", "%", Ok(1.0));
        let either = |bare: &str, share: &str| {
            format!("it: {bare} may mean {bare}% or {share}%; write \"{bare}%\" or \"{share}%\"")
        };
        for (bare, share) in [("0.8", "80"), ("0.07", "7"), ("0.999", "99.9")] {
            check(bare, "%", Err(&either(bare, share)));
        }
        check("4", "", Ok(4.0));
        check("1TB", "GB", Ok(1024.0));
        check("8KB", "KB", Ok(8.0));
        check("100", "GB", Err("it: \"100\" has no unit; write KB, MB, GB or TB behind it, such as 2GB"));
        check("-4", "", Err("it: \"-4\" is not a number such as 12"));
        check("1e9", "%", Err("it: \"1e9\" is not a number of %, such as 12%"));
        check("NaN", "h", Err("it: \"NaN\" is not a number of h, such as 12h"));
    }

    #[test]
    fn a_figure_out_of_range_is_refused_and_stays() {
        let mut figure = Figure {
            key: "headroom".to_owned(),
            meaning: String::new(),
            unit: "%".to_owned(),
            least: 0.0,
            most: 1000.0,
            value: 20.0,
            source: "somewhere".to_owned(),
            confidence: Confidence::Seed,
            whole: true,
        };
        let refused = figure.change(2000.0, GIVEN, Confidence::Given).unwrap_err();
        assert_eq!(refused.to_string(), "headroom: 2,000 % is out of range, 0 % to 1,000 % make sense");
        let mut said = |value: f64, source: &str| {
            figure.change(value, source, Confidence::Given).unwrap_err().to_string()
        };
        assert_eq!(said(2.5, GIVEN), "headroom: 2.5 is not a whole number, and it counts what comes whole");
        assert_eq!(said(2.0, " "), "headroom: it has no source; say where the value is from");
        assert_eq!(said(1e-310, GIVEN), "headroom: <0.00001 % is out of range, 0 % to 1,000 % make sense");
        assert_eq!((figure.in_formulas(), figure.confidence), (0.2, Confidence::Seed));
    }
}
