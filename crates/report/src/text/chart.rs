//! Charts for a terminal: all lines together in braille dots, then each as a strip of blocks beside its
//! figures, so that nothing depends on colour.

use super::paint::{Ink, Paint};
use super::table::{self, Side, TextColumn};
use super::wrap::{display_width, wrapped};
use crate::axis::{LogAxis, Tick, ValueAxis, horizontal, with_unit};
use crate::chart::{Distribution, LineChart, TimeSeries, known};
use crate::quantity::{self, ABSENT};
use crate::sampling;
use crate::unit::Unit;

/// Height of a chart in lines of text, each with four rows of dots.
const ROWS: usize = 8;

/// Maximum width of a chart.
const WIDTH_MAX: usize = 100;

/// Columns of the strip beside a line's figures, unless the terminal is narrow.
const STRIP: usize = 24;

fn strip_width(width: usize) -> usize {
    if width < 64 { 16 } else { STRIP }
}

/// Lowest to highest.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

pub(super) fn line_chart(chart: &LineChart, width: usize, paint: Paint, lines: &mut Vec<String>) {
    lines.extend(wrapped(&chart.title, width).iter().map(|line| paint.ink(Ink::Bold, line)));
    let points = chart.series.iter().flat_map(TimeSeries::points);
    let values = sampling::value_range(points);
    let times = sampling::time_range(chart.series.iter().map(TimeSeries::points));
    if let (Some((low, high)), Some(times)) = (values, times) {
        plot(chart, low, high, times, width.min(WIDTH_MAX), paint, lines);
    }
    figures(chart, times, width, paint, lines);
}

fn plot(
    chart: &LineChart,
    low: f64,
    high: f64,
    (from_s, to_s): (f64, f64),
    width: usize,
    paint: Paint,
    lines: &mut Vec<String>,
) {
    let near = known(&chart.limits).map(|(_, at)| at).filter(|at| crate::svg::is_within_reach(chart, *at));
    let limits: Vec<f64> = near.collect();
    let axis = ValueAxis::covering(
        &chart.y.unit,
        limits.iter().copied().fold(low, f64::min),
        limits.iter().copied().fold(high, f64::max),
        4,
    );
    let label_width = axis.ticks.iter().map(|tick| display_width(&tick.label)).max().unwrap_or(1);
    let columns = width - label_width - 2;
    let (ticks, form) = horizontal(chart.x.as_ref(), from_s, to_s, (columns / 10).clamp(2, 9));
    let form = if chart.x.is_some() { form } else { format!("time in {form}") };
    let name = [chart.y.label.as_str(), axis.symbol.as_str()].join(", ");
    let name = format!("{} · {form}", name.trim_matches([',', ' ']));
    lines.extend(wrapped(&name, width).iter().map(|line| paint.ink(Ink::Soft, line)));
    let mut dots = Dots::new(columns);
    for (index, series) in chart.series.iter().enumerate() {
        let spans = sampling::crossed(series.points(), from_s, to_s, columns * 2);
        for (x, span) in spans.iter().enumerate() {
            if let Some((low, high)) = span {
                dots.rise(x, axis.place(*low), axis.place(*high), index);
            }
        }
    }
    let limit_rows: Vec<usize> = limits.iter().map(|at| row_of(axis.place(*at))).collect();
    let mut labels = vec![String::new(); ROWS];
    for tick in &axis.ticks {
        labels[row_of(axis.place(tick.at))] = tick.label.clone();
    }
    for (row, label) in labels.iter().enumerate() {
        let blanks = " ".repeat(label_width - display_width(label));
        let line = dots.line(row, limit_rows.contains(&row), paint);
        lines.push(format!("{blanks}{} {line}", paint.ink(Ink::Soft, &format!("{label}│"))));
    }
    let place = |time_s: f64| (time_s - from_s) / (to_s - from_s);
    lines.push(paint.ink(Ink::Soft, &time_labels(&ticks, place, label_width, columns)));
}

/// The line of text, counted from above, of a position on the axis.
fn row_of(place: f64) -> usize {
    let dot = ((1.0 - place) * (ROWS * 4 - 1) as f64).round() as usize;
    dot / 4
}

/// Time labels, each starting below its moment, without those that would collide.
fn time_labels(ticks: &[Tick], place: impl Fn(f64) -> f64, label_width: usize, columns: usize) -> String {
    let mut line = " ".repeat(label_width + 2);
    for tick in ticks {
        let column = (place(tick.at) * (columns - 1) as f64).round() as usize;
        // The last time ends with the plot where it cannot start under its moment.
        let start = label_width + 2 + column.min(columns - display_width(&tick.label).min(columns));
        let held = display_width(&line);
        if start >= held {
            line.push_str(&" ".repeat(start - held));
            line.push_str(&tick.label);
            line.push(' ');
        }
    }
    line
}

/// Braille dots, two a column and four a row; a cell has the colour of the line drawn last.
struct Dots {
    columns: usize,
    cells: Vec<(u8, usize)>,
}

impl Dots {
    fn new(columns: usize) -> Self {
        Self { columns, cells: vec![(0, 0); columns * ROWS] }
    }

    /// Sets the dots of column `x` between two positions on the vertical axis.
    fn rise(&mut self, x: usize, low: f64, high: f64, series: usize) {
        let last = (ROWS * 4 - 1) as f64;
        let (top, bottom) = (((1.0 - high) * last).round() as usize, ((1.0 - low) * last).round() as usize);
        for y in top..=bottom {
            // Bits of a braille cell run down its columns, but for its lowest row.
            const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
            let cell = &mut self.cells[y / 4 * self.columns + x / 2];
            *cell = (cell.0 | BITS[y % 4][x % 2], series);
        }
    }

