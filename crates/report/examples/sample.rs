//! Writes a sample report of `prove` in all three forms, to look at and to test renderers with.
//!
//! `cargo run -p report --example sample -- FOLDER [pass|fail|day|wide]`
//!
//! The figures are invented, but shaped like those of a real array: see `Noise`.
#![allow(clippy::disallowed_methods)] // A program of its own, not a room: it may write files.

use std::error::Error;
use std::path::PathBuf;
use std::{env, fs};

use report::{
    Axis, Bucket, Cell, Column, Distribution, DistributionView, Document, Histogram, KeyValues, LimitCheck,
    LimitTable, LineChart, LogBlock, Mark, Meta, Relation, Section, Severity, Table, TimeSeries, Unit,
    Verdict, VerdictOutcome,
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("usage: sample FOLDER [pass|fail|day|wide]")?);
    let kind = arguments.next().unwrap_or_else(|| "pass".to_owned());
    let run = match kind.as_str() {
        "pass" => Run { hours: 2, volumes: 3, is_slow: false },
        "fail" => Run { hours: 2, volumes: 3, is_slow: true },
        "day" => Run { hours: 24, volumes: 3, is_slow: false },
        "wide" => Run { hours: 2, volumes: 40, is_slow: false },
        _ => return Err(format!("no sample is called {kind}").into()),
    };
    let document = sample(&run)?;
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("report.html"), report::html::render(&document))?;
    fs::write(folder.join("report.json"), report::json::render(&document))?;
    let text = report::text::render(&document, report::text::TextOptions { width: 110, colour: false });
    fs::write(folder.join("report.txt"), &text)?;
    print!("{}", report::text::render(&document, report::text::TextOptions { width: 110, colour: true }));
    Ok(())
}

struct Run {
    hours: u32,
    volumes: usize,
    is_slow: bool,
}

/// A repeatable stream of values between 0 and 1 (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A sample of a 15-second average around `centre`: mostly near, now and then well above.
    fn around(&mut self, centre: f64) -> f64 {
        let spread = (self.next() + self.next() + self.next() - 1.5) * 0.16;
        let burst = if self.next() > 0.994 { self.next() * 1.1 } else { 0.0 };
        centre * (1.0 + spread + burst)
    }
}

fn sample(run: &Run) -> Result<Document, Box<dyn Error>> {
    let read_ms = if run.is_slow { 23.8 } else { 14.2 };
    let class = if run.hours >= 24 { "Stress test" } else { "Performance test" };
    let meta = Meta {
        generator: "spindle 0.1.0".to_owned(),
        created_utc: "2026-03-14 18:42 UTC".to_owned(),
        machine: "mail-store-2, Linux 6.12, 16 processors, 64 GiB".to_owned(),
        seed: Some("7331".to_owned()),
        command: Some(format!(
            "spindle prove /mnt/mail-a /mnt/mail-b --server exchange-2007 --groups 2 --threads 8 --duration {}h",
            run.hours
        )),
    };
    let mut document =
        Document::new("Storage proof for mail", "2 storage groups on /mnt/mail-a and /mnt/mail-b", meta);
    document.verdict = Some(verdict(run, read_ms, class));
    document.highlight("Transactional I/O", Cell::number(662.9, Unit::IoPerSecond, 0), "target 540 IOPS");
    document.highlight(
        "Database reads",
        Cell::number(read_ms, Unit::Milliseconds, 1),
        "average, limit 20 ms",
    );
    document.highlight("Log writes", Cell::number(0.31, Unit::Milliseconds, 2), "average, limit 10 ms");
    document.highlight("Slowest I/O", Cell::number(212.4, Unit::Milliseconds, 0), "one database read");
    document.highlight("Checksum errors", Cell::count(0), "17.0 M pages checked");
    if run.is_slow {
        document.finding(
            Severity::Error,
            "Database reads averaged 23.8 ms; mail clients wait above 20 ms. Fewer mailboxes a volume, or more \
             drives, would bring it down.",
            "limits, line 1",
        );
    }
    document.finding(
        Severity::Warning,
        "The databases are 9 times the cache; below 20 times, the cache answers reads the storage should.",
        "AMI 2008, Jetstress configuration",
    );
    document.finding(Severity::Note, "Log and databases of group 2 share the volume /mnt/mail-b.", "");
    document.section(limits(run, read_ms));
    document.section(sizing(run));
    document.section(parameters());
    document.section(databases(run));
    document.section(transactional_io(run, read_ms)?);
    document.section(background_scan());
    document.section(log_io(run));
    document.section(total_io(run));
    document.section(host(run));
    document.section(test_log());
    Ok(document)
}

