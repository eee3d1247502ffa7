//! Groups files into sets before the sets are checked.
//!
//! The files of a folder are a set. If a folder has databases and none of their logs, and exactly one other
//! folder has logs of that signature and no databases, those are its logs: Exchange is often set up that way.

use super::outcome::{FileOutcome, SetOutcome};
use crate::{
    FileFinding,
    set::{FileContents, FileFacts, judge_set},
};
use maildb::format::header::Signature;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Checks the sets among `files`. Every file of `folders` is known; elsewhere only the named ones are.
pub fn judge(files: &[FileOutcome], folders: &[PathBuf]) -> Vec<SetOutcome> {
    let mut by_folder: BTreeMap<&Path, Vec<&FileOutcome>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.facts.is_some()) {
        by_folder.entry(file.folder.as_path()).or_default().push(file);
    }
    let is_whole = |folder: &Path| folders.iter().any(|given| folder.starts_with(given));
    let lone_logs: Vec<&Path> = by_folder
        .iter()
        .filter(|(_, files)| has(files, is_log) && !has(files, is_database))
        .map(|(folder, _)| *folder)
        .collect();
    let mut joined = Vec::new();
    let mut sets = Vec::new();
    for (folder, files) in by_folder.iter().filter(|(_, files)| has(files, is_database)) {
        let mut members = files.clone();
        let logs_in = if has(files, is_log) { None } else { logs_elsewhere(files, &lone_logs, &by_folder) };
        let logs_in = logs_in.map(|logs_in| (logs_in, by_folder[logs_in].as_slice()));
        if let Some((logs_in, logs)) = logs_in {
            members.extend(logs);
            joined.push(logs_in);
        }
        // Files named one by one: other files of their set may be in folders that were not searched.
        if has(&members, is_log) || is_whole(folder) {
            sets.push(set(folder, logs_in.map(|(folder, _)| folder), &members));
        }
    }
    let rest = by_folder
        .iter()
        .filter(|(folder, files)| !has(files, is_database) && has(files, is_log) && !joined.contains(folder));
    sets.extend(rest.map(|(folder, files)| set(folder, None, files)));
    sets.sort_by(|one, other| one.folder.cmp(&other.folder));
    find_once(&mut sets);
    sets
}

/// A defect of a log appears in every set the log belongs to; only the first keeps it.
fn find_once(sets: &mut [SetOutcome]) {
    let mut found = BTreeSet::new();
    for set in sets {
        let findings = std::mem::take(&mut set.verdict.findings);
        let is_new = |(name, finding): &(String, FileFinding)| {
            found.insert((set.path_of(name), finding.place, finding.what.clone()))
        };
        set.verdict.findings = findings.into_iter().filter(is_new).collect();
    }
}

/// The set of a folder, with the logs of another folder if they belong to it.
fn set(folder: &Path, logs_in: Option<&Path>, members: &[&FileOutcome]) -> SetOutcome {
    let facts: Vec<FileFacts> = members.iter().filter_map(|file| facts_of(file)).collect();
    // Of two files of one name that of the logs' folder, whose files come last.
    let paths = members.iter().map(|file| (file.name.clone(), file.path.clone())).collect();
    SetOutcome {
        folder: folder.to_owned(),
        logs_in: logs_in.map(Path::to_owned),
        paths,
        verdict: judge_set(&facts),
    }
}

fn facts_of(file: &FileOutcome) -> Option<FileFacts> {
    Some(FileFacts { name: file.name.clone(), facts: file.facts.clone()?, is_damaged: file.is_damaged() })
}

/// The only folder among `lone` with logs for these databases.
fn logs_elsewhere<'a>(
    files: &[&FileOutcome],
    lone: &[&'a Path],
    by_folder: &BTreeMap<&Path, Vec<&FileOutcome>>,
) -> Option<&'a Path> {
    let wanted: Vec<Signature> = files.iter().filter_map(|file| log_signature(file)).collect();
    let fits = |folder: &&&Path| {
        by_folder[**folder].iter().any(|file| match &file.facts {
            Some(FileContents::Log(log)) => wanted.contains(&log.signature),
            _ => false,
        })
    };
    let mut fitting = lone.iter().filter(fits);
    let first = fitting.next()?;
    fitting.next().is_none().then_some(*first)
}

fn log_signature(file: &FileOutcome) -> Option<Signature> {
    match &file.facts {
        Some(FileContents::Database(database)) if !database.is_temporary => Some(database.log_signature),
        _ => None,
    }
}

fn has(files: &[&FileOutcome], is: fn(&FileOutcome) -> bool) -> bool {
    files.iter().any(|file| is(file))
}

fn is_log(file: &FileOutcome) -> bool {
    matches!(file.facts, Some(FileContents::Log(_) | FileContents::PreparedLog))
}

fn is_database(file: &FileOutcome) -> bool {
    log_signature(file).is_some()
}
