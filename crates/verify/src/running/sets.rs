//! Which files belong together, before they are judged together.
//!
//! The files of a folder are a set. Where a folder has databases and none of their logs, and just one other folder has
//! logs of that birth mark and no databases, those are its logs: Exchange likes to keep them apart.

use super::outcome::{FileOutcome, SetOutcome};
use crate::{
    Finding,
    set::{Facts, FileFacts, judge_set},
};
use maildb::format::header::Signature;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Judges the sets among `files`; of `folders` all is there, of other places only what was named.
pub fn judge(files: &[FileOutcome], folders: &[PathBuf]) -> Vec<SetOutcome> {
    let mut by_folder: BTreeMap<&Path, Vec<&FileOutcome>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.facts.is_some()) {
        by_folder.entry(file.path.parent().unwrap_or(Path::new(""))).or_default().push(file);
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
        let logs_in = match has(files, is_log) {
            true => None,
            false => logs_elsewhere(files, &lone_logs, &by_folder),
        };
        let logs_in = logs_in.map(|logs_in| (logs_in, by_folder[logs_in].as_slice()));
        if let Some((logs_in, logs)) = logs_in {
            members.extend(logs);
            joined.push(logs_in);
        }
        // Of files that were named one by one the others may be where nobody looked.
        if has(&members, is_log) || is_whole(folder) {
            sets.push(set(folder, logs_in, &members));
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

/// What is wrong with a log is found in every set it belongs to, and is one fault: the first of them has it.
fn find_once(sets: &mut [SetOutcome]) {
    let mut found = BTreeSet::new();
    for set in sets {
        let findings = std::mem::take(&mut set.verdict.findings);
        let is_new = |(name, finding): &(String, Finding)| {
            found.insert((set.path_of(name), finding.place, finding.what.clone()))
        };
        set.verdict.findings = findings.into_iter().filter(is_new).collect();
    }
}

/// The set of a folder; with it the logs of another, if those are its.
fn set(folder: &Path, logs: Option<(&Path, &[&FileOutcome])>, members: &[&FileOutcome]) -> SetOutcome {
    let facts: Vec<FileFacts> = members.iter().filter_map(|file| facts_of(file)).collect();
    let logs_there = logs.map_or(&[][..], |(_, logs)| logs);
    SetOutcome {
        folder: folder.to_owned(),
        logs_in: logs.map(|(folder, _)| folder.to_owned()),
        names_there: logs_there.iter().filter_map(|file| name_of(file)).collect(),
        verdict: judge_set(&facts),
    }
}

fn name_of(file: &FileOutcome) -> Option<String> {
    Some(file.path.file_name()?.to_string_lossy().into_owned())
}

fn facts_of(file: &FileOutcome) -> Option<FileFacts> {
    Some(FileFacts { name: name_of(file)?, facts: file.facts.clone()?, is_damaged: file.is_damaged() })
}

/// The one folder among `lone` with logs for these databases.
fn logs_elsewhere<'a>(
    files: &[&FileOutcome],
    lone: &[&'a Path],
    by_folder: &BTreeMap<&Path, Vec<&FileOutcome>>,
) -> Option<&'a Path> {
    let wanted: Vec<Signature> = files.iter().filter_map(|file| log_signature(file)).collect();
    let fits = |folder: &&&Path| {
        by_folder[**folder].iter().any(|file| match &file.facts {
            Some(Facts::Log(log)) => wanted.contains(&log.signature),
            _ => false,
        })
    };
    let mut fitting = lone.iter().filter(fits);
    let first = fitting.next()?;
    fitting.next().is_none().then_some(*first)
}

fn log_signature(file: &FileOutcome) -> Option<Signature> {
    match &file.facts {
        Some(Facts::Database(database)) if !database.is_temporary => Some(database.log_signature),
        _ => None,
    }
}

fn has(files: &[&FileOutcome], is: fn(&FileOutcome) -> bool) -> bool {
    files.iter().any(|file| is(file))
}

fn is_log(file: &FileOutcome) -> bool {
    matches!(file.facts, Some(Facts::Log(_) | Facts::PreparedLog))
}

fn is_database(file: &FileOutcome) -> bool {
    log_signature(file).is_some()
}
