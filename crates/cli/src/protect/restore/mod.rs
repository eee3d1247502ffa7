//! `spindle protect restore`: all volumes of a set taken back to a backup, or cloned beside the live ones; or one database alone.
//!
//! Invariants:
//!
//! 1. Nothing is changed before it is known that all of it can be done: all points are there, and no host uses a volume.
//! 2. What a volume held stays, as `VOLUME~N`: a restore loses nothing.
//! 3. One that ended early is completed by the same command: a volume that is as its point is left alone, and clones whose
//!    databases were brought forward take their places.
//! 4. Each that changed something is noted in the catalogue of a set that the server keeps, also one that ended early.

mod dial_tone;
mod group_places;
mod hooks;
mod in_place;
mod lasting_name;
mod live_databases;
mod merge;
mod one_database;
mod replacements;
mod volumes;

pub use dial_tone::{DialToneArguments, run as dial_tone};
pub use merge::{MergeArguments, run as merge};

use super::{
    backup_points::{PointsOfBackup, SetPoints},
    log_chain::{BroughtForwardRow, ChainedLogs, LogArguments, LogPlan, LogSource, LogWish},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    pool::confirmation::NameConfirmation,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::web::client::{BackupPointRow, Method, RestoreBody, SetKeeperName, SetRow, in_uri};
use lasting_name::PlaceChange;
use one_database::only;
use protect::backup_schedule::BackupKind;
use replacements::LeftReplacements;
use report::Refusal;
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};
use volumes::{EarlyEnd, RestoredRow, RestoredVolume, clone_all, look_at_all, refuse_users};
use world::World;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect restore mail 17 --dry-run       which volumes, and who uses them
  spindle protect restore mail 17                 asks for the name of the set
  spindle protect restore mail 17 --yes mail      databases up to the minute, with the logs that there are
  spindle protect restore mail 17 --yes mail --logs none
  spindle protect restore mail 17 --yes mail --hooks site.toml      with the set's hooks, on the mail host
  spindle protect restore mail 17 --as trial      clones mail/store-trial, logs/log-trial beside the live volumes
  spindle protect restore mail 17 --database priv1 --yes mail       one database, up to the minute; the others stay as they are
  spindle protect restore mail 17 --database priv1 --database priv3 --yes mail     several of them
  spindle protect restore mail 17 --as trial --to-time 2026-11-29T10:00:00Z     as it was before that

End the mail server, unmount and log out first: it is refused while a host is connected. All volumes of the set go back to \
the moment of the backup. Databases of Spindle's own format then go forward, with the logs of later backups and of the live \
volume, as far as these go (--logs all); the chain of logs is proven before anything is changed, and they are brought forward on \
clones, which take the places of the volumes. Other databases replay their logs themselves, and get those of the backup. What \
each volume held stays as VOLUME~1, to which 'spindle volume rollback' goes back. If it ends early, give the same command again \
before a host connects: it goes on. It takes a token with the role admin; --as with --logs none takes operate.

Exits with 0, and with 2 if it was refused or ended early.")]
pub struct RestoreArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup
    #[arg(value_name = "BACKUP")]
    pub backup: String,

    /// Clone the volumes as VOLUME-NAME, and leave the live ones alone
    #[arg(long = "as", value_name = "NAME", conflicts_with_all = ["force", "yes"])]
    pub beside: Option<String>,

    /// Only this database of Spindle's own format, such as priv1: the others and the log keep what they have now. The log of its
    /// storage group brings it up to the minute; with --as the clones are of the live volumes, with it in them. Can be given
    /// several times
    #[arg(long = "database", value_name = "NAME")]
    pub databases: Vec<String>,

    #[command(flatten)]
    pub logs: LogArguments,

    /// Show what would be done, how far logs go, and who uses the volumes
    #[arg(long)]
    pub dry_run: bool,

    /// Although hosts are connected: the volumes are withheld from each until it has let go of what it cached
    #[arg(long)]
    pub force: bool,

    /// Run the hooks that this site file has under [protect.restore], on this host: before, to end the mail server and
    /// disconnect, and after, to connect and start it
    #[arg(long, value_name = "SITE.TOML", conflicts_with = "beside")]
    pub hooks: Option<PathBuf>,

    /// Name of the set, in place of the question on the terminal
    #[arg(long, value_name = "SET")]
    pub yes: Option<String>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct RestoreAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    /// The file of the only database that was restored.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a str>,
    /// The files, if several were named.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    databases: &'a [String],
    done: &'static str,
    volumes: Vec<RestoredRow>,
    /// Storage groups that logs bring further than the backup.
    logs: Vec<BroughtForwardRow>,
    /// The reasons for databases that are as the backup has them, if logs were wanted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_brought_forward: Vec<String>,
}

