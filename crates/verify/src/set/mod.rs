//! What the files of a folder say together: whether they can be recovered, and what is missing.
//!
//! A database that was not shut down cleanly is normal in a snapshot. It names the generations of its log without which
//! it cannot be made whole; they must be there, of its log, undamaged, and one the successor of the other. Those
//! after the last required hold what was committed since, and are missed less badly. Where the checkpoint
//! says to begin, a log must be.

mod chain;
mod names;

use crate::{
    checkpoint::CheckpointFacts,
    database::DatabaseFacts,
    finding::{Finding, Place},
    flush_map::FlushMapFacts,
    log::LogFacts,
};
use chain::Chain;
use maildb::format::header::{DatabaseState, LogTime, Signature};
use names::{LogName, parse};

/// What is known of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its name, without the folder.
    pub name: String,
    /// What a judge made of it.
    pub facts: Facts,
    /// Whether something in it is damaged.
    pub is_damaged: bool,
}

/// The facts of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// A database.
    Database(DatabaseFacts),
    /// A log.
    Log(LogFacts),
    /// A log that was prepared and never used: all zero.
    PreparedLog,
    /// A checkpoint.
    Checkpoint(CheckpointFacts),
    /// A flush map.
    FlushMap(FlushMapFacts),
    /// A file of a known kind whose header is gone.
    Headless,
}

/// Whether a database can be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// It was shut down cleanly, and needs no log.
    NotNeeded,
    /// It needs these generations, first and last, and they are there.
    Possible {
        /// First and last.
        required: (u32, u32),
    },
    /// It cannot, and why in plain words.
    Impossible {
        /// Files that are missing.
        missing: Vec<String>,
        /// Why.
        why: String,
    },
}

/// The verdict on one database of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRecovery {
    /// Its file.
    pub name: String,
    /// Whether it can be opened.
    pub recovery: Recovery,
}

/// What the files of a folder come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetVerdict {
    /// Each database.
    pub databases: Vec<DatabaseRecovery>,
    /// What is wrong with the set, with the name of the file it is about.
    pub findings: Vec<(String, Finding)>,
}

/// Judges the files of a folder together.
pub fn judge_set(files: &[FileFacts]) -> SetVerdict {
    let mut verdict = SetVerdict::default();
    let chains = chain::of(files);
    let names = names::Pattern::of(files);
    for chain in &chains {
        chain.find(&names, &mut verdict.findings);
    }
    for file in files {
        match &file.facts {
            Facts::Database(database) if !database.is_temporary => {
                let chain = chains.iter().find(|chain| chain.signature == database.log_signature);
                let recovery = recovery_of(file, database, chain, files, &mut verdict.findings);
                verdict.databases.push(DatabaseRecovery { name: file.name.clone(), recovery });
            }
            Facts::Checkpoint(checkpoint) => {
                let chain = chains.iter().find(|chain| chain.signature == checkpoint.log_signature);
                find_in_checkpoint(file, checkpoint, chain, &mut verdict.findings);
            }
            Facts::FlushMap(map) => find_in_flush_map(file, map, files, &mut verdict.findings),
            _ => {}
        }
    }
    find_strangers(files, &chains, &mut verdict.findings);
    find_missing_current(files, &mut verdict.findings);
    verdict
}

/// Findings with the names of the files they are about.
type Named = Vec<(String, Finding)>;

