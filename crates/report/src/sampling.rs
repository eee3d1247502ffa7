//! Reduction of samples to drawable columns that keeps every extreme.

use crate::chart::TimePoint;
use crate::measurement::Measurement;

/// The samples in one drawn column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SampleColumn {
    /// Middle of the column.
    pub time_s: f64,
    /// Range of its samples; None if all are absent, which breaks the line.
    pub extent: Option<Extent>,
}

/// Range of several samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Extent {
    pub low: f64,
    pub mean: f64,
    pub high: f64,
}

/// Statistics of a whole series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub extent: Extent,
    /// Time of the first highest value.
    pub high_time_s: f64,
}

impl Extent {
    fn of(value: f64) -> Self {
        Self { low: value, mean: value, high: value }
    }

    /// Adds `value`; `count` is the number of samples including it.
    fn add(&mut self, value: f64, count: usize) {
        self.low = self.low.min(value);
        self.high = self.high.max(value);
        // Halves first: the difference of two huge values may not be finite.
        self.mean += value / count as f64 - self.mean / count as f64;
    }
}

/// Minimum, average and maximum of a series; None without values.
pub(crate) fn summary(points: &[TimePoint]) -> Option<Summary> {
    let mut found: Option<(Summary, usize)> = None;
    for point in points {
        let Some(value) = point.value.get() else { continue };
        match &mut found {
            None => found = Some((Summary { extent: Extent::of(value), high_time_s: point.time_s }, 1)),
            Some((summary, count)) => {
                *count += 1;
                if value > summary.extent.high {
                    summary.high_time_s = point.time_s;
                }
                summary.extent.add(value, *count);
            }
        }
    }
    found.map(|(summary, _)| summary)
}

/// Groups `points` (in time order) into at most `column_count` even columns of `from_s..=to_s`; empty columns
/// are left out.
pub(crate) fn columns(
    points: &[TimePoint],
    from_s: f64,
    to_s: f64,
    column_count: usize,
) -> Vec<SampleColumn> {
    assert!(from_s < to_s && column_count > 0, "no columns in {from_s}..{to_s}");
    let width_s = (to_s - from_s) / column_count as f64;
    let mut gathered: Vec<(usize, usize, SampleColumn)> = Vec::new();
    for point in points {
        let index = (((point.time_s - from_s) / width_s) as usize).min(column_count - 1);
        let is_new = gathered.last().is_none_or(|(last, ..)| *last != index);
        if is_new {
            let time_s = from_s + (index as f64 + 0.5) * width_s;
            gathered.push((index, 0, SampleColumn { time_s, extent: None }));
        }
        let (_, count, column) = gathered.last_mut().expect("one was pushed");
        if let Some(value) = point.value.get() {
            *count += 1;
            match &mut column.extent {
                None => column.extent = Some(Extent::of(value)),
                Some(extent) => extent.add(value, *count),
            }
        }
    }
    gathered.into_iter().map(|(.., column)| column).collect()
}

/// Range of the line through `points` in each of `column_count` even columns, also between samples; None
/// where the line is broken.
pub(crate) fn crossed(
    points: &[TimePoint],
    from_s: f64,
    to_s: f64,
    column_count: usize,
) -> Vec<Option<(f64, f64)>> {
    let mut spans: Vec<Option<(f64, f64)>> = vec![None; column_count];
    let width_s = (to_s - from_s) / column_count as f64;
    let index_of = |time_s: f64| (((time_s - from_s) / width_s) as usize).min(column_count - 1);
    let mut cover = |index: usize, value: f64| {
        let (low, high) = spans[index].unwrap_or((value, value));
        spans[index] = Some((low.min(value), high.max(value)));
    };
    let mut earlier: Option<(f64, f64)> = None;
    for TimePoint { time_s, value } in points {
        let Some(value) = value.get() else {
            earlier = None;
            continue;
        };
        let here = index_of(*time_s);
        if let Some((earlier_s, earlier_value)) = earlier {
            for index in index_of(earlier_s) + 1..here {
                let middle_s = from_s + (index as f64 + 0.5) * width_s;
                let share = (middle_s - earlier_s) / (time_s - earlier_s);
                cover(index, earlier_value * (1.0 - share) + value * share);
            }
        }
        cover(here, value);
        earlier = Some((*time_s, value));
    }
    spans
}

