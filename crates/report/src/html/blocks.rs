//! Blocks as HTML.

use crate::block::{Block, KeyValue, KeyValues, LimitCheck, LimitTable, LogBlock};
use crate::cell::{Cell, Mark};
use crate::html::charts;
use crate::markup::{breakable, escaped, put};
use crate::quantity;
use crate::table::{Align, Column, Table};
use crate::unit::Unit;

/// Lists and tables with more rows may be split between printed pages.
const SHORT_ROWS: usize = 14;

/// Writes one block; `id` is unique on the page, `section` labels blocks without a caption.
pub(super) fn block(block: &Block, id: &str, section: &str, out: &mut String) {
    match block {
        Block::Paragraph(paragraph) => put!(out, "<p>{}</p>\n", escaped(&paragraph.text)),
        Block::KeyValues(values) => key_values(values, out),
        Block::Table(content) => table(content, section, out),
        Block::Limits(limits) => limit_table(limits, section, out),
        Block::LineChart(chart) => charts::line_chart(chart, id, out),
        Block::Curve(chart) => charts::curve(chart, id, out),
        Block::Distribution(chart) => charts::distribution(chart, id, out),
        Block::Log(lines) => log(lines, section, out),
    }
}

fn key_values(values: &KeyValues, out: &mut String) {
    let short = if values.rows.len() <= SHORT_ROWS { " short" } else { "" };
    put!(out, "<dl class=\"values{short}\">\n");
    for KeyValue { key, value, note } in &values.rows {
        put!(out, "<div><dt>{}</dt><dd>", breakable(key));
        cell_content(value, &Unit::One, out);
        if !note.is_empty() {
            put!(out, " <span class=\"note\">{}</span>", escaped(note));
        }
        out.push_str("</dd></div>\n");
    }
    out.push_str("</dl>\n");
}

/// Opens a frame that scrolls sideways, also by keyboard, if the table is wider than the page.
fn open_table_frame(label: &str, row_count: usize, out: &mut String) {
    let short = if row_count <= SHORT_ROWS { " short" } else { "" };
    put!(
        out,
        "<div class=\"wide{short}\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n",
        escaped(label)
    );
}

fn table(table: &Table, section: &str, out: &mut String) {
    let caption = table.caption();
    open_table_frame(if caption.is_empty() { section } else { caption }, table.rows().len(), out);
    out.push_str("<table>\n");
    if !caption.is_empty() {
        put!(out, "<caption>{}</caption>\n", escaped(caption));
    }
    out.push_str("<thead><tr>");
    for Column { title, unit, align } in table.columns() {
        put!(out, "<th scope=\"col\"{}>{}", number_class(*align), escaped(title));
        if *unit != Unit::One {
            put!(out, " <span class=\"unit\">{}</span>", escaped(unit.symbol()));
        }
        out.push_str("</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows() {
        table_row(row, table.columns(), out);
    }
    out.push_str("</tbody>\n");
    if let Some(total) = table.total_row() {
        out.push_str("<tfoot>\n");
        table_row(total, table.columns(), out);
        out.push_str("</tfoot>\n");
    }
    out.push_str("</table>\n</div>\n");
}

/// The first cell is the row's heading if its column holds words.
fn table_row(row: &[Cell], columns: &[Column], out: &mut String) {
    out.push_str("<tr>");
    for (index, (cell, column)) in row.iter().zip(columns).enumerate() {
        let is_name = index == 0 && column.align == Align::Left;
        let (open, close) = if is_name { ("<th scope=\"row\"", "</th>") } else { ("<td", "</td>") };
        put!(out, "{open}{}>", number_class(column.align));
        cell_content(cell, &column.unit, out);
        out.push_str(close);
    }
    out.push_str("</tr>\n");
}

fn number_class(align: Align) -> &'static str {
    match align {
        Align::Left => "",
        Align::Right => " class=\"n\"",
    }
}

