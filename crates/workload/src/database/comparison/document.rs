//! The report of a comparison: the first saturated resource, the figures side by side, curves, verdicts.

use crate::{
    database::{
        comparison::{
            RunComparison,
            comparability::{RunProperty, mismatches},
            saturation::{Sign, in_words, signs},
            settings::{SettingValue, differences},
        },
        results::{LatencySummary, figures::RunFigures},
    },
    verdict::{
        VerdictOutcome,
        limits::{LimitSet, Measure},
    },
};
use report::{
    Axis, Cell, Column, CurveChart, Document, Mark, Meta, Section, Severity, Table, Unit,
    prose::{counted, number},
};

/// Builds the report; `meta` describes the comparing program.
pub fn document(comparison: &RunComparison, meta: Meta) -> Document {
    let signs = signs(comparison);
    let mut document = Document::new("Spindle comparison", subtitle(comparison), meta);
    highlights(&mut document, comparison, &signs);
    findings(&mut document, comparison);
    document.section(saturated(comparison, &signs));
    document.section(curves(comparison));
    document.section(side_by_side(comparison));
    document.section(verdicts(comparison));
    document.section(settings_that_differ(comparison));
    document
}

fn subtitle(comparison: &RunComparison) -> String {
    let labels = comparison.varied.labels.join(", ");
    let runs = counted(comparison.runs.len() as u64, "run");
    match comparison.varied.setting {
        Some(setting) => format!("{runs}: {} {labels}", lower(setting)),
        None => format!("{runs}: {labels}"),
    }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_lowercase().chain(letters).collect()).unwrap_or_default()
}

/// A rate within a sentence: `8,408`, `0.4`.
fn in_prose(rate: f64) -> String {
    number(rate, u8::from(rate < SMALL_RATE))
}

/// Smaller rates are shown with a decimal.
const SMALL_RATE: f64 = 10.0;

fn rate(value: Option<f64>) -> Cell {
    let is_small = value.is_some_and(|value| value > 0.0 && value < SMALL_RATE);
    Cell::number(value, Unit::IoPerSecond, u8::from(is_small))
}

/// Names of the properties that prevent a best run.
fn blocking_properties(comparison: &RunComparison) -> Vec<&'static str> {
    let forbidding = mismatches(comparison).into_iter().filter(|mismatch| mismatch.what.forbids_best());
    forbidding.map(|mismatch| mismatch.what.title()).collect()
}

/// Describes the best run and its rate.
pub fn knee(comparison: &RunComparison) -> String {
    match comparison.best() {
        Some(best) => format!(
            "{} IOPS within every limit at {}; no run that keeps them reaches 5 % more.",
            in_prose(comparison.figures[best].iops.unwrap_or(0.0)),
            comparison.title(best),
        ),
        None => match blocking_properties(comparison).as_slice() {
            [] => "No run completed within every limit.".to_owned(),
            blocking_properties => {
                format!("No best run: the runs differ in {}.", blocking_properties.join(" and "))
            }
        },
    }
}

fn highlights(document: &mut Document, comparison: &RunComparison, signs: &[Sign]) {
    if let Some(best) = comparison.best() {
        let figures = &comparison.figures[best];
        document.highlight("Best within limits", Cell::text(comparison.title(best)), "");
        document.highlight("Its database I/O", rate(figures.iops), "");
        document.highlight("Its database reads", milliseconds(figures.read.average_ms), "average");
    }
    let (first, note) = match signs.first() {
        Some(sign) => (sign.resource.title(), format!("at {}", comparison.title(sign.run))),
        None => ("nothing yet".to_owned(), String::new()),
    };
    document.highlight("Saturated first", Cell::text(first), note);
}

