//! The tables of a report, section by section.

use super::{
    super::{
        meter::{IoTally, Role},
        plan::Load,
        results::{HostSample, LatencySummary, RunResults, VolumeResults},
        setting::{Confidence, Shown},
        setup::Setup,
    },
    charts, trouble, utc,
};
use report::{Cell, Column, Document, KeyValues, Log, Mark, Section, Table, Unit};

/// Adds every section after the summary.
pub fn add_sections(document: &mut Document, results: &RunResults) {
    if let Some(setup) = &results.plan.setup {
        document.section(set_up(setup, results));
    }
    document.section(sizing(results));
    document.section(parameters(results));
    document.section(configuration(results));
    document.section(transactional(results));
    document.section(operations(results));
    document.section(background_scan(results));
    document.section(log_io(results));
    document.section(total_io(results));
    document.section(trouble::trouble(results));
    document.section(host(results));
    document.section(verification(results));
    document.section(test_log(results));
}

/// The published test beside what was run.
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
            Cell::text(confidence(row.confidence)),
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
    if let Load::Mailboxes { count, iops_each } = results.plan.load {
        let note = format!("{iops_each} I/O a second each");
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
        Load::Threads { per_group } => Cell::text(format!("{per_group} for each storage group, closed loop")),
        Load::Mailboxes { .. } => Cell::text("held rate, open loop"),
        Load::Maximum { .. } => Cell::text("held rate, open loop; the rate was searched for"),
        Load::TunedThreads { .. } => Cell::text(match results.search.as_ref().and_then(|found| found.held) {
            Some(threads) => format!("{threads:.0} for each storage group, closed loop; searched for"),
            None => "closed loop; the number was searched for".to_owned(),
        }),
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
            Cell::text(Shown(spec.kind, setting.value).to_string()),
            Cell::text(spec.meaning),
            Cell::text(setting.source.as_str()),
            Cell::text(confidence(setting.confidence)),
        ]);
    }
    Section::new("System parameters", "").block(rows).block(figures)
}

pub(super) fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Seed => "seed paper",
        Confidence::Documented => "vendor",
        Confidence::Secondary => "others",
        Confidence::Computed => "computed",
        Confidence::Recalled => "memory",
        Confidence::Assumed => "assumed",
        Confidence::User => "user",
    }
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
    Section::new("Database configuration", "").block(databases).block(volumes)
}

/// Operations a second, or none if nothing was measured.
fn rate(results: &RunResults, count: u64) -> Option<f64> {
    (results.measured_s > 0.0).then(|| count as f64 / results.measured_s)
}

fn per_second(results: &RunResults, count: u64) -> Cell {
    Cell::number(rate(results, count), Unit::PerSecond, 1)
}

fn milliseconds(value: Option<f64>) -> Cell {
    Cell::number(value, Unit::Milliseconds, 3)
}

