//! Tables of operations and of the I/O they caused.

use crate::database::document::charts;
use crate::{
    database::results::{LatencySummary, RunResults, VolumeResults},
    meter::{IoTally, VolumeRole},
};
use report::{Cell, Column, KeyValues, Section, Table, Unit, prose::number};

/// A rate over the judged time; None if nothing was measured.
fn rate(results: &RunResults, count: u64) -> Option<f64> {
    (results.measured_s > 0.0).then(|| count as f64 / results.measured_s)
}

fn per_second(results: &RunResults, count: u64) -> Cell {
    Cell::number(rate(results, count), Unit::PerSecond, 1)
}

fn milliseconds(value: Option<f64>) -> Cell {
    Cell::number(value, Unit::Milliseconds, 3)
}

/// Latency percentiles, one row for each volume and direction.
fn latency_table(results: &RunResults, role: VolumeRole) -> Table {
    let columns = [
        Column::text("Volume"),
        Column::text("I/O"),
        Column::number("Rate", Unit::PerSecond),
        Column::number("Average size", Unit::One),
        Column::number("Average", Unit::Milliseconds),
        Column::number("Per I/O", Unit::Milliseconds),
        Column::number("p50", Unit::Milliseconds),
        Column::number("p95", Unit::Milliseconds),
        Column::number("p99", Unit::Milliseconds),
        Column::number("p99.9", Unit::Milliseconds),
        Column::number("Worst 15 s", Unit::Milliseconds),
        Column::number("Longest", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    for volume in results.in_role(role) {
        let reads =
            Windows { mean_ms: volume.read_mean_of_windows_ms, worst_ms: volume.read_worst_window_ms };
        let writes =
            Windows { mean_ms: volume.write_mean_of_windows_ms, worst_ms: volume.write_worst_window_ms };
        table.push(latency_row(results, volume, "reads", &volume.tallies.read, &volume.read, reads));
        table.push(latency_row(results, volume, "writes", &volume.tallies.write, &volume.write, writes));
    }
    table
}

/// Average latencies of windows of 15 s.
struct Windows {
    mean_ms: Option<f64>,
    worst_ms: Option<f64>,
}

fn latency_row(
    results: &RunResults,
    volume: &VolumeResults,
    what: &str,
    tally: &IoTally,
    latency: &LatencySummary,
    windows: Windows,
) -> Vec<Cell> {
    let size =
        tally.average_bytes().map_or(Cell::number(None, Unit::Bytes, 0), |bytes| Cell::bytes(bytes as u64));
    vec![
        Cell::text(volume.volume.as_str()),
        Cell::text(what),
        per_second(results, tally.count),
        size,
        milliseconds(windows.mean_ms),
        milliseconds(latency.average_ms),
        milliseconds(latency.p50_ms),
        milliseconds(latency.p95_ms),
        milliseconds(latency.p99_ms),
        milliseconds(latency.p99_9_ms),
        milliseconds(windows.worst_ms),
        milliseconds(latency.max_ms),
    ]
}

pub fn transactional(results: &RunResults) -> Section {
    let intro = "Reads and writes of databases that transactions caused. Writes are done in the background; \
                 transactions wait for reads and for the log.";
    Section::new("Transactional I/O", intro)
        .block(latency_table(results, VolumeRole::Database))
        .block(charts::rates(results))
        .block(charts::latencies(results))
        .block(charts::distribution(results))
        .block(charts::p99(results))
        .block(charts::outstanding(results))
}

pub fn operations(results: &RunResults) -> Section {
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
        .row("Records read back and correct", Cell::count(transactions.records_checked))
        .row("Page requests answered from the cache", Cell::number(hits, Unit::Percent, 1))
        .row("Pages in one write", Cell::number(per_write, Unit::One, 2))
        .row(
            "Page splits and merges",
            Cell::text(format!(
                "{} and {}",
                number(engine.splits as f64, 0),
                number(engine.merges as f64, 0)
            )),
        )
        .row("Page-fault stalls", Cell::count(engine.page_fault_stalls))
        .row("Log record stalls", Cell::count(engine.log_record_stalls));
    let intro = "From the intended start of an operation to the end of its commit, including the wait for \
                 a session.";
    Section::new("Operations", intro).block(table).block(rows)
}

pub fn background_scan(results: &RunResults) -> Section {
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
    for volume in results.in_role(VolumeRole::Database) {
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
        .row("Of those, blank", Cell::count(scan.empty))
        .row("Of those, damaged", Cell::count(scan.damaged))
        .row("Passes completed", Cell::count(scan.passes));
    section.block(table).block(rows)
}

pub fn log_io(results: &RunResults) -> Section {
    let writes: u64 = results.in_role(VolumeRole::Log).map(|volume| volume.tallies.write.count).sum();
    let databases: u64 = results
        .in_role(VolumeRole::Database)
        .map(|volume| volume.tallies.read.count + volume.tallies.write.count)
        .sum();
    let ratio = (writes > 0).then(|| databases as f64 / writes as f64);
    let rows = KeyValues::default()
        .row_with_note(
            "Database I/Os for each log write",
            Cell::number(ratio, Unit::One, 1),
            "Jetstress tuned for 8 to 12",
        )
        .row("Log generations filled", Cell::count(results.engine.log_generations))
        .row("Log written by transactions", Cell::bytes(results.engine.log_bytes))
        .row("Checkpoints", Cell::count(results.engine.checkpoints));
    Section::new("Log I/O", "")
        .block(latency_table(results, VolumeRole::Log))
        .block(rows)
        .block(charts::log(results))
}

pub fn total_io(results: &RunResults) -> Section {
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
                VolumeRole::Database => "database",
                VolumeRole::Log => "log",
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
    let intro = "All I/O in the measured time. Preparing is zeroing the next log \
                 file ahead of its use: no transaction waits for it, so its latency is not judged.";
    Section::new("Total I/O", intro).block(table)
}