fn verdict(run: &Run, read_ms: f64, class: &str) -> Verdict {
    let (outcome, headline) = if run.is_slow {
        (
            VerdictOutcome::Fail,
            format!(
                "Database reads averaged {read_ms} ms; the limit is 20 ms. This storage does not carry 9,000 such \
                 mailboxes."
            ),
        )
    } else {
        (
            VerdictOutcome::Pass,
            format!(
                "The storage carried 663 IOPS, 123 % of what 9,000 mailboxes ask, with database reads \
                 averaging {read_ms} ms."
            ),
        )
    };
    Verdict { outcome, class: format!("{class}, {} h, profile exchange-2007", run.hours), headline }
}

fn limits(run: &Run, read_ms: f64) -> Section {
    let max_ms = if run.hours >= 24 { 100.0 } else { 50.0 };
    let check =
        |what: &str, measured: f64, relation, limit: f64, unit: Unit, decimals, source: &str| LimitCheck {
            what: what.to_owned(),
            measured: measured.into(),
            relation,
            limit: limit.into(),
            unit,
            decimals,
            passed: match relation {
                Relation::AtMost => Some(measured <= limit),
                Relation::AtLeast => Some(measured >= limit),
            },
            source: source.to_owned(),
        };
    let average = "AMI 2008, performance test log, “thresholds”";
    let mut checks = vec![
        check("Database reads, average", read_ms, Relation::AtMost, 20.0, Unit::Milliseconds, 1, average),
        check("Database reads, highest 15 s", 35.6, Relation::AtMost, max_ms, Unit::Milliseconds, 1, average),
        check("Log writes, average", 0.31, Relation::AtMost, 10.0, Unit::Milliseconds, 2, average),
        check("Log writes, highest 15 s", 2.9, Relation::AtMost, max_ms, Unit::Milliseconds, 1, average),
        check("Transactional I/O", 662.9, Relation::AtLeast, 540.0, Unit::IoPerSecond, 1, "target asked for"),
        check(
            "Page-fault stalls",
            0.0,
            Relation::AtMost,
            1.0,
            Unit::PerSecond,
            2,
            "AMI 2008, host performance",
        ),
        check("Checksum errors", 0.0, Relation::AtMost, 0.0, Unit::One, 0, "none is acceptable"),
    ];
    checks.push(LimitCheck {
        what: "Slowest single database read".to_owned(),
        measured: 212.4.into(),
        relation: Relation::AtMost,
        limit: f64::NAN.into(),
        unit: Unit::Milliseconds,
        decimals: 1,
        passed: None,
        source: "reported only".to_owned(),
    });
    Section::new("Limits", "Every limit the run was held to, and where it is published.")
        .block(LimitTable { checks })
}

fn sizing(run: &Run) -> Section {
    Section::new("Database sizing and throughput", "").block(
        KeyValues::default()
            .row("Achieved transactional I/O", Cell::number(662.926, Unit::IoPerSecond, 3))
            .row("Target transactional I/O", Cell::number(540.0, Unit::IoPerSecond, 3))
            .row("Initial database size", Cell::bytes(277_736_357_888))
            .row("Final database size", Cell::bytes(279_510_548_480))
            .row("Database files", Cell::count(4))
            .row("Measured for", Cell::seconds(f64::from(run.hours) * 3600.0))
            .row("Transactions committed", Cell::count(1_213_504))
            .row("Pages verified", Cell::count(17_059_970)),
    )
}