/// A restore, with everything that it is done with.
struct SetRestore<'r> {
    server: &'r ServerConnection,
    arguments: &'r RestoreArguments,
    console: &'r Console,
    backup: &'r PointsOfBackup,
    change: PlaceChange,
    chained: ChainedLogs<'r>,
    wish: Option<LogWish>,
}

/// The gain of a backup by logs.
#[derive(Default)]
struct LogOutcome {
    rows: Vec<BroughtForwardRow>,
    problems: Vec<String>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &RestoreArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = &place.connection(world)?;
    let known = &SetPoints::ask(server, &arguments.set).await?;
    let backup = known.whole(&arguments.backup)?;
    let wish = wish_for(arguments, backup)?;
    let base = if wish.is_some() { known.full_of(backup)? } else { backup };
    let points = &points_to_restore(known, base)?;
    let databases = &arguments.databases[..];
    let change = match databases.is_empty() {
        false => PlaceChange::databases(databases, &backup.name),
        true => PlaceChange::restore(&backup.name),
    };
    let chained = ChainedLogs { world, server, place, console, known, base, points, databases };
    let restore = SetRestore { server, arguments, console, backup, change, chained, wish };
    let left = match &arguments.beside {
        None => restore.replacements(points).left().await?,
        Some(_) => LeftReplacements::default(),
    };
    let is_decided = !left.decided.is_empty();
    let plan = match &restore.wish {
        // The logs of a decided restore are joined.
        Some(wish) if !is_decided => Some(Box::pin(chained.prove(wish)).await?),
        _ => None,
    };
    let has_groups = is_decided || plan.as_ref().is_some_and(LogPlan::has_groups);
    // Logs of another engine, which replays them itself.
    let of_backup = points_to_restore(known, backup)?;
    let points = if has_groups { points } else { &of_backup };
    let looked_at = look_at_all(server, points).await;
    let of_group = restore.volumes_of_database(plan.as_ref(), &left);
    let volumes = match looked_at {
        Ok(volumes) => only(volumes, of_group.as_ref()),
        Err(refusal) => {
            restore.end(plan).await?;
            return Err(refusal);
        }
    };
    let mut logs = LogOutcome::of(plan.as_ref());
    // A restore that is completed has no plan any more.
    let files = plan.as_ref().map_or_else(|| databases.to_vec(), LogPlan::database_files);
    let files = &files[..];
    let (done, rows) = match &arguments.beside {
        _ if arguments.dry_run => {
            restore.end(plan).await?;
            if is_decided {
                console.say("a restore of this backup ended early: it would be completed, with the logs that it has joined");
            }
            ("looked at", volumes.iter().map(RestoredVolume::row).collect())
        }
        Some(suffix) => {
            let cloned = restore.beside(&volumes, suffix, plan, &mut logs).await;
            ("cloned", restore.noted(cloned, &logs).await?)
        }
        None => {
            restore.end(plan).await?;
            if arguments.hooks.is_none() {
                refuse_users(&volumes, arguments.force)?;
                restore.refuse_replacing(&volumes, &logs).await?;
            }
            confirm(arguments, (backup, files), (&volumes, &logs), console)?;
            let restored = Box::pin(restore.in_place((points, &left), of_group.as_ref(), &mut logs)).await;
            ("restored", restore.noted(restored, &logs).await?)
        }
    };
    let rows = match databases.is_empty() {
        false => {
            rows.into_iter().zip(&volumes).filter(|(_, volume)| !volume.is_done).map(|(row, _)| row).collect()
        }
        true => rows,
    };
    say(done, (backup, files), (&rows, &logs), console);
    if console.is_for_programs() {
        let (set, backup) = (arguments.set.as_str(), backup.name.as_str());
        let LogOutcome { rows: logs, problems: not_brought_forward } = logs;
        let (database, databases) = match files {
            [file] => (Some(file.as_str()), &[][..]),
            several => (None, several),
        };
        let answer = RestoreAnswer {
            set,
            backup,
            database,
            databases,
            done,
            volumes: rows,
            logs,
            not_brought_forward,
        };
        console.json_of(&answer)?;
    }
    console.finish(ExitStatus::Pass)
}

