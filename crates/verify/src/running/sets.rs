//! Which files belong together, before they are judged together.
//!
//! The files of a folder are a set. Where a folder has databases and none of their logs, and just one other folder has
//! logs of that birth mark and no databases, those are its logs: Exchange likes to keep them apart.

use super::outcome::{FileOutcome, SetOutcome};
use crate::set::{Facts, FileFacts, judge_set};
use maildb::format::header::Signature;
use std::{
    collections::BTreeMap,
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
        if let Some(logs_in) = logs_in {
            members.extend(&by_folder[logs_in]);
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
    sets
}

fn set(folder: &Path, logs_in: Option<&Path>, members: &[&FileOutcome]) -> SetOutcome {
    let facts: Vec<FileFacts> = members.iter().filter_map(|file| facts_of(file)).collect();
    SetOutcome { folder: folder.to_owned(), logs_in: logs_in.map(Path::to_owned), verdict: judge_set(&facts) }
}

fn facts_of(file: &FileOutcome) -> Option<FileFacts> {
    let name = file.path.file_name()?.to_string_lossy().into_owned();
    Some(FileFacts { name, facts: file.facts.clone()?, is_damaged: file.is_damaged() })
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