fn parameters() -> Section {
    Section::new("System parameters", "").block(
        KeyValues::default()
            .row("Threads", Cell::text("8 per storage group"))
            .row("Log buffers", Cell::count(9000))
            .row("Lowest database cache", Cell::bytes(32 << 20))
            .row("Highest database cache", Cell::bytes(256 << 20))
            .row("Insert", Cell::number(40.0, Unit::Percent, 0))
            .row("Delete", Cell::number(30.0, Unit::Percent, 0))
            .row("Replace", Cell::number(5.0, Unit::Percent, 0))
            .row("Read", Cell::number(25.0, Unit::Percent, 0))
            .row("Lazy commits", Cell::number(55.0, Unit::Percent, 0))
            .row_with_note("Flush thresholds", Cell::text("2.6 MB to 5.1 MB"), "1 % and 2 % of the cache"),
    )
}

fn databases(run: &Run) -> Section {
    let mut table = Table::new(
        "",
        [
            Column::text("Database"),
            Column::text("File"),
            Column::text("Log"),
            Column::number("Page", Unit::One),
            Column::number("Size before", Unit::One),
            Column::number("Size after", Unit::One),
            Column::text("Verified"),
        ],
    );
    for index in 0..run.volumes.max(4) {
        let (group, volume) = (index / 2 + 1, if index % 2 == 0 { "a" } else { "b" });
        table.push([
            Cell::text(format!("group {group}, database {}", index % 2 + 1)),
            Cell::text(format!("/mnt/mail-{volume}/group-{group}/database-{}.edb", index % 2 + 1)),
            Cell::text(format!("/mnt/mail-{volume}/group-{group}/log")),
            Cell::bytes(8192),
            Cell::bytes(69_434_089_472 + (index as u64) * 90_112),
            Cell::bytes(69_877_637_120 + (index as u64) * 122_880),
            Cell::mark(Mark::Pass),
        ]);
    }
    Section::new("Database configuration", "").block(table)
}

fn transactional_io(run: &Run, read_ms: f64) -> Result<Section, Box<dyn Error>> {
    let mut table = Table::new(
        "By volume",
        [
            Column::text("Volume"),
            Column::number("Reads", Unit::PerSecond),
            Column::number("Writes", Unit::PerSecond),
            Column::number("Read latency", Unit::Milliseconds),
            Column::number("p95", Unit::Milliseconds),
            Column::number("p99", Unit::Milliseconds),
            Column::number("p99.9", Unit::Milliseconds),
            Column::number("Write latency", Unit::Milliseconds),
            Column::number("Bytes a write", Unit::One),
        ],
    );
    let mut noise = Noise(41);
    for index in 0..run.volumes {
        let ms = noise.around(read_ms);
        table.push([
            Cell::text(match index {
                0 => "/mnt/mail-a".to_owned(),
                1 => "/mnt/mail-b".to_owned(),
                2 => "/dev/disk/by-id/scsi-36001405b8f0a1c2d3e4f5a6b7c8d9e0f-part1".to_owned(),
                _ => format!("/mnt/mail-{index}"),
            }),
            Cell::number(noise.around(170.0), Unit::PerSecond, 1),
            Cell::number(noise.around(161.0), Unit::PerSecond, 1),
            Cell::number(ms, Unit::Milliseconds, 1),
            Cell::number(ms * 2.1, Unit::Milliseconds, 1),
            Cell::number(ms * 3.2, Unit::Milliseconds, 1),
            Cell::number(if index == 2 { f64::NAN } else { ms * 6.4 }, Unit::Milliseconds, 1),
            Cell::number(noise.around(2.4), Unit::Milliseconds, 1),
            Cell::bytes(21_504),
        ]);
    }
    let dash = || Cell::Empty;
    let table = table.total([
        Cell::text("All volumes"),
        Cell::number(340.1, Unit::PerSecond, 1),
        Cell::number(322.9, Unit::PerSecond, 1),
        Cell::number(read_ms, Unit::Milliseconds, 1),
        Cell::number(read_ms * 2.1, Unit::Milliseconds, 1),
        Cell::number(read_ms * 3.2, Unit::Milliseconds, 1),
        Cell::number(read_ms * 6.4, Unit::Milliseconds, 1),
        Cell::number(2.4, Unit::Milliseconds, 1),
        dash(),
    ]);
    let max_ms = if run.hours >= 24 { 100.0 } else { 50.0 };
    let latency =
        LineChart::new("Latency over time, 15-second averages", Axis::new("latency", Unit::Milliseconds))
            .series(over_time(run, "Database reads", 11, read_ms))
            .series(over_time(run, "Database writes", 12, 2.4))
            .limit("limit on the average", 20.0)
            .limit("limit on any 15 s", max_ms);
    let rate = LineChart::new("Transactional I/O over time", Axis::new("rate", Unit::IoPerSecond))
        .series(over_time(run, "Reads", 13, 340.1))
        .series(over_time(run, "Writes", 14, 322.9))
        .event("checkpoint depth reached", f64::from(run.hours) * 300.0);
    let bulk = Distribution::new(
        "Latency of every single I/O",
        Axis::new("latency", Unit::Milliseconds),
        DistributionView::Shares,
    )
    .series(latencies("Database reads", read_ms, 2_448_720)?)
    .series(latencies("Database writes", 2.4, 2_324_880)?)
    .series(latencies("Log writes", 0.31, 751_220)?);
    let tail = Distribution {
        view: DistributionView::Percentiles,
        title: "Latency by percentile".to_owned(),
        ..bulk.clone()
    }
    .limit("limit on the average", 20.0);
    Ok(Section::new(
        "Transactional I/O",
        "What the databases read and wrote for the transactions themselves, without scans and verification.",
    )
    .block(table)
    .block(latency)
    .block(rate)
    .block(bulk)
    .block(tail))
}

