//! `spindle pool import --all`: the site that served the pools, from their drives alone.

use super::import_arguments::ImportArguments;
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
    site::{JOURNAL, OWN_FILE, OwnFolder},
    state_folder::state_folder,
};
use array::{format::SiteId, pool::ReadOnlyPool};
use control::{
    DaemonJournal, JournalPool,
    journal::recovery::{KeptSite, RecoveryRecord},
    recovery::{
        PoolDocument, RecoveryKey,
        merging::{KeptPart, RecoveredPart, RecoveredPool, RecoveredSite, merged},
        secrets,
    },
    site::{
        SiteChanges, SiteContext, WantedSite, adoption::FoundPool, changes::KnownSite,
        planning::with_whole_paths,
    },
};
use report::Refusal;
use serde::Serialize;
use serving::{
    pool::{
        import::{ImportAnswer, ImportRequest, MissingDrive},
        pools_on_drives::{PoolOnDrives, UnreadPool, read_all},
    },
    uuid::parse_uuid,
};
use std::path::{Path, PathBuf};
use world::{
    World,
    real::host_files::{self, PathKind},
};

const SECRETS_FOLDER: &str = "secrets";
const KEY_FILE_BYTES_MAX: u64 = 4096;

#[derive(Serialize)]
struct ImportedSite {
    pools: Vec<ImportedPool>,
    secrets: Vec<ImportedSecret>,
    notes: Vec<String>,
    /// The site file, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// The number of the site's last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<u64>,
}

