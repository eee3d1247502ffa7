//! `spindle protect find`: the backups that have a path or a mailbox, the newest first.
//!
//! Invariant: a backup is open only while it is looked into, unless it was open before.

use super::{
    arguments::FindingArguments,
    keeper::{EndSignal, OpeningKeeper},
    on_server,
    open::{make_folder, open_all},
    place::{opening_folder, refused, server_words, who},
    taking_away::clean_up,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    protect::{
        backup_points::{PointsOfBackup, SetPoints},
        mailboxes::MailDatabases,
        restore::points_to_restore,
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use protect::backup_schedule::BackupKind;
use recovery::{
    mailbox::{FoundPath, find_mailboxes, find_path},
    opening::{OpenPart, Opening, OpeningFolder, OpeningKind, OpeningPhase},
    volume_parts::{DATABASE_FILES, EMPTY},
};
use report::{
    Refusal,
    calendar::{file_stamp, shown_time},
};
use serde::Serialize;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};
use world::{
    ByteCount, World,
    real::{
        Workers,
        host::filesystem_of,
        host_files::{self, PathKind},
    },
};

/// Time after which a backup that is looked into is closed, whatever happens.
const SEARCH_MAX: Duration = Duration::from_secs(4 * 3600);
/// Characters of a time to the minute, as names of backups have it.
const STAMP_CHARS: usize = 15;

/// A backup that was looked into, as JSON.
#[derive(Serialize)]
struct SearchedBackup {
    backup: String,
    number: u64,
    /// Nothing of it could be looked into, or not all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
    found: Vec<FoundInVolume>,
    #[serde(skip)]
    has_databases: bool,
}

#[derive(Serialize)]
struct FoundInVolume {
    /// `POOL/VOLUME`.
    volume: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    partition: Option<u32>,
    #[serde(flatten)]
    found: FoundPath,
}

/// Something that is looked for.
#[derive(Clone, Debug)]
enum SearchGoal {
    /// Paths from the roots of filesystems, of which one is meant.
    Paths(Vec<PathBuf>),
    Mailbox(String),
}

/// Runs the verb to its end.
pub async fn find(
    world: &World,
    arguments: &FindingArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Err(Refusal::new("mounting filesystems needs root", "say sudo"));
    }
    let openings = opening_folder()?;
    let server = place.connection(world)?;
    clean_up(world, &openings, console).await?;
    let known = SetPoints::ask(&server, &arguments.set).await?;
    let backups = backups_to_search(&known, arguments, world.wall().seconds);
    if backups.is_empty() {
        let problem = format!("{} has no backup to look into{}", arguments.set, known.silent_text());
        return Err(Refusal::new(problem, "see 'spindle protect list'"));
    }
    let goal = goal_of(arguments);
    let (workers, signal) = (Workers::new(NonZeroUsize::MIN), EndSignal::listen(world));
    let (mut rows, mut has_problem) = (Vec::new(), false);
    let count = backups.len();
    for (index, backup) in backups.into_iter().enumerate() {
        console.say_progress(&format!("{} ({} of {count})", backup.name, index + 1));
        let search = Search {
            world,
            server: &server,
            place,
            openings: &openings,
            console,
            workers: &workers,
            signal: &signal,
        };
        let mut row = match search.look_into(&known, backup, &arguments.set, &goal).await {
            Ok(row) => row,
            Err(refusal) => {
                let mut row = SearchedBackup::of(backup);
                row.problems.push(refusal.to_string());
                row
            }
        };
        if let (SearchGoal::Mailbox(name), true) = (&goal, row.has_databases)
            && let Ok(mailbox) = name.parse()
        {
            search.look_into_databases(&known, backup, mailbox, &mut row).await;
        }
        if signal.has_come() {
            return Err(Refusal::new("the search was ended", ""));
        }
        say(&row, console);
        has_problem |= !row.problems.is_empty() && row.found.is_empty();
        let is_found = !row.found.is_empty();
        rows.push(row);
        if is_found && arguments.first {
            break;
        }
    }
    let is_found = rows.iter().any(|row| !row.found.is_empty());
    if !is_found {
        console.say("no backup has it");
    }
    if console.is_for_programs() {
        console.json_of(&rows)?;
    }
    console.finish(match (is_found, has_problem) {
        (true, _) => ExitStatus::Pass,
        (false, false) => ExitStatus::Fail,
        // It may be in one that could not be looked into.
        (false, true) => ExitStatus::NoAnswer,
    })
}

