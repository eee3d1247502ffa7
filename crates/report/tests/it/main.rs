//! The three renderings of a report, from outside the crate.

mod html;
mod json;
mod odd;
mod text;

use report::{
    Axis, Bucket, Cell, Column, Distribution, DistributionView, Document, Histogram, KeyValues, LimitCheck,
    LimitTable, LineChart, LogBlock, Mark, Meta, Paragraph, Relation, Section, Severity, Table, TimeSeries,
    Unit, Verdict, VerdictOutcome,
};

/// A small report with one of every kind of block.
fn small() -> Document {
    let meta = Meta {
        generator: "spindle 0.1.0".to_owned(),
        created_utc: "2026-03-14 18:42 UTC".to_owned(),
        machine: "mail-store-2".to_owned(),
        seed: Some("7331".to_owned()),
        command: Some("spindle prove /mnt/a".to_owned()),
    };
    let mut document = Document::new("Storage proof", "one group on /mnt/a", meta);
    document.verdict = Some(Verdict {
        outcome: VerdictOutcome::Fail,
        class: "Smoke test, 2 min".to_owned(),
        headline: "Database reads averaged 23.8 ms; the limit is 20 ms.".to_owned(),
    });
    document.highlight("Database reads", Cell::number(23.8, Unit::Milliseconds, 1), "limit 20 ms");
    document.finding(Severity::Note, "Log and database share a volume.", "");
    document.finding(Severity::Error, "Database reads are too slow.", "limits, line 1");
    document.section(Section::new("Limits", "What the run was held to.").block(LimitTable {
        checks: vec![
            limit("Database reads, average", 23.8, 20.0, Some(false)),
            limit("Slowest log write", 41.0, f64::NAN, None),
        ],
    }));
    document.section(
        Section::new("Configuration", "")
            .block(Paragraph { text: "As given.".to_owned() })
            .block(
                KeyValues::default()
                    .row("Cache", Cell::bytes(256 << 20))
                    .row_with_note("Lazy commits", Cell::number(55.0, Unit::Percent, 0), "AMI 2008")
                    .row("Verified", Mark::Pass),
            )
            .block(
                Table::new(
                    "By volume",
                    [
                        Column::text("Volume"),
                        Column::number("Reads", Unit::PerSecond),
                        Column::number("Latency", Unit::Milliseconds),
                    ],
                )
                .row([
                    Cell::text("/mnt/a"),
                    Cell::number(1170.04, Unit::PerSecond, 1),
                    Cell::number(23.8, "ms", 1),
                ])
                .row([Cell::text("/mnt/b"), Cell::number(f64::NAN, Unit::PerSecond, 1), Cell::seconds(0.5)])
                .total([
                    Cell::text("All"),
                    Cell::number(1170.04, Unit::PerSecond, 1),
                    Cell::Empty,
                ]),
            ),
    );
    document.section(
        Section::new("I/O", "")
            .block(
                LineChart::new("Latency over time", Axis::new("latency", Unit::Milliseconds))
                    .series(TimeSeries::new(
                        "reads",
                        (0..=8).map(|i| (f64::from(i) * 15.0, 20.0 + f64::from(i))),
                    ))
                    .limit("limit on the average", 20.0)
                    .limit("limit on any 15 s", 500.0)
                    .event("measuring begins", 30.0),
            )
            .block(
                Distribution::new(
                    "Every I/O",
                    Axis::new("latency", Unit::Milliseconds),
                    DistributionView::Shares,
                )
                .series(counted("reads"))
                .limit("limit on the average", 20.0),
            ),
    );
    let mut log = LogBlock::default();
    log.push("16:40:02", "Attaching databases");
    log.push("16:42:02", "Measuring ends");
    document.section(Section::new("Test log", "").block(log));
    document
}

fn limit(what: &str, measured: f64, limit: f64, passed: Option<bool>) -> LimitCheck {
    LimitCheck {
        what: what.to_owned(),
        measured: measured.into(),
        relation: Relation::AtMost,
        limit: limit.into(),
        unit: Unit::Milliseconds,
        decimals: 1,
        passed,
        source: "AMI 2008".to_owned(),
    }
}

fn counted(name: &str) -> Histogram {
    let bucket = |from: f64, to: f64, count| Bucket { from, to, count };
    Histogram::new(name, [bucket(1.0, 10.0, 90), bucket(10.0, 20.0, 900), bucket(20.0, 80.0, 10)])
        .expect("ascending ranges")
}