fn findings(document: &mut Document, comparison: &RunComparison) {
    for mismatch in mismatches(comparison) {
        document.finding(Severity::Warning, mismatch.to_string(), "");
    }
    for (index, run) in comparison.runs.iter().enumerate() {
        let title = comparison.title(index);
        if run.results.cut_off.is_some() {
            let text = format!("{title}: recovered from its record; the run did not complete.");
            document.finding(Severity::Warning, text, "");
        } else if run.results.interrupted {
            document.finding(Severity::Warning, format!("{title}: the run was ended early."), "");
        }
        let counts = run.results.failure_counts;
        if counts.io + counts.checksum + counts.content + counts.engine > 0 {
            let text = format!("{title}: I/O errors, damage or failures; see the run's own report.");
            document.finding(Severity::Error, text, "");
        }
    }
    let durations = comparison.runs.iter().map(|run| run.results.measured_s);
    let (shortest, longest) =
        durations.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), one| (low.min(one), high.max(one)));
    if longest > 1.5 * shortest {
        let text =
            format!("The runs were measured for {shortest:.0} to {longest:.0} s: the short ones prove less.");
        document.finding(Severity::Warning, text, "");
    }
    let hosts = comparison.runs.iter().map(|run| &run.results.host.name);
    if hosts.clone().any(|host| host != &comparison.runs[0].results.host.name) {
        document.finding(Severity::Warning, "The runs are of different machines.", "");
    }
    if comparison.varied.setting.is_some() {
        let also: Vec<String> = differences(&comparison.runs)
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| {
                Some(name.as_str()) != comparison.varied.setting && !FOLLOWS.contains(&name.as_str())
            })
            .collect();
        if !also.is_empty() {
            let text = format!("The runs differ in more than what was varied: {}.", also.join(", "));
            document.finding(Severity::Note, text, "");
        }
    }
}

/// Settings that depend on the varied one.
const FOLLOWS: [&str; 6] =
    ["Size of a database", "Cache of a group", "Databases on", "Logs on", "Database volumes", "Layout"];

fn saturated(comparison: &RunComparison, signs: &[Sign]) -> Section {
    let mut section = Section::new("What saturated first", "")
        .paragraph(in_words(comparison, signs))
        .paragraph(knee(comparison));
    if signs.len() > 1 {
        let columns = [Column::text("Run"), Column::text("Resource"), Column::text("Evidence")];
        let mut table = Table::new("Every sign, from the lightest load on", columns);
        for sign in signs {
            table.push([
                Cell::text(comparison.title(sign.run)),
                Cell::text(sign.resource.title()),
                Cell::text(sign.evidence.as_str()),
            ]);
        }
        section = section.block(table);
    }
    section.paragraph(
        "Signs, in order of precedence: 90 % of all processors, or of one by the \
         thread of a group; a latency beyond its limit; I/O that grows by less than 5 % for 25 % more load \
         while a volume's queue grows; page faults that find no free page; more than 10 log appends a second \
         that find no room.",
    )
}

fn milliseconds(value: Option<f64>) -> Cell {
    Cell::number(value, Unit::Milliseconds, 2)
}

