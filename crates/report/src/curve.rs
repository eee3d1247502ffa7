//! Curves: values against a varied setting, as in the papers.
//!
//! Invariants: stations ascend, and every line has one value for each.

use std::{error, fmt};

use serde::{Deserialize, Serialize};

use crate::chart::{Axis, LimitLine};
use crate::measurement::Measurement;

/// Values at a few stations. The vertical axis always includes zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedCurve")]
pub struct CurveChart {
    pub title: String,
    /// The varied setting.
    pub x: String,
    /// Vertical axis.
    pub y: Axis,
    stations: Vec<Station>,
    lines: Vec<CurveLine>,
    /// Horizontal lines at published limits.
    pub limits: Vec<LimitLine>,
    /// Index and label of a marked station.
    pub mark: Option<(usize, String)>,
}

/// One value of the varied setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Station {
    /// Position on the horizontal axis.
    pub at: f64,
    pub label: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveLine {
    pub name: String,
    /// One for each station, in the unit of the vertical axis.
    pub values: Vec<Measurement>,
}

/// Stored lines and stations that violate the invariants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveError {
    /// The station at `index` is not above the one before.
    Order {
        /// From 0.
        index: usize,
    },
    /// The line at `index` lacks a value for each station, or no station has the mark's index.
    Ragged {
        /// From 0.
        index: usize,
    },
}

impl CurveChart {
    /// A chart of `y` over ascending stations `(at, label)`, without lines.
    ///
    /// # Panics
    /// If the stations do not ascend.
    pub fn new(
        title: impl Into<String>,
        x: impl Into<String>,
        y: Axis,
        stations: impl IntoIterator<Item = (f64, String)>,
    ) -> Self {
        let stations: Vec<Station> = stations.into_iter().map(|(at, label)| Station { at, label }).collect();
        assert_eq!(misplaced(&stations), None, "stations ascend");
        Self {
            title: title.into(),
            x: x.into(),
            y,
            stations,
            lines: Vec::new(),
            limits: Vec::new(),
            mark: None,
        }
    }

    /// Appends a line.
    ///
    /// # Panics
    /// If it lacks a value for each station.
    #[must_use]
    pub fn line(mut self, name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        let values: Vec<Measurement> = values.into_iter().map(Measurement::from).collect();
        assert_eq!(values.len(), self.stations.len(), "one value for each station");
        self.lines.push(CurveLine { name: name.into(), values });
        self
    }

    /// Adds a limit at `at` on the vertical axis.
    #[must_use]
    pub fn limit(mut self, label: impl Into<String>, at: impl Into<Measurement>) -> Self {
        self.limits.push(LimitLine { label: label.into(), at: at.into() });
        self
    }

    /// Marks the station at `index`.
    ///
    /// # Panics
    /// If there is no such station.
    #[must_use]
    pub fn mark(mut self, index: usize, label: impl Into<String>) -> Self {
        assert!(index < self.stations.len(), "a station is marked");
        self.mark = Some((index, label.into()));
        self
    }

    /// In ascending order.
    pub fn stations(&self) -> &[Station] {
        &self.stations
    }

    pub fn lines(&self) -> &[CurveLine] {
        &self.lines
    }

    /// All values that are not absent.
    pub(crate) fn values(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| &line.values).filter_map(|value| value.get())
    }

    /// Position of a station between the first and the last, 0 to 1; 0.5 for a single one.
    pub(crate) fn place(&self, index: usize) -> f64 {
        let (Some(first), Some(last)) = (self.stations.first(), self.stations.last()) else { return 0.5 };
        // Halves: the difference of two huge values may not be finite.
        let span = last.at / 2.0 - first.at / 2.0;
        if span > 0.0 { (self.stations[index].at / 2.0 - first.at / 2.0) / span } else { 0.5 }
    }

    /// The limits to draw: one far above all values would flatten them.
    pub(crate) fn limits_within(&self, reach: f64) -> impl Iterator<Item = f64> {
        let highest = self.values().fold(0.0, f64::max);
        let near = move |at: &f64| highest <= 0.0 || *at <= highest * reach;
        self.limits.iter().filter_map(|limit| limit.at.get()).filter(near)
    }
}

/// The first station that is not finite or not above the one before.
fn misplaced(stations: &[Station]) -> Option<usize> {
    let ascends = |index: usize| index == 0 || stations[index - 1].at < stations[index].at;
    (0..stations.len()).find(|&index| !stations[index].at.is_finite() || !ascends(index))
}

#[derive(Deserialize)]
struct UncheckedCurve {
    title: String,
    x: String,
    y: Axis,
    stations: Vec<Station>,
    lines: Vec<CurveLine>,
    limits: Vec<LimitLine>,
    mark: Option<(usize, String)>,
}

impl TryFrom<UncheckedCurve> for CurveChart {
    type Error = CurveError;

    fn try_from(stored: UncheckedCurve) -> Result<Self, CurveError> {
        let UncheckedCurve { title, x, y, stations, lines, limits, mark } = stored;
        if let Some(index) = misplaced(&stations) {
            return Err(CurveError::Order { index });
        }
        if let Some(index) = lines.iter().position(|line| line.values.len() != stations.len()) {
            return Err(CurveError::Ragged { index });
        }
        if mark.as_ref().is_some_and(|(index, _)| *index >= stations.len()) {
            return Err(CurveError::Ragged { index: lines.len() });
        }
        Ok(Self { title, x, y, stations, lines, limits, mark })
    }
}

impl fmt::Display for CurveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { index } => write!(f, "station {index} does not lie beyond the one before"),
            Self::Ragged { index } => write!(f, "line {index} has not one value for each station"),
        }
    }
}

impl error::Error for CurveError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Unit;

    fn curve(at: &[f64]) -> CurveChart {
        let stations = at.iter().map(|at| (*at, at.to_string()));
        CurveChart::new("I/O", "threads", Axis::new("rate", Unit::IoPerSecond), stations)
    }

    #[test]
    fn stations_are_spaced_like_their_values() {
        let places = |at: &[f64]| (0..at.len()).map(|index| curve(at).place(index)).collect::<Vec<_>>();
        assert_eq!(places(&[0.0, 5.0, 20.0]), [0.0, 0.25, 1.0]);
        assert_eq!(places(&[7.0]), [0.5]);
        assert_eq!(places(&[-1e308, 0.0, 1e308]), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn an_invalid_stored_curve_is_rejected() {
        let good = serde_json::to_string(&curve(&[1.0, 5.0]).line("a", [Some(1.0), None]).mark(1, "best"));
        let good = good.expect("JSON");
        let read = |text: &str| serde_json::from_str::<CurveChart>(text).map_err(|error| error.to_string());
        assert!(read(&good).is_ok());
        assert!(read(&good.replace("\"at\":5.0", "\"at\":1.0")).unwrap_err().contains("station 1"));
        assert!(read(&good.replace("[1.0,null]", "[1.0]")).unwrap_err().contains("line 0"));
        assert!(read(&good.replace("[1,\"best\"]", "[2,\"best\"]")).is_err());
    }
}
