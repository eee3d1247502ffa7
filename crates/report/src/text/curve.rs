//! Curves for a terminal: a row for each line, a column for each station, and a strip of blocks as the line's
//! shape.

use super::chart::{shown, strip};
use super::paint::{Ink, Paint};
use super::table::{self, Side, TextColumn};
use super::wrap::wrapped;
use crate::axis::with_unit;
use crate::chart::known;
use crate::curve::CurveChart;

/// Columns of the strip for each station: a step is easier to see than a dot.
const STRIP_STEP: usize = 2;

pub(super) fn curve(chart: &CurveChart, width: usize, paint: Paint, lines: &mut Vec<String>) {
    lines.extend(wrapped(&chart.title, width).iter().map(|line| paint.ink(Ink::Bold, line)));
    let column = |title: &str, side| TextColumn { title: title.to_owned(), unit: String::new(), side };
    let mut columns = vec![column(&chart.x, Side::Left)];
    columns.extend(chart.stations().iter().map(|station| column(&station.label, Side::Right)));
    columns.push(column("From 0", Side::Right));
    let rows: Vec<_> = chart
        .lines()
        .iter()
        .map(|line| {
            let highest = line.values.iter().filter_map(|value| value.get()).fold(0.0, f64::max);
            let heights = line.values.iter().flat_map(|value| {
                let height = value.get().map(|value| if highest > 0.0 { value / highest } else { 0.0 });
                [height; STRIP_STEP]
            });
            let mut row = vec![(line.name.clone(), None)];
            row.extend(line.values.iter().map(|value| (shown(&chart.y.unit, value.get()), None)));
            row.push((strip(heights), None));
            row
        })
        .collect();
    table::aligned(&columns, &rows, None, width, paint, lines);
    let mut notes: Vec<String> = known(&chart.limits)
        .map(|(label, at)| format!("┄ {label}: {}", with_unit(&chart.y.unit, at)))
        .collect();
    if let Some((index, label)) = &chart.mark {
        notes.push(format!("┆ {label}: {}", chart.stations()[*index].label));
    }
    for note in notes {
        lines.extend(wrapped(&note, width).iter().map(|line| paint.ink(Ink::Soft, line)));
    }
}