/// The logs that are wanted. A backup of logs alone is as far as one goes, unless more is said.
fn wish_for(arguments: &RestoreArguments, backup: &PointsOfBackup) -> Result<Option<LogWish>, Refusal> {
    let wish = arguments.logs.wish()?;
    if !arguments.databases.is_empty() {
        return one_database::wish(wish).map(Some);
    }
    let is_of_logs = backup.note.kind == BackupKind::InterimLogs;
    let own = LogSource::Backup(backup.note.sequence.to_string());
    Ok(wish.map(|wish| match is_of_logs && !wish.is_said {
        true => LogWish { newest: own, ..wish },
        false => wish,
    }))
}

impl SetRestore<'_> {
    /// Clones all volumes beside the live ones, and brings the databases on them forward.
    async fn beside(
        &self,
        volumes: &[RestoredVolume],
        suffix: &str,
        plan: Option<LogPlan>,
        logs: &mut LogOutcome,
    ) -> Result<Vec<RestoredRow>, EarlyEnd> {
        let mut plan = plan;
        let cloning = async {
            if !self.arguments.databases.is_empty() {
                return Box::pin(self.database_beside(volumes, suffix, &mut plan)).await;
            }
            let rows = clone_all(self.server, volumes, suffix, self.console).await?;
            let made: Vec<String> = rows.iter().filter_map(|row| row.made.clone()).collect();
            let by_point: BTreeMap<usize, String> = made.iter().cloned().enumerate().collect();
            if let (Some(plan), Some(wish)) = (&mut plan, &self.wish)
                && plan.goes_further()
            {
                let joined = Box::pin(self.chained.join(plan, &by_point, wish)).await;
                joined.map_err(|refusal| {
                    let problem = format!(
                        "{}; the clones {} are not brought forward",
                        refusal.problem(),
                        made.join(", ")
                    );
                    EarlyEnd::after_changes(
                        problem,
                        format!("{}; delete the clones, then try again", refusal.remedy()),
                    )
                })?;
            }
            Ok(rows)
        };
        let cloned = cloning.await;
        if cloned.is_ok() {
            *logs = LogOutcome::of(plan.as_ref());
        }
        match self.end(plan).await {
            Err(refusal) if cloned.is_ok() => {
                self.console.warn(&format!("copies of logs are left until their time is over: {refusal}"));
                cloned
            }
            _ => cloned,
        }
    }

    async fn end(&self, plan: Option<LogPlan>) -> Result<(), Refusal> {
        match plan {
            Some(plan) => plan.end(self.server).await,
            None => Ok(()),
        }
    }

    /// Notes a restore, or its early end, in the catalogue. One that changed nothing is not noted.
    async fn noted(
        &self,
        done: Result<Vec<RestoredRow>, EarlyEnd>,
        logs: &LogOutcome,
    ) -> Result<Vec<RestoredRow>, Refusal> {
        let Self { server, arguments, backup, console, .. } = self;
        let problems = match &done {
            Ok(_) => Vec::new(),
            Err(early) if !early.has_changed => return Err(early.refusal.clone()),
            Err(early) => vec![early.refusal.problem().to_owned()],
        };
        let to = arguments.beside.as_ref().map_or("in place".to_owned(), |name| format!("beside, as {name}"));
        let forward = logs.latest().filter(|_| problems.is_empty());
        let what = match &arguments.databases[..] {
            [] => "all volumes".to_owned(),
            [database] => format!("database {database}"),
            several => format!("databases {}", several.join(" and ")),
        };
        let what = match forward {
            Some(time) => format!("{what}, with logs to {time}"),
            None => what,
        };
        let body = RestoreBody { what, to, is_good: problems.is_empty(), problems };
        let set = format!("/v1/sets/{}", in_uri(&arguments.set));
        let noting = async {
            let row: SetRow = server.get(&set).await?;
            if row.kept_by == SetKeeperName::Agent {
                let problem = "an agent keeps the set: its catalogue does not have this restore";
                return Err(Refusal::new(problem, ""));
            }
            let path = format!("{set}/backups/{}/restores", backup.note.sequence);
            server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked().map(drop)
        };
        // The restore stands all the same.
        if let Err(refusal) = noting.await {
            console.warn(&format!("it is not noted: {refusal}"));
        }
        done.map_err(|early| early.refusal)
    }
}

