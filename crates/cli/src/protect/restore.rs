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
    restore_hooks::HostHooks,
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    pool::confirmation::NameConfirmation,
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::web::{
    client::{
        BackupPointRow, Method, NewCloneBody, RestoreBody, RollbackBody, SetKeeperName, SetRow, VolumeUses,
        in_uri,
    },
    differences::DifferenceEnd,
    rows::{RollbackRow, VolumeEntry, VolumePage},
};
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

End the mail server, unmount and log out first: it is refused while a host is connected. All volumes of the set go back to \
the moment of the backup; a backup of logs alone brings the full one before it forward. What each volume held stays as \
VOLUME~1, to which 'spindle volume rollback' goes back. If it ends early, give the same command again before a host \
connects: it goes on. It takes a token with the role admin; --as takes operate.

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

    /// Show what would be done, and who uses the volumes
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

/// A volume, and the point that it goes back to.
struct RestoredVolume {
    volume: VolumeEntry,
    point: BackupPointRow,
    /// Hosts that use it.
    users: Vec<String>,
    is_done: bool,
}

/// The early end of a restore.
struct EarlyEnd {
    refusal: Refusal,
    /// Volumes were restored, or cloned, before.
    has_changed: bool,
}

impl From<Refusal> for EarlyEnd {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, has_changed: false }
    }
}

/// The answer as JSON.
#[derive(Serialize)]
struct RestoreAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    done: &'static str,
    volumes: Vec<RestoredRow>,
}

#[derive(Serialize)]
struct RestoredRow {
    /// `POOL/VOLUME`.
    volume: String,
    /// Name of the snapshot.
    snapshot: String,
    /// The volume with the state of before, or the clone; none if it was as its point already.
    #[serde(skip_serializing_if = "Option::is_none")]
    made: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    used_by: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    withheld_from: Vec<String>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &RestoreArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let known = SetPoints::ask(&server, &arguments.set).await?;
    let backup = known.whole(&arguments.backup)?;
    let points = points_to_restore(&known, backup)?;
    let volumes = look_at_all(&server, &points).await?;
    let (done, rows) = match &arguments.beside {
        _ if arguments.dry_run => ("looked at", volumes.iter().map(RestoredVolume::row).collect()),
        Some(suffix) => {
            let cloned = clone_all(&server, &volumes, suffix, console).await;
            ("cloned", noted(&server, arguments, backup, cloned, console).await?)
        }
        None => {
            if arguments.hooks.is_none() {
                refuse_users(&volumes, arguments.force)?;
            }
            confirm(arguments, backup, &volumes, console)?;
            let restored = in_place(&server, arguments, (backup, &points), console).await;
            ("restored", noted(&server, arguments, backup, restored, console).await?)
        }
    };
    say(done, backup, &rows, console);
    if console.is_for_programs() {
        let (set, backup) = (arguments.set.as_str(), backup.name.as_str());
        console.json_of(&RestoreAnswer { set, backup, done, volumes: rows })?;
    }
    console.finish(ExitStatus::Pass)
}

/// Takes all volumes back, within the hooks if there are any.
async fn in_place(
    server: &ServerConnection,
    arguments: &RestoreArguments,
    (backup, points): (&PointsOfBackup, &[BackupPointRow]),
    console: &Console,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let named = (arguments.set.as_str(), backup.name.as_str());
    let hooks = arguments.hooks.as_ref().map(|site| HostHooks::of_site(site, named, console)).transpose()?;
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
            true => console.warn("the hook after was not run: only some volumes are taken back"),
        }
    }
    restored
}

