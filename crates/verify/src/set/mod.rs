//! Checks the files of a folder together: whether the databases can be recovered, and which files are
//! missing.
//!
//! A database that was not shut down cleanly is normal in a snapshot. It lists the log generations that
//! recovery needs; they must be present, of the database's log, undamaged, and consecutive. The generations
//! after the last required one hold recent commits and may be missing with a warning. A log must exist where
//! the checkpoint points.

mod chain;
mod names;

use crate::{
    checkpoint::CheckpointFacts,
    database::DatabaseFacts,
    finding::{FileFinding, FileLocation},
    flush_map::FlushMapFacts,
    log::LogFacts,
};
use chain::LogChain;
use maildb::format::header::{DatabaseState, LogTime, Signature};
pub(crate) use names::{LogName, parse as parse_log_name};

use names::parse;

/// The facts of one file of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// File name without the folder.
    pub name: String,
    /// The parsed contents.
    pub facts: FileContents,
    /// True if the file has findings of damage.
    pub is_damaged: bool,
}

/// The parsed contents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileContents {
    Database(DatabaseFacts),
    Log(LogFacts),
    /// A log that was prepared and never used: all zero.
    PreparedLog,
    Checkpoint(CheckpointFacts),
    FlushMap(FlushMapFacts),
    /// A file of a known type whose header is lost.
    Headless,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recoverability {
    /// Shut down cleanly; no log is needed.
    NotNeeded,
    /// The required generations are present.
    Possible {
        /// First and last generation.
        required: (u32, u32),
    },
    /// Recovery is impossible.
    Impossible {
        /// Names of missing files.
        missing: Vec<String>,
        /// The reason in words.
        why: String,
    },
}

/// The verdict on one database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseRecovery {
    pub name: String,
    pub recovery: Recoverability,
}

/// The verdict on the files of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetVerdict {
    pub databases: Vec<DatabaseRecovery>,
    /// Defects of the set, each with the name of its file.
    pub findings: Vec<(String, FileFinding)>,
}

/// Checks the files of a folder together.
pub fn judge_set(files: &[FileFacts]) -> SetVerdict {
    let mut verdict = SetVerdict::default();
    let chains = chain::of(files);
    let names = names::NamePattern::of(files);
    for chain in &chains {
        chain.find(&names, &mut verdict.findings);
    }
    for file in files {
        match &file.facts {
            FileContents::Database(database) if !database.is_temporary => {
                let chain = chains.iter().find(|chain| chain.signature == database.log_signature);
                let recovery = recovery_of(file, database, chain, files, &mut verdict.findings);
                verdict.databases.push(DatabaseRecovery { name: file.name.clone(), recovery });
            }
            FileContents::Checkpoint(checkpoint) => {
                let chain = chains.iter().find(|chain| chain.signature == checkpoint.log_signature);
                find_in_checkpoint(file, checkpoint, chain, &mut verdict.findings);
            }
            FileContents::FlushMap(map) => find_in_flush_map(file, map, files, &mut verdict.findings),
            _ => {}
        }
    }
    find_strangers(files, &chains, &mut verdict.findings);
    find_missing_current(files, &mut verdict.findings);
    verdict
}

/// Findings with file names.
type NamedFindings = Vec<(String, FileFinding)>;

/// Decides whether a database can be recovered with the logs of its chain.
fn recovery_of(
    file: &FileFacts,
    database: &DatabaseFacts,
    chain: Option<&LogChain<'_>>,
    files: &[FileFacts],
    findings: &mut NamedFindings,
) -> Recoverability {
    let impossible = |missing, why: String| Recoverability::Impossible { missing, why };
    let (first, last) = match (database.state, database.required) {
        (Some(DatabaseState::CleanShutdown), _) => return Recoverability::NotNeeded,
        // Never opened: its log is empty.
        (Some(DatabaseState::JustCreated), None) => return Recoverability::NotNeeded,
        (_, None) => {
            let why = "it was not shut down cleanly, and does not list the logs it requires";
            return impossible(Vec::new(), why.to_owned());
        }
        (_, Some(range)) => range,
    };
    let names = names::NamePattern::of(files);
    let Some(chain) = chain else {
        let others = files.iter().any(|file| matches!(file.facts, FileContents::Log(_)));
        let why = if others {
            "the logs present belong to another log: none of the required ones is among them"
        } else {
            "it was not shut down cleanly, and none of the required logs is present"
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
        findings.push((file.name.clone(), FileFinding::warning(FileLocation::FILE, what)));
    }
    Recoverability::Possible { required: (first, last) }
}

fn find_in_checkpoint(
    file: &FileFacts,
    checkpoint: &CheckpointFacts,
    chain: Option<&LogChain<'_>>,
    findings: &mut NamedFindings,
) {
    let generation = checkpoint.position.generation;
    let finding = match chain {
        None => FileFinding::warning(FileLocation::FILE, "it belongs to a log without any file here"),
        Some(chain) if generation > chain.newest() => {
            let what = format!(
                "recovery would begin at generation {generation:#x}, behind the newest, {:#x}",
                chain.newest()
            );
            FileFinding::damage(FileLocation::FILE, what)
        }
        Some(chain) if chain.get(generation).is_none() => FileFinding::warning(
            FileLocation::FILE,
            format!("recovery would begin at generation {generation:#x}, which is not here"),
        ),
        Some(_) => return,
    };
    findings.push((file.name.clone(), finding));
}

/// The engine ignores and recreates a map that does not match its database's clean shutdown.
fn find_in_flush_map(
    file: &FileFacts,
    map: &FlushMapFacts,
    files: &[FileFacts],
    findings: &mut NamedFindings,
) {
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let database = files.iter().find_map(|other| match &other.facts {
        FileContents::Database(database) if stem(&other.name) == stem(&file.name) => Some(database),
        _ => None,
    });
    let Some(database) = database.filter(|database| !database.is_dirty()) else { return };
    // Every flush of the header changes its own signature, which the map need not follow.
    let mark = database.flush_map_signature;
    if mark != map.flush_map_signature && mark != Signature::default() {
        let what = "it does not match the clean shutdown of its database: the engine recreates it";
        findings.push((file.name.clone(), FileFinding::note(FileLocation::FILE, what)));
    }
}

/// Logs that no database here belongs to.
fn find_strangers(files: &[FileFacts], chains: &[LogChain<'_>], findings: &mut NamedFindings) {
    let mut databases = files.iter().filter_map(|file| match &file.facts {
        FileContents::Database(database) if !database.is_temporary => Some(database.log_signature),
        _ => None,
    });
    let wanted: Vec<Signature> = databases.by_ref().collect();
    if wanted.is_empty() {
        return;
    }
    for chain in chains.iter().filter(|chain| !wanted.contains(&chain.signature)) {
        for name in chain.names() {
            let what = "it belongs to another log than the databases here";
            findings.push((name.to_owned(), FileFinding::warning(FileLocation::FILE, what)));
        }
    }
}

/// Between two renames the current log is missing for an instant: the next one exists under its temporary
/// name.
fn find_missing_current(files: &[FileFacts], findings: &mut NamedFindings) {
    let logs =
        || files.iter().filter(|file| matches!(file.facts, FileContents::Log(_) | FileContents::PreparedLog));
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
        findings.push((file.name.clone(), FileFinding::note(FileLocation::FILE, what)));
        told.push(base);
    }
}

#[cfg(test)]
mod tests;
