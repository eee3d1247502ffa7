//! Tables for a terminal. If a table is wider than the terminal, first its words wrap; then further columns
//! follow below, with the first column repeated.

use super::paint::{Ink, Paint};
use super::wrap::{display_width, wrapped};
use crate::cell::{Cell, Mark};
use crate::table::{Align, Table};

/// Heading of one column.
pub(super) struct TextColumn {
    pub title: String,
    pub unit: String,
    pub side: Side,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Right,
}

/// Text of a cell, and its colour if it is a judgement.
type TextCell = (String, Option<Mark>);

/// Blanks between columns.
const GAP: usize = 2;

/// Minimum width of a wrapped column of words.
const WORDS_MIN: usize = 14;

pub(super) fn document_table(table: &Table, width: usize, paint: Paint, lines: &mut Vec<String>) {
    if !table.caption().is_empty() {
        lines.extend(wrapped(table.caption(), width).iter().map(|line| paint.ink(Ink::Bold, line)));
    }
    let columns: Vec<TextColumn> = table
        .columns()
        .iter()
        .map(|column| TextColumn {
            title: column.title.clone(),
            unit: column.unit.symbol().to_owned(),
            side: if column.align == Align::Right { Side::Right } else { Side::Left },
        })
        .collect();
    let shown = |row: &[Cell]| -> Vec<TextCell> {
        let cells = row.iter().zip(table.columns());
        cells.map(|(cell, column)| (cell.shown(&column.unit), mark_of(cell))).collect()
    };
    let rows: Vec<Vec<TextCell>> = table.rows().iter().map(|row| shown(row)).collect();
    let total = table.total_row().map(shown);
    aligned(&columns, &rows, total.as_deref(), width, paint, lines);
}

fn mark_of(cell: &Cell) -> Option<Mark> {
    match cell {
        Cell::Mark { mark } => Some(*mark),
        _ => None,
    }
}

/// Writes `rows` and `total` under `columns` within `width`.
pub(super) fn aligned(
    columns: &[TextColumn],
    rows: &[Vec<TextCell>],
    total: Option<&[TextCell]>,
    width: usize,
    paint: Paint,
    lines: &mut Vec<String>,
) {
    if columns.is_empty() {
        return;
    }
    let widths = fitted_widths(columns, rows, total, width);
    let parts = split_into_parts(&widths, width);
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            lines.push(String::new());
        }
        heading(columns, &widths, part, paint, lines);
        for row in rows {
            table_row(row, columns, &widths, part, paint, lines);
        }
        if let Some(total) = total {
            rule(&widths, part, paint, lines);
            table_row(total, columns, &widths, part, paint, lines);
        }
    }
}

/// Natural widths; columns of words are narrowed, the widest first, as far as that helps.
fn fitted_widths(
    columns: &[TextColumn],
    rows: &[Vec<TextCell>],
    total: Option<&[TextCell]>,
    width: usize,
) -> Vec<usize> {
    let cells = |index: usize| rows.iter().map(move |row| &row[index]).chain(total.map(|row| &row[index]));
    let mut widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let data = cells(index).map(|(text, _)| display_width(text)).max().unwrap_or(0);
            let title = column.title.split(' ').map(display_width).max().unwrap_or(0);
            data.max(title).max(display_width(&column.unit)).clamp(1, width)
        })
        .collect();
    // A title wraps over lines, but is not broken up where the line has room for it.
    while let Some(index) = (0..columns.len()).find(|index| {
        total_width(&widths) < width && widths[*index] < display_width(&columns[*index].title).min(WORDS_MIN)
    }) {
        widths[index] += 1;
    }
    while total_width(&widths) > width {
        let words = (0..columns.len())
            .filter(|index| columns[*index].side == Side::Left && widths[*index] > WORDS_MIN);
        let Some(widest) = words.max_by_key(|index| widths[*index]) else { break };
        widths[widest] -= 1;
    }
    // Whatever is still too wide must at least fit beside the first column, which leads every part.
    if columns.len() > 1 {
        widths[0] = widths[0].min(width / 2);
        let beside = width - widths[0] - GAP;
        widths.iter_mut().skip(1).for_each(|column_width| *column_width = (*column_width).min(beside));
    }
    widths
}

fn total_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * (widths.len() - 1)
}

/// Groups of columns that fit the width, each led by the first column.
fn split_into_parts(widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = vec![vec![0]];
    let mut used = widths[0];
    for (index, column_width) in widths.iter().enumerate().skip(1) {
        let part = parts.last_mut().expect("there is a part from the start");
        if used + GAP + column_width > width && part.len() > 1 {
            parts.push(vec![0, index]);
            used = widths[0] + GAP + column_width;
        } else {
            part.push(index);
            used += GAP + column_width;
        }
    }
    parts
}

fn heading(columns: &[TextColumn], widths: &[usize], part: &[usize], paint: Paint, lines: &mut Vec<String>) {
    let mut titles: Vec<Vec<String>> =
        part.iter().map(|index| wrapped(&columns[*index].title, widths[*index])).collect();
    for (title, index) in titles.iter_mut().zip(part) {
        if !columns[*index].unit.is_empty() {
            title.push(columns[*index].unit.clone());
        }
    }
    let height = titles.iter().map(Vec::len).max().unwrap_or(0);
    for line in 0..height {
        let texts: Vec<String> = part
            .iter()
            .zip(&titles)
            .map(|(index, title)| {
                // Titles stand on the rule, so short ones start lower.
                let text = (line + title.len()).checked_sub(height).map_or("", |at| title[at].as_str());
                padded(text, display_width(text), widths[*index], columns[*index].side)
            })
            .collect();
        lines.push(paint.ink(Ink::Soft, texts.join(&" ".repeat(GAP)).trim_end()));
    }
    rule(widths, part, paint, lines);
}

fn rule(widths: &[usize], part: &[usize], paint: Paint, lines: &mut Vec<String>) {
    let dashes: Vec<String> = part.iter().map(|index| "─".repeat(widths[*index])).collect();
    lines.push(paint.ink(Ink::Soft, &dashes.join(&" ".repeat(GAP))));
}

fn table_row(
    row: &[TextCell],
    columns: &[TextColumn],
    widths: &[usize],
    part: &[usize],
    paint: Paint,
    lines: &mut Vec<String>,
) {
    let cells: Vec<Vec<String>> = part.iter().map(|index| wrapped(&row[*index].0, widths[*index])).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0).max(1);
    for line in 0..height {
        let texts: Vec<String> = part
            .iter()
            .zip(&cells)
            .map(|(index, cell)| {
                let text = cell.get(line).map_or("", String::as_str);
                let painted = row[*index].1.map_or(text.to_owned(), |mark| paint.mark(mark, text));
                padded(&painted, display_width(text), widths[*index], columns[*index].side)
            })
            .collect();
        lines.push(texts.join(&" ".repeat(GAP)).trim_end().to_owned());
    }
}

/// Pads `text`, which is `shown_width` columns wide, to `width`.
fn padded(text: &str, shown_width: usize, width: usize, side: Side) -> String {
    let blanks = " ".repeat(width.saturating_sub(shown_width));
    match side {
        Side::Left => format!("{text}{blanks}"),
        Side::Right => format!("{blanks}{text}"),
    }
}