/// Notes a restore, or its early end, in the catalogue. One that changed nothing is not noted.
async fn noted(
    server: &ServerConnection,
    arguments: &RestoreArguments,
    backup: &PointsOfBackup,
    done: Result<Vec<RestoredRow>, EarlyEnd>,
    console: &Console,
) -> Result<Vec<RestoredRow>, Refusal> {
    let problems = match &done {
        Ok(_) => Vec::new(),
        Err(early) if !early.has_changed => return Err(early.refusal.clone()),
        Err(early) => vec![early.refusal.problem().to_owned()],
    };
    let to = arguments.beside.as_ref().map_or("in place".to_owned(), |name| format!("beside, as {name}"));
    let body = RestoreBody { what: "all volumes".to_owned(), to, is_good: problems.is_empty(), problems };
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

/// The volumes as they are now.
async fn look_at_all(
    server: &ServerConnection,
    points: &[BackupPointRow],
) -> Result<Vec<RestoredVolume>, Refusal> {
    let mut volumes = Vec::new();
    for point in points {
        volumes.push(look_at(server, point.clone()).await?);
    }
    Ok(volumes)
}

async fn look_at(server: &ServerConnection, point: BackupPointRow) -> Result<RestoredVolume, Refusal> {
    let path = format!("/v1/volumes/{}", in_uri(&point.volume_id));
    let volume: VolumeEntry = server.get(&path).await?;
    let uses: VolumeUses = server.get(&format!("{path}/uses")).await?;
    let mut users = uses.initiators;
    if uses.nbd_clients {
        users.push("NBD clients".to_owned());
    }
    let is_done = is_unchanged_since(server, &path, &point.name).await?;
    Ok(RestoredVolume { volume, point, users, is_done })
}

/// True if nothing differs between a snapshot of a volume and now.
async fn is_unchanged_since(server: &ServerConnection, path: &str, snapshot: &str) -> Result<bool, Refusal> {
    let mut is_unchanged = false;
    let path = format!("{path}/difference?from={}&summary=true", in_uri(snapshot));
    let take = |line: &str| {
        if let Ok(DifferenceEnd { totals }) = serde_json::from_str(line) {
            let all = [&totals.data, &totals.zeroes, &totals.discarded, &totals.beyond_size];
            is_unchanged = all.iter().all(|total| total.bytes == 0);
        }
        Ok(())
    };
    server.get_lines(&path, take).await?;
    Ok(is_unchanged)
}

fn refuse_users(volumes: &[RestoredVolume], is_forced: bool) -> Result<(), Refusal> {
    let used = volumes.iter().find(|volume| !volume.users.is_empty() && !volume.is_done);
    match used.filter(|_| !is_forced) {
        None => Ok(()),
        Some(used) => Err(Refusal::new(
            format!("{} is used by {}: nothing was restored", used.path(), used.users.join(", ")),
            "end the mail server, unmount and log out, or say ⟨force⟩ to withhold the volumes; ⟨as⟩ NAME restores beside them",
        )),
    }
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

async fn roll_back_all(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    console: &Console,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let mut rows: Vec<RestoredRow> = Vec::new();
    for volume in volumes {
        if volume.is_done {
            rows.push(volume.row());
            continue;
        }
        let path = format!("/v1/volumes/{}/rollback", in_uri(&volume.volume.id));
        let body = RollbackBody { snapshot: Some(volume.point.name.clone()), force: true };
        let reply = server.change_to_its_end(Method::POST, &path, Some(&body)).await;
        let done: RollbackRow = match reply.and_then(|reply| reply.parsed()) {
            Ok(done) => done,
            Err(refusal) => return Err(volume.ended_early(&rows, &refusal)),
        };
        let mut withheld_from = done.withheld_from;
        withheld_from.extend(done.withheld_from_nbd.then(|| "all NBD clients".to_owned()));
        console.say_progress(&format!("{}: restored", volume.path()));
        let made = Some(format!("{}/{}", volume.volume.pool, done.left));
        rows.push(RestoredRow { made, withheld_from, ..volume.row() });
    }
    Ok(rows)
}

async fn clone_all(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    suffix: &str,
    console: &Console,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let mut rows: Vec<RestoredRow> = Vec::new();
    let names: Vec<String> = volumes.iter().map(|one| format!("{}-{suffix}", one.volume.name)).collect();
    for (volume, name) in volumes.iter().zip(&names) {
        let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
        if page.volumes.iter().any(|known| known.pool == volume.volume.pool) {
            let problem =
                format!("there is a volume {}/{name} already: nothing was cloned", volume.volume.pool);
            return Err(Refusal::new(problem, "choose another name, or delete it").into());
        }
    }
    for (volume, name) in volumes.iter().zip(names) {
        let path = format!("/v1/volumes/{}/clones", in_uri(&volume.volume.id));
        let snapshot = Some(volume.point.name.clone());
        let body = NewCloneBody { name: name.clone(), snapshot, independent: false };
        let reply = server.change_to_its_end(Method::POST, &path, Some(&body)).await;
        if let Err(refusal) = reply.and_then(|reply| reply.checked()) {
            return Err(volume.ended_early(&rows, &refusal));
        }
        let made = format!("{}/{name}", volume.volume.pool);
        console.say_progress(&format!("{made}: cloned"));
        rows.push(RestoredRow { made: Some(made), ..volume.row() });
    }
    Ok(rows)
}

impl RestoredVolume {
    fn path(&self) -> String {
        format!("{}/{}", self.volume.pool, self.volume.name)
    }

    fn row(&self) -> RestoredRow {
        RestoredRow {
            volume: self.path(),
            snapshot: self.point.name.clone(),
            made: None,
            used_by: self.users.clone(),
            withheld_from: Vec::new(),
        }
    }

    /// The refusal of a restore in which this volume failed after others.
    fn ended_early(&self, done: &[RestoredRow], refusal: &Refusal) -> EarlyEnd {
        let done: Vec<&str> = done.iter().filter(|row| row.made.is_some()).map(|row| &*row.volume).collect();
        let before = match done.is_empty() {
            true => "nothing was changed".to_owned(),
            false => format!("{} is done", done.join(", ")),
        };
        let refusal = Refusal::new(
            format!("{}: {}; {before}", self.path(), refusal.problem()),
            format!("{}; then give the same command again, before a host connects", refusal.remedy()),
        );
        EarlyEnd { refusal, has_changed: !done.is_empty() }
    }
}

fn say(done: &str, backup: &PointsOfBackup, rows: &[RestoredRow], console: &Console) {
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
}
