//! The tables of a report.

use crate::database::{
    document::{anomalies, io, utc},
    measure::verify::VerifiedFile,
    plan::{LoadPlan, setting::FigureText, setup::Setup},
    results::{HostSample, RunResults},
};
use report::{Cell, Column, Document, KeyValues, LogBlock, Mark, Section, Table, Unit, prose::counted};

/// Adds every section after the summary.
pub fn add_sections(document: &mut Document, results: &RunResults) {
    if let Some(setup) = &results.plan.setup {
        document.section(set_up(setup, results));
    }
    document.section(sizing(results));
    document.section(parameters(results));
    document.section(configuration(results));
    document.section(io::transactional(results));
    document.section(io::operations(results));
    document.section(io::background_scan(results));
    document.section(io::log_io(results));
    document.section(io::total_io(results));
    document.section(anomalies::section(results));
    document.section(host(results));
    document.section(verification(results));
    document.section(test_log(results));
}

/// The published test compared with this run.
fn set_up(setup: &Setup, results: &RunResults) -> Section {
    let columns = [
        Column::text("Figure"),
        Column::text("As published"),
        Column::text("This run"),
        Column::text("Source"),
        Column::text("Known from"),
    ];
    let mut table = Table::new(format!("Set-up {}", setup.name), columns);
    for row in setup.compare(&results.plan) {
        table.push([
            Cell::text(row.what),
            Cell::text(row.published.as_str()),
            Cell::text(if row.is_same() { "the same" } else { &row.here }),
            Cell::text(row.source.as_str()),
            Cell::text(row.confidence.word()),
        ]);
    }
    let mut section = Section::new("Set-up", format!("{} ({}).", setup.summary, setup.source)).block(table);
    for sweep in &setup.sweeps {
        section = section
            .paragraph(format!("The paper varied {}: {} ({}).", sweep.sweep, sweep.shows, sweep.source));
    }
    section
}

fn sizing(results: &RunResults) -> Section {
    let before = results.databases.iter().map(|database| database.bytes_before).sum();
    let after = results.databases.iter().map(|database| database.bytes_after).sum();
    let mut rows = KeyValues::default()
        .row_with_note(
            "Achieved database I/O",
            Cell::number(results.achieved_iops(), Unit::IoPerSecond, 1),
            "reads and writes of databases; log and background scan not counted",
        )
        .row("Target database I/O", Cell::number(results.target_iops(), Unit::IoPerSecond, 1));
    if let LoadPlan::Mailboxes { count, iops_each } = results.plan.load {
        let note = format!("{iops_each} IOPS each");
        rows = rows.row_with_note("Mailboxes", Cell::count(count), note);
    }
    if let Some(pacing) = results.pacing {
        rows = rows.row_with_note(
            "Longest backlog",
            Cell::count(pacing.backlog_max),
            "operations that had arrived and not begun",
        );
    }
    let made = if results.created_bytes > 0 {
        let rate = results.created_bytes as f64 / results.create_s.max(1e-9);
        Cell::number(rate / f64::from(1 << 20), "MiB/s", 1)
    } else {
        Cell::text("attached")
    };
    let rows = rows
        .row("Databases when measuring began", Cell::bytes(before))
        .row("Databases after the run", Cell::bytes(after))
        .row("Database files", Cell::count(results.databases.len() as u64))
        .row_with_note("Making the databases", Cell::seconds(results.create_s), "or reading what was there")
        .row("Rate of records made", made)
        .row("Filling the cache", Cell::seconds(results.fill.seconds));
    Section::new("Database sizing and throughput", "").block(rows)
}

fn parameters(results: &RunResults) -> Section {
    let plan = &results.plan;
    let threads = match plan.load {
        LoadPlan::Threads { per_group } => {
            Cell::text(format!("{per_group} for each storage group, closed loop"))
        }
        LoadPlan::Mailboxes { .. } => Cell::text("held rate, open loop"),
        LoadPlan::Maximum { .. } => Cell::text("held rate, open loop; the rate was searched for"),
        LoadPlan::TunedThreads { .. } => {
            Cell::text(match results.search.as_ref().and_then(|found| found.held) {
                Some(threads) => format!("{threads:.0} for each storage group, closed loop; searched for"),
                None => "closed loop; the number was searched for".to_owned(),
            })
        }
    };
    let rows = KeyValues::default()
        .row("Sessions", threads)
        .row("Page cache of a storage group", Cell::bytes(plan.cache_bytes_per_group))
        .row("Seed", plan.seed.to_string());
    let columns = [
        Column::text("Setting"),
        Column::text("Value"),
        Column::text("Meaning"),
        Column::text("Source"),
        Column::text("Known from"),
    ];
    let mut figures = Table::new(format!("Profile {}", plan.profile.name), columns);
    for (spec, setting) in plan.profile.figures() {
        figures.push([
            Cell::text(spec.name),
            Cell::text(FigureText(spec.kind, setting.value).to_string()),
            Cell::text(spec.meaning),
            Cell::text(setting.source.as_str()),
            Cell::text(setting.confidence.word()),
        ]);
    }
    Section::new("System parameters", "").block(rows).block(figures)
}

