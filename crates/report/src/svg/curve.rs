//! Curves as SVG: a point for each run, joined by lines.

use super::{
    Plot, WIDTH, axis_names, grid_row, limit_rows, line_chart::LIMIT_REACH, marked_place, nothing_to_draw,
    open, series_class, tick_below,
};
use crate::axis::{ValueAxis, with_unit};
use crate::curve::{CurveChart, CurveLine};
use crate::markup::put;

const PLOT: Plot = Plot { left: 52.0, top: 28.0, width: WIDTH - 110.0, height: 176.0 };
const HEIGHT: f64 = 244.0;
/// Distance of the outer stations from the edges, as a share of the width: a point on an axis is hard to see.
const MARGIN: f64 = 0.03;
/// Minimum distance of labels, in pixels for each character.
const LABEL_ROOM: f64 = 7.0;

/// Writes the picture; `id` is unique on its page.
pub(crate) fn curve(chart: &CurveChart, id: &str, out: &mut String) {
    let limits: Vec<f64> = chart.limits_within(LIMIT_REACH).collect();
    let high = chart.values().chain(limits.iter().copied()).fold(0.0, f64::max);
    let low = chart.values().fold(0.0, f64::min);
    let axis = ValueAxis::covering(&chart.y.unit, low, high, 5);
    open(out, id, HEIGHT, &chart.title, &description(chart));
    for tick in &axis.ticks {
        grid_row(out, PLOT, axis.place(tick.at), &tick.label);
    }
    let vertical = [chart.y.label.as_str(), axis.symbol.as_str()].join(", ");
    axis_names(out, PLOT, vertical.trim_end_matches(", "), &chart.x);
    ticks(chart, out);
    if let Some((index, label)) = &chart.mark {
        marked_place(out, PLOT, (place(chart, *index), label), PLOT.top + 11.0, 0.7);
    }
    for (index, line) in chart.lines().iter().enumerate() {
        draw(chart, line, index, &axis, out);
    }
    limit_rows(out, PLOT, limits.iter().map(|at| (axis.place(*at), with_unit(&chart.y.unit, *at))).collect());
    if chart.values().next().is_none() {
        nothing_to_draw(out, PLOT);
    }
    out.push_str("</svg>");
}

fn place(chart: &CurveChart, index: usize) -> f64 {
    MARGIN + chart.place(index) * (1.0 - 2.0 * MARGIN)
}

/// The stations' labels, without those that would overlap the one before.
fn ticks(chart: &CurveChart, out: &mut String) {
    let mut free_from_x = f64::NEG_INFINITY;
    for (index, station) in chart.stations().iter().enumerate() {
        let (x, _) = PLOT.at(place(chart, index), 0.0);
        let half = station.label.chars().count() as f64 * LABEL_ROOM / 2.0;
        if x - half >= free_from_x {
            tick_below(out, PLOT, place(chart, index), &station.label);
            free_from_x = x + half;
        }
    }
}

fn draw(chart: &CurveChart, line: &CurveLine, index: usize, axis: &ValueAxis, out: &mut String) {
    let points: Vec<Option<(f64, f64)>> = line
        .values
        .iter()
        .enumerate()
        .map(|(station, value)| Some(PLOT.at(place(chart, station), axis.place(value.get()?))))
        .collect();
    put!(out, "<g class=\"{}\"><path class=\"line\" d=\"", series_class(index));
    let mut is_drawing = false;
    for point in &points {
        if let Some((x, y)) = point {
            put!(out, "{}{x:.1} {y:.1}", if is_drawing { 'L' } else { 'M' });
        }
        is_drawing = point.is_some();
    }
    out.push_str("\"/>");
    for (x, y) in points.into_iter().flatten() {
        put!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }
    out.push_str("</g>\n");
}

/// Text alternative for screen readers.
fn description(chart: &CurveChart) -> String {
    let mut parts = Vec::new();
    for line in chart.lines() {
        let values = chart.stations().iter().zip(&line.values).map(|(station, value)| {
            let value = value.get().map_or("nothing".to_owned(), |value| with_unit(&chart.y.unit, value));
            format!("{value} at {}", station.label)
        });
        parts.push(format!("{}: {}.", line.name, values.collect::<Vec<_>>().join(", ")));
    }
    if let Some((index, label)) = &chart.mark {
        parts.push(format!("{label}: {}.", chart.stations()[*index].label));
    }
    parts.join(" ")
}
