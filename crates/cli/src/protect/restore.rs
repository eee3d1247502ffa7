//! `spindle protect restore`: all volumes of a set taken back to a backup, or cloned beside the live ones.
//!
//! Invariants:
//!
//! 1. Nothing is changed before it is known that all of it can be done: all points are there, and no host uses a volume.
//! 2. What a volume held stays, as `VOLUME~N`: a restore loses nothing.
//! 3. One that ended early is completed by the same command: a volume that is as its point is left alone.
//! 4. Each that changed something is noted in the catalogue of a set that the server keeps, also one that ended early.

use super::{
    backup_points::{PointsOfBackup, SetPoints},
    log_chain::{BroughtForwardRow, ChainedLogs, LogArguments, LogPlan, LogSource, LogWish},
    restore_hooks::HostHooks,
    restored_volumes::{
        EarlyEnd, RestoredRow, RestoredVolume, clone_all, look_at_all, refuse_users, roll_back_all,
    },
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    pool::confirmation::NameConfirmation,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::web::client::{BackupPointRow, Method, RestoreBody, SetKeeperName, SetRow, in_uri};
use protect::backup_schedule::BackupKind;
use report::Refusal;
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};
use world::World;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect restore mail 17 --dry-run       which volumes, and who uses them
  spindle protect restore mail 17                 asks for the name of the set
  spindle protect restore mail 17 --yes mail
  spindle protect restore mail 17 --yes mail --hooks site.toml      with the set's hooks, on the mail host
  spindle protect restore mail 17 --as trial      clones mail/store-trial, logs/log-trial beside the live volumes
  spindle protect restore mail 17 --as trial --to-time 2026-11-29T10:00:00Z     as it was before that

End the mail server, unmount and log out first: it is refused while a host is connected. All volumes of the set go back to \
the moment of the backup. With --as, databases of Spindle's own format then go forward, with the logs of later backups and of \
the live volume, as far as these go (--logs all); the chain of logs is proven before anything is made. In place they stay as the \
backup has them, and it says how far logs would bring them. Other databases replay their logs themselves, and get those of the \
backup. What each volume held stays as VOLUME~1, to which 'spindle volume rollback' goes back. If it ends early, give the same \
command again before a host connects: it goes on. It takes a token with the role admin; --as with --logs none takes operate.

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
    let base = match (&wish, backup.note.kind) {
        (Some(_), BackupKind::InterimLogs) => known.base_of(backup)?,
        _ => backup,
    };
    let points = &points_to_restore(known, base)?;
    let chained = ChainedLogs { world, server, place, console, known, base, points };
    let is_in_place = arguments.beside.is_none() && backup.note.kind != BackupKind::InterimLogs;
    let mut unproven = Vec::new();
    let plan = match &wish {
        None => None,
        Some(wish) => match Box::pin(chained.prove(wish)).await {
            Ok(plan) => Some(plan),
            // In place no log is joined, unless one is asked for, which is refused.
            Err(refusal) if is_in_place && !wish.is_said => {
                unproven.push(refusal.to_string());
                None
            }
            Err(refusal) => return Err(refusal),
        },
    };
    let has_groups = plan.as_ref().is_some_and(LogPlan::has_groups);
    // Logs of another engine, which replays them itself.
    let of_backup = points_to_restore(known, backup)?;
    let points = if has_groups { points } else { &of_backup };
    let restore = SetRestore { server, arguments, console, backup, chained, wish };
    let looked_at = look_at_all(server, points).await;
    let volumes = match looked_at {
        Ok(volumes) => volumes,
        Err(refusal) => {
            restore.end(plan).await?;
            return Err(refusal);
        }
    };
    let mut logs = LogOutcome::of(plan.as_ref());
    logs.problems.extend(unproven);
    let (done, rows) = match &arguments.beside {
        _ if arguments.dry_run => {
            restore.end(plan).await?;
            ("looked at", volumes.iter().map(RestoredVolume::row).collect())
        }
        Some(suffix) => {
            let cloned = restore.beside(&volumes, suffix, plan, &mut logs).await;
            ("cloned", restore.noted(cloned, &logs).await?)
        }
        None => {
            restore.end(plan).await?;
            restore.stay_with_backup(&mut logs)?;
            if arguments.hooks.is_none() {
                refuse_users(&volumes, arguments.force)?;
            }
            confirm(arguments, backup, &volumes, console)?;
            let restored = restore.in_place(points).await;
            ("restored", restore.noted(restored, &logs).await?)
        }
    };
    say(done, backup, (&rows, &logs), console);
    if console.is_for_programs() {
        let (set, backup) = (arguments.set.as_str(), backup.name.as_str());
        let LogOutcome { rows: logs, problems: not_brought_forward } = logs;
        console.json_of(&RestoreAnswer { set, backup, done, volumes: rows, logs, not_brought_forward })?;
    }
    console.finish(ExitStatus::Pass)
}

