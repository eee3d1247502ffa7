//! The pools below the files, compared with the baseline run without them.

use crate::{
    database::{
        measure::pools::{PoolFacts, PoolResults},
        results::{LatencySummary, RunResults, baseline::PathFigures},
    },
    verdict::{RunVerdict, VerdictOutcome},
};
use report::{
    Cell, Column, Document, Section, Severity, Table, Unit,
    prose::{counted, number},
};
use world::ByteCount;

/// Adds the ratio of array to baseline IOPS.
pub fn add_highlight(document: &mut Document, results: &RunResults, verdict: &RunVerdict) {
    let Some(plain) = &results.baseline else { return };
    let array = PathFigures::of(results, verdict.answer);
    if let (Some(ratio), Some(iops)) = (ratio(array.iops, plain.iops), plain.iops) {
        let note = format!("{} database IOPS on the plain path", number(iops, 0));
        document.highlight("Array against the plain path", Cell::text(times(ratio)), note);
    }
}

/// Adds findings about pools: no protection, missing drives, lack of space.
pub fn add_findings(document: &mut Document, results: &RunResults) {
    let mut warn = |text: String| document.finding(Severity::Warning, text, "");
    for pool in &results.pools {
        let (facts, name) = (&pool.facts, in_words(pool, results));
        if let Some(shared) = &facts.shared {
            warn(format!("No protection, demo only: of the {name}, {shared}."));
        }
        if facts.drives_there < facts.drives {
            let copies = match facts.degraded_segments {
                0 => "everything on it has two copies again".to_owned(),
                1 => "1 segment has one copy only, and is being rebuilt".to_owned(),
                more => format!("{more} segments have one copy only, and are being rebuilt"),
            };
            let (there, drives) = (facts.drives_there, facts.drives);
            warn(format!("The {name} has {there} of {drives} drives: {copies}."));
        }
        if facts.repaired > 0 {
            let blocks = counted(facts.repaired, "block");
            warn(format!("The {name} repaired a wrong or unreadable copy of {blocks}."));
        }
        if let Some(percent) = facts.alarm_percent {
            warn(format!("The {name} was more than {percent} % full: {}.", room(facts)));
        }
    }
}

/// `pool for databases of group 2`; the group is left out if it is the only one.
fn in_words(pool: &PoolResults, results: &RunResults) -> String {
    match results.plan.groups {
        1 => pool.facts.name.clone(),
        _ => format!("{} of group {}", pool.facts.name, pool.group),
    }
}

fn room(facts: &PoolFacts) -> String {
    format!("{} of {} used", ByteCount(facts.used_bytes), ByteCount(facts.usable_bytes))
}

/// The comparison with the baseline, then each pool.
pub fn section(results: &RunResults, verdict: &RunVerdict) -> Section {
    let intro = "The databases and logs lay on volumes of Spindle's own array, in this process: each pool writes two \
                 copies of every block, on drives that are files, with a checksum of each.";
    let mut section = Section::new("The array", intro);
    if let Some(plain) = &results.baseline {
        section = section.block(side_by_side(plain, &PathFigures::of(results, verdict.answer))).paragraph(
            "The plain path is the same storage without the array: databases and logs as files in the same folders, \
             the same load, run before. The last column is what the array costs, its second copy included.",
        );
    }
    section.block(drives(results)).block(traffic(results))
}