/// A sample every 15 seconds, with a slow wave and the bursts of `Noise`.
fn over_time(run: &Run, name: &str, seed: u64, centre: f64) -> TimeSeries {
    let mut noise = Noise(seed);
    let count = run.hours * 240;
    TimeSeries::new(
        name,
        (0..=count).map(|index| {
            let wave = 1.0 + 0.07 * (f64::from(index) / f64::from(count) * 11.0).sin();
            let warming = 1.0 - 0.5 * (-f64::from(index) / 12.0).exp();
            (f64::from(index) * 15.0, noise.around(centre) * wave * warming)
        }),
    )
}

/// Two humps, cache and platter, in buckets a twelfth of an octave wide.
fn latencies(name: &str, mean_ms: f64, count: u64) -> Result<Histogram, Box<dyn Error>> {
    let density = |ms: f64| {
        let hump = |centre: f64, width: f64| (-((ms / centre).ln() / width).powi(2)).exp();
        hump(mean_ms * 0.9, 0.55) + 0.28 * hump(mean_ms * 0.12, 0.35) + 0.004 * hump(mean_ms * 4.0, 0.9)
    };
    let edges: Vec<f64> = (0..270).map(|step| 0.01 * 2f64.powf(f64::from(step) / 12.0)).collect();
    let whole: f64 = edges.windows(2).map(|edge| density((edge[0] * edge[1]).sqrt())).sum();
    let buckets = edges.windows(2).map(|edge| {
        let share = density((edge[0] * edge[1]).sqrt()) / whole;
        Bucket { from: edge[0], to: edge[1], count: (share * count as f64) as u64 }
    });
    Ok(Histogram::new(name, buckets)?)
}

fn background_scan() -> Section {
    Section::new("Background scan", "Reads of the checksum scan that runs beside the transactions.").block(
        Table::new(
            "",
            [
                Column::text("Database"),
                Column::number("Reads", Unit::PerSecond),
                Column::number("Bytes a read", Unit::One),
                Column::number("Rate", Unit::One),
                Column::number("Pages checked", Unit::One),
            ],
        )
        .row([
            Cell::text("group 1, database 1"),
            Cell::number(19.2, Unit::PerSecond, 1),
            Cell::bytes(524_288),
            Cell::text("9.6 MiB/s"),
            Cell::count(8_515_584),
        ])
        .row([
            Cell::text("group 2, database 1"),
            Cell::number(19.1, Unit::PerSecond, 1),
            Cell::bytes(524_288),
            Cell::text("9.6 MiB/s"),
            Cell::count(8_471_040),
        ]),
    )
}

