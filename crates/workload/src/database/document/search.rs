//! The load search: every trial, and latency against load.

use crate::{
    database::{
        document::charts,
        results::{
            RunResults,
            search::{SearchResults, TrialResults, describe_level},
        },
    },
    measure::processor,
    search::{Judgement, SearchAxis, SearchBound},
    verdict::limits::Measure,
};
use report::{Cell, Column, LineChart, Section, Table, TimeSeries, Unit, prose::counted};

pub fn section(results: &RunResults, found: &SearchResults) -> Section {
    let intro = "The probed loads, and those that were then held. A load fails if it fails twice in a row; \
                 operations that wait when a trial ends are not carried into the next. A load is measured once \
                 its throughput is steady, or after a maximum settling time (then that column is empty). A rate \
                 counts as held if no more than three standard deviations of its random arrivals are missing, \
                 and no operation waited for a second. Page-fault stalls fail a probe only if most of its \
                 seconds have too many; a hold is judged by all of them. A failed load is tried again, up to \
                 three times, next to one that passed.";
    Section::new("Search for the most within limits", intro)
        .paragraph(outcome(found))
        .block(trials(found))
        .block(against_load(results, found))
}

fn outcome(found: &SearchResults) -> String {
    let Some(held) = found.held else {
        return "The run ended before the search did: nothing was held.".to_owned();
    };
    let why = match found.bound {
        SearchBound::Unfinished => "the search ended before it met a limit".to_owned(),
        SearchBound::Limit => "more broke a limit".to_owned(),
        SearchBound::Generator => {
            "no higher rate could be generated, although processors and sessions were free: the \
                             storage may carry more"
                .to_owned()
        }
        SearchBound::Sessions => format!(
            "more would need more than {} ({SESSIONS}): the storage may carry more; give it more cache, or more groups",
            sessions(found)
        ),
        SearchBound::Processor => match found.limiting_thread() {
            Some(thread) => format!(
                "{} ({:.0} % of one processor): the storage may carry more; use more groups, each has a thread",
                processor::describe_limit(thread),
                thread.percent
            ),
            None => "a processor was the limit, not the storage".to_owned(),
        },
        SearchBound::Plateau => "twice as many did no more".to_owned(),
        SearchBound::Most if found.axis == SearchAxis::Threads => {
            format!("no more than {} are tried ({SESSIONS})", sessions(found))
        }
        SearchBound::Most => "this is the highest level that is tried".to_owned(),
    };
    format!("Held: {}; {why}.", describe_level(found.axis, held))
}

/// Rule for the maximum number of sessions of a group.
const SESSIONS: &str = "one for 16 pages of its cache, 32 to 1,024";

/// The maximum number of sessions of a group, in describe_level.
fn sessions(found: &SearchResults) -> String {
    match found.sessions_max {
        0 => "the sessions a group may have".to_owned(),
        most => format!("{} a group", counted(most.into(), "session")),
    }
}

fn trials(found: &SearchResults) -> Table {
    let level = match found.axis {
        SearchAxis::Rate => Column::number("Target", Unit::IoPerSecond),
        SearchAxis::Threads => Column::number("Threads a group", Unit::One),
    };
    let columns = [
        Column::number("No.", Unit::One),
        Column::text("Trial"),
        Column::text("Verdict"),
        level,
        Column::number("Settled after", Unit::Seconds),
        Column::number("Measured", Unit::Seconds),
        Column::number("Achieved", Unit::IoPerSecond),
        Column::number("Read", Unit::Milliseconds),
        Column::number("Write", Unit::Milliseconds),
        Column::number("Log write", Unit::Milliseconds),
        Column::number("Worst read", Unit::Milliseconds),
        Column::number("Worst log write", Unit::Milliseconds),
        Column::number("Stalls", Unit::PerSecond),
        Column::number("Waiting", Unit::One),
        Column::number("Busiest thread", Unit::Percent),
    ];
    let mut table = Table::new("", columns);
    let level_unit = |axis| if axis == SearchAxis::Rate { Unit::IoPerSecond } else { Unit::One };
    for trial in &found.trials {
        table.push([
            Cell::count(trial.number.into()),
            Cell::text(if trial.holds { "hold" } else { "probe" }),
            Cell::text(verdict(trial)),
            Cell::number(trial.level, level_unit(found.axis), 0),
            Cell::number(trial.settled_s, Unit::Seconds, 0),
            Cell::number(trial.measured_s, Unit::Seconds, 0),
            Cell::number(trial.achieved_iops, Unit::IoPerSecond, 0),
            Cell::number(trial.read_ms, Unit::Milliseconds, 2),
            Cell::number(trial.write_ms, Unit::Milliseconds, 2),
            Cell::number(trial.log_ms, Unit::Milliseconds, 2),
            Cell::number(trial.read_worst_ms, Unit::Milliseconds, 2),
            Cell::number(trial.log_worst_ms, Unit::Milliseconds, 2),
            Cell::number(trial.stalls_per_second, Unit::PerSecond, 2),
            Cell::count(trial.backlog),
            Cell::number(trial.busiest.map(|thread| thread.percent), Unit::Percent, 0),
        ]);
    }
    table
}

fn verdict(trial: &TrialResults) -> String {
    match trial.judgement {
        Judgement::Within => "within limits".to_owned(),
        Judgement::Generator => "not generated".to_owned(),
        Judgement::Sessions => "not generated: sessions all busy".to_owned(),
        Judgement::Processor => {
            let group = trial.busiest.map_or(0, |thread| thread.group);
            format!("processor of group {}'s thread full", group + 1)
        }
        Judgement::Beyond => {
            let titles: Vec<&str> = trial.broken.iter().map(|measure| measure.title()).collect();
            format!("beyond: {}", titles.join("; "))
        }
    }
}

/// Chart of latency against achieved load.
fn against_load(results: &RunResults, found: &SearchResults) -> LineChart {
    let x = match found.axis {
        SearchAxis::Rate => report::Axis::new("rate achieved", Unit::IoPerSecond),
        SearchAxis::Threads => report::Axis::new("threads a group", Unit::One),
    };
    let place = |trial: &TrialResults| match found.axis {
        SearchAxis::Rate => trial.achieved_iops,
        SearchAxis::Threads => trial.level,
    };
    let series = |name: &str, of: fn(&TrialResults) -> Option<f64>| {
        let points = found.trials.iter().map(|trial| (place(trial), of(trial).unwrap_or(f64::NAN)));
        TimeSeries::new(name, points)
    };
    let y = report::Axis::new("average latency", Unit::Milliseconds);
    let chart = LineChart::new("Latency against load", y)
        .against(x)
        .series(series("database reads", |trial| trial.read_ms))
        .series(series("database writes", |trial| trial.write_ms))
        .series(series("log writes", |trial| trial.log_ms));
    match charts::limit(results, Measure::DatabaseReadAverageMs) {
        Some(at) => chart.limit("limit of the average read", at),
        None => chart,
    }
}
