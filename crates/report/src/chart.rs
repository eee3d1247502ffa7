//! Chart data: time series and distributions.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::measurement::Measurement;
use crate::unit::Unit;

/// One axis of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// A few words: "latency", "operations".
    pub label: String,
    /// Unit of the values; the drawn axis scales it (ms to µs, B to GiB) as needed.
    pub unit: Unit,
}

/// Values over time, or against another quantity. The vertical axis always includes zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineChart {
    pub title: String,
    /// Vertical axis.
    pub y: Axis,
    /// Horizontal axis; None means time in seconds since the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<Axis>,
    pub series: Vec<TimeSeries>,
    /// Horizontal lines at published limits.
    pub limits: Vec<LimitLine>,
    /// Marked moments.
    pub events: Vec<ChartEvent>,
}

/// One line of a chart. Invariant: points ascend in time, and every time is finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "UncheckedTimeSeries")]
pub struct TimeSeries {
    name: String,
    points: Vec<TimePoint>,
}

/// One sample: `[seconds since the start, value]` in JSON. An absent value breaks the line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, Measurement)", into = "(f64, Measurement)")]
pub struct TimePoint {
    /// Since the start of the run.
    pub time_s: f64,
    /// In the unit of the vertical axis.
    pub value: Measurement,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitLine {
    /// Name without value: "average limit".
    pub label: String,
    /// In the unit of the axis; an absent limit is not drawn.
    pub at: Measurement,
}

/// A moment marked on the time axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartEvent {
    pub label: String,
    /// Since the start of the run; an event without a time is not drawn.
    pub time_s: Measurement,
}

/// A distribution of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    pub title: String,
    /// Axis of values, logarithmic.
    pub value: Axis,
    pub view: DistributionView,
    pub series: Vec<Histogram>,
    /// Lines at published limits.
    pub limits: Vec<LimitLine>,
}

/// Chart type of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionView {
    /// Share of the values by size: shows the bulk, and multiple modes.
    Shares,
    /// Size by percentile, each further nine equally wide: shows rare values.
    Percentiles,
}

impl Axis {
    pub fn new(label: impl Into<String>, unit: impl Into<Unit>) -> Self {
        Self { label: label.into(), unit: unit.into() }
    }
}

impl LineChart {
    /// A chart without lines.
    pub fn new(title: impl Into<String>, y: Axis) -> Self {
        let (series, limits, events) = Default::default();
        Self { title: title.into(), y, x: None, series, limits, events }
    }

    /// Replaces the time axis: the first element of each sample is a value on `x`.
    #[must_use]
    pub fn against(mut self, x: Axis) -> Self {
        self.x = Some(x);
        self
    }

    /// Appends a line.
    #[must_use]
    pub fn series(mut self, series: TimeSeries) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a limit at `at` on the vertical axis.
    #[must_use]
    pub fn limit(mut self, label: impl Into<String>, at: impl Into<Measurement>) -> Self {
        self.limits.push(LimitLine { label: label.into(), at: at.into() });
        self
    }

    /// Marks the moment `time_s`.
    #[must_use]
    pub fn event(mut self, label: impl Into<String>, time_s: impl Into<Measurement>) -> Self {
        self.events.push(ChartEvent { label: label.into(), time_s: time_s.into() });
        self
    }
}

/// Label and value of the limits that have a value.
pub(crate) fn known(limits: &[LimitLine]) -> impl Iterator<Item = (&str, f64)> {
    limits.iter().filter_map(|limit| Some((limit.label.as_str(), limit.at.get()?)))
}

impl TimeSeries {
    /// A line through `(seconds since the start, value)` samples in any order. Drops samples without a finite
    /// time; keeps those without a finite value, as breaks in the line.
    pub fn new(name: impl Into<String>, samples: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points =
            samples.into_iter().map(|(time_s, value)| TimePoint { time_s, value: value.into() }).collect();
        Self::in_order(name.into(), points)
    }

    fn in_order(name: String, mut points: Vec<TimePoint>) -> Self {
        points.retain(|point| point.time_s.is_finite());
        points.sort_by(|a, b| a.time_s.total_cmp(&b.time_s));
        Self { name, points }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// In time order.
    pub fn points(&self) -> &[TimePoint] {
        &self.points
    }
}

impl Distribution {
    /// A chart without curves.
    pub fn new(title: impl Into<String>, value: Axis, view: DistributionView) -> Self {
        Self { title: title.into(), value, view, series: Vec::new(), limits: Vec::new() }
    }

    /// Appends a curve.
    #[must_use]
    pub fn series(mut self, series: Histogram) -> Self {
        self.series.push(series);
        self
    }

    /// Adds a limit at `at` on the axis of values.
    #[must_use]
    pub fn limit(mut self, label: impl Into<String>, at: impl Into<Measurement>) -> Self {
        self.limits.push(LimitLine { label: label.into(), at: at.into() });
        self
    }
}

#[derive(Deserialize)]
struct UncheckedTimeSeries {
    name: String,
    points: Vec<TimePoint>,
}

impl From<UncheckedTimeSeries> for TimeSeries {
    fn from(stored: UncheckedTimeSeries) -> Self {
        Self::in_order(stored.name, stored.points)
    }
}

impl From<(f64, Measurement)> for TimePoint {
    fn from((time_s, value): (f64, Measurement)) -> Self {
        Self { time_s, value }
    }
}

impl From<TimePoint> for (f64, Measurement) {
    fn from(point: TimePoint) -> Self {
        (point.time_s, point.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_put_in_time_order_and_timeless_ones_dropped() {
        let line = TimeSeries::new("x", [(30.0, 3.0), (0.0, 1.0), (f64::NAN, 9.0), (15.0, f64::NAN)]);
        let times: Vec<_> = line.points().iter().map(|point| (point.time_s, point.value.get())).collect();
        assert_eq!(times, [(0.0, Some(1.0)), (15.0, None), (30.0, Some(3.0))]);
    }
}
