//! The report for a terminal: aligned, wrapped, optionally coloured.

mod chart;
mod curve;
mod paint;
mod table;
mod wrap;

use crate::block::{Block, KeyValue, KeyValues, LimitTable, LogBlock};
use crate::cell::{Cell, Mark};
use crate::document::{Document, Finding, Section, Severity, Verdict, VerdictOutcome};
use crate::unit::Unit;

use paint::{Ink, Paint};
use table::{Side, TextColumn};
use wrap::{display_width, wrapped};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextOptions {
    /// Columns of the terminal, at least 40.
    pub width: usize,
    /// Enables ANSI colours. The caller knows the terminal, and `NO_COLOR`.
    pub colour: bool,
}

const WIDTH_MIN: usize = 40;

/// Maximum width of running text, for legibility.
const MEASURE: usize = 96;

/// Renders the whole report.
pub fn render(document: &Document, options: TextOptions) -> String {
    let page = Page { width: options.width.max(WIDTH_MIN), paint: Paint { colour: options.colour } };
    let mut lines: Vec<String> = Vec::new();
    page.masthead(document, &mut lines);
    if let Some(verdict) = &document.verdict {
        page.banner(verdict, &mut lines);
    }
    if !document.highlights.is_empty() {
        lines.push(String::new());
        page.key_values(&document.highlights, &mut lines);
    }
    if !document.findings.is_empty() {
        page.heading("Findings", &mut lines);
        document.findings.iter().for_each(|finding| page.finding(finding, &mut lines));
    }
    document.sections.iter().for_each(|section| page.section(section, &mut lines));
    page.origin(document, &mut lines);
    let mut out = String::new();
    for line in lines {
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Layout state of a rendering.
struct Page {
    width: usize,
    paint: Paint,
}

impl Page {
    fn measure(&self) -> usize {
        self.width.min(MEASURE)
    }

    fn masthead(&self, document: &Document, lines: &mut Vec<String>) {
        for line in wrapped(&document.title, self.measure()) {
            lines.push(self.paint.ink(Ink::Bold, &line));
        }
        lines.extend(wrapped(&document.subtitle, self.measure()));
        let origin = [document.meta.machine.as_str(), document.meta.created_utc.as_str()];
        let origin: Vec<&str> = origin.into_iter().filter(|part| !part.is_empty()).collect();
        lines.extend(
            wrapped(&origin.join(" · "), self.measure()).iter().map(|line| self.paint.ink(Ink::Soft, line)),
        );
    }

    fn banner(&self, verdict: &Verdict, lines: &mut Vec<String>) {
        let ink = match verdict.outcome {
            VerdictOutcome::Pass => Ink::Pass,
            VerdictOutcome::Fail => Ink::Fail,
            VerdictOutcome::Incomplete => Ink::Warning,
        };
        let bar = self.paint.ink(ink, "▌");
        let outcome = verdict.outcome.word().to_uppercase();
        lines.push(String::new());
        let class: &str = &verdict.class;
        let first = wrapped(&format!("{outcome}  {class}"), self.measure() - 2);
        for (index, line) in first.iter().enumerate() {
            let shown = match line.strip_prefix(&outcome) {
                Some(rest) if index == 0 => format!("{}{rest}", self.paint.ink(ink, &outcome)),
                _ => line.clone(),
            };
            lines.push(format!("{bar} {shown}"));
        }
        lines.extend(
            wrapped(&verdict.headline, self.measure() - 2).iter().map(|line| format!("{bar} {line}")),
        );
    }

    fn heading(&self, title: &str, lines: &mut Vec<String>) {
        lines.push(String::new());
        for line in wrapped(title, self.width) {
            lines.push(self.paint.ink(Ink::Bold, &line));
        }
        lines.push(self.paint.ink(Ink::Soft, &"─".repeat(self.measure())));
    }

    fn finding(&self, finding: &Finding, lines: &mut Vec<String>) {
        let ink = match finding.severity {
            Severity::Error => Ink::Fail,
            Severity::Warning => Ink::Warning,
            Severity::Note => Ink::Soft,
        };
        const INDENT: usize = 9;
        let mut text = wrapped(&finding.text, self.measure() - INDENT);
        if !finding.source.is_empty() {
            let source = wrapped(&format!("({})", finding.source), self.measure() - INDENT);
            text.extend(source.iter().map(|line| self.paint.ink(Ink::Soft, line)));
        }
        for (index, line) in text.iter().enumerate() {
            let word = if index == 0 { finding.severity.word() } else { "" };
            lines.push(format!("{}{line}", self.paint.ink(ink, &format!("{word:<INDENT$}"))));
        }
    }

    fn section(&self, section: &Section, lines: &mut Vec<String>) {
        self.heading(&section.title, lines);
        if !section.intro.is_empty() {
            lines.extend(wrapped(&section.intro, self.measure()));
            lines.push(String::new());
        }
        for (index, block) in section.blocks.iter().enumerate() {
            if index > 0 {
                lines.push(String::new());
            }
            match block {
                Block::Paragraph(paragraph) => lines.extend(wrapped(&paragraph.text, self.measure())),
                Block::KeyValues(KeyValues { rows }) => self.key_values(rows, lines),
                Block::Table(content) => table::document_table(content, self.width, self.paint, lines),
                Block::Limits(limits) => self.limits(limits, lines),
                Block::LineChart(content) => chart::line_chart(content, self.width, self.paint, lines),
                Block::Curve(content) => curve::curve(content, self.width, self.paint, lines),
                Block::Distribution(content) => chart::distribution(content, self.width, self.paint, lines),
                Block::Log(log) => self.log(log, lines),
            }
        }
    }

    fn key_values(&self, rows: &[KeyValue], lines: &mut Vec<String>) {
        let longest = rows.iter().map(|row| display_width(&row.key)).max().unwrap_or(0);
        let key_width = longest.min(self.width / 2 - 2);
        for KeyValue { key, value, note } in rows {
            let keys = wrapped(key, key_width);
            let text = value.shown(&Unit::One);
            let text = if note.is_empty() { text } else { format!("{text}  ({note})") };
            let mut values = wrapped(&text, self.width - key_width - 2);
            if let (Cell::Mark { mark }, Some(first)) = (value, values.first_mut()) {
                *first = self.paint.mark(*mark, first);
            }
            for index in 0..keys.len().max(values.len()) {
                let key = keys.get(index).map_or("", String::as_str);
                let value = values.get(index).map_or("", String::as_str);
                let gap = " ".repeat(key_width - display_width(key));
                lines.push(format!("{}{gap}  {value}", self.paint.ink(Ink::Soft, key)));
            }
        }
    }

    fn limits(&self, limits: &LimitTable, lines: &mut Vec<String>) {
        let column = |title: &str, side| TextColumn { title: title.to_owned(), unit: String::new(), side };
        let columns = [
            column("Result", Side::Left),
            column("Limit on", Side::Left),
            column("Measured", Side::Right),
            column("Limit", Side::Right),
            column("Source", Side::Left),
        ];
        let rows: Vec<Vec<(String, Option<Mark>)>> = limits
            .checks
            .iter()
            .map(|check| {
                vec![
                    (check.mark().word().to_owned(), Some(check.mark())),
                    (check.what.clone(), None),
                    (check.measured_shown(), None),
                    (check.limit_shown(), None),
                    (check.source.clone(), None),
                ]
            })
            .collect();
        table::aligned(&columns, &rows, None, self.width, self.paint, lines);
    }

    fn log(&self, log: &LogBlock, lines: &mut Vec<String>) {
        let time_width =
            log.lines.iter().map(|line| display_width(&line.time)).max().unwrap_or(0).min(self.width / 2);
        for line in &log.lines {
            let times = wrapped(&line.time, time_width);
            let texts = wrapped(&line.text, self.width - time_width - 2);
            for index in 0..times.len().max(texts.len()) {
                let time = times.get(index).map_or("", String::as_str);
                let text = texts.get(index).map_or("", String::as_str);
                let gap = " ".repeat(time_width - display_width(time));
                lines.push(format!("{}{gap}  {text}", self.paint.ink(Ink::Soft, time)));
            }
        }
    }

    fn origin(&self, document: &Document, lines: &mut Vec<String>) {
        let meta = &document.meta;
        let seed = meta.seed.as_ref().map(|seed| format!("seed {seed}"));
        let parts = [Some(meta.generator.clone()), meta.command.clone(), seed];
        let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
        if parts.is_empty() {
            return;
        }
        lines.push(String::new());
        lines.extend(
            wrapped(&parts.join(" · "), self.width).iter().map(|line| self.paint.ink(Ink::Soft, line)),
        );
    }
}
