//! Line charts as SVG.

use super::{
    Plot, TEXT_HEIGHT, WIDTH, axis_names, grid_row, limit_rows, marked_place, nothing_to_draw, open,
    series_class, tick_below,
};
use crate::axis::{ValueAxis, horizontal, with_unit};
use crate::chart::{LineChart, TimePoint, TimeSeries, known};
use crate::markup::escaped;
use crate::markup::put;
use crate::sampling;

const PLOT: Plot = Plot { left: 52.0, top: 28.0, width: WIDTH - 110.0, height: 176.0 };
const HEIGHT: f64 = 244.0;

/// A limit more than this many times above all values is named instead of drawn, since it would flatten them.
pub(super) const LIMIT_REACH: f64 = 4.0;

/// Writes the picture; `id` is unique on its page.
pub(crate) fn line_chart(chart: &LineChart, id: &str, out: &mut String) {
    let (drawn, beyond): (Vec<f64>, Vec<f64>) =
        known(&chart.limits).map(|(_, at)| at).partition(|at| is_within_reach(chart, *at));
    let axis = value_axis(chart, &drawn);
    let times = sampling::time_range(chart.series.iter().map(TimeSeries::points));

    open(out, id, HEIGHT, &chart.title, &description(chart));
    for tick in &axis.ticks {
        grid_row(out, PLOT, axis.place(tick.at), &tick.label);
    }
    let vertical = [chart.y.label.as_str(), axis.symbol.as_str()].join(", ");
    let (ticks, form) = match times {
        Some((from_s, to_s)) => horizontal(chart.x.as_ref(), from_s, to_s, 9),
        None => (Vec::new(), "h:min".to_owned()),
    };
    let name = if chart.x.is_some() { form } else { format!("time since the start, {form}") };
    axis_names(out, PLOT, vertical.trim_end_matches(", "), &name);

    let (from_s, to_s) = times.unwrap_or_else(|| around_the_only_sample(chart));
    let place_x = |time_s: f64| ((time_s - from_s) / (to_s - from_s)).clamp(0.0, 1.0);
    for tick in &ticks {
        tick_below(out, PLOT, place_x(tick.at), &tick.label);
    }
    for event in &chart.events {
        if let Some(time_s) = event.time_s.get().filter(|time_s| (from_s..=to_s).contains(time_s)) {
            marked_place(out, PLOT, (place_x(time_s), &event.label), PLOT.bottom() - 6.0, 0.75);
        }
    }
    for (index, series) in chart.series.iter().enumerate() {
        draw_series(out, series, index, &place_x, &axis, (from_s, to_s));
    }
    limit_rows(out, PLOT, drawn.iter().map(|at| (axis.place(*at), with_unit(&chart.y.unit, *at))).collect());
    draw_limits_beyond(out, chart, &beyond);
    if chart.series.iter().all(|series| sampling::summary(series.points()).is_none()) {
        nothing_to_draw(out, PLOT);
    }
    out.push_str("</svg>");
}

fn value_axis(chart: &LineChart, drawn: &[f64]) -> ValueAxis {
    let points = chart.series.iter().flat_map(TimeSeries::points);
    let (low, high) = sampling::value_range(points).unwrap_or((0.0, 0.0));
    let high = drawn.iter().copied().fold(high, f64::max);
    let low = drawn.iter().copied().fold(low, f64::min);
    ValueAxis::covering(&chart.y.unit, low, high, 5)
}

/// True if a limit is drawn, not just named.
pub(crate) fn is_within_reach(chart: &LineChart, at: f64) -> bool {
    let highest =
        sampling::value_range(chart.series.iter().flat_map(TimeSeries::points)).map_or(0.0, |(_, high)| high);
    highest <= 0.0 || at <= highest * LIMIT_REACH
}

/// The time range of a chart with samples at one moment only: a minute around it.
fn around_the_only_sample(chart: &LineChart) -> (f64, f64) {
    let only =
        chart.series.iter().find_map(|series| series.points().first()).map_or(0.0, |point| point.time_s);
    let (from_s, to_s) = (only - 30.0, only + 30.0);
    if from_s < to_s { (from_s, to_s) } else { (0.0, 60.0) }
}

