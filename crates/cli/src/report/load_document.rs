//! The report of what hosts did over time.

use super::{
    host_load::{HOUR_SLOTS, HostLoad, SLOT_SECONDS, average, busiest_hour, rate, read_share},
    load_profile::LoadProfile,
};
use control::history::IoSample;
use report::{
    Axis, Cell, Column, Document, KeyValue, KeyValues, LineChart, Meta, Section, Severity, Table, TimeSeries,
    Unit, calendar::shown_time, duration::show_duration,
};
use std::time::Duration;

/// Most points of a line: more than a screen shows.
const POINTS_MAX: usize = 1500;

/// A load with what became of it.
pub(super) struct ReportedLoad<'a> {
    pub load: &'a HostLoad,
    /// All volumes together.
    pub sum: &'a [Option<IoSample>],
    pub profile: Option<&'a LoadProfile>,
    /// Runs the profile.
    pub command: Option<&'a str>,
    /// No volume was named.
    pub are_all: bool,
}

/// The report; `created` is the time of its making.
pub(super) fn document_of(of: &ReportedLoad<'_>, (period, created): (&str, &str)) -> Document {
    let meta = Meta {
        generator: format!("Spindle {}", env!("CARGO_PKG_VERSION")),
        created_utc: created.to_owned(),
        ..Meta::default()
    };
    let mut document = Document::new("What hosts did", period, meta);
    highlights(&mut document, of);
    findings(&mut document, of);
    document.section(
        charts(of.sum)
            .paragraph("Times are hours since the begin. A gap is a time of which nothing was recorded."),
    );
    document.section(hours_of_the_day(of));
    document.section(volumes(of.load));
    document.section(for_prove(of));
    document
}

fn recorded(samples: &[Option<IoSample>]) -> Vec<IoSample> {
    samples.iter().copied().flatten().collect()
}

fn iops(value: f32) -> Cell {
    Cell::number(f64::from(value), Unit::IoPerSecond, if value < 10.0 { 2 } else { 0 })
}

fn percent(share: Option<f64>) -> Cell {
    share.map_or(Cell::Empty, |share| Cell::number(share * 100.0, Unit::Percent, 0))
}

fn milliseconds(seconds: f32) -> Cell {
    Cell::number(f64::from(seconds) * 1e3, Unit::Milliseconds, 2)
}

/// Mean size of an operation.
fn size(bytes_per_s: f32, per_s: f32) -> Cell {
    if per_s > 0.0 { Cell::bytes((bytes_per_s / per_s) as u64) } else { Cell::Empty }
}