/// One row for each volume and direction, with percentiles.
fn latency_table(results: &RunResults, role: Role) -> Table {
    let columns = [
        Column::text("Volume"),
        Column::text("I/O"),
        Column::number("Rate", Unit::PerSecond),
        Column::number("Average size", Unit::One),
        Column::number("Average", Unit::Milliseconds),
        Column::number("p50", Unit::Milliseconds),
        Column::number("p95", Unit::Milliseconds),
        Column::number("p99", Unit::Milliseconds),
        Column::number("p99.9", Unit::Milliseconds),
        Column::number("Worst 15 s", Unit::Milliseconds),
        Column::number("Longest", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    for volume in results.in_role(role) {
        let reads = ("reads", &volume.tallies.read, &volume.read, volume.read_worst_window_ms);
        let writes = ("writes", &volume.tallies.write, &volume.write, volume.write_worst_window_ms);
        for (what, tally, latency, worst) in [reads, writes] {
            table.push(latency_row(results, volume, what, tally, latency, worst));
        }
    }
    table
}

fn latency_row(
    results: &RunResults,
    volume: &VolumeResults,
    what: &str,
    tally: &IoTally,
    latency: &LatencySummary,
    worst_window_ms: Option<f64>,
) -> Vec<Cell> {
    let size =
        tally.average_bytes().map_or(Cell::number(None, Unit::Bytes, 0), |bytes| Cell::bytes(bytes as u64));
    vec![
        Cell::text(volume.volume.as_str()),
        Cell::text(what),
        per_second(results, tally.count),
        size,
        milliseconds(latency.average_ms),
        milliseconds(latency.p50_ms),
        milliseconds(latency.p95_ms),
        milliseconds(latency.p99_ms),
        milliseconds(latency.p99_9_ms),
        milliseconds(worst_window_ms),
        milliseconds(latency.max_ms),
    ]
}

fn transactional(results: &RunResults) -> Section {
    let intro = "Reads and writes of databases that transactions caused. Writes are done in the background; \
                 transactions wait for reads and for the log.";
    Section::new("Transactional I/O", intro)
        .block(latency_table(results, Role::Database))
        .block(charts::rates(results))
        .block(charts::latencies(results))
        .block(charts::distribution(results))
}

fn operations(results: &RunResults) -> Section {
    let columns = [
        Column::text("Operation"),
        Column::number("Count", Unit::One),
        Column::number("Rate", Unit::PerSecond),
        Column::number("Average", Unit::Milliseconds),
        Column::number("p50", Unit::Milliseconds),
        Column::number("p95", Unit::Milliseconds),
        Column::number("p99", Unit::Milliseconds),
        Column::number("p99.9", Unit::Milliseconds),
        Column::number("Longest", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    let each = results.operations.iter().map(|one| (one.operation.title(), one.count, one.latency));
    let ended: u64 = results.operations.iter().map(|operation| operation.count).sum();
    let all = ("All", ended + results.unfinished_operations, results.all_operations);
    for (title, count, latency) in each.chain([all]) {
        table.push([
            Cell::text(title),
            Cell::count(count),
            per_second(results, count),
            milliseconds(latency.average_ms),
            milliseconds(latency.p50_ms),
            milliseconds(latency.p95_ms),
            milliseconds(latency.p99_ms),
            milliseconds(latency.p99_9_ms),
            milliseconds(latency.max_ms),
        ]);
    }
    let (transactions, engine) = (&results.transactions, &results.engine);
    let hits = (engine.page_requests > 0)
        .then(|| 100.0 * (1.0 - engine.page_reads as f64 / engine.page_requests as f64));
    let per_write = (engine.page_writes > 0).then(|| engine.pages_written as f64 / engine.page_writes as f64);
    let rows = KeyValues::default()
        .row("Durable commits", per_second(results, transactions.commits_durable))
        .row("Lazy commits", per_second(results, transactions.commits_lazy))
        .row("Write conflicts", Cell::count(transactions.conflicts))
        .row("Records read back and right", Cell::count(transactions.records_checked))
        .row("Page requests answered from the cache", Cell::number(hits, Unit::Percent, 1))
        .row("Pages in one write", Cell::number(per_write, Unit::One, 2))
        .row("Page splits and merges", Cell::text(format!("{} and {}", engine.splits, engine.merges)))
        .row("Page-fault stalls", Cell::count(engine.page_fault_stalls))
        .row("Log record stalls", Cell::count(engine.log_record_stalls));
    let intro = "From the intended start of an operation to the end of its commit, so waiting for a session \
                 is in it.";
    Section::new("Operations", intro).block(table).block(rows)
}

fn background_scan(results: &RunResults) -> Section {
    let section = Section::new("Background scan", "");
    let Some(scan) = results.scan else {
        return section.paragraph("Off in this profile: databases were not scanned in the background.");
    };
    let columns = [
        Column::text("Volume"),
        Column::number("Reads", Unit::PerSecond),
        Column::number("Average size", Unit::One),
        Column::number("Rate", "MiB/s"),
        Column::number("Average", Unit::Milliseconds),
        Column::number("Longest", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    for volume in results.in_role(Role::Database) {
        let tally = &volume.tallies.scan;
        table.push([
            Cell::text(volume.volume.as_str()),
            per_second(results, tally.count),
            Cell::bytes(tally.average_bytes().unwrap_or(0.0) as u64),
            Cell::number(rate(results, tally.bytes).map(|bytes| bytes / f64::from(1 << 20)), "MiB/s", 2),
            milliseconds(tally.average_ms()),
            milliseconds((tally.count > 0).then_some(tally.max_ns as f64 / 1e6)),
        ]);
    }
    let rows = KeyValues::default()
        .row("Pages checked", Cell::count(scan.pages))
        .row("Of those, never used", Cell::count(scan.empty))
        .row("Of those, damaged", Cell::count(scan.damaged))
        .row("Passes completed", Cell::count(scan.passes));
    section.block(table).block(rows)
}

fn log_io(results: &RunResults) -> Section {
    let writes: u64 = results.in_role(Role::Log).map(|volume| volume.tallies.write.count).sum();
    let databases: u64 = results
        .in_role(Role::Database)
        .map(|volume| volume.tallies.read.count + volume.tallies.write.count)
        .sum();
    let ratio = (writes > 0).then(|| databases as f64 / writes as f64);
    let rows = KeyValues::default()
        .row_with_note(
            "Database I/O for one log write",
            Cell::number(ratio, Unit::One, 1),
            "Jetstress tuned for 8 to 12",
        )
        .row("Log generations filled", Cell::count(results.engine.log_generations))
        .row("Log written by transactions", Cell::bytes(results.engine.log_bytes))
        .row("Checkpoints", Cell::count(results.engine.checkpoints));
    Section::new("Log I/O", "")
        .block(latency_table(results, Role::Log))
        .block(rows)
        .block(charts::log(results))
}

fn total_io(results: &RunResults) -> Section {
    let columns = [
        Column::text("Volume"),
        Column::text("Role"),
        Column::number("Reads", Unit::PerSecond),
        Column::number("Scan reads", Unit::PerSecond),
        Column::number("Writes", Unit::PerSecond),
        Column::number("Preparing", Unit::PerSecond),
        Column::number("Flushes", Unit::PerSecond),
        Column::number("Read", "MiB/s"),
        Column::number("Written", "MiB/s"),
        Column::number("Errors", Unit::One),
    ];
    let mut table = Table::new("", columns);
    let mebibytes =
        |bytes: u64| Cell::number(rate(results, bytes).map(|bytes| bytes / f64::from(1 << 20)), "MiB/s", 2);
    for volume in &results.volumes {
        let tallies = &volume.tallies;
        table.push([
            Cell::text(volume.volume.as_str()),
            Cell::text(match volume.role {
                Role::Database => "database",
                Role::Log => "log",
            }),
            per_second(results, tallies.read.count),
            per_second(results, tallies.scan.count),
            per_second(results, tallies.write.count),
            per_second(results, tallies.prepare.count),
            per_second(results, tallies.flush.count),
            mebibytes(tallies.read.bytes + tallies.scan.bytes),
            mebibytes(tallies.write.bytes + tallies.prepare.bytes),
            Cell::count(tallies.errors),
        ]);
    }
    let intro = "Everything the storage was asked for in the measured time. Preparing is zeroing the next log \
                 file ahead of its use: nobody waits for it, so its latency is not judged.";
    Section::new("Total I/O", intro).block(table)
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
    Section::new("Host", "").block(rows)
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
        Column::number("Never used", Unit::One),
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
    section.block(table)
}

fn test_log(results: &RunResults) -> Section {
    let mut log = Log::default();
    for line in &results.log {
        log.push(utc(line.unix_s), line.text.as_str());
    }
    Section::new("Test log", "").block(log)
}
