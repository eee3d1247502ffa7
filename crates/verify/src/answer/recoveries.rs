//! Recoveries on trial: their section, their JSON form, and what they leave open.

use super::{document::shown, json::finding};
use crate::{
    FileFinding,
    running::{RecoveredContents, RecoveryTrial, TrialEnd},
};
use report::{
    Cell, Column, Mark, Section, Table, Unit,
    prose::{counted, number},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// True if there are trials, and each group was brought up whole.
pub(super) fn is_each_recovered(trials: &[RecoveryTrial]) -> bool {
    let is_recovered =
        |trial: &RecoveryTrial| matches!(trial.end, TrialEnd::Recovered(_)) && !trial.is_failed();
    !trials.is_empty() && trials.iter().all(is_recovered)
}

/// The faults that recoveries met, with the files they are in.
pub(super) fn findings(trials: &[RecoveryTrial]) -> impl Iterator<Item = (&Path, &FileFinding)> {
    trials.iter().flat_map(|trial| match &trial.end {
        TrialEnd::Failed(path, finding) => vec![(path.as_path(), finding)],
        TrialEnd::Recovered(contents) => {
            let of = |database: &'_ crate::running::RecoveredDatabase| database.findings.len();
            let mut all = Vec::with_capacity(contents.databases.iter().map(of).sum());
            for database in &contents.databases {
                all.extend(database.findings.iter().map(|finding| (database.path.as_path(), finding)));
            }
            all
        }
        TrialEnd::NotNeeded | TrialEnd::Open(_) => Vec::new(),
    })
}

/// A line for each group whose recovery was not tried, or not finished.
pub(super) fn obstacles(trials: &[RecoveryTrial]) -> impl Iterator<Item = String> {
    trials.iter().filter_map(|trial| match &trial.end {
        TrialEnd::Open(why) => Some(format!("{}: its recovery was not tried: {why}", names(trial, &[]))),
        _ => None,
    })
}

/// Limits of the recoveries, a sentence each.
pub(super) fn unproven(trials: &[RecoveryTrial], paths: &[PathBuf]) -> Vec<String> {
    let sentence = |trial: &RecoveryTrial| {
        let names = names(trial, paths);
        match &trial.end {
            TrialEnd::Open(why) => Some(format!("The recovery of {names} was not tried: {why}.")),
            TrialEnd::NotNeeded => Some(format!(
                "{names} needs no recovery, and its log is not among these files: its records were read by the walk of \
                 its trees alone."
            )),
            TrialEnd::Recovered(contents) if contents.recovery.clean => None,
            TrialEnd::Recovered(contents) => Some(format!(
                "{names} came up as of the end of its log in generation {:#x}: what a later log holds was not looked at.",
                contents.recovery.log_end.generation
            )),
            TrialEnd::Failed(..) => None,
        }
    };
    trials.iter().filter_map(sentence).collect()
}

/// The table of the groups.
pub(super) fn section(trials: &[RecoveryTrial], paths: &[PathBuf]) -> Option<Section> {
    let columns = [
        Column::text(""),
        Column::text("Database"),
        Column::number("Tables", Unit::One),
        Column::number("Records", Unit::One),
        Column::text("How it came up"),
    ];
    let mut table = Table::new("", columns);
    for trial in trials {
        let mark = match &trial.end {
            _ if trial.is_failed() => Mark::Fail,
            TrialEnd::Open(_) => Mark::NotJudged,
            _ => Mark::Pass,
        };
        let contents = match &trial.end {
            TrialEnd::Recovered(contents) => Some(contents),
            _ => None,
        };
        for (index, path) in trial.databases.iter().enumerate() {
            let read = contents.and_then(|contents| contents.databases.get(index));
            table.push([
                Cell::mark(mark),
                Cell::text(shown(path, paths)),
                read.map_or_else(|| Cell::text("–"), |read| Cell::count(read.tables)),
                read.map_or_else(|| Cell::text("–"), |read| Cell::count(read.records)),
                Cell::text(end_in_words(&trial.end)),
            ]);
        }
    }
    let intro = "Their logs were replayed as their server does at its start, and every record was read. Nothing of it was \
                 written: the changes stayed in memory.";
    (!table.rows().is_empty()).then(|| Section::new("Recovery on trial", intro).block(table))
}

fn end_in_words(end: &TrialEnd) -> String {
    match end {
        TrialEnd::Recovered(contents) if contents.recovery.clean => {
            format!("it was in order, up to {}", generation(contents))
        }
        TrialEnd::Recovered(contents) => {
            let recovery = &contents.recovery;
            format!(
                "{} of {} replayed, up to {}; {} rolled back; {} kept in memory",
                counted(recovery.records_read, "record"),
                counted(recovery.generations_read.into(), "log"),
                generation(contents),
                counted(recovery.transactions_undone.into(), "transaction"),
                contents.kept
            )
        }
        TrialEnd::NotNeeded => "not tried: it was shut down cleanly, and its log is not here".to_owned(),
        TrialEnd::Failed(_, finding) => finding.what.clone(),
        TrialEnd::Open(why) => format!("not tried: {why}"),
    }
}

fn generation(contents: &RecoveredContents) -> String {
    format!("generation {:#x}", contents.recovery.log_end.generation)
}

fn names(trial: &RecoveryTrial, paths: &[PathBuf]) -> String {
    let names: Vec<String> = trial.databases.iter().map(|path| shown(path, paths)).collect();
    match names.len() {
        0..=3 => names.join(", "),
        all => format!("{} and {} more", names[..2].join(", "), number(all as f64 - 2.0, 0)),
    }
}

/// A trial for programs.
pub(super) fn to_json(trial: &RecoveryTrial) -> Value {
    let (end, why) = match &trial.end {
        TrialEnd::Recovered(_) if trial.is_failed() => ("damaged", None),
        TrialEnd::Recovered(_) => ("recovered", None),
        TrialEnd::NotNeeded => ("not_needed", None),
        TrialEnd::Failed(..) => ("failed", None),
        TrialEnd::Open(why) => ("not_tried", Some(why)),
    };
    let contents = match &trial.end {
        TrialEnd::Recovered(contents) => Some(contents),
        _ => None,
    };
    let databases = trial.databases.iter().enumerate().map(|(index, path)| {
        let read = contents.and_then(|contents| contents.databases.get(index));
        json!({
            "path": path,
            "tables": read.map(|read| read.tables),
            "records": read.map(|read| read.records),
        })
    });
    let found = findings(std::slice::from_ref(trial)).map(|(path, one)| {
        let mut value = finding(one);
        value["path"] = json!(path);
        value
    });
    let recovery = contents.map(|contents| &contents.recovery);
    json!({
        "log": trial.base_name,
        "result": end,
        "why": why,
        "clean": recovery.map(|recovery| recovery.clean),
        "logs": recovery.map(|recovery| recovery.generations_read),
        "log_records": recovery.map(|recovery| recovery.records_read),
        "generation": recovery.map(|recovery| recovery.log_end.generation),
        "undone": recovery.map(|recovery| recovery.transactions_undone),
        "kept_bytes": contents.map(|contents| contents.kept.0),
        "databases": databases.collect::<Vec<_>>(),
        "findings": found.collect::<Vec<_>>(),
    })
}