/// The backups with filesystems in them, the newest first.
fn backups_to_search<'k>(
    known: &'k SetPoints,
    arguments: &FindingArguments,
    now: i64,
) -> Vec<&'k PointsOfBackup> {
    let oldest = arguments.since.map(|since| {
        let oldest = now.saturating_sub_unsigned(since.as_secs());
        file_stamp(oldest.max(0)).chars().take(STAMP_CHARS).collect::<String>()
    });
    let is_new = |backup: &&PointsOfBackup| {
        let stamp = backup.name.strip_prefix(&arguments.set).and_then(|rest| rest.strip_prefix('-'));
        // Stamps sort like their times.
        let stamp = stamp.and_then(|rest| rest.get(..STAMP_CHARS));
        oldest.as_deref().is_none_or(|oldest| stamp.is_some_and(|stamp| stamp >= oldest))
    };
    let mut backups: Vec<_> =
        known.backups().filter(|backup| backup.note.kind != BackupKind::InterimLogs).filter(is_new).collect();
    backups.sort_by_key(|backup| std::cmp::Reverse(backup.note.sequence));
    backups.truncate(arguments.at_most.unwrap_or(usize::MAX));
    backups
}

/// A path on this host is one from the root of its filesystem, too.
fn goal_of(arguments: &FindingArguments) -> SearchGoal {
    let Some(path) = &arguments.path else {
        return SearchGoal::Mailbox(arguments.mailbox.clone().unwrap_or_default());
    };
    let mut paths = vec![path.clone()];
    let mut above = path.ancestors().filter(|path| path.is_absolute());
    // A deleted path is not there; its folder may be.
    let there = above.find(|path| !matches!(host_files::kind(path), Ok(PathKind::Missing) | Err(_)));
    let mount = there.and_then(|there| filesystem_of(there).ok()).map(|filesystem| filesystem.mount_point);
    if let Some(inside) = mount.and_then(|mount| path.strip_prefix(mount).ok().map(Path::to_owned))
        && !inside.as_os_str().is_empty()
        && path.strip_prefix("/") != Ok(&inside)
    {
        paths.insert(0, inside);
    }
    SearchGoal::Paths(paths)
}

/// The way to the backups.
struct Search<'s> {
    world: &'s World,
    server: &'s ServerConnection,
    place: &'s ServerPlace,
    openings: &'s OpeningFolder,
    console: &'s Console,
    workers: &'s Workers,
    signal: &'s EndSignal,
}

impl SearchedBackup {
    /// Before anything of it was looked into.
    fn of(backup: &PointsOfBackup) -> Self {
        Self {
            backup: backup.name.clone(),
            number: backup.note.sequence,
            problems: Vec::new(),
            found: Vec::new(),
            has_databases: false,
        }
    }
}

