//! Charts as HTML: title, picture, and a table of figures that is also the legend.

use crate::axis::with_unit;
use crate::chart::{Distribution, LineChart, known};
use crate::curve::CurveChart;
use crate::markup::{escaped, put};
use crate::quantity::{self, ABSENT};
use crate::sampling::{self, Summary};
use crate::svg;
use crate::unit::Unit;

/// Writes a line chart; `id` is unique on the page.
pub(super) fn line_chart(chart: &LineChart, id: &str, out: &mut String) {
    put!(out, "<figure>\n<figcaption>{}</figcaption>\n", escaped(&chart.title));
    svg::line_chart(chart, id, out);
    open_legend(&["Points", "Lowest point", "Mean of points", "Highest point"], out);
    for (index, series) in chart.series.iter().enumerate() {
        let summary = sampling::summary(series.points());
        let value = |pick: fn(Summary) -> f64| shown(&chart.y.unit, summary.map(pick));
        let count = series.points().iter().filter(|point| point.value.get().is_some()).count();
        let figures = [
            quantity::number(count as f64, 0),
            value(|summary| summary.extent.low),
            value(|summary| summary.extent.mean),
            value(|summary| summary.extent.high),
        ];
        legend_row(index, series.name(), &figures, out);
    }
    for (label, at) in known(&chart.limits) {
        let place = if svg::is_within_reach(chart, at) { "" } else { ", above this chart" };
        limit_row(label, &format!("{}{place}", shown(&chart.y.unit, Some(at))), 4, out);
    }
    close_legend(out);
}

/// Writes a curve; `id` is unique on the page.
pub(super) fn curve(chart: &CurveChart, id: &str, out: &mut String) {
    put!(out, "<figure>\n<figcaption>{}</figcaption>\n", escaped(&chart.title));
    svg::curve(chart, id, out);
    let labels: Vec<String> =
        chart.stations().iter().map(|station| escaped(&station.label).to_string()).collect();
    open_legend(&labels.iter().map(String::as_str).collect::<Vec<_>>(), out);
    for (index, line) in chart.lines().iter().enumerate() {
        let figures: Vec<String> =
            line.values.iter().map(|value| shown(&chart.y.unit, value.get())).collect();
        legend_row(index, &line.name, &figures, out);
    }
    let columns = chart.stations().len().max(1);
    for (label, at) in known(&chart.limits) {
        limit_row(label, &shown(&chart.y.unit, Some(at)), columns, out);
    }
    close_legend(out);
}

/// Writes a distribution; `id` is unique on the page.
pub(super) fn distribution(chart: &Distribution, id: &str, out: &mut String) {
    put!(out, "<figure>\n<figcaption>{}</figcaption>\n", escaped(&chart.title));
    svg::distribution(chart, id, out);
    open_legend(&["Counted", "p50", "p95", "p99", "p99.9", "Longest"], out);
    for (index, series) in chart.series.iter().enumerate() {
        let mut figures = vec![quantity::number(series.count() as f64, 0)];
        let percentiles = [50.0, 95.0, 99.0, 99.9, 100.0];
        figures.extend(percentiles.map(|percent| shown(&chart.value.unit, series.percentile(percent))));
        legend_row(index, series.name(), &figures, out);
    }
    for (label, at) in known(&chart.limits) {
        limit_row(label, &shown(&chart.value.unit, Some(at)), 6, out);
    }
    close_legend(out);
}

fn shown(unit: &Unit, value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| with_unit(unit, value).replace(' ', "\u{a0}"))
}

fn open_legend(columns: &[&str], out: &mut String) {
    out.push_str("\n<table class=\"legend\">\n<thead><tr><th scope=\"col\">Line</th>");
    for column in columns {
        put!(out, "<th scope=\"col\" class=\"n\">{column}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

fn legend_row(index: usize, name: &str, figures: &[String], out: &mut String) {
    put!(
        out,
        "<tr><th scope=\"row\"><svg class=\"key\" viewBox=\"0 0 18 8\" width=\"18\" height=\"8\" aria-hidden=\"true\">\
         <g class=\"{}\"><path class=\"line\" d=\"M0 4H18\"/></g></svg>{}</th>",
        svg::series_class(index),
        escaped(name)
    );
    for figure in figures {
        put!(out, "<td class=\"n\">{}</td>", escaped(figure));
    }
    out.push_str("</tr>\n");
}

fn limit_row(label: &str, value: &str, column_count: usize, out: &mut String) {
    put!(
        out,
        "<tr><th scope=\"row\"><svg class=\"key\" viewBox=\"0 0 18 8\" width=\"18\" height=\"8\" aria-hidden=\"true\">\
         <path class=\"limit\" d=\"M0 4H18\"/></svg>{}</th><td class=\"n\" colspan=\"{column_count}\">{}</td></tr>\n",
        escaped(label),
        escaped(value),
    );
}

fn close_legend(out: &mut String) {
    out.push_str("</tbody>\n</table>\n</figure>\n");
}