/// The rate that 95 of 100 slots do not exceed.
fn rate_95(samples: &[IoSample]) -> f32 {
    let mut rates: Vec<f32> = samples.iter().map(rate).collect();
    rates.sort_by(f32::total_cmp);
    let rank = (rates.len() as f64 * 0.95).ceil() as usize;
    rates.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn highlights(document: &mut Document, of: &ReportedLoad<'_>) {
    let all = recorded(of.sum);
    let mean = average(&all);
    if let Some((begin, hour)) = busiest_hour(of.sum) {
        let at = shown_time(of.load.from_unix_s + begin as i64 * SLOT_SECONDS);
        document.highlight("Busiest hour", iops(rate(&hour)), format!("from {at}"));
        document.highlight("Reads in it", percent(read_share(&hour)), "");
        document.highlight(
            "Mean latency in it",
            milliseconds(hour.reads.mean_s),
            "of reads; of writes in the table",
        );
    }
    document.highlight("95 of 100 slots", iops(rate_95(&all)), "at most, of five minutes");
    document.highlight("On average", iops(rate(&mean)), "day and night");
}

fn findings(document: &mut Document, of: &ReportedLoad<'_>) {
    let (known, slots) = (recorded(of.sum).len(), of.sum.len());
    if known < slots {
        let missing = show_duration(Duration::from_secs((slots - known) as u64 * SLOT_SECONDS as u64));
        let text =
            format!("{missing} of this time were not recorded: the server was off, or had not begun to");
        document.finding(Severity::Warning, text, "");
    }
    for problem in &of.load.problems {
        document.finding(Severity::Warning, problem.clone(), "");
    }
    if of.are_all && of.load.volumes.len() > 1 {
        let text = "All volumes are reported together, logs too. For a profile of databases name their volumes with --volume";
        document.finding(Severity::Note, text, "");
    }
    if let Some(limit) = of.profile.and_then(|profile| profile.limit) {
        document.finding(
            Severity::Warning,
            format!("The profile has more reads than hosts had: {limit}"),
            "",
        );
    }
}

/// Lines over the whole time.
fn charts(samples: &[Option<IoSample>]) -> Section {
    let line = |name: &str, of: &dyn Fn(&IoSample) -> f32| {
        let width = samples.len().div_ceil(POINTS_MAX).max(1);
        let points = samples.chunks(width).enumerate().map(|(index, chunk)| {
            let hours = (index * width) as f64 / HOUR_SLOTS as f64;
            let known = recorded(chunk);
            let value = if known.is_empty() { f64::NAN } else { f64::from(of(&average(&known))) };
            (hours, value)
        });
        TimeSeries::new(name, points)
    };
    let hours = || Axis::new("time", Unit::Named("h".to_owned()));
    let rates = LineChart::new("Operations", Axis::new("rate", Unit::IoPerSecond))
        .against(hours())
        .series(line("reads", &|sample| sample.reads.per_s))
        .series(line("writes", &|sample| sample.writes.per_s));
    let bytes = LineChart::new("Throughput", Axis::new("rate", Unit::BytesPerSecond))
        .against(hours())
        .series(line("read", &|sample| sample.reads.bytes_per_s))
        .series(line("written", &|sample| sample.writes.bytes_per_s));
    let latencies = LineChart::new("Mean latency", Axis::new("latency", Unit::Milliseconds))
        .against(hours())
        .series(line("reads", &|sample| sample.reads.mean_s * 1e3))
        .series(line("writes", &|sample| sample.writes.mean_s * 1e3));
    let slowest = LineChart::new("Latency of 99 %", Axis::new("latency", Unit::Milliseconds))
        .against(hours())
        .series(line("reads", &|sample| sample.reads.p99_s * 1e3))
        .series(line("writes", &|sample| sample.writes.p99_s * 1e3));
    Section::new("Over time", "").block(rates).block(bytes).block(latencies).block(slowest)
}

/// The same hours of all days.
fn hours_of_the_day(of: &ReportedLoad<'_>) -> Section {
    let columns = [
        Column::text("Hour, UTC"),
        Column::number("Mean", Unit::IoPerSecond),
        Column::number("Most in 5 min", Unit::IoPerSecond),
        Column::number("Reads", Unit::Percent),
        Column::number("Read latency", Unit::Milliseconds),
        Column::number("Write latency", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    for hour in 0..24 {
        let begin = |slot: usize| of.load.from_unix_s + slot as i64 * SLOT_SECONDS;
        let is_of_hour = |slot: &usize| begin(*slot).rem_euclid(86_400) / 3600 == hour;
        let own: Vec<IoSample> =
            (0..of.sum.len()).filter(is_of_hour).filter_map(|slot| of.sum[slot]).collect();
        if own.is_empty() {
            continue;
        }
        let mean = average(&own);
        table.push([
            Cell::text(format!("{hour:02}")),
            iops(rate(&mean)),
            iops(own.iter().map(rate).fold(0.0, f32::max)),
            percent(read_share(&mean)),
            milliseconds(mean.reads.mean_s),
            milliseconds(mean.writes.mean_s),
        ]);
    }
    Section::new("By the hour of the day", "").block(table)
}

fn volumes(load: &HostLoad) -> Section {
    let columns = [
        Column::text("Volume"),
        Column::number("Size", Unit::One),
        Column::number("Mean", Unit::IoPerSecond),
        Column::number("Busiest hour", Unit::IoPerSecond),
        Column::number("Reads in it", Unit::Percent),
        Column::number("Read size", Unit::One),
        Column::number("Write size", Unit::One),
        Column::number("Read latency", Unit::Milliseconds),
        Column::number("Write latency", Unit::Milliseconds),
    ];
    let mut table = Table::new("", columns);
    for volume in &load.volumes {
        let mean = average(&recorded(&volume.samples));
        let hour = busiest_hour(&volume.samples).map(|(_, hour)| hour).unwrap_or_default();
        table.push([
            Cell::text(&volume.name),
            Cell::bytes(volume.size_bytes),
            iops(rate(&mean)),
            iops(rate(&hour)),
            percent(read_share(&hour)),
            size(hour.reads.bytes_per_s, hour.reads.per_s),
            size(hour.writes.bytes_per_s, hour.writes.per_s),
            milliseconds(hour.reads.mean_s),
            milliseconds(hour.writes.mean_s),
        ]);
    }
    Section::new("Volumes", "Sizes and latencies are those of each volume's busiest hour.").block(table)
}

/// The load as the profile has it, and the rest that it has not.
fn for_prove(of: &ReportedLoad<'_>) -> Section {
    let section = Section::new("As a load of 'spindle prove'", "");
    let (Some(profile), Some(command)) = (of.profile, of.command) else {
        return section.paragraph("No hour of this time was recorded: there is no profile.");
    };
    let mix = profile.profile.mix();
    let row = |key: &str, value: Cell, note: String| KeyValue { key: key.to_owned(), value, note };
    let per_mailbox = Cell::number(profile.iops_per_mailbox, Unit::IoPerSecond, 4);
    let rows = vec![
        row("Command", Cell::text(command), String::new()),
        row("Mailboxes", Cell::count(profile.mailboxes), "as --mailboxes says".to_owned()),
        row("Rate of one", per_mailbox, "the busiest hour, divided by the mailboxes".to_owned()),
        row(
            "Reads",
            Cell::number(profile.read_share * 100.0, Unit::Percent, 0),
            "of hosts in that hour".to_owned(),
        ),
        row(
            "Mix",
            Cell::text(format!("{}/{}/{}/{}", mix.insert, mix.replace, mix.delete, mix.read)),
            "percent of inserts, replaces, deletes and reads of records".to_owned(),
        ),
    ];
    section.block(KeyValues { rows }).paragraph(
        "The rate is held, and the share of reads follows from the mix and the cache: the report of the run has it, to be compared. \
         What a profile of databases does not have: the sizes of this load's operations (it reads and writes pages), its bursts of \
         less than an hour, its places on the volumes, and reads of backups. Samples of five minutes are off by 4.4 % at most.",
    )
}