/// First and last time of all series; None unless they differ.
pub(crate) fn time_range<'a>(series: impl Iterator<Item = &'a [TimePoint]>) -> Option<(f64, f64)> {
    let ends = series.filter_map(|points| Some((points.first()?.time_s, points.last()?.time_s)));
    ends.reduce(|(from, to), (first, last)| (from.min(first), to.max(last)))
        .filter(|(from, to)| from < to && (to - from).is_finite())
}

pub(crate) fn value_range<'a>(points: impl Iterator<Item = &'a TimePoint>) -> Option<(f64, f64)> {
    points.filter_map(|point| Measurement::get(point.value)).fold(None, |range, value| match range {
        None => Some((value, value)),
        Some((low, high)) => Some((f64::min(low, value), f64::max(high, value))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::TimeSeries;

    /// 24 hours of a sample every 15 seconds, calm but for one spike and one dip.
    fn day() -> TimeSeries {
        TimeSeries::new(
            "day",
            (0..5760).map(|index| {
                let value = match index {
                    4321 => 480.0,
                    777 => 0.25,
                    _ => 14.0 + f64::from(index % 7) * 0.1,
                };
                (f64::from(index) * 15.0, value)
            }),
        )
    }

    #[test]
    fn a_spike_of_one_sample_in_a_day_is_still_drawn() {
        let day = day();
        for column_count in [40, 700, 1400] {
            let columns = columns(day.points(), 0.0, 86_385.0, column_count);
            assert_eq!(columns.len(), column_count);
            let extents: Vec<_> = columns.iter().filter_map(|column| column.extent).collect();
            assert_eq!(extents.iter().map(|extent| extent.high).fold(f64::MIN, f64::max), 480.0);
            assert_eq!(extents.iter().map(|extent| extent.low).fold(f64::MAX, f64::min), 0.25);
            assert!(extents.iter().all(|extent| (extent.low..=extent.high).contains(&extent.mean)));
            let crossed = crossed(day.points(), 0.0, 86_385.0, column_count);
            assert_eq!(crossed.iter().flatten().map(|(_, high)| *high).fold(f64::MIN, f64::max), 480.0);
        }
    }

    #[test]
    fn the_summary_is_that_of_all_samples() {
        let summary = summary(day().points()).unwrap();
        assert_eq!((summary.extent.low, summary.extent.high), (0.25, 480.0));
        assert_eq!(summary.high_time_s, 4321.0 * 15.0);
        let sum: f64 = day().points().iter().filter_map(|point| point.value.get()).sum();
        assert!((summary.extent.mean - sum / 5760.0).abs() < 1e-9);
    }

    #[test]
    fn an_absent_sample_breaks_the_line_and_a_missing_one_does_not() {
        let broken = TimeSeries::new("x", [(0.0, 1.0), (4.0, f64::NAN), (9.0, 3.0), (10.0, 3.0)]);
        let spans = crossed(broken.points(), 0.0, 10.0, 10);
        assert_eq!(spans.iter().filter(|span| span.is_some()).count(), 2, "{spans:?}");
        let whole = TimeSeries::new("x", [(0.0, 1.0), (10.0, 3.0)]);
        assert!(crossed(whole.points(), 0.0, 10.0, 10).iter().all(Option::is_some));
        let columns = columns(broken.points(), 0.0, 10.0, 10);
        assert_eq!(columns.iter().filter(|column| column.extent.is_none()).count(), 1);
    }

    #[test]
    fn empty_and_single_series_have_no_range() {
        let one = TimeSeries::new("x", [(7.0, 1.0)]);
        assert_eq!(time_range([one.points()].into_iter()), None);
        assert_eq!(summary(TimeSeries::new("x", []).points()), None);
        assert_eq!(summary(one.points()).unwrap().extent.high, 1.0);
    }
}
