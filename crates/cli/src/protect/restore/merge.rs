//! `spindle protect merge`: the databases that came back, with what came in while a dial tone stood in for them.
//!
//! Invariants:
//!
//! 1. Neither the live volumes nor the restored ones are written: clones of the restored ones get the messages, and take the
//!    places. What was live stays, as `VOLUME~N`.
//! 2. One that ended early is completed by the same command.

use super::{
    super::log_chain::{BackupGroup, ChainedLogs, MergedDatabase, temporary_clone_name},
    dial_tone::noted,
    group_places::GroupPlaces,
    hooks::{HostHooks, PlaceArguments},
    lasting_name::PlaceChange,
    live_databases::with_live,
    points_to_restore,
    replacements::{CloneSource, Replacements, paths_of},
    volumes::{EarlyEnd, RestoredRow, RestoredVolume, users_of},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    pool::confirmation::NameConfirmation,
    protect::{backup_points::SetPoints, temporary_clones::all_volumes},
    server::{connection::ServerConnection, place::ServerPlace},
};
use clap::Args;
use control::web::client::BackupPointRow;
use report::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;
use world::World;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect restore mail 17 --as old --logs log~1    the lost databases, beside the dial tone
  spindle protect merge mail --from old                    asks for the name of the set
  spindle protect merge mail --from old --dry-run          which databases and volumes, and who uses them
  spindle protect merge mail --from old --yes mail
  spindle protect merge mail --from old --yes mail --hooks site.toml    with the set's hooks, on the mail host

After 'spindle protect dial-tone', and once the lost databases were restored beside it: what came in meanwhile is added to clones \
of the restored databases, which take the places of the volumes. Neither of the two is written: the dial tone stays as VOLUME~N, \
and the restored volumes as they are. A message that both have with other content is a conflict: it is listed, the restored \
one counts, and the other stays in VOLUME~N. End the mail server and log out first: it is refused while a host is connected. If it \
ends early, give the same command again before a host connects. It takes a token with the role admin.

Exits with 0, with 1 if there were conflicts, and with 2 if it was refused or ended early.")]
pub struct MergeArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of a backup that says which databases there are [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    /// Name with which the lost databases were restored: ⟨as⟩ NAME
    #[arg(long, value_name = "NAME")]
    pub from: String,

    #[command(flatten)]
    pub work: PlaceArguments,

    /// Name of the set, in place of the question on the terminal
    #[arg(long, value_name = "SET")]
    pub yes: Option<String>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct MergeAnswer<'a> {
    set: &'a str,
    from: &'a str,
    /// *joined*, or *looked at* by a dry run.
    done: &'static str,
    /// Empty if one that ended early was completed: it has said them.
    databases: Vec<MergedRow>,
    volumes: Vec<RestoredRow>,
}

#[derive(Serialize)]
struct MergedRow {
    database: String,
    /// Messages that came in during the dial tone.
    added: u64,
    /// Messages that both had.
    same: u64,
    conflicts: u64,
    /// The first of them.
    named: Vec<String>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &MergeArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = &place.connection(world)?;
    let known = &SetPoints::ask(server, &arguments.set).await?;
    let base = known.full_of(known.meant(arguments.backup.as_deref())?)?;
    let points = &points_to_restore(known, base)?;
    let chained = ChainedLogs { world, server, place, console, known, base, points, databases: &[] };
    let change = PlaceChange::merge(&arguments.from);
    let replacements = Replacements { server, change: &change, points };
    let remedy = "end the group first, which keeps its volumes: 'spindle dr remove'";
    let places = GroupPlaces::look(&chained, &replacements, remedy).await?;
    let (work, is_decided) = (&arguments.work, !places.left.decided.is_empty());
    if !work.dry_run && work.hooks.is_none() {
        places.refuse_used()?;
    }
    if !is_decided {
        // Before the mail server is ended for it.
        restored_beside(server, &places.volumes, &arguments.from).await?;
    }
    if work.dry_run {
        return tell_outlook(arguments, &places, is_decided, console);
    }
    confirm(arguments, &places.volumes, console)?;
    let mut databases = Vec::new();
    let named = (arguments.set.as_str(), base.name.as_str());
    let done = HostHooks::around(work.hooks.as_deref(), named, console, async || {
        // As they are once the hook has disconnected this host.
        let volumes = places.unused_volumes(&chained).await?;
        match is_decided {
            true => replacements.take_places(&places.left.decided, &volumes, console).await,
            false => {
                replacements.give_up(&places.left.undecided).await;
                let work = (&replacements, &places.groups[..]);
                Box::pin(join(&chained, work, (&volumes, &arguments.from), &mut databases)).await
            }
        }
    });
    let done = Box::pin(done).await;
    let what = format!("dial tone joined with {}", arguments.from);
    let rows = noted(&chained, (&arguments.set, &what), done).await?;
    tell(arguments, databases, rows, console)
}