fn log_io(run: &Run) -> Section {
    let chart =
        LineChart::new("Log write latency, 15-second averages", Axis::new("latency", Unit::Milliseconds))
            .series(over_time(run, "Group 1", 21, 0.31))
            .series(over_time(run, "Group 2", 22, 0.36))
            .limit("limit on the average", 10.0);
    Section::new("Log", "Transaction log writes; each is stable before its commit returns.")
        .block(
            KeyValues::default()
                .row("Writes", Cell::number(104.421, Unit::PerSecond, 1))
                .row("Bytes a write", Cell::bytes(4_272))
                .row("Average write", Cell::seconds(0.00031))
                .row("Generations written", Cell::count(3_061)),
        )
        .block(chart)
}

fn total_io(run: &Run) -> Section {
    let chart = LineChart::new("All reads and writes", Axis::new("rate", Unit::BytesPerSecond))
        .series(over_time(run, "Read", 31, 23.4 * 1_048_576.0))
        .series(over_time(run, "Written", 32, 7.9 * 1_048_576.0));
    Section::new("Total I/O", "Transactions, log, scan and flushes together, as the devices saw them.")
        .block(chart)
}

fn host(run: &Run) -> Section {
    let number = |value: f64, decimals| Cell::number(value, Unit::One, decimals);
    Section::new("Host", "")
        .block(
            Table::new(
                "",
                [
                    Column::text("Counter"),
                    Column::number("Average", Unit::One),
                    Column::number("Lowest", Unit::One),
                    Column::number("Highest", Unit::One),
                ],
            )
            .row([Cell::text("Processor, %"), number(3.681, 3), number(1.143, 3), number(8.852, 3)])
            .row([
                Cell::text("Memory available, MiB"),
                number(9017.525, 3),
                number(9004.0, 3),
                number(9236.0, 3),
            ])
            .row([Cell::text("Page-fault stalls a second"), number(0.0, 3), number(0.0, 3), number(0.0, 3)])
            .row([
                Cell::text("Pressure stall, I/O, %"),
                number(12.402, 3),
                number(0.0, 3),
                number(61.118, 3),
            ]),
        )
        .block(LineChart::new("Processor", Axis::new("busy", Unit::Percent)).series(over_time(
            run,
            "All processors",
            51,
            3.7,
        )))
}

fn test_log() -> Section {
    let mut log = LogBlock::default();
    for (time, text) in [
        ("16:40:02", "Path /mnt/mail-a: xfs, 1.8 TiB free, O_DIRECT, io_uring"),
        ("16:40:02", "Path /mnt/mail-b: xfs, 1.8 TiB free, O_DIRECT, io_uring"),
        ("16:40:03", "Attaching databases: group 1 (2), group 2 (2)"),
        ("16:40:03", "Database cache: lowest 32 MiB, highest 256 MiB; flush thresholds 2.6 MB and 5.1 MB"),
        ("16:40:03", "Operation mix: insert 40 %, delete 30 %, replace 5 %, read 25 %; lazy commits 55 %"),
        ("16:40:04", "Filling the cache"),
        ("16:45:31", "Cache at 90 %; measuring begins, an interval is 15 s"),
        ("18:45:31", "Measuring ends: 481 intervals"),
        ("18:45:33", "Databases shut down cleanly"),
        ("18:45:33", "Verifying 17,059,970 pages and 3,061 log generations"),
        ("18:57:45", "/mnt/mail-a: every checksum holds"),
        ("18:57:47", "/mnt/mail-b: every checksum holds"),
        ("18:57:48", "Report written"),
    ] {
        log.push(time, text);
    }
    Section::new("Test log", "Times are UTC.").block(log)
}