fn side_by_side(plain: &PathFigures, array: &PathFigures) -> Table {
    let columns = [
        Column::text("Figure"),
        Column::text("Plain path"),
        Column::text("Array"),
        Column::number("Array / plain", Unit::One),
    ];
    let mut table = Table::new("The array against the plain path", columns);
    let mut row = |what: &str, of: &dyn Fn(&PathFigures) -> Option<f64>, unit: Unit, decimals: u8| {
        let (plain, array) = (of(plain), of(array));
        let value = |value: Option<f64>| Cell::number(value, unit.clone(), decimals);
        table.push([
            Cell::text(what),
            value(plain),
            value(array),
            Cell::number(ratio(array, plain), Unit::One, 2),
        ]);
    };
    row("Database I/O", &|path| path.iops, Unit::IoPerSecond, 0);
    row("Database reads", &|path| path.reads, Unit::PerSecond, 0);
    row("Database writes", &|path| path.writes, Unit::PerSecond, 0);
    row("Operations of the sessions", &|path| path.operations, Unit::PerSecond, 0);
    type Latency = fn(&PathFigures) -> LatencySummary;
    let latencies: [(&str, Latency); 4] = [
        ("Database read", |path| path.read),
        ("Database write", |path| path.write),
        ("Log write", |path| path.log),
        ("Operation", |path| path.operation),
    ];
    for (what, of) in latencies {
        row(&format!("{what}, average"), &|path| of(path).average_ms, Unit::Milliseconds, 3);
        row(&format!("{what}, 99 %"), &|path| of(path).p99_ms, Unit::Milliseconds, 3);
    }
    row("Processors in use", &|path| path.processors, Unit::One, 2);
    let word = |answer| match answer {
        VerdictOutcome::Pass => "pass",
        VerdictOutcome::Fail => "fail",
        VerdictOutcome::Incomplete => "incomplete",
    };
    table.push([
        Cell::text("Answer"),
        Cell::text(word(plain.answer)),
        Cell::text(word(array.answer)),
        Cell::Empty,
    ]);
    table
}

fn drives(results: &RunResults) -> Table {
    let columns = [
        Column::text("Pool"),
        Column::text("Drives"),
        Column::number("Copies", Unit::One),
        Column::text("Used"),
        Column::number("Used", Unit::Percent),
        Column::number("Checkpoints", Unit::One),
        Column::number("Copies repaired", Unit::One),
        Column::number("Segments with one copy", Unit::One),
        Column::text("Protection"),
    ];
    let mut table = Table::new("Pools, when the files had been verified", columns);
    for pool in &results.pools {
        let facts = &pool.facts;
        let (there, drives, size) = (facts.drives_there, facts.drives, ByteCount(facts.drive_bytes));
        let percent = facts.used_bytes as f64 / facts.usable_bytes.max(1) as f64 * 100.0;
        table.push([
            Cell::text(in_words(pool, results)),
            Cell::text(format!("{there} of {drives}, {size} each")),
            Cell::count(facts.copies.into()),
            Cell::text(room(facts)),
            Cell::number(percent, Unit::Percent, 0),
            Cell::count(facts.checkpoints),
            Cell::count(facts.repaired),
            Cell::count(facts.degraded_segments),
            Cell::text(match facts.shared {
                Some(_) => "none, demo only",
                None => "one drive may be lost",
            }),
        ]);
    }
    table
}

fn traffic(results: &RunResults) -> Table {
    let columns = [
        Column::text("Pool"),
        Column::text("Read by the host"),
        Column::text("Read from drives"),
        Column::number("Drive / host", Unit::One),
        Column::text("Written by the host"),
        Column::text("Written to drives"),
        Column::number("Drive / host", Unit::One),
        Column::number("Flushes of drives", Unit::One),
    ];
    let mut table = Table::new("I/O in the judged part", columns);
    for pool in &results.pools {
        let measured = &pool.measured;
        table.push([
            Cell::text(in_words(pool, results)),
            Cell::bytes(measured.host_read_bytes),
            Cell::bytes(measured.device_read_bytes),
            Cell::number(measured.read_amplification(), Unit::One, 2),
            Cell::bytes(measured.host_written_bytes),
            Cell::bytes(measured.device_written_bytes),
            Cell::number(measured.write_amplification(), Unit::One, 2),
            Cell::count(measured.device_flushes),
        ]);
    }
    table
}

fn ratio(of: Option<f64>, to: Option<f64>) -> Option<f64> {
    of.zip(to).filter(|(_, to)| *to > 0.0).map(|(of, to)| of / to)
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2} ×")
}
