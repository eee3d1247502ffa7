//! Units, and their scaling on axes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Unit of a number. In JSON it is its symbol: `"ms"`, `"%"`, `"IOPS"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Unit {
    /// A bare count.
    #[default]
    One,
    /// 0 to 100.
    Percent,
    Seconds,
    Milliseconds,
    Microseconds,
    /// Axes scale them by 1024.
    Bytes,
    /// Axes scale them by 1024.
    BytesPerSecond,
    /// Events a second.
    PerSecond,
    /// IOPS.
    IoPerSecond,
    /// Another unit, by its symbol.
    Named(String),
}

/// Units with a variant of their own.
const KNOWN: [Unit; 9] = [
    Unit::One,
    Unit::Percent,
    Unit::Seconds,
    Unit::Milliseconds,
    Unit::Microseconds,
    Unit::Bytes,
    Unit::BytesPerSecond,
    Unit::PerSecond,
    Unit::IoPerSecond,
];

impl Unit {
    /// The symbol after a number; empty for a bare count.
    pub fn symbol(&self) -> &str {
        match self {
            Self::One => "",
            Self::Percent => "%",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::Microseconds => "µs",
            Self::Bytes => "B",
            Self::BytesPerSecond => "B/s",
            Self::PerSecond => "/s",
            Self::IoPerSecond => "IOPS",
            Self::Named(symbol) => symbol,
        }
    }

    /// The best scale for numbers up to `magnitude` (in this unit, not negative).
    pub(crate) fn scale_for(&self, magnitude: f64) -> Scale {
        match self {
            Self::Seconds => time_scale(1.0, magnitude),
            Self::Milliseconds => time_scale(1e-3, magnitude),
            Self::Microseconds => time_scale(1e-6, magnitude),
            Self::Bytes => pick(&BINARY, magnitude, ""),
            Self::BytesPerSecond => pick(&BINARY, magnitude, "/s"),
            Self::Percent => Scale { factor: 1.0, symbol: "%".to_owned() },
            // Nobody counts in thousandths: 0.4 IOPS is not 400 m IOPS.
            Self::One | Self::PerSecond | Self::IoPerSecond => {
                pick(&DECIMAL, magnitude.max(1.0), &format!(" {}", self.symbol()))
            }
            Self::Named(_) => pick(&DECIMAL, magnitude, &format!(" {}", self.symbol())),
        }
    }
}

impl From<String> for Unit {
    fn from(symbol: String) -> Self {
        // As reports of earlier versions have it.
        let symbol = if symbol == "I/O/s" { "IOPS".to_owned() } else { symbol };
        KNOWN.into_iter().find(|unit| unit.symbol() == symbol).unwrap_or(Self::Named(symbol))
    }
}

impl From<&str> for Unit {
    fn from(symbol: &str) -> Self {
        symbol.to_owned().into()
    }
}

impl From<Unit> for String {
    fn from(unit: Unit) -> Self {
        unit.symbol().to_owned()
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// Scaling of an axis: numbers are divided by `factor` and have the unit `symbol`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scale {
    pub factor: f64,
    pub symbol: String,
}

const BINARY: [(f64, &str); 6] = [
    (1.0, "B"),
    (1024.0, "KiB"),
    (1048576.0, "MiB"),
    (1073741824.0, "GiB"),
    (1099511627776.0, "TiB"),
    (1125899906842624.0, "PiB"),
];

const DECIMAL: [(f64, &str); 8] =
    [(1e-9, "n"), (1e-6, "µ"), (1e-3, "m"), (1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")];

const TIME: [(f64, &str); 4] = [(1e-9, "ns"), (1e-6, "µs"), (1e-3, "ms"), (1.0, "s")];

/// The largest step not above the magnitude; the unscaled one for zero.
fn pick(steps: &[(f64, &str)], magnitude: f64, suffix: &str) -> Scale {
    let fitting = steps.iter().rev().find(|(factor, _)| *factor <= magnitude);
    let (factor, prefix) = match fitting {
        Some(step) => *step,
        None if magnitude == 0.0 => (1.0, steps.iter().find(|(f, _)| *f == 1.0).map_or("", |(_, p)| *p)),
        None => steps[0],
    };
    Scale { factor, symbol: format!("{prefix}{suffix}").trim().to_owned() }
}

/// `seconds_each` is one unit in seconds.
fn time_scale(seconds_each: f64, magnitude: f64) -> Scale {
    let scale = if magnitude == 0.0 {
        pick(&TIME, seconds_each, "")
    } else {
        pick(&TIME, magnitude * seconds_each, "")
    };
    Scale { factor: scale.factor / seconds_each, symbol: scale.symbol }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(unit: Unit, magnitude: f64, factor: f64, symbol: &str) {
        let scale = unit.scale_for(magnitude);
        assert!((scale.factor / factor - 1.0).abs() < 1e-12, "{unit:?} at {magnitude}: {scale:?}");
        assert_eq!(scale.symbol, symbol, "{unit:?} at {magnitude}");
    }

    #[test]
    fn an_axis_takes_the_prefix_that_reads_best() {
        check(Unit::Milliseconds, 31.0, 1.0, "ms");
        check(Unit::Milliseconds, 0.31, 1e-3, "µs");
        check(Unit::Milliseconds, 31_000.0, 1e3, "s");
        check(Unit::Milliseconds, 0.0, 1.0, "ms");
        check(Unit::Bytes, 3.5 * 1073741824.0, 1073741824.0, "GiB");
        check(Unit::BytesPerSecond, 0.0, 1.0, "B/s");
        check(Unit::IoPerSecond, 331.0, 1.0, "IOPS");
        check(Unit::IoPerSecond, 25_000.0, 1e3, "k IOPS");
        check(Unit::IoPerSecond, 0.4, 1.0, "IOPS");
        check(Unit::One, 2e15, 1e12, "T");
        check(Unit::Percent, 4e9, 1.0, "%");
    }

    #[test]
    fn a_unit_is_its_symbol_and_back() {
        for unit in KNOWN {
            assert_eq!(Unit::from(unit.symbol()), unit);
        }
        assert_eq!(Unit::from("pages"), Unit::Named("pages".to_owned()));
    }
}
