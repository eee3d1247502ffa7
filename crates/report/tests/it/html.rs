use std::collections::BTreeMap;

use expect_test::{expect, expect_file};
use report::html::render;
use report::{
    Axis, Cell, Column, Document, LineChart, LogBlock, Meta, Section, Severity, Table, TimeSeries, Unit,
};

use crate::small;

#[test]
fn the_body_of_a_small_report() {
    let page = render(&small());
    let body = &page[page.find("<body>").unwrap()..];
    expect_file!["small.html"].assert_eq(body);
}

#[test]
fn the_page_is_one_file_that_runs_and_fetches_nothing() {
    let page = render(&small());
    let foreign = [
        "<script",
        "<link",
        "<img",
        "<iframe",
        "@import",
        "url(",
        "http:",
        "https:",
        " onclick=",
        " onload=",
    ];
    for part in foreign {
        assert!(!page.contains(part), "{part}");
    }
    let head = &page[..page.find("<style>").unwrap()];
    expect![[r#"
        <!doctype html>
        <html lang="en">
        <head>
        <meta charset="utf-8">
        <meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'">
        <meta name="viewport" content="width=device-width, initial-scale=1">
        <meta name="color-scheme" content="light dark">
        <meta name="generator" content="spindle 0.1.0">
        <title>Fail: Storage proof</title>
    "#]].assert_eq(head);
}

#[test]
fn every_text_of_a_document_is_escaped() {
    let evil = "</style><script>alert('x')</script>\"&";
    let mut document = Document::new(evil, evil, Meta { seed: Some(evil.to_owned()), ..Meta::default() });
    document.meta.command = Some(evil.to_owned());
    document.meta.generator = evil.to_owned();
    document.meta.machine = evil.to_owned();
    document.meta.created_utc = evil.to_owned();
    document.finding(Severity::Note, evil, evil);
    document.highlight(evil, Cell::number(1.0, evil, 0), evil);
    let mut log = LogBlock::default();
    log.push(evil, evil);
    let chart = LineChart::new(evil, Axis::new(evil, evil))
        .series(TimeSeries::new(evil, [(0.0, 1.0), (9.0, 2.0)]))
        .limit(evil, 1.5)
        .event(evil, 4.0);
    let table = Table::new(evil, [Column::number(evil, evil)]).row([Cell::text(evil)]);
    document.section(Section::new(evil, evil).paragraph(evil).block(log).block(chart).block(table));
    let page = render(&document);
    assert!(!page.contains("<script"), "text became markup");
    assert_eq!(page.matches("</style>").count(), 1, "text ended the style sheet");
    assert!(page.matches("&lt;script&gt;").count() >= 20, "some text is missing");
    assert_balanced(&page);
}

#[test]
fn a_day_of_samples_makes_a_small_picture_that_keeps_the_spike() {
    let samples =
        (0..5760).map(|i| (f64::from(i) * 15.0, if i == 3000 { 400.0 } else { 14.0 + f64::from(i % 5) }));
    let chart =
        LineChart::new("day", Axis::new("latency", Unit::Milliseconds)).series(TimeSeries::new("r", samples));
    let mut document = Document::new("t", "", Meta::default());
    document.section(Section::new("s", "").block(chart));
    let page = render(&document);
    let svg = &page[page.find("<svg").unwrap()..page.find("</svg>").unwrap()];
    assert!(svg.len() < 40_000, "{} bytes", svg.len());
    // 400 is the top of the axis, so the spike reaches the top of the plot.
    assert!(svg.contains(" 28.0V"), "the spike is gone");
}

#[test]
fn text_and_lines_stand_out_on_screen_dark_screen_and_paper() {
    let page = render(&small());
    let themes: Vec<BTreeMap<&str, &str>> = page.split(":root {").skip(1).map(colours).collect();
    assert_eq!(themes.len(), 3, "light, dark, print");
    for theme in themes {
        let contrast = |front: &str, back: &str| {
            let (a, b) = (luminance(theme[front]), luminance(theme[back]));
            (a.max(b) + 0.05) / (a.min(b) + 0.05)
        };
        // WCAG 2.1: 4.5 for text (1.4.3), 3 for what a picture is read by (1.4.11).
        let texts = [
            ("--ink", "--paper"),
            ("--soft", "--paper"),
            ("--soft", "--faint"),
            ("--link", "--paper"),
            ("--fail", "--paper"),
            ("--pass", "--pass-tint"),
            ("--fail", "--fail-tint"),
            ("--warn", "--warn-tint"),
            ("--soft", "--pass-tint"),
            ("--soft", "--fail-tint"),
            ("--soft", "--warn-tint"),
        ];
        for (front, back) in texts {
            assert!(contrast(front, back) >= 4.5, "{front} on {back}: {:.2}", contrast(front, back));
        }
        for line in ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5", "--s6", "--s7"] {
            assert!(contrast(line, "--paper") >= 3.0, "{line}: {:.2}", contrast(line, "--paper"));
        }
    }
}

/// The custom properties with a colour at the start of a rule's body.
fn colours(rule: &str) -> BTreeMap<&str, &str> {
    let body = rule.split('}').next().unwrap_or("");
    let declarations = body.split(';').filter_map(|declaration| declaration.split_once(':'));
    declarations
        .map(|(name, value)| (name.trim(), value.trim()))
        .filter(|(_, value)| value.starts_with('#'))
        .collect()
}

/// Relative luminance of `#rgb` or `#rrggbb`, as WCAG 2.1 defines it.
fn luminance(colour: &str) -> f64 {
    let digits: Vec<u32> =
        colour.chars().skip(1).map(|digit| digit.to_digit(16).expect("a hex digit")).collect();
    let channel = |index: usize| {
        let level = if digits.len() == 3 {
            digits[index] * 17
        } else {
            digits[index * 2] * 16 + digits[index * 2 + 1]
        };
        let share = f64::from(level) / 255.0;
        if share <= 0.03928 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
    };
    0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
}

/// Every element opened is closed in order.
pub(crate) fn assert_balanced(page: &str) {
    let style =
        page.find("<style>").map(|start| start + 7..page.find("</style>").expect("a closed style sheet"));
    let markup =
        style.map_or(page.to_owned(), |sheet| format!("{}{}", &page[..sheet.start], &page[sheet.end..]));
    let mut open: Vec<&str> = Vec::new();
    let mut count = 0;
    for tag in markup.split('<').skip(1) {
        let (inner, _) = tag.split_once('>').expect("a tag that ends");
        let name = inner.trim_start_matches('/').split([' ', '/', '\n']).next().expect("a name");
        count += 1;
        if inner.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
        } else if !(inner.ends_with('/') || ["!doctype", "meta"].contains(&name)) {
            open.push(name);
        }
    }
    assert!(open.is_empty() && count > 10, "left open: {open:?}");
}
