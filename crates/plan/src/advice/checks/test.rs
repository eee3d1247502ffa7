//! The test of a site: whether it passed, and whether it was one.

use crate::{
    advice::{
        RunFacts,
        subject::{Outcome, Subject, hold},
    },
    site::Role,
    units::shown,
};

const READ_MS: f64 = 20.0;
const READ_WINDOW_MS: f64 = 50.0;
const WRITE_MS: f64 = 10.0;
/// Databases are this many times the cache below them (HP EVA8000).
const TIMES_CACHE: f64 = 20.0;
/// A test of this share of production flatters (AMI 2008).
const SHARE_TOO_SMALL: f64 = 0.25;
const SECONDS: f64 = 7200.0;
/// Of processors (IBM 2008).
const PROCESSOR_PERCENT: f64 = 70.0;

/// Looks at the run, if there is one.
fn of_run(
    subject: &Subject<'_>,
    missing: &str,
    look: impl FnMut(&RunFacts) -> Option<Result<(), String>>,
) -> Outcome {
    Outcome::each(subject.run, missing, look)
}

fn at_most(subject: &Subject<'_>, of: fn(&RunFacts) -> Option<f64>, most: f64) -> Outcome {
    of_run(subject, "such I/O in the run", |run| {
        let value = of(run)?;
        hold(value <= most, || format!("{} ms, {} at most", shown(value), shown(most)))
    })
}

pub fn tested(subject: &Subject<'_>) -> Outcome {
    Outcome::expect(subject.run.is_some(), || "there is no --run".to_owned())
}

pub fn passed(subject: &Subject<'_>) -> Outcome {
    of_run(subject, "an answer of the run", |run| hold(run.passed?, || "its verdict is fail".to_owned()))
}

pub fn undamaged(subject: &Subject<'_>) -> Outcome {
    of_run(subject, "", |run| hold(run.damage == 0.0, || format!("{} places", shown(run.damage))))
}

pub fn database_read(subject: &Subject<'_>) -> Outcome {
    at_most(subject, |run| run.database_read_ms, READ_MS)
}

pub fn database_read_spike(subject: &Subject<'_>) -> Outcome {
    at_most(subject, |run| run.database_read_window_ms, READ_WINDOW_MS)
}

pub fn database_write(subject: &Subject<'_>) -> Outcome {
    at_most(subject, |run| run.database_write_ms, WRITE_MS)
}

pub fn log_write(subject: &Subject<'_>) -> Outcome {
    at_most(subject, |run| run.log_write_ms, WRITE_MS)
}

pub fn demand(subject: &Subject<'_>) -> Outcome {
    let demand = &subject.site.demand;
    of_run(subject, "database_iops of the demand", |run| {
        let headroom = 1.0 + demand.headroom_percent.unwrap_or(0.0) / 100.0;
        // A run of some of the databases is asked for their share.
        let share = match subject.database_count() {
            0.0 => 1.0,
            count => (run.databases as f64 / count).min(1.0),
        };
        let asked = demand.database_iops? * headroom * share;
        // A held rate comes out a little below what was asked, by chance.
        hold(run.iops >= asked * 0.995, || format!("{} IOPS, {} are asked", shown(run.iops), shown(asked)))
    })
}

pub fn against_cache(subject: &Subject<'_>) -> Outcome {
    let groups = subject.groups_with(|volume| volume.role.has_databases() && volume.copy == 1);
    of_run(subject, "cache_gb of groups", |run| {
        let mut arrays: Vec<(&str, f64)> = Vec::new();
        for group in &groups {
            let array = if group.array.is_empty() { group.name.as_str() } else { &group.array };
            if !arrays.iter().any(|(known, _)| *known == array) {
                arrays.push((array, group.cache_gb?));
            }
        }
        if arrays.is_empty() {
            return None;
        }
        let cache: f64 = arrays.iter().map(|(_, gb)| gb).sum();
        hold(run.gb >= cache * TIMES_CACHE * 0.995, || {
            format!("{} GB of databases, {} GB of cache", shown(run.gb), shown(cache))
        })
    })
}

pub fn against_production(subject: &Subject<'_>) -> Outcome {
    of_run(subject, "gb and count of the databases", |run| {
        let production = subject.site.databases.gb? * subject.site.databases.count? as f64;
        hold(run.gb > production * SHARE_TOO_SMALL, || {
            format!("{} of {} GB", shown(run.gb), shown(production))
        })
    })
}

pub fn length(subject: &Subject<'_>) -> Outcome {
    of_run(subject, "", |run| hold(run.seconds >= SECONDS, || format!("{} s", shown(run.seconds))))
}

pub fn processor(subject: &Subject<'_>) -> Outcome {
    of_run(subject, "processor time of the run", |run| {
        let percent = run.processor_percent?;
        hold(percent <= PROCESSOR_PERCENT, || format!("{} %", shown(percent)))
    })
}

pub fn layout(subject: &Subject<'_>) -> Outcome {
    let has_logs_apart = subject.site.volumes.iter().any(|volume| volume.role == Role::Log);
    of_run(subject, "", |run| {
        hold(!has_logs_apart || run.shared_volumes == 0, || format!("{} of its volumes", run.shared_volumes))
    })
}