fn configuration(results: &RunResults) -> Section {
    let columns = [
        Column::number("Group", Unit::One),
        Column::text("Database"),
        Column::text("Volume"),
        Column::number("Before", Unit::One),
        Column::number("After", Unit::One),
        Column::number("Records", Unit::One),
    ];
    let mut databases = Table::new("Databases", columns);
    for database in &results.databases {
        databases.push([
            Cell::count(database.group.into()),
            Cell::text(database.name.as_str()),
            Cell::text(database.volume.as_str()),
            Cell::bytes(database.bytes_before),
            Cell::bytes(database.bytes_after),
            Cell::count(database.records),
        ]);
    }
    let columns = [
        Column::text("Volume"),
        Column::text("Holds"),
        Column::text("Reached by"),
        Column::text("What it is"),
    ];
    let mut volumes = Table::new("Volumes", columns);
    for volume in &results.plan.volumes {
        let holds = match (volume.databases, volume.logs) {
            (true, true) => "databases and logs",
            (true, false) => "databases",
            (false, true) => "logs",
            (false, false) => "nothing",
        };
        volumes.push([
            Cell::text(volume.name.as_str()),
            Cell::text(holds),
            Cell::text(volume.io.as_str()),
            Cell::text(volume.description.as_str()),
        ]);
    }
    let section = Section::new("Database configuration", "").block(databases).block(volumes);
    if results.plan.notes.is_empty() {
        return section;
    }
    let notes = results.plan.notes.iter();
    let rows = notes.fold(KeyValues::default(), |rows, (key, value)| rows.row(key.as_str(), value.as_str()));
    section.paragraph("Notes of the user (--note):").block(rows)
}

fn host(results: &RunResults) -> Section {
    let facts = &results.host;
    let mut rows = KeyValues::default()
        .row("Processors", facts.processors.as_str())
        .row("Memory", Cell::bytes(facts.memory_bytes));
    if let [first, .., last] = results.host_samples.as_slice() {
        let span_s = last.at_s - first.at_s;
        let of = |used: fn(&HostSample) -> f64| {
            (span_s > 0.0).then(|| (used(last) - used(first)) / span_s * 100.0)
        };
        let operations: u64 = results.operations.iter().map(|operation| operation.count).sum();
        let each_us = (operations > 0 && results.measured_s > 0.0 && span_s > 0.0).then(|| {
            let used_s = (last.process_cpu_s - first.process_cpu_s) / span_s * results.measured_s;
            used_s * 1e6 / operations as f64
        });
        let least = results.host_samples.iter().map(|sample| sample.available_bytes).min().unwrap_or(0);
        let most = results.host_samples.iter().map(|sample| sample.resident_bytes).max().unwrap_or(0);
        rows = rows
            .row_with_note(
                "Processor time, Spindle",
                Cell::number(of(|s| s.process_cpu_s), Unit::Percent, 1),
                "of one",
            )
            .row_with_note(
                "Processor time, all",
                Cell::number(of(|s| s.system_cpu_s), Unit::Percent, 1),
                "of one",
            )
            .row("Processor time of an operation", Cell::number(each_us, Unit::Microseconds, 1))
            .row("Memory available, least", Cell::bytes(least))
            .row("Memory of Spindle, most", Cell::bytes(most));
    }
    let section = Section::new("Host", "").block(rows);
    // A line needs three samples.
    match results.host_samples.len() {
        0..=2 => section,
        _ => section.block(crate::database::document::charts::processor(results)),
    }
}

fn verification(results: &RunResults) -> Section {
    let section =
        Section::new("Verification", "Every page of every database and every log file, read after the run.");
    if results.verified.is_empty() {
        return section.paragraph("The run ended before the files were verified.");
    }
    let columns = [
        Column::text("File"),
        Column::number("Size", Unit::One),
        Column::number("Rate", "MiB/s"),
        Column::number("Good", Unit::One),
        Column::number("Blank", Unit::One),
        Column::number("Damaged", Unit::One),
        Column::text("Result"),
    ];
    let mut table = Table::new("", columns);
    for file in &results.verified {
        let rate = (file.seconds > 0.0).then(|| file.bytes as f64 / file.seconds / f64::from(1 << 20));
        table.push([
            Cell::text(file.name.as_str()),
            Cell::bytes(file.bytes),
            Cell::number(rate, "MiB/s", 0),
            Cell::count(file.good),
            Cell::count(file.empty),
            Cell::count(file.damaged.len() as u64),
            Cell::mark(if file.damaged.is_empty() { Mark::Pass } else { Mark::Fail }),
        ]);
    }
    let section = section.block(table);
    match unjudged(results) {
        Some(text) => section.paragraph(text),
        None => section,
    }
}

/// Describes the blank pages that verification could not judge.
pub(super) fn unjudged(results: &RunResults) -> Option<String> {
    let unjudged: Vec<&VerifiedFile> = results.verified.iter().filter(|file| file.blank_unjudged).collect();
    let names: Vec<&str> = unjudged.iter().map(|file| file.name.as_str()).collect();
    let blank: u64 = unjudged.iter().map(|file| file.empty).sum();
    (!names.is_empty()).then(|| {
        format!(
            "{} of {} not judged: after an unclean shutdown, unused pages cannot be told from pages whose content \
             is lost or still in the log.",
            counted(blank, "blank page"),
            names.join(", ")
        )
    })
}

fn test_log(results: &RunResults) -> Section {
    let mut log = LogBlock::default();
    for line in &results.log {
        log.push(utc(line.unix_s), line.text.as_str());
    }
    Section::new("Test log", "").block(log)
}
