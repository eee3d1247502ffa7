//! Distributions as SVG.

use super::{Plot, WIDTH, axis_names, grid_row, limit_rows, nothing_to_draw, open, series_class, tick_below};
use crate::axis::{LogAxis, NinesAxis, ValueAxis, with_unit};
use crate::chart::{Distribution, DistributionView, known};
use crate::histogram::Histogram;
use crate::markup::escaped;
use crate::markup::put;
use crate::unit::Unit;

const PLOT: Plot = Plot { left: 62.0, top: 28.0, width: WIDTH - 120.0, height: 170.0 };
const HEIGHT: f64 = 238.0;

/// Bars over the width of the chart: fine enough for two modes, wide enough to see.
const BINS: usize = 72;

/// Writes the picture; `id` is unique on its page.
pub(crate) fn distribution(chart: &Distribution, id: &str, out: &mut String) {
    open(out, id, HEIGHT, &chart.title, &description(chart));
    let occupied = occupied(&chart.series);
    let (low, high) = occupied.unwrap_or((0.0, 0.0));
    // Limits far from every value would squeeze the picture; they stay in description and legend.
    let near: Vec<f64> =
        known(&chart.limits).map(|(_, at)| at).filter(|at| is_within_reach(*at, high)).collect();
    let (low, high) = near.iter().fold((low, high), |(low, high), at| (low, high.max(*at)));
    let values = LogAxis::covering(&chart.value.unit, low, high);
    match chart.view {
        DistributionView::Shares => draw_shares(chart, &values, &near, out),
        DistributionView::Percentiles => draw_percentiles(chart, &values, &near, out),
    }
    if occupied.is_none() {
        nothing_to_draw(out, PLOT);
    }
    out.push_str("</svg>");
}

/// True if a limit is drawn in a chart of values up to `high`, not just named.
fn is_within_reach(at: f64, high: f64) -> bool {
    at > 0.0 && at <= high * 20.0
}

/// Range of all series together.
pub(crate) fn occupied(series: &[Histogram]) -> Option<(f64, f64)> {
    series
        .iter()
        .filter_map(Histogram::occupied)
        .reduce(|(low, high), (from, to)| (if from > 0.0 { low.min(from) } else { low }, high.max(to)))
}

fn draw_shares(chart: &Distribution, values: &LogAxis, limits: &[f64], out: &mut String) {
    let bins: Vec<Vec<f64>> =
        chart.series.iter().map(|series| series.shares(values.low, values.high, BINS, f64::log10)).collect();
    let most = bins.iter().flatten().copied().fold(0.0, f64::max) * 100.0;
    let axis = ValueAxis::covering(&Unit::Percent, 0.0, most, 4);
    for tick in &axis.ticks {
        grid_row(out, PLOT, axis.place(tick.at), &tick.label);
    }
    for tick in &values.ticks {
        tick_below(out, PLOT, values.place(tick.at), &tick.label);
    }
    axis_names(
        out,
        PLOT,
        "share, % in each of 72 even steps",
        &format!("{}, logarithmic", chart.value.label),
    );
    for (index, (series, bins)) in chart.series.iter().zip(&bins).enumerate() {
        if series.count() == 0 {
            continue;
        }
        let (start_x, base_y) = PLOT.at(0.0, 0.0);
        let mut steps = format!("M{start_x:.1} {base_y:.1}");
        for (bin, share) in bins.iter().enumerate() {
            let (x, y) = PLOT.at((bin + 1) as f64 / BINS as f64, axis.place(share * 100.0));
            put!(&mut steps, "V{y:.1}H{x:.1}");
        }
        put!(&mut steps, "V{base_y:.1}");
        put!(
            out,
            "<g class=\"{}\"><path class=\"area\" d=\"{steps}Z\"/><path class=\"line\" d=\"{steps}\"/></g>\n",
            series_class(index)
        );
    }
    for at in limits {
        let (x, _) = PLOT.at(values.place(*at), 0.0);
        put!(
            out,
            "<path class=\"limit\" d=\"M{x:.1} {}V{}\"/><text class=\"limit-value\" x=\"{x:.1}\" y=\"{}\" \
             text-anchor=\"middle\">{}</text>\n",
            PLOT.top - 4.0,
            PLOT.bottom(),
            PLOT.top - 8.0,
            escaped(&with_unit(&chart.value.unit, *at)),
        );
    }
}

fn draw_percentiles(chart: &Distribution, values: &LogAxis, limits: &[f64], out: &mut String) {
    let most = chart.series.iter().map(Histogram::count).max().unwrap_or(0);
    let nines = NinesAxis::for_count(most);
    for tick in &values.ticks {
        grid_row(out, PLOT, values.place(tick.at), &tick.label);
    }
    for tick in &nines.ticks {
        tick_below(out, PLOT, nines.place(tick.at), &tick.label);
    }
    axis_names(out, PLOT, &format!("{}, logarithmic", chart.value.label), "percentile");
    for (index, series) in chart.series.iter().enumerate() {
        draw_percentile_curve(series, index, values, &nines, out);
    }
    limit_rows(
        out,
        PLOT,
        limits.iter().map(|at| (values.place(*at), with_unit(&chart.value.unit, *at))).collect(),
    );
}

/// A staircase: up to each bucket's cumulative share, no value exceeds the bucket's end.
fn draw_percentile_curve(
    series: &Histogram,
    index: usize,
    values: &LogAxis,
    nines: &NinesAxis,
    out: &mut String,
) {
    let total = series.count();
    if total == 0 {
        return;
    }
    let mut below = 0u64;
    let mut curve = String::new();
    for bucket in series.buckets().iter().filter(|bucket| bucket.count > 0) {
        let (start_x, y) = PLOT.at(nines.place(below as f64 / total as f64 * 100.0), values.place(bucket.to));
        below = below.saturating_add(bucket.count);
        let (end_x, _) = PLOT.at(nines.place(below as f64 / total as f64 * 100.0), 0.0);
        if curve.is_empty() {
            put!(&mut curve, "M{start_x:.1} {y:.1}H{end_x:.1}");
        } else {
            put!(&mut curve, "V{y:.1}H{end_x:.1}");
        }
    }
    put!(out, "<g class=\"{}\"><path class=\"line\" d=\"{curve}\"/></g>\n", series_class(index));
}

/// Text alternative for screen readers.
fn description(chart: &Distribution) -> String {
    let mut parts: Vec<String> = Vec::new();
    for series in &chart.series {
        let value = |percent: f64| with_unit(&chart.value.unit, series.percentile(percent).unwrap_or(0.0));
        parts.push(match series.count() {
            0 => format!("{}: nothing counted.", series.name()),
            count => format!(
                "{}: {count} counted, half within {}, 99 percent within {}, all within {}.",
                series.name(),
                value(50.0),
                value(99.0),
                value(100.0)
            ),
        });
    }
    parts.extend(
        known(&chart.limits).map(|(label, at)| format!("{label}: {}.", with_unit(&chart.value.unit, at))),
    );
    parts.join(" ")
}