/// Joins both on clones of the restored volumes, which take the places.
async fn join(
    chained: &ChainedLogs<'_>,
    (replacements, groups): (&Replacements<'_>, &[BackupGroup]),
    (volumes, from): (&[RestoredVolume], &str),
    databases: &mut Vec<MergedDatabase>,
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let ChainedLogs { world, server, console, base, .. } = *chained;
    let wanted = restored_beside(server, volumes, from).await?;
    let name = |point: &BackupPointRow| temporary_clone_name(world, base, point);
    let mut made = replacements.clone(&wanted, name).await?;
    let paths = paths_of(&made);
    let names: BTreeMap<usize, String> = volumes.iter().map(RestoredVolume::path).enumerate().collect();
    let joining =
        with_live(chained, volumes, async |live| chained.merge(groups, &paths, (live?, &names)).await);
    *databases = replacements.decide_after(Box::pin(joining).await, &mut made).await?;
    console.say_progress("the joined databases are on clones, which change places with the volumes now");
    replacements.take_places(&made, volumes, console).await
}

/// The volumes that a restore with ⟨as⟩ has made; none may be in use, or their clones would be of several moments.
async fn restored_beside(
    server: &ServerConnection,
    volumes: &[RestoredVolume],
    from: &str,
) -> Result<BTreeMap<usize, CloneSource>, Refusal> {
    let all = all_volumes(server).await?;
    let mut found = BTreeMap::new();
    for (index, volume) in volumes.iter().enumerate().filter(|(_, volume)| !volume.is_done) {
        let (pool, name) = (&volume.volume.pool, format!("{}-{from}", volume.volume.name));
        let Some(known) = all.iter().find(|known| known.pool == *pool && known.name == name) else {
            return Err(Refusal::new(
                format!("there is no volume {pool}/{name}: nothing was changed"),
                format!("restore the lost databases first: 'spindle protect restore SET BACKUP --as {from}'"),
            ));
        };
        if !users_of(server, &known.id).await?.is_empty() {
            return Err(Refusal::new(
                format!("{pool}/{name} is used by a host: nothing was changed"),
                "unmount it and log out",
            ));
        }
        found.insert(index, CloneSource { volume_id: known.id.clone(), snapshot: None });
    }
    Ok(found)
}

fn confirm(arguments: &MergeArguments, volumes: &[RestoredVolume], console: &Console) -> Result<(), Refusal> {
    let names: Vec<String> =
        volumes.iter().filter(|volume| !volume.is_done).map(RestoredVolume::path).collect();
    let (names, from) = (names.join(", "), &arguments.from);
    let confirmation = NameConfirmation {
        question: &format!(
            "{names} get the databases of {from}, with what came in; what each holds now stays as ~1, ~2 …"
        ),
        name: &arguments.set,
        meant: "the name of the set: nothing was changed",
        unnamed: &format!("{names} would get the databases of {from}: nothing was changed"),
    };
    confirmation.ask(console, arguments.yes.as_deref())
}

/// Says what a merge would do.
fn tell_outlook(
    arguments: &MergeArguments,
    places: &GroupPlaces,
    is_decided: bool,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let (set, from) = (arguments.set.as_str(), arguments.from.as_str());
    if is_decided {
        console.say("a merge ended early: it would be completed, with the databases that it joined");
    }
    let databases = places.databases();
    console.say(&format!("{set}: {} would get what came in; nothing was changed", databases.join(" and ")));
    let volumes: Vec<RestoredRow> = places.taken().map(RestoredVolume::row).collect();
    for row in &volumes {
        let used = if row.used_by.is_empty() { "" } else { "; used by " };
        console.say(&format!(
            "  {0} gets a clone of {0}-{from}{used}{1}",
            row.volume,
            row.used_by.join(", ")
        ));
    }
    if console.is_for_programs() {
        console.json_of(&MergeAnswer { set, from, done: "looked at", databases: Vec::new(), volumes })?;
    }
    console.finish(ExitStatus::Pass)
}

fn tell(
    arguments: &MergeArguments,
    databases: Vec<MergedDatabase>,
    volumes: Vec<RestoredRow>,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if databases.is_empty() {
        console.say("completed; the counts were said before");
    }
    for MergedDatabase { name, mail } in &databases {
        let same = if mail.same > 0 { format!(", {} were there", mail.same) } else { String::new() };
        console.say(&format!("{name}: {} messages of the dial tone were added{same}", mail.added));
        if mail.conflicts > 0 {
            console.say(&format!(
                "  {} are in both with other content; the restored ones count, the others stay in the volumes of before:",
                mail.conflicts
            ));
        }
        mail.named.iter().take(20).for_each(|key| console.say(&format!("    {key}")));
        if mail.named.len() > 20 {
            console.say("    … and more; ⟨json⟩ names 1,000");
        }
    }
    let volumes: Vec<RestoredRow> = volumes.into_iter().filter(|row| row.made.is_some()).collect();
    for row in &volumes {
        console.say(&format!("  {}; the dial tone: {}", row.volume, row.made.as_deref().unwrap_or_default()));
    }
    let has_conflicts = databases.iter().any(|one| one.mail.conflicts > 0);
    let row = |one: MergedDatabase| MergedRow {
        database: one.name,
        added: one.mail.added,
        same: one.mail.same,
        conflicts: one.mail.conflicts,
        named: one.mail.named.iter().map(ToString::to_string).collect(),
    };
    if console.is_for_programs() {
        let databases = databases.into_iter().map(row).collect();
        let (set, from) = (arguments.set.as_str(), arguments.from.as_str());
        console.json_of(&MergeAnswer { set, from, done: "joined", databases, volumes })?;
    }
    console.finish(if has_conflicts { ExitStatus::Fail } else { ExitStatus::Pass })
}