impl Search<'_> {
    async fn look_into(
        &self,
        known: &SetPoints,
        backup: &PointsOfBackup,
        set: &str,
        goal: &SearchGoal,
    ) -> Result<SearchedBackup, Refusal> {
        let (world, number) = (self.world, backup.note.sequence);
        let backup = known.whole(&backup.name)?;
        let until = world.wall().seconds.saturating_add_unsigned(SEARCH_MAX.as_secs());
        let names = on_server::names(points_to_restore(known, backup)?, number, until, true);
        let mut exports: Vec<String> = names.iter().map(|one| one.export.clone()).collect();
        exports.extend(names.iter().filter_map(|one| Some(one.clone.as_ref()?.1.clone())));
        let clones = names.iter().filter_map(|one| Some(one.clone.as_ref()?.0.clone())).collect();
        let (folder, images, _) = self.openings.places_of(set, number);
        let mut opening = Opening::new(
            OpeningKind::Filesystems,
            (set, &backup.name, number),
            (folder, images),
            false,
            until,
            who(),
            server_words(self.place)?,
            (exports, clones),
        );
        let file = self.openings.file_of(&opening);
        if let Some(open) = self.openings.read(&file).map_err(refused)? {
            // Somebody has it open: it is looked into there, and stays open.
            return match open.keeper().is_alive() && open.phase == OpeningPhase::Open {
                true => Ok(self.search(&open, &open.parts, goal).await),
                false => Err(Refusal::new(format!("{set}@{number} is being opened or closed"), "try again")),
            };
        }
        opening.owns_folder = make_folder(&opening.folder)?;
        host_files::create_private_dir_all(&opening.images).map_err(refused)?;
        let mut keeper =
            OpeningKeeper::begin(world, self.openings.clone(), opening, (self.signal, self.console))?;
        let opening = keeper.opening.clone();
        let looking = async {
            let server = (self.server, self.place);
            let (_mounted, parts) = open_all(world, server, &names, &opening).await?;
            let row = self.search(&opening, &parts, goal).await;
            // Unmounted while its images are still served.
            Ok((_mounted, row))
        };
        let looked = keeper.unless_ended(looking).await;
        let is_ended = looked.is_err();
        keeper.opening.phase = if is_ended { OpeningPhase::Opening } else { OpeningPhase::Open };
        keeper.close().await;
        looked.map(|(_, row)| row)
    }

    /// Looks for a mailbox by its number in the databases of a backup.
    async fn look_into_databases(
        &self,
        known: &SetPoints,
        backup: &PointsOfBackup,
        mailbox: i32,
        row: &mut SearchedBackup,
    ) {
        let (way, of) = ((self.server, self.place), (known, backup));
        let looking = MailDatabases::with(self.world, way, of, ("find", self.console), async |databases| {
            let mut found = Vec::new();
            for database in &databases.databases {
                databases.check_not_ended()?;
                found.extend(database.find(mailbox).await?);
            }
            Ok((found, databases.problems.clone()))
        });
        match looking.await {
            Ok((found, problems)) => {
                row.found.extend(found.into_iter().map(|(volume, found)| FoundInVolume {
                    volume,
                    partition: None,
                    found,
                }));
                row.problems.extend(problems);
            }
            Err(refusal) => row.problems.push(refusal.to_string()),
        }
    }

    /// Looks for it in the places of an open backup.
    async fn search(&self, opening: &Opening, parts: &[OpenPart], goal: &SearchGoal) -> SearchedBackup {
        let mut row = SearchedBackup {
            backup: opening.backup.clone(),
            number: opening.number,
            problems: Vec::new(),
            found: Vec::new(),
            has_databases: parts.iter().any(|part| part.content == DATABASE_FILES),
        };
        for part in parts {
            let volume = part.volume.clone();
            let Some(place) = part.place.clone() else {
                // A volume that was never written has no mailbox.
                if part.content == EMPTY {
                    continue;
                }
                row.problems.push(format!("{volume}: {}", part.content));
                continue;
            };
            let goal = goal.clone();
            // On another thread: this one serves the filesystem.
            let found = self.workers.run(move || match goal {
                SearchGoal::Mailbox(name) => find_mailboxes(&place, &name),
                SearchGoal::Paths(paths) => {
                    let mut found = paths.iter().map(|path| find_path(&place, path));
                    found.find_map(Result::transpose).transpose().map(|found| found.into_iter().collect())
                }
            });
            match found.await {
                Ok(found) => row.found.extend(found.into_iter().map(|found| FoundInVolume {
                    volume: volume.clone(),
                    partition: part.partition,
                    found,
                })),
                Err(error) => row.problems.push(format!("{volume}: {error}")),
            }
        }
        row
    }
}

fn say(row: &SearchedBackup, console: &Console) {
    for FoundInVolume { volume, found, .. } in &row.found {
        let mails = found.mails.map(|mails| format!(", {mails} mails")).unwrap_or_default();
        let newest = found.newest_s.map(|at| format!(", newest {}", shown_time(at))).unwrap_or_default();
        let size = ByteCount(found.bytes);
        console.say(&format!("{}: {volume} {}: {size}{mails}{newest}", row.backup, found.path.display()));
    }
    for problem in &row.problems {
        console.warn(&format!("{}: not looked into: {problem}", row.backup));
    }
}