impl LogOutcome {
    fn of(plan: Option<&LogPlan>) -> Self {
        plan.map_or_else(Self::default, |plan| Self { rows: plan.rows(), problems: plan.problems.clone() })
    }

    /// True if logs bring a database further than the backup.
    fn goes_further(&self) -> bool {
        self.rows.iter().any(BroughtForwardRow::goes_further)
    }

    /// Time (UTC) of the last records that logs bring.
    fn latest(&self) -> Option<&str> {
        self.rows.iter().filter(|row| row.goes_further()).map(|row| &*row.time).max()
    }
}

/// The points of all volumes: of logs alone, those of the full backup that they bring forward as well.
pub fn points_to_restore(known: &SetPoints, backup: &PointsOfBackup) -> Result<Vec<BackupPointRow>, Refusal> {
    let of = |backup: &PointsOfBackup| -> BTreeMap<String, BackupPointRow> {
        backup.points.iter().map(|point| (point.volume_id.clone(), point.clone())).collect()
    };
    let mut points = match backup.note.kind {
        BackupKind::InterimLogs => of(known.base_of(backup)?),
        BackupKind::Full | BackupKind::InterimCrash => BTreeMap::new(),
    };
    points.extend(of(backup));
    Ok(points.into_values().collect())
}

fn confirm(
    arguments: &RestoreArguments,
    (backup, databases): (&PointsOfBackup, &[String]),
    (volumes, logs): (&[RestoredVolume], &LogOutcome),
    console: &Console,
) -> Result<(), Refusal> {
    let is_meant = |volume: &&RestoredVolume| databases.is_empty() || !volume.is_done;
    let names: Vec<String> = volumes.iter().filter(is_meant).map(RestoredVolume::path).collect();
    let names = names.join(", ");
    let of = databases.join(" and ");
    let (what, would, whose) = match databases {
        [] => (format!("{names} go"), format!("{names} would go"), "their databases"),
        [_] => (format!("{of} on {names} goes"), format!("{of} on {names} would go"), "is brought"),
        _ => (format!("{of} on {names} go"), format!("{of} on {names} would go"), "are brought"),
    };
    let forward = logs.latest().map(|time| format!(", and {whose} forward to {time}"));
    let question = format!(
        "{what} back to {}{}; what each volume holds now stays as ~1, ~2 …",
        backup.name,
        forward.unwrap_or_default()
    );
    let unnamed = format!("{would} back to {}: nothing was changed", backup.name);
    let confirmation = NameConfirmation {
        question: &question,
        name: &arguments.set,
        meant: "the name of the set: nothing was changed",
        unnamed: &unnamed,
    };
    confirmation.ask(console, arguments.yes.as_deref())
}

fn say(
    done: &str,
    (backup, databases): (&PointsOfBackup, &[String]),
    (rows, logs): (&[RestoredRow], &LogOutcome),
    console: &Console,
) {
    let what = if databases.is_empty() { String::new() } else { format!("{} ", databases.join(" and ")) };
    let has_it = match databases {
        [_] => "has the database",
        _ => "has the databases",
    };
    console.say(&format!("{}: {what}{done} ({})", backup.name, backup.label_text()));
    for row in rows {
        let made = match &row.made {
            Some(made) if done == "restored" && !databases.is_empty() => {
                format!(" {has_it}, and all else as it was; before: {made}")
            }
            Some(made) if done == "restored" => format!(" goes back to {}; before: {made}", row.snapshot),
            Some(made) => format!(" as {made}"),
            None if done == "restored" => " is restored already".to_owned(),
            None => format!(": {}", row.snapshot),
        };
        let used = if row.used_by.is_empty() { "" } else { "; used by " };
        console.say(&format!("  {}{made}{used}{}", row.volume, row.used_by.join(", ")));
        if !row.withheld_from.is_empty() {
            console.say(&format!(
                "    withheld from {} until it has let go of what it cached: 'spindle volume readmit'",
                row.withheld_from.join(", ")
            ));
        }
    }
    logs.rows.iter().for_each(|row| console.say(&format!("  {}", row.text())));
    logs.problems.iter().for_each(|problem| console.say(&format!("  not brought forward: {problem}")));
}