fn draw_series(
    out: &mut String,
    series: &TimeSeries,
    index: usize,
    place_x: &impl Fn(f64) -> f64,
    axis: &ValueAxis,
    (from_s, to_s): (f64, f64),
) {
    let Some(summary) = sampling::summary(series.points()) else { return };
    put!(out, "<g class=\"{}\">", series_class(index));
    let column_count = PLOT.width as usize;
    if series.points().len() > 2 * column_count {
        // More samples than pixels: the average as a line, and behind it everything between the
        // lowest and the highest sample of each pixel.
        let columns = sampling::columns(series.points(), from_s, to_s, column_count);
        out.push_str("<path class=\"band\" d=\"");
        for column in &columns {
            let Some(extent) = column.extent else { continue };
            let (x, high) = PLOT.at(place_x(column.time_s), axis.place(extent.high));
            let (_, low) = PLOT.at(0.0, axis.place(extent.low));
            put!(out, "M{x:.1} {high:.1}V{:.1}", low.max(high + 0.5));
        }
        out.push_str("\"/>");
        draw_line(
            out,
            columns.iter().map(|column| (column.time_s, column.extent.map(|e| e.mean))),
            place_x,
            axis,
        );
    } else {
        let points = series.points().iter().map(|TimePoint { time_s, value }| (*time_s, value.get()));
        draw_line(out, points, place_x, axis);
    }
    let (x, y) = PLOT.at(place_x(summary.high_time_s), axis.place(summary.extent.high));
    put!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\"/></g>\n");
}

/// Draws the values that are present; a single value between breaks is a short dash.
fn draw_line(
    out: &mut String,
    points: impl Iterator<Item = (f64, Option<f64>)>,
    place_x: &impl Fn(f64) -> f64,
    axis: &ValueAxis,
) {
    out.push_str("<path class=\"line\" d=\"");
    let mut is_drawing = false;
    let mut points = points.peekable();
    while let Some((time_s, value)) = points.next() {
        let Some(value) = value else {
            is_drawing = false;
            continue;
        };
        let (x, y) = PLOT.at(place_x(time_s), axis.place(value));
        let is_alone = !is_drawing && points.peek().is_none_or(|(_, next)| next.is_none());
        put!(out, "{}{x:.1} {y:.1}", if is_drawing { 'L' } else { 'M' });
        if is_alone {
            out.push_str("h1");
        }
        is_drawing = true;
    }
    out.push_str("\"/>");
}

fn draw_limits_beyond(out: &mut String, chart: &LineChart, beyond: &[f64]) {
    let values: Vec<String> =
        beyond.iter().map(|at| format!("↑ {}", with_unit(&chart.y.unit, *at))).collect();
    for (line, value) in values.iter().enumerate() {
        put!(
            out,
            "<text class=\"limit-value\" x=\"{}\" y=\"{}\">{}</text>\n",
            PLOT.right() + 6.0,
            PLOT.top + 3.5 + line as f64 * TEXT_HEIGHT,
            escaped(value),
        );
    }
}

/// Text alternative for screen readers.
fn description(chart: &LineChart) -> String {
    let mut parts: Vec<String> = Vec::new();
    for series in &chart.series {
        let value = |value: f64| with_unit(&chart.y.unit, value);
        parts.push(match sampling::summary(series.points()) {
            None => format!("{}: no samples.", series.name()),
            Some(sampling::Summary { extent, .. }) => format!(
                "{}: {} points, lowest {}, mean of points {}, highest {}.",
                series.name(),
                series.points().len(),
                value(extent.low),
                value(extent.mean),
                value(extent.high),
            ),
        });
    }
    parts.extend(
        known(&chart.limits).map(|(label, at)| format!("{label}: {}.", with_unit(&chart.y.unit, at))),
    );
    parts.join(" ")
}
