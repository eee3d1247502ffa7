//! Data no run should give and some will.

use report::text::TextOptions;
use report::{
    Axis, Bucket, Cell, Column, Distribution, DistributionView, Document, Histogram, LineChart, Meta,
    Section, Table, TimeSeries, Unit,
};

use crate::html::assert_balanced;

fn line(samples: impl IntoIterator<Item = (f64, f64)>) -> Document {
    let chart = LineChart::new("line", Axis::new("y", Unit::Milliseconds))
        .series(TimeSeries::new("odd", samples))
        .limit("nowhere", f64::NAN)
        .limit("somewhere", 20.0)
        .event("never", f64::INFINITY);
    only(Section::new("s", "").block(chart))
}

fn only(section: Section) -> Document {
    let mut document = Document::new("odd", "", Meta::default());
    document.section(section);
    document
}

fn check(document: &Document) {
    let page = report::html::render(document);
    assert_balanced(&page);
    let body = &page[page.find("<body>").expect("a body")..];
    for odd in ["NaN", "nan", ">inf", " inf", "-inf", "infinity"] {
        assert!(!body.contains(odd), "{odd} in {body}");
    }
    for width in [0, 40, 57, 80, 200] {
        let text = report::text::render(document, TextOptions { width, colour: false });
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= width.max(40), "{widest} columns at {width}:\n{text}");
        assert!(!text.contains("NaN") && !text.contains(" inf"), "{text}");
    }
    assert_eq!(&report::json::parse(&report::json::render(document)).expect("our own JSON"), document);
}

#[test]
fn lines_of_every_odd_shape_are_drawn_or_said_to_be_empty() {
    check(&line([]));
    check(&line([(0.0, 1.0)]));
    check(&line([(5.0, 1.0), (5.0, 2.0)]));
    check(&line([(0.0, f64::NAN), (15.0, f64::INFINITY)]));
    check(&line([(0.0, 1.0), (15.0, f64::NAN), (30.0, 1.0)]));
    check(&line([(0.0, 0.0), (15.0, 0.0)]));
    check(&line([(0.0, -5.0), (15.0, 5.0)]));
    check(&line([(0.0, -5.0), (15.0, -1.0)]));
    check(&line([(0.0, 1e308), (15.0, -1e308), (30.0, 1e300)]));
    check(&line([(0.0, 5e-324), (15.0, 1e-300)]));
    check(&line([(-1e300, 1.0), (1e300, 2.0)]));
    check(&line([(-1e308, 1.0), (1e308, 2.0)]));
    check(&line([(0.0, 1.0), (1e-9, 2.0)]));
    check(&line([(1e17, 1.0), (1e17 + 64.0, 2.0)]));
    check(&line((0..5760).map(|i| (f64::from(i) * 15.0, if i % 2 == 0 { f64::NAN } else { f64::from(i) }))));
    assert!(report::html::render(&line([])).contains("No samples"));
}

#[test]
fn distributions_of_every_odd_shape_are_drawn_or_said_to_be_empty() {
    let bucket = |from: f64, to: f64, count| Bucket { from, to, count };
    let shapes = [
        vec![],
        vec![bucket(0.0, 1.0, 0)],
        vec![bucket(0.0, 1.0, 1)],
        vec![bucket(0.0, 5e-324, 1), bucket(1e300, 1.7e308, 1)],
        vec![bucket(1.0, 1.0 + f64::EPSILON, u64::MAX), bucket(2.0, 3.0, u64::MAX)],
        vec![bucket(1e-9, 1e9, 12)],
    ];
    for buckets in shapes {
        for view in [DistributionView::Shares, DistributionView::Percentiles] {
            let chart = Distribution::new("odd", Axis::new("latency", Unit::Milliseconds), view)
                .series(Histogram::new("odd", buckets.clone()).expect("ascending ranges"))
                .limit("nowhere", f64::NAN)
                .limit("zero", 0.0)
                .limit("somewhere", 20.0);
            check(&only(Section::new("s", "").block(chart)));
        }
    }
}

#[test]
fn a_table_of_forty_volumes_with_long_names_fits_any_terminal() {
    let mut columns = vec![Column::text("Volume")];
    columns
        .extend((0..12).map(|index| Column::number(format!("Counter number {index}"), Unit::Milliseconds)));
    let mut table = Table::new("All volumes", columns);
    for volume in 0..40 {
        let mut row = vec![Cell::text(format!("/dev/disk/by-id/scsi-3600{volume:0>60}"))];
        row.extend(
            (0..12).map(|index| Cell::number(f64::from(volume) * 10f64.powi(index), Unit::Milliseconds, 3)),
        );
        table.push(row);
    }
    let document = only(Section::new("s", "").block(table));
    check(&document);
    let text = report::text::render(&document, TextOptions { width: 80, colour: false });
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    assert!(squeezed.contains("3,900,000,000,000.000"), "a number was cut");
}

#[test]
fn an_empty_document_is_still_a_page() {
    check(&Document::new("", "", Meta::default()));
    check(&only(Section::new("", "").block(Table::new("", []))));
}