/// Shows the exact byte count of a size as a tooltip.
fn cell_content(cell: &Cell, column_unit: &Unit, out: &mut String) {
    match cell {
        Cell::Mark { mark } => judgement(*mark, out),
        Cell::Bytes { bytes } => put!(
            out,
            "<span title=\"{} bytes\">{}</span>",
            quantity::number(*bytes as f64, 0),
            quantity::bytes(*bytes)
        ),
        other => put!(out, "{}", breakable(&other.shown(column_unit))),
    }
}

fn judgement(mark: Mark, out: &mut String) {
    let class = match mark {
        Mark::Pass => "pass",
        Mark::Fail => "fail",
        Mark::Warning => "warn",
        Mark::NotJudged => "plain",
    };
    put!(out, "<span class=\"mark {class}\">{}</span>", mark.word());
}

fn limit_table(limits: &LimitTable, section: &str, out: &mut String) {
    open_table_frame(section, limits.checks.len(), out);
    out.push_str(
        "<table class=\"limits\">\n<thead><tr><th scope=\"col\">Limit on</th><th scope=\"col\">Result</th>\
         <th scope=\"col\" class=\"n\">Measured</th><th scope=\"col\" class=\"n\">Limit</th>\
         <th scope=\"col\">Share of the limit</th><th scope=\"col\">Source</th></tr></thead>\n<tbody>\n",
    );
    for check in &limits.checks {
        put!(out, "<tr><th scope=\"row\">{}</th><td>", escaped(&check.what));
        judgement(check.mark(), out);
        put!(
            out,
            "</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>",
            escaped(&check.measured_shown()),
            escaped(&check.limit_shown()),
        );
        gauge(check, out);
        put!(out, "</td><td class=\"source\">{}</td></tr>\n", escaped(&check.source));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Length of the bar at which it is cut off, as a share of the limit.
const GAUGE_REACH: f64 = 1.25;
const GAUGE_WIDTH: f64 = 90.0;

/// A bar relative to a tick at the limit, with the share as text.
fn gauge(check: &LimitCheck, out: &mut String) {
    let Some(used) = check.share() else { return };
    let class = match check.mark() {
        Mark::Pass => "pass",
        Mark::Fail => "fail",
        Mark::Warning | Mark::NotJudged => "plain",
    };
    let filled = used.min(GAUGE_REACH) / GAUGE_REACH * GAUGE_WIDTH;
    let limit_x = GAUGE_WIDTH / GAUGE_REACH;
    put!(
        out,
        "<span class=\"gauge\"><svg viewBox=\"0 0 {GAUGE_WIDTH} 10\" width=\"{GAUGE_WIDTH}\" height=\"10\" \
         aria-hidden=\"true\"><rect class=\"track\" y=\"2\" width=\"{GAUGE_WIDTH}\" height=\"6\" rx=\"1\"/>\
         <rect class=\"{class}\" y=\"2\" width=\"{filled:.1}\" height=\"6\" rx=\"1\"/>\
         <path class=\"stop\" d=\"M{limit_x} 0v10\"/></svg> {}\u{a0}%</span>",
        percent_of_limit(used),
    );
}

/// Whole percent, unless rounding would cross the limit.
fn percent_of_limit(used: f64) -> String {
    let percent = used * 100.0;
    let hides_the_answer = percent.round() == 100.0 && percent != 100.0;
    if percent > 9999.0 {
        ">9,999".to_owned()
    } else if hides_the_answer {
        quantity::number(percent, 2)
    } else {
        quantity::number(percent, 0)
    }
}

fn log(log: &LogBlock, section: &str, out: &mut String) {
    put!(
        out,
        "<div class=\"log\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table>\n",
        escaped(section)
    );
    out.push_str(
        "<thead><tr><th scope=\"col\">Time</th><th scope=\"col\">Event</th></tr></thead>\n<tbody>\n",
    );
    for line in &log.lines {
        put!(out, "<tr><td>{}</td><td>{}</td></tr>\n", escaped(&line.time), escaped(&line.text));
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_rounded_across_the_limit() {
        let cases =
            [(0.71, "71"), (1.0, "100"), (1.002, "100.20"), (0.9961, "99.61"), (1.5, "150"), (1e9, ">9,999")];
        for (used, expected) in cases {
            assert_eq!(percent_of_limit(used), expected);
        }
    }
}
