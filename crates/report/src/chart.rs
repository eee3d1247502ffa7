//! What a chart shows, as data: series over time or another value, and distributions.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::reading::Reading;
use crate::unit::Unit;

/// What one axis of a chart measures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// In a few words: "latency", "operations".
    pub label: String,
    /// The unit of the values; the axis scales it (ms to µs, B to GiB) as they need.
    pub unit: Unit,
}

/// Values over the time of a run, or against something else. The vertical axis always holds zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LineChart {
    /// What it shows.
    pub title: String,
    /// The vertical axis.
    pub y: Axis,
    /// The horizontal axis; if there is none, it is time in seconds since the start of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<Axis>,
    /// One line each.
    pub series: Vec<TimeSeries>,
    /// Horizontal lines at published limits.
    pub limits: Vec<LimitLine>,
    /// Moments worth marking.
    pub events: Vec<ChartEvent>,
}

/// One line of a chart. Invariant: points ascend in time, and every time is finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "UncheckedTimeSeries")]
pub struct TimeSeries {
    name: String,
    points: Vec<TimePoint>,
}

/// One sample: `[seconds since the start, value]` in JSON. A value that is absent breaks the line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, Reading)", into = "(f64, Reading)")]
pub struct TimePoint {
    /// Seconds since the start of the run.
    pub time_s: f64,
    /// The value, in the unit of the chart's vertical axis.
    pub value: Reading,
}

/// A limit drawn across a chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitLine {
    /// Whose limit it is, without its value: "average limit".
    pub label: String,
    /// Where it lies, in the unit of the axis; an absent limit is not drawn.
    pub at: Reading,
}

/// A moment marked on the time axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChartEvent {
    /// What happened then.
    pub label: String,
    /// Seconds since the start of the run; an event without a time is not drawn.
    pub time_s: Reading,
}

/// How often values of each size occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distribution {
    /// What it shows.
    pub title: String,
    /// What was measured: the axis of values, logarithmic.
    pub value: Axis,
    /// Which picture is drawn.
    pub view: DistributionView,
    /// One curve each.
    pub series: Vec<Histogram>,
    /// Lines at published limits.
    pub limits: Vec<LimitLine>,
}

/// Which picture of a distribution is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DistributionView {
    /// Share of the values by size: where the bulk lies, and whether there are two bulks.
    Shares,
    /// Size by percentile, each further nine as wide as the last: how bad the rare ones are.
    Percentiles,
}

impl Axis {
    /// An axis of `label`, in `unit`.
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

    /// The same chart against `x` rather than time: the first of each pair of a series is a value of it.
    #[must_use]
    pub fn against(mut self, x: Axis) -> Self {
        self.x = Some(x);
        self
    }

    /// The same chart with one more line.
    #[must_use]
    pub fn series(mut self, series: TimeSeries) -> Self {
        self.series.push(series);
        self
    }

    /// The same chart with one more limit, at `at` on the vertical axis.
    #[must_use]
    pub fn limit(mut self, label: impl Into<String>, at: impl Into<Reading>) -> Self {
        self.limits.push(LimitLine { label: label.into(), at: at.into() });
        self
    }

    /// The same chart with the moment `time_s` marked.
    #[must_use]
    pub fn event(mut self, label: impl Into<String>, time_s: impl Into<Reading>) -> Self {
        self.events.push(ChartEvent { label: label.into(), time_s: time_s.into() });
        self
    }
}

/// The limits that lie somewhere: label and place.
pub(crate) fn known(limits: &[LimitLine]) -> impl Iterator<Item = (&str, f64)> {
    limits.iter().filter_map(|limit| Some((limit.label.as_str(), limit.at.get()?)))
}

impl TimeSeries {
    /// A line through `(seconds since the start, value)` samples in any order. Samples without a
    /// finite time are dropped; those without a finite value are kept as breaks in the line.
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

    /// What the line shows.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The samples in time order.
    pub fn points(&self) -> &[TimePoint] {
        &self.points
    }
}

impl Distribution {
    /// A chart without curves.
    pub fn new(title: impl Into<String>, value: Axis, view: DistributionView) -> Self {
        Self { title: title.into(), value, view, series: Vec::new(), limits: Vec::new() }
    }

    /// The same chart with one more curve.
    #[must_use]
    pub fn series(mut self, series: Histogram) -> Self {
        self.series.push(series);
        self
    }

    /// The same chart with one more limit, at `at` on the axis of values.
    #[must_use]
    pub fn limit(mut self, label: impl Into<String>, at: impl Into<Reading>) -> Self {
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

impl From<(f64, Reading)> for TimePoint {
    fn from((time_s, value): (f64, Reading)) -> Self {
        Self { time_s, value }
    }
}

impl From<TimePoint> for (f64, Reading) {
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