    /// One row as text; a limit shows where no line is.
    fn line(&self, row: usize, holds_limit: bool, paint: Paint) -> String {
        let cells = &self.cells[row * self.columns..(row + 1) * self.columns];
        let mut line = String::new();
        for run in cells.chunk_by(|a, b| (a.0 == 0) == (b.0 == 0) && a.1 == b.1) {
            let (bits, series) = run[0];
            if bits == 0 {
                let blank = if holds_limit { "┄" } else { " " };
                let blanks = blank.repeat(run.len());
                line.push_str(&if holds_limit { paint.ink(Ink::Fail, &blanks) } else { blanks });
            } else {
                let dots =
                    run.iter().map(|(bits, _)| char::from_u32(0x2800 + u32::from(*bits)).unwrap_or(' '));
                line.push_str(&paint.ink(Ink::Series(series), &dots.collect::<String>()));
            }
        }
        line
    }
}

/// The strip of each line, on its own scale, with its figures.
fn figures(
    chart: &LineChart,
    times: Option<(f64, f64)>,
    width: usize,
    paint: Paint,
    lines: &mut Vec<String>,
) {
    let column = |title: &str, side| TextColumn { title: title.to_owned(), unit: String::new(), side };
    let columns = [
        column("Line", Side::Left),
        column("Lowest point", Side::Right),
        column("Mean of points", Side::Right),
        column("Highest point", Side::Right),
        column("Own scale, from 0", Side::Right),
    ];
    let mut rows = Vec::new();
    for series in &chart.series {
        let summary = sampling::summary(series.points());
        let value = |value: Option<f64>| (shown(&chart.y.unit, value), None);
        let extent = summary.map(|summary| summary.extent);
        let strip = match (times, extent) {
            (Some((from_s, to_s)), Some(extent)) => {
                let spans = sampling::crossed(series.points(), from_s, to_s, strip_width(width));
                let heights = spans.iter().map(|span| span.map(|(_, high)| high / extent.high));
                strip(heights)
            }
            _ => String::new(),
        };
        rows.push(vec![
            (series.name().to_owned(), None),
            value(extent.map(|extent| extent.low)),
            value(extent.map(|extent| extent.mean)),
            value(extent.map(|extent| extent.high)),
            (strip, None),
        ]);
    }
    table::aligned(&columns, &rows, None, width, paint, lines);
    for (label, at) in known(&chart.limits) {
        let text = format!("{label}: {}", with_unit(&chart.y.unit, at));
        lines.extend(wrapped(&format!("┄ {text}"), width).iter().map(|line| paint.ink(Ink::Soft, line)));
    }
}

/// Blocks of the given heights (0 to 1); a dot for a break.
pub(super) fn strip(heights: impl Iterator<Item = Option<f64>>) -> String {
    let block = |height: f64| BLOCKS[((height.clamp(0.0, 1.0) * 8.0).ceil() as usize).clamp(1, 8) - 1];
    heights
        .map(|height| height.map_or('·', |height| if height.is_nan() { BLOCKS[0] } else { block(height) }))
        .collect()
}

/// A distribution: a strip of shares over the logarithmic range, and percentiles.
pub(super) fn distribution(chart: &Distribution, width: usize, paint: Paint, lines: &mut Vec<String>) {
    lines.extend(wrapped(&chart.title, width).iter().map(|line| paint.ink(Ink::Bold, line)));
    let range = crate::svg::occupied(&chart.series);
    let axis = range.map(|(low, high)| LogAxis::covering(&chart.value.unit, low, high));
    let column = |title: String, side| TextColumn { title, unit: String::new(), side };
    let percentiles = [50.0, 95.0, 99.0, 99.9, 100.0];
    let mut columns = vec![column("Line".to_owned(), Side::Left), column("Counted".to_owned(), Side::Right)];
    columns
        .extend(["p50", "p95", "p99", "p99.9", "Longest"].map(|title| column(title.to_owned(), Side::Right)));
    if let Some(axis) = &axis {
        let end = |at: f64| shown(&chart.value.unit, Some(at));
        columns.push(column(format!("{} … {}", end(axis.low), end(axis.high)), Side::Right));
    }
    let mut rows = Vec::new();
    for series in &chart.series {
        let mut row =
            vec![(series.name().to_owned(), None), (quantity::number(series.count() as f64, 0), None)];
        row.extend(percentiles.map(|percent| (shown(&chart.value.unit, series.percentile(percent)), None)));
        if let Some(axis) = &axis {
            let shares = series.shares(axis.low, axis.high, strip_width(width), f64::log10);
            let most = shares.iter().copied().fold(0.0, f64::max);
            let heights = shares.iter().map(|share| (*share > 0.0).then_some(share / most));
            row.push((strip(heights), None));
        }
        rows.push(row);
    }
    table::aligned(&columns, &rows, None, width, paint, lines);
    for (label, at) in known(&chart.limits) {
        let text = format!("{label}: {}", with_unit(&chart.value.unit, at));
        lines.extend(wrapped(&format!("┄ {text}"), width).iter().map(|line| paint.ink(Ink::Soft, line)));
    }
}

pub(super) fn shown(unit: &Unit, value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| with_unit(unit, value).replace(' ', "\u{a0}"))
}
