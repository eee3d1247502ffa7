//! I/O anomalies: slow operations, spikes, and kernel messages.

use crate::{
    database::{
        document::utc,
        results::{RunResults, VolumeResults, kernel::KernelResults},
    },
    meter::{Burst, SlowOperation, SpikeLog, VolumeRole},
    verdict::limits::LimitSet,
};
use report::{
    Cell, Column, Document, LineChart, Section, Severity, Table, Unit,
    prose::{counted, number},
};

/// Maximum number of bursts listed for each volume and kind.
const LISTED: usize = 10;

/// Maximum number of slow operations marked in a chart.
const MARKED: usize = 8;

/// Latency from which a slow operation is a warning, in seconds.
const STALL_WARNED_S: f64 = 1.0;

/// One finding for the slow operations, and one for each volume and kind with spikes.
pub fn add_findings(document: &mut Document, results: &RunResults) {
    if let Some(kernel) = &results.kernel {
        add_kernel_findings(document, kernel);
    }
    let slowest = results.slow.operations.iter().max_by(|one, other| one.took_s.total_cmp(&other.took_s));
    if let Some(slowest) = slowest {
        let end = if slowest.answered {
            format!("was answered after {:.1} s", slowest.took_s)
        } else {
            format!("was not answered in {:.0} s", slowest.took_s)
        };
        let text = format!(
            "{} took long, {} hung; the longest, a {slowest}, {end}.",
            counted(results.slow.long, "device operation"),
            number(results.slow.hung as f64, 0)
        );
        document.finding(Severity::Warning, text, "");
    }
    for (volume, kind, log) in logs(results).filter(|(_, _, log)| log.count() > 0) {
        let over_ms = log.over_ns.unwrap_or(0) as f64 / 1e6;
        let slowest_s = log.slowest_ns() as f64 / 1e9;
        let text = format!(
            "{} of {} {} on {} took over {over_ms:.0} ms, in {}; the slowest took {}.",
            number(log.operations() as f64, 0),
            number(operations_of(volume, kind) as f64, 0),
            what(volume, kind),
            volume.volume,
            counted(log.count(), "episode"),
            latency(slowest_s),
        );
        // A stall that users notice belongs next to the verdict.
        let severity = if slowest_s >= STALL_WARNED_S { Severity::Warning } else { Severity::Note };
        document.finding(severity, text, "");
    }
}