/// The logs that are wanted. A backup of logs alone is as far as one goes, unless more is said.
fn wish_for(arguments: &RestoreArguments, backup: &PointsOfBackup) -> Result<Option<LogWish>, Refusal> {
    let wish = arguments.logs.wish()?;
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
            let rows = clone_all(self.server, volumes, suffix, self.console).await?;
            let made: Vec<String> = rows.iter().filter_map(|row| row.made.clone()).collect();
            if let (Some(plan), Some(wish)) = (&mut plan, &self.wish)
                && plan.goes_further()
            {
                let joined = Box::pin(self.chained.join(plan, &made, wish)).await;
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

    /// Takes all volumes back, within the hooks if there are any.
    async fn in_place(&self, points: &[BackupPointRow]) -> Result<Vec<RestoredRow>, EarlyEnd> {
        let Self { server, arguments, backup, console, .. } = self;
        let named = (arguments.set.as_str(), backup.name.as_str());
        let hooks =
            arguments.hooks.as_ref().map(|site| HostHooks::of_site(site, named, console)).transpose()?;
        let restoring = async {
            if let Some(hooks) = &hooks {
                hooks.before().await?;
            }
            // As they are once the hook has disconnected this host.
            let volumes = look_at_all(server, points).await?;
            refuse_users(&volumes, arguments.force)?;
            roll_back_all(server, &volumes, console).await
        };
        let restored = restoring.await;
        let is_half_done = restored.as_ref().is_err_and(|early| early.has_changed);
        if let Some(hooks) = hooks {
            match is_half_done {
                false => hooks.after().await,
                true => console.warn("the hook after was not run: the restore is half done"),
            }
        }
        restored
    }

    /// Logs are joined on clones alone: says how far they would go, or refuses if a person wants them.
    fn stay_with_backup(&self, logs: &mut LogOutcome) -> Result<(), Refusal> {
        let further: Vec<String> =
            logs.rows.iter().filter(|row| row.goes_further()).map(BroughtForwardRow::text).collect();
        if further.is_empty() {
            return Ok(());
        }
        let is_of_logs = self.backup.note.kind == BackupKind::InterimLogs;
        if is_of_logs || self.wish.as_ref().is_some_and(|wish| wish.is_said) {
            let problem = format!("logs are joined beside the live volumes alone: {}", further.join("; "));
            return Err(Refusal::new(
                problem,
                "say ⟨as⟩ NAME; or ⟨logs⟩ none, and a full backup, to go back to that",
            ));
        }
        logs.problems.extend(further.into_iter().map(|text| format!("⟨as⟩ NAME brings {text}")));
        logs.rows.clear();
        Ok(())
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
        let forward = logs.rows.iter().filter(|row| row.goes_further()).map(|row| &*row.time).max();
        let forward = forward.filter(|_| problems.is_empty());
        let what = match forward {
            Some(time) => format!("all volumes, with logs to {time}"),
            None => "all volumes".to_owned(),
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
    backup: &PointsOfBackup,
    volumes: &[RestoredVolume],
    console: &Console,
) -> Result<(), Refusal> {
    let names: Vec<String> = volumes.iter().map(RestoredVolume::path).collect();
    let names = names.join(", ");
    let question = format!("{names} go back to {}; what each holds now stays as ~1, ~2 …", backup.name);
    let unnamed = format!("{names} would go back to {}: nothing was changed", backup.name);
    let confirmation = NameConfirmation {
        question: &question,
        name: &arguments.set,
        meant: "the name of the set: nothing was changed",
        unnamed: &unnamed,
    };
    confirmation.ask(console, arguments.yes.as_deref())
}

fn say(done: &str, backup: &PointsOfBackup, (rows, logs): (&[RestoredRow], &LogOutcome), console: &Console) {
    console.say(&format!("{}: {done} ({})", backup.name, backup.label_text()));
    for row in rows {
        let made = match &row.made {
            Some(made) if done == "restored" => format!(" goes back to {}; before: {made}", row.snapshot),
            Some(made) => format!(" as {made}"),
            None if done == "restored" => " is as it was then already".to_owned(),
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