#[derive(Serialize)]
struct ImportedPool {
    #[serde(flatten)]
    drives: ImportAnswer,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    /// `newest`, `older`, `unserved`, `left out` or `unread`.
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ImportedSecret {
    of: String,
    is_restored: bool,
    file: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Brings back the site of all pools that are found; with `--list`, only says what there is.
pub async fn import_all(
    world: &World,
    request: &ImportRequest<'_>,
    arguments: &ImportArguments,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let key = arguments.recovery_key_file.as_deref().map(read_key).transpose()?;
    let chosen = arguments.site.as_deref().map(parse_uuid).transpose();
    let chosen = chosen.map_err(|problem| Refusal::new(problem, "say the UUID of a site"))?.map(SiteId);
    let (pools, unread) = read_all(world, request, &StderrNotices::default()).await?;
    if pools.is_empty() && unread.is_empty() {
        console.say("no drive of a pool was found");
        return console.finish(ExitStatus::Fail);
    }
    let state = arguments.state.clone().unwrap_or_else(state_folder);
    // From the root: the site file and the journal name folders in it.
    let state = std::path::absolute(&state).map_err(|error| Refusal::new(error.to_string(), ""))?;
    let recovered: Vec<RecoveredPool> = pools.iter().map(|pool| recovered(pool, &state)).collect();
    let mut site = merged(&recovered, key.as_ref(), chosen)?;
    let (unread, file) = match arguments.list {
        true => (unread, None),
        false => {
            if !arguments.partial {
                check_whole(&site, &recovered, &unread, &state)?;
            }
            let output = arguments.output.as_deref();
            (unread, Some(write(world, (&state, output), (&pools, &recovered), &mut site, key)?))
        }
    };
    let folder = file.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    let answer = answer(&pools, unread, &site, file, &folder);
    if json {
        console.json_of(&answer)?;
    }
    say(&console, &answer);
    let is_whole = answer.pools.iter().all(|pool| pool.state == "newest")
        && answer.secrets.iter().all(|secret| secret.is_restored);
    console.finish(if is_whole { ExitStatus::Pass } else { ExitStatus::Fail })
}

/// Refuses a site that lacks a pool, or that a server would begin to change.
fn check_whole(
    site: &RecoveredSite,
    recovered: &[RecoveredPool],
    unread: &[UnreadPool],
    state: &Path,
) -> Result<(), Refusal> {
    let remedy = "bring that in order, or go on without it: ⟨partial⟩";
    if let Some(UnreadPool { answer, refusal, .. }) = unread.first() {
        let problem = format!("pool {} ({}) cannot be read: {refusal}", answer.name, answer.pool);
        return Err(Refusal::new(problem, remedy));
    }
    let parts = recovered.iter().zip(&site.pools);
    if let Some((pool, reason)) = parts.clone().find_map(|(pool, part)| match part {
        RecoveredPart::LeftOut { reason } => Some((pool, reason)),
        _ => None,
    }) {
        let problem = format!("pool {} ({}) would be left out: {reason}", pool.found.name, pool.pool);
        return Err(Refusal::new(problem, remedy));
    }
    let context = SiteContext { folder: state.to_owned(), state: state.to_owned(), site: None };
    let wanted = WantedSite::described(&site.site, &context)?;
    let group = |part: &RecoveredPart| match part {
        RecoveredPart::Newest { group }
        | RecoveredPart::Older { group, .. }
        | RecoveredPart::Unserved { group, .. } => Some(group.clone()),
        RecoveredPart::LeftOut { .. } => None,
    };
    let known = KnownSite {
        pools: parts
            .filter_map(|(pool, part)| Some((group(part)?, Some(pool.found.volumes.clone()))))
            .collect(),
        services: wanted.services.clone(),
        ..KnownSite::default()
    };
    let changes = SiteChanges::between(&known, &wanted, &[])?;
    if let Some((pool, refusal)) = changes.refused.iter().next() {
        return Err(Refusal::new(format!("pool {pool}: {refusal}"), remedy));
    }
    match changes.shown().first() {
        None => Ok(()),
        Some(change) => {
            Err(Refusal::new(format!("a server would begin with a change of this site: {change}"), remedy))
        }
    }
}

fn read_key(file: &Path) -> Result<RecoveryKey, Refusal> {
    let refused = |problem: String| Refusal::new(problem, "name the file with the recovery key");
    let bytes =
        host_files::read_at_most(file, KEY_FILE_BYTES_MAX).map_err(|error| refused(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| refused(format!("{}: it is no text", file.display())))?;
    RecoveryKey::parse(&text).map_err(|refusal| Refusal::new(format!("{}: {refusal}", file.display()), ""))
}

/// A pool with its part of the site, and the folder where it belongs.
fn recovered(pool: &PoolOnDrives, state: &Path) -> RecoveredPool {
    let kept = kept_part(&pool.pool, pool);
    let name = match &kept {
        KeptPart::Document { document, .. } => document.group.clone(),
        KeptPart::Nothing | KeptPart::Damaged(_) => pool.name.clone(),
    };
    // Names come from drives, and must not lead out of the server's folder.
    let (name, kept) = match is_group_name(&name) {
        true => (name, kept),
        false => {
            let problem = format!("its group would be called {name:?}, which is no name of a folder");
            (pool.id.to_string(), KeptPart::Damaged(Refusal::new(problem, "")))
        }
    };
    let folder = match &pool.files_in {
        Some(folder) => host_files::canonical(folder).unwrap_or_else(|_| folder.clone()),
        None => state.join("pools").join(&name),
    };
    let own = if is_group_name(&pool.name) { pool.name.clone() } else { pool.id.to_string() };
    let found = FoundPool { name: own, ..FoundPool::on_drives(pool, folder) };
    RecoveredPool { pool: pool.id, found, kept }
}

fn is_group_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && !name.contains(['/', '@', '\0'])
        && !name.chars().any(char::is_control)
}

fn kept_part(read: &ReadOnlyPool, pool: &PoolOnDrives) -> KeptPart {
    match read.site_document() {
        Err(error) => KeptPart::Damaged(Refusal::new(error.to_string(), "")),
        Ok(None) => KeptPart::Nothing,
        Ok(Some(kept)) => match PoolDocument::decode(&kept.bytes, pool.id) {
            Err(refusal) => KeptPart::Damaged(refusal),
            Ok(document) => KeptPart::Document {
                site: kept.site,
                generation: kept.generation,
                document: Box::new(document),
            },
        },
    }
}

/// Writes records, secrets, the site file and the journal, in this order. Killed anywhere, it may be repeated.
fn write(
    world: &World,
    (state, output): (&Path, Option<&Path>),
    (pools, recovered): (&[PoolOnDrives], &[RecoveredPool]),
    site: &mut RecoveredSite,
    key: Option<RecoveryKey>,
) -> Result<PathBuf, Refusal> {
    let file = output.map_or_else(|| state.join(OWN_FILE), Path::to_owned);
    let is_missing = matches!(host_files::kind(&file), Ok(PathKind::Missing));
    if !is_missing && !matches!(host_files::kind(&state.join(JOURNAL)), Ok(PathKind::File)) {
        return Err(there_already(&file));
    }
    let (own, journal) = OwnFolder::open(state)?;
    let written = write_with(world, (&file, &journal), (state, pools, recovered), site, key);
    drop(journal);
    if written.is_err() {
        own.leave_as_it_was();
    }
    written
}

fn there_already(file: &Path) -> Refusal {
    Refusal::new(
        format!("{} is there already", file.display()),
        "move it away, or name another file with ⟨output⟩",
    )
}

fn write_with(
    world: &World,
    (file, journal): (&Path, &DaemonJournal),
    (state, pools, recovered): (&Path, &[PoolOnDrives], &[RecoveredPool]),
    site: &mut RecoveredSite,
    key: Option<RecoveryKey>,
) -> Result<PathBuf, Refusal> {
    let refused = |error: world::IoError| Refusal::new(error.to_string(), "check the folder");
    let of_journal = |error: control::JournalError| error.refusal();
    let before = journal.imported_site().map_err(of_journal)?;
    let has_site = journal.served_site().map_err(of_journal)?.is_some()
        || journal.apply_under_way().map_err(of_journal)?.is_some();
    if has_site && before.is_none() {
        return Err(Refusal::new(
            format!("{} is the folder of a server that has a site", state.display()),
            "print it with 'spindle site', or name another folder with ⟨state⟩ FOLDER",
        ));
    }
    // What an import wrote that was not applied may be written again.
    let is_missing = matches!(host_files::kind(file), Ok(PathKind::Missing));
    if !is_missing && (before.is_none() || host_files::read_to_string(file).ok() != before) {
        return Err(there_already(file));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    host_files::create_private_dir_all(folder).map_err(refused)?;
    let folder = host_files::canonical(folder).map_err(refused)?;
    let named = secrets::place_below(&mut site.site, SECRETS_FOLDER);
    let text = site.site.to_toml();
    for ((pool, recovered), part) in pools.iter().zip(recovered).zip(&site.pools) {
        if !matches!(part, RecoveredPart::LeftOut { .. }) {
            pool.write_record(&recovered.found.folder)?;
        }
    }
    for (label, path) in &named {
        if let Some(secret) = site.secrets.iter().find(|secret| secret.label == *label) {
            secrets::write(&folder.join(path), &secret.bytes)?;
        }
    }
    journal.put_imported_site(&text).map_err(of_journal)?;
    host_files::write_atomically(file, text.as_bytes()).map_err(refused)?;
    let key = key.filter(|_| !site.secrets.is_empty());
    remember(world, journal, (&folder, site, recovered), key).map_err(of_journal)?;
    Ok(folder.join(file.file_name().unwrap_or_default()))
}

/// Has the journal know the site as if it had been applied: its plan is empty, and the pools go on being of it.
fn remember(
    world: &World,
    journal: &DaemonJournal,
    (folder, site, recovered): (&Path, &RecoveredSite, &[RecoveredPool]),
    key: Option<RecoveryKey>,
) -> Result<(), control::JournalError> {
    for (pool, part) in recovered.iter().zip(&site.pools) {
        if let RecoveredPart::Newest { group }
        | RecoveredPart::Older { group, .. }
        | RecoveredPart::Unserved { group, .. } = part
        {
            let known = JournalPool { folder: pool.found.folder.clone(), being_made: None };
            journal.put_pool(group, &known)?;
        }
    }
    if let Some((id, generation)) = site.kept {
        journal.put_kept_site(&KeptSite { site: id.0, generation, fingerprint: String::new() })?;
    }
    if let Some(key) = key {
        let made_unix_s = world.wall().seconds;
        journal.put_recovery_key(&RecoveryRecord { key, made_unix_s, is_shown: true })?;
    }
    journal.set_served_site(&with_whole_paths(site.site.clone(), folder).to_toml())
}

fn answer(
    pools: &[PoolOnDrives],
    unread: Vec<UnreadPool>,
    site: &RecoveredSite,
    file: Option<PathBuf>,
    folder: &Path,
) -> ImportedSite {
    let read = pools.iter().zip(&site.pools).map(|(pool, part)| {
        let (state, group, reason) = match part.clone() {
            RecoveredPart::Newest { group } => ("newest", Some(group), None),
            RecoveredPart::Older { group, reason } => ("older", Some(group), Some(reason)),
            RecoveredPart::Unserved { group, reason } => ("unserved", Some(group), Some(reason)),
            RecoveredPart::LeftOut { reason } => ("left out", None, Some(reason)),
        };
        ImportedPool { drives: pool.shown(), group, state, reason }
    });
    let unread = unread.into_iter().map(|UnreadPool { answer, refusal, .. }| ImportedPool {
        drives: answer,
        group: None,
        state: "unread",
        reason: Some(refusal.to_string()),
    });
    let mut named = site.site.clone();
    let paths = secrets::place_below(&mut named, SECRETS_FOLDER);
    let secret = |(label, path): (String, PathBuf)| {
        let lacking = site.lacking.iter().find(|(of, _)| *of == label);
        let is_restored = site.secrets.iter().any(|secret| secret.label == label);
        let reason = lacking.filter(|_| !is_restored).map(|(_, refusal)| refusal.to_string());
        (is_restored || reason.is_some()).then(|| ImportedSecret {
            of: label,
            is_restored,
            file: folder.join(path),
            reason,
        })
    };
    ImportedSite {
        pools: read.chain(unread).collect(),
        secrets: paths.into_iter().filter_map(secret).collect(),
        notes: site.lines.clone(),
        file,
        change: site.kept.map(|(_, generation)| generation),
    }
}

fn say(console: &Console, answer: &ImportedSite) {
    for ImportedPool { drives, group, state, reason } in &answer.pools {
        let group = group.as_ref().map_or(String::new(), |group| format!(", group {group}"));
        let found = drives.drives.len();
        console.say(&format!("{}: pool {}, {found} drives found{group}: {state}", drives.name, drives.pool));
        for MissingDrive { drive, known_as } in &drives.missing {
            console.say(&format!("  not found: {known_as} ({drive})"));
        }
        if let Some(reason) = reason {
            console.warn(&format!("{}: {reason}", drives.name));
        }
    }
    for ImportedSecret { of, is_restored, file, reason } in &answer.secrets {
        match (is_restored, reason) {
            (true, _) => console.say(&format!("secret of {of}: restored")),
            (false, Some(reason)) => {
                console.warn(&format!(
                    "secret of {of}: not restored, it belongs into {}: {reason}",
                    file.display()
                ));
            }
            (false, None) => {}
        }
    }
    answer.notes.iter().for_each(|note| console.warn(note));
    if let Some(file) = &answer.file {
        console.say(&format!(
            "the site is in {}; serve it: spindle serve {}",
            file.display(),
            file.display()
        ));
    }
}