/// Title of a table row, and its cell for one run.
type Row = (&'static str, fn(&RunFigures) -> Cell);

const ROWS: [Row; 23] = [
    ("Database I/O", |f| rate(f.iops)),
    ("of it reads", |f| rate(f.reads)),
    ("of it writes", |f| rate(f.writes)),
    ("for each thread", |f| Cell::number(f.iops_per_thread, Unit::IoPerSecond, 1)),
    ("Operations", |f| Cell::number(f.operations, Unit::PerSecond, 0)),
    ("Database read, average", |f| milliseconds(f.read.average_ms)),
    ("99 % within", |f| milliseconds(f.read.p99_ms)),
    ("longest", |f| milliseconds(f.read.max_ms)),
    ("Database write, average", |f| milliseconds(f.write.average_ms)),
    ("99 % within", |f| milliseconds(f.write.p99_ms)),
    ("longest", |f| milliseconds(f.write.max_ms)),
    ("Log write, average", |f| milliseconds(f.log.average_ms)),
    ("99 % within", |f| milliseconds(f.log.p99_ms)),
    ("longest", |f| milliseconds(f.log.max_ms)),
    ("Operation, average", |f| milliseconds(f.operation.average_ms)),
    ("99 % within", |f| milliseconds(f.operation.p99_ms)),
    ("longest", |f| milliseconds(f.operation.max_ms)),
    ("Log of a transaction", |f| match f.log_bytes_per_transaction {
        Some(bytes) => Cell::bytes(bytes.round() as u64),
        None => Cell::number(None, Unit::Bytes, 0),
    }),
    ("Operations under way on databases", |f| Cell::number(queue(f), Unit::One, 1)),
    ("Processors Spindle used", |f| Cell::number(f.processors, Unit::One, 2)),
    ("Busiest group's thread", |f| {
        Cell::number(f.busiest_thread.map(|(share, _)| share * 100.0), Unit::Percent, 0)
    }),
    ("Page-fault stalls", |f| Cell::number(f.page_fault_stalls, Unit::PerSecond, 2)),
    ("Log record stalls", |f| Cell::number(f.log_record_stalls, Unit::PerSecond, 2)),
];

fn queue(figures: &RunFigures) -> Option<f64> {
    figures.iops?;
    let of_databases =
        figures.volumes.iter().filter(|volume| volume.role == crate::meter::VolumeRole::Database);
    Some(of_databases.map(|volume| volume.queue).sum())
}

/// A first column, then one for each run.
fn columns(comparison: &RunComparison, first: &str) -> Vec<Column> {
    let labels = comparison.varied.labels.iter().map(|label| Column::number(label.as_str(), Unit::One));
    [Column::text(first)].into_iter().chain(labels).collect()
}

fn side_by_side(comparison: &RunComparison) -> Section {
    let first = comparison.varied.setting.unwrap_or("Run");
    let mut table = Table::new("", columns(comparison, first));
    table.push([Cell::text("Verdict")].into_iter().chain(comparison.runs.iter().map(|run| {
        Cell::mark(match run.verdict.answer {
            VerdictOutcome::Pass => Mark::Pass,
            VerdictOutcome::Fail => Mark::Fail,
            VerdictOutcome::Incomplete => Mark::NotJudged,
        })
    })));
    for (title, cell) in ROWS {
        let indented = if title.chars().next().is_some_and(char::is_lowercase) || title == "99 % within" {
            format!("\u{2007}{title}")
        } else {
            title.to_owned()
        };
        table.push([Cell::text(indented)].into_iter().chain(comparison.figures.iter().map(cell)));
    }
    let intro = "Latencies are those of the slowest volume of their kind. Database I/O is reads and writes of \
                 transactions; log and background scan are not counted.";
    Section::new("Side by side", intro).block(table)
}

/// Position and label of each run on the horizontal axis.
fn stations(comparison: &RunComparison) -> Vec<(f64, String)> {
    let labels = comparison.varied.labels.iter().cloned();
    match &comparison.varied.places {
        Some(places) => places.iter().copied().zip(labels).collect(),
        None => labels.enumerate().map(|(index, label)| (index as f64, label)).collect(),
    }
}

fn curves(comparison: &RunComparison) -> Section {
    let x = comparison.varied.setting.unwrap_or("Run");
    let all = |of: fn(&RunFigures) -> Option<f64>| comparison.figures.iter().map(of).collect::<Vec<_>>();
    let chart = |title: &str, y: Axis| {
        let curve = CurveChart::new(title, lower(x), y, stations(comparison));
        match comparison.best() {
            Some(best) => curve.mark(best, "best within limits"),
            None => curve,
        }
    };
    let are_judged_alike = mismatches(comparison).iter().all(|mismatch| mismatch.what != RunProperty::Limits);
    let set =
        LimitSet::load(&comparison.runs[0].results.plan.profile.limits).ok().filter(|_| are_judged_alike);
    let class = comparison.runs[0].results.class();
    let limit = |measure: Measure| {
        let limits = set.iter().flat_map(|set| &set.limits);
        limits.filter(|limit| limit.measure == measure).map(|limit| limit.value(class)).next()
    };
    let rates = chart("Database I/O", Axis::new("rate", Unit::IoPerSecond))
        .line("both", all(|f| f.iops))
        .line("reads", all(|f| f.reads))
        .line("writes", all(|f| f.writes));
    let latencies = chart("Latency", Axis::new("average latency", Unit::Milliseconds))
        .line("database reads", all(|f| f.read.average_ms))
        .line("database writes", all(|f| f.write.average_ms))
        .line("log writes", all(|f| f.log.average_ms))
        .limit("limit of database reads", limit(Measure::DatabaseReadAverageMs))
        .limit("limit of database writes", limit(Measure::DatabaseWriteAverageMs))
        .limit("limit of log writes", limit(Measure::LogWriteAverageMs));
    let rare = chart("99 % within", Axis::new("latency", Unit::Milliseconds))
        .line("database reads", all(|f| f.read.p99_ms))
        .line("database writes", all(|f| f.write.p99_ms))
        .line("log writes", all(|f| f.log.p99_ms));
    let section = Section::new("Curves", "").block(rates).block(latencies).block(rare);
    match against_rate(comparison) {
        Some(curve) => section.block(curve),
        None => section,
    }
}

/// Latency against the achieved rate, over the runs in which the rate grew; None if there are fewer than two.
fn against_rate(comparison: &RunComparison) -> Option<CurveChart> {
    let mut points: Vec<(f64, &LatencySummary, &LatencySummary)> =
        comparison.figures.iter().filter_map(|f| Some((f.iops?, &f.read, &f.log))).collect();
    // Beyond its peak the rate decreases, and the line would cross itself.
    let mut most = 0.0;
    points.retain(|(iops, ..)| {
        let grew = *iops > most;
        most = iops.max(most);
        grew
    });
    if points.len() < 2 {
        return None;
    }
    let stations = points.iter().map(|(iops, ..)| (*iops, number(*iops, 0)));
    let curve = CurveChart::new(
        "Latency against I/O, as far as it grew",
        "database IOPS",
        Axis::new("average latency", Unit::Milliseconds),
        stations,
    );
    let reads = points.iter().map(|(_, read, _)| read.average_ms).collect::<Vec<_>>();
    let logs = points.iter().map(|(_, _, log)| log.average_ms).collect::<Vec<_>>();
    Some(curve.line("database reads", reads).line("log writes", logs))
}

fn verdicts(comparison: &RunComparison) -> Section {
    let columns = [Column::text("Run"), Column::text("Verdict"), Column::text("Why"), Column::text("Record")];
    let mut table = Table::new("", columns);
    for (index, run) in comparison.runs.iter().enumerate() {
        let (mark, why) = match run.verdict.answer {
            VerdictOutcome::Pass => (Mark::Pass, "within every limit".to_owned()),
            VerdictOutcome::Fail => {
                let broken: Vec<&str> = run.verdict.broken().map(|row| row.measure.title()).collect();
                (
                    Mark::Fail,
                    if broken.is_empty() { "the engine failed".to_owned() } else { broken.join("; ") },
                )
            }
            VerdictOutcome::Incomplete => (Mark::NotJudged, "no answer".to_owned()),
        };
        table.push([
            Cell::text(comparison.title(index)),
            Cell::mark(mark),
            Cell::text(why),
            Cell::text(run.name.as_str()),
        ]);
    }
    Section::new("Verdict of each run", "").block(table)
}

fn settings_that_differ(comparison: &RunComparison) -> Section {
    let section = Section::new("Settings that differ", "");
    let differences = differences(&comparison.runs);
    if differences.is_empty() {
        return section.paragraph("The runs have the same settings.");
    }
    let mut table = Table::new("", columns(comparison, "Setting"));
    for (name, values) in differences {
        let cells = values.into_iter().map(|SettingValue { text, .. }| Cell::text(text));
        table.push([Cell::text(name)].into_iter().chain(cells));
    }
    section.block(table)
}