/// Whether a database can be made whole with the logs of its chain.
fn recovery_of(
    file: &FileFacts,
    database: &DatabaseFacts,
    chain: Option<&Chain<'_>>,
    files: &[FileFacts],
    findings: &mut Named,
) -> Recovery {
    let impossible = |missing, why: String| Recovery::Impossible { missing, why };
    let (first, last) = match (database.state, database.required) {
        (Some(DatabaseState::CleanShutdown), _) => return Recovery::NotNeeded,
        // Never opened: nothing was ever logged of it.
        (Some(DatabaseState::JustCreated), None) => return Recovery::NotNeeded,
        (_, None) => {
            let why = "it was not shut down cleanly, and does not say which logs it needs";
            return impossible(Vec::new(), why.to_owned());
        }
        (_, Some(range)) => range,
    };
    let names = names::Pattern::of(files);
    let Some(chain) = chain else {
        let others = files.iter().any(|file| matches!(file.facts, Facts::Log(_)));
        let why = match others {
            true => "the logs that are there belong to another log: none of those it needs is among them",
            false => "it was not shut down cleanly, and none of the logs it needs is there",
        };
        return impossible(vec![names.range(first, last)], why.to_owned());
    };
    let missing: Vec<String> =
        chain.missing(first, last).into_iter().map(|(first, last)| names.range(first, last)).collect();
    if !missing.is_empty() {
        return impossible(missing, "logs that it needs are missing".to_owned());
    }
    if let Some(damaged) = chain.damaged_between(first, last) {
        return impossible(Vec::new(), format!("{damaged}, which it needs, is damaged"));
    }
    if let Some(broken) = chain.broken_between(first, last) {
        return impossible(Vec::new(), format!("{broken} is not the successor of the log before it"));
    }
    let created = chain.get(last).map(|log| log.facts.created);
    let is_known = database.required_max_created != LogTime::default();
    if is_known && created != Some(database.required_max_created) {
        let why = format!(
            "generation {last:#x} of the log is not the one it was used with: it was made at another time"
        );
        return impossible(Vec::new(), why);
    }
    let lost =
        if database.committed > last { chain.missing(last + 1, database.committed) } else { Vec::new() };
    if !lost.is_empty() {
        let lost: Vec<String> = lost.into_iter().map(|(first, last)| names.range(first, last)).collect();
        let what =
            format!("it can be made whole, but what was committed last is lost: {} missing", lost.join(", "));
        findings.push((file.name.clone(), Finding::warning(Place::FILE, what)));
    }
    Recovery::Possible { required: (first, last) }
}

fn find_in_checkpoint(
    file: &FileFacts,
    checkpoint: &CheckpointFacts,
    chain: Option<&Chain<'_>>,
    findings: &mut Named,
) {
    let generation = checkpoint.position.generation;
    let finding = match chain {
        None => Finding::warning(Place::FILE, "it belongs to a log of which no file is here"),
        Some(chain) if generation > chain.newest() => {
            let what = format!(
                "recovery would begin at generation {generation:#x}, behind the newest, {:#x}",
                chain.newest()
            );
            Finding::damage(Place::FILE, what)
        }
        Some(chain) if chain.get(generation).is_none() => Finding::warning(
            Place::FILE,
            format!("recovery would begin at generation {generation:#x}, which is not here"),
        ),
        Some(_) => return,
    };
    findings.push((file.name.clone(), finding));
}

/// A map that is not of the state its database was shut down in is not used, and made anew.
fn find_in_flush_map(file: &FileFacts, map: &FlushMapFacts, files: &[FileFacts], findings: &mut Named) {
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let database = files.iter().find_map(|other| match &other.facts {
        Facts::Database(database) if stem(&other.name) == stem(&file.name) => Some(database),
        _ => None,
    });
    let Some(database) = database.filter(|database| !database.is_dirty()) else { return };
    // The header's own mark is drawn anew whenever the header is flushed, which the map need not follow.
    let mark = database.flush_map_signature;
    if mark != map.flush_map_signature && mark != Signature::default() {
        let what = "it is not of the state its database was shut down in: the engine makes it anew";
        findings.push((file.name.clone(), Finding::note(Place::FILE, what)));
    }
}

/// Logs that no database here goes with.
fn find_strangers(files: &[FileFacts], chains: &[Chain<'_>], findings: &mut Named) {
    let mut databases = files.iter().filter_map(|file| match &file.facts {
        Facts::Database(database) if !database.is_temporary => Some(database.log_signature),
        _ => None,
    });
    let wanted: Vec<Signature> = databases.by_ref().collect();
    if wanted.is_empty() {
        return;
    }
    for chain in chains.iter().filter(|chain| !wanted.contains(&chain.signature)) {
        for name in chain.names() {
            let what = "it belongs to another log than the databases here";
            findings.push((name.to_owned(), Finding::warning(Place::FILE, what)));
        }
    }
}

/// Between two renames there is for an instant no current log: the next one is there under its temporary name.
fn find_missing_current(files: &[FileFacts], findings: &mut Named) {
    let logs = || files.iter().filter(|file| matches!(file.facts, Facts::Log(_) | Facts::PreparedLog));
    let has = |wanted: &LogName| logs().any(|file| parse(&file.name).as_ref() == Some(wanted));
    let mut told: Vec<String> = Vec::new();
    for file in logs() {
        let Some(LogName::Temporary(base)) = parse(&file.name) else { continue };
        if has(&LogName::Current(base.clone())) || told.contains(&base) {
            continue;
        }
        let what = format!(
            "{base}.log is not here: it was copied between two renames, and recovery goes on with this one"
        );
        findings.push((file.name.clone(), Finding::note(Place::FILE, what)));
        told.push(base);
    }
}

#[cfg(test)]
mod tests;