/// `478 ms`, or `3.20 s` from a second on.
fn latency(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Findings about kernel messages, or about an unreadable kernel log.
fn add_kernel_findings(document: &mut Document, kernel: &KernelResults) {
    if let Some(first) = kernel.events.first() {
        let text = format!(
            "{} in the kernel log about faults of the devices under test; the first, of {} ({}): {}",
            counted(kernel.count, "message"),
            first.device,
            first.what,
            first.text
        );
        document.finding(Severity::Error, text, format!("the kernel's {}", first.source));
    }
    if kernel.lost {
        let text = "The kernel log was overwritten faster than it could be read; some messages are missing.";
        document.finding(Severity::Warning, text, "");
    }
    if let Some(why) = &kernel.unreadable {
        let text = format!(
            "The kernel log could not be read ({why}): errors that only the kernel reports are not counted."
        );
        document.finding(Severity::Note, text, "");
    }
}

fn kernel_messages(kernel: &KernelResults) -> Table {
    let (kept, all) = (kernel.events.len() as u64, kernel.count);
    let title = if kept < all {
        format!("In the kernel log, the first {kept} of {all}")
    } else {
        "In the kernel log".to_owned()
    };
    let columns = [
        Column::text("Seen (UTC)"),
        Column::text("Device"),
        Column::text("What"),
        Column::text("Message"),
        Column::text("From"),
    ];
    let mut table = Table::new(title, columns);
    for event in &kernel.events {
        table.push([
            Cell::text(utc(event.unix_s)),
            Cell::text(event.device.as_str()),
            Cell::text(event.what.as_str()),
            Cell::text(event.text.as_str()),
            Cell::text(event.source.as_str()),
        ]);
    }
    table
}

/// Marks the first slow operations of the measured time in `chart`.
pub fn with_marks(chart: LineChart, results: &RunResults, role: VolumeRole) -> LineChart {
    let of_role = results.slow.operations.iter().filter(|operation| operation.role == role);
    let marked = of_role.filter_map(|operation| Some((operation.slowness.title(), operation.at_s?)));
    marked.take(MARKED).fold(chart, |chart, (label, at_s)| chart.event(label, at_s))
}

/// The section: each slow operation, and the spikes of each volume.
pub fn section(results: &RunResults) -> Section {
    let mut section = Section::new("Slow I/O and the kernel log", intro(results));
    section = match results.slow.count() {
        0 => section.paragraph("No device operation was long or hung."),
        _ => section.block(slow_operations(results)),
    };
    section = match &results.kernel {
        Some(kernel) if kernel.count > 0 => section.block(kernel_messages(kernel)),
        Some(KernelResults { unreadable: None, .. }) => {
            section.paragraph("The kernel log reports no faults of the devices under test.")
        }
        _ => section,
    };
    if results.measured_s > 0.0 {
        section = section.block(spikes(results));
        let longest = longest_spikes(results);
        if !longest.rows().is_empty() {
            section = section.block(longest);
        }
    }
    section
}

fn intro(results: &RunResults) -> String {
    let Ok(set) = LimitSet::load(&results.plan.profile.limits) else { return String::new() };
    let watch = set.watch();
    format!(
        "A device operation of more than {} s is long, of more than {} s hung, at any time of the run ({}). An \
         episode is a time in which reads or writes took more than {} times the median of their volume, and more \
         than {} ms ({}): all such I/Os within a second of each other are one episode.",
        watch.slow.long_s,
        watch.slow.hung_s,
        watch.slow.source,
        watch.spike.times_median,
        watch.spike.floor_ms,
        watch.spike.source
    )
}

fn slow_operations(results: &RunResults) -> Table {
    let (kept, all) = (results.slow.operations.len() as u64, results.slow.count());
    let title = if kept < all {
        format!("Slow operations, the longest {kept} of {all}")
    } else {
        "Slow operations".to_owned()
    };
    let columns = [
        Column::text("Began (UTC)"),
        Column::text("Volume"),
        Column::text("File"),
        Column::text("Operation"),
        Column::number("Offset", Unit::One),
        Column::number("Size", Unit::One),
        Column::text("Slowness"),
        Column::number("Took", Unit::Seconds),
        Column::text("Answered"),
    ];
    let mut table = Table::new(title, columns);
    for operation in &results.slow.operations {
        let SlowOperation {
            slowness, kind, volume, file, offset, bytes, began_unix_s, took_s, answered, ..
        } = operation;
        table.push([
            Cell::text(utc(*began_unix_s)),
            Cell::text(volume.as_str()),
            Cell::text(file.as_str()),
            Cell::text(kind.title()),
            Cell::bytes(*offset),
            Cell::bytes(*bytes),
            Cell::text(slowness.title()),
            Cell::number(*took_s, Unit::Seconds, 1),
            Cell::text(if *answered { "yes" } else { "no" }),
        ]);
    }
    table
}

/// The spikes of each volume, with the kinds of operation that matter for its role.
fn logs(results: &RunResults) -> impl Iterator<Item = (&VolumeResults, &'static str, &SpikeLog)> {
    results.volumes.iter().flat_map(|volume| {
        let kinds = volume.spikes.of(volume.role);
        kinds.into_iter().map(move |(kind, log)| (volume, kind, log))
    })
}

fn what(volume: &VolumeResults, kind: &str) -> String {
    match volume.role {
        VolumeRole::Database => format!("database {kind}"),
        VolumeRole::Log => format!("log {kind}"),
    }
}

/// Measured operations of that kind.
fn operations_of(volume: &VolumeResults, kind: &str) -> u64 {
    if kind == "reads" { volume.tallies.read.count } else { volume.tallies.write.count }
}

fn spikes(results: &RunResults) -> Table {
    let columns = [
        Column::text("Volume"),
        Column::text("I/O"),
        Column::number("Threshold", Unit::Milliseconds),
        Column::number("I/Os over it", Unit::One),
        Column::number("Episodes", Unit::One),
        Column::number("Time in episodes", Unit::Seconds),
        Column::number("Longest episode", Unit::Seconds),
        Column::number("p99", Unit::Milliseconds),
        Column::number("p99.9", Unit::Milliseconds),
    ];
    let mut table = Table::new("Episodes of slow I/O by volume", columns);
    for (volume, kind, log) in logs(results) {
        let latency = if kind == "reads" { &volume.read } else { &volume.write };
        let longest_s = log.longest().map(|burst| burst.span_ns() as f64 / 1e9);
        table.push([
            Cell::text(volume.volume.as_str()),
            Cell::text(what(volume, kind)),
            Cell::number(log.over_ns.map(|over_ns| over_ns as f64 / 1e6), Unit::Milliseconds, 1),
            Cell::count(log.operations()),
            Cell::count(log.count()),
            Cell::number(log.total_s(), Unit::Seconds, 2),
            Cell::number(longest_s, Unit::Seconds, 2),
            Cell::number(latency.p99_ms, Unit::Milliseconds, 2),
            Cell::number(latency.p99_9_ms, Unit::Milliseconds, 2),
        ]);
    }
    table
}

/// The longest bursts of each volume and kind, in order of time.
fn longest_spikes(results: &RunResults) -> Table {
    let columns = [
        Column::number("At", Unit::Seconds),
        Column::text("Volume"),
        Column::text("I/O"),
        Column::number("Lasted", Unit::Seconds),
        Column::number("I/Os over the threshold", Unit::One),
        Column::number("Slowest I/O", Unit::Milliseconds),
    ];
    let mut table = Table::new("Longest episodes, from the beginning of measuring", columns);
    let mut all: Vec<(Burst, &VolumeResults, &'static str)> = Vec::new();
    for (volume, kind, log) in logs(results) {
        let mut bursts = log.bursts();
        bursts.sort_by_key(|burst| std::cmp::Reverse(burst.span_ns()));
        all.extend(bursts.into_iter().take(LISTED).map(|burst| (burst, volume, kind)));
    }
    all.sort_by_key(|(burst, ..)| burst.from_ns);
    for (burst, volume, kind) in all {
        table.push([
            Cell::number(burst.from_ns as f64 / 1e9, Unit::Seconds, 1),
            Cell::text(volume.volume.as_str()),
            Cell::text(what(volume, kind)),
            Cell::number(burst.span_ns() as f64 / 1e9, Unit::Seconds, 2),
            Cell::count(burst.operations),
            Cell::number(burst.slowest_ns as f64 / 1e6, Unit::Milliseconds, 1),
        ]);
    }
    table
}
