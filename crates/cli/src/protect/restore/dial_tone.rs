//! `spindle protect dial-tone`: empty databases in the places of a set's, so that mail is sent and received at once.
//!
//! Invariants:
//!
//! 1. What the volumes held stays, as `VOLUME~N`.
//! 2. They are made on clones, which then take the places: one that ended early is completed by the same command.

use super::{
    super::log_chain::{BackupGroup, ChainedLogs, temporary_clone_name},
    group_places::GroupPlaces,
    hooks::{HostHooks, PlaceArguments},
    lasting_name::PlaceChange,
    live_databases::with_live,
    points_to_restore,
    replacements::{CloneSource, Replacements, paths_of},
    volumes::{EarlyEnd, RestoredRow, RestoredVolume},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    pool::confirmation::NameConfirmation,
    protect::{
        backup_points::{PointsOfBackup, SetPoints},
        mailboxes::MailDatabases,
    },
    server::place::ServerPlace,
};
use clap::Args;
use control::web::client::{BackupPointRow, Method, RestoreBody, in_uri};
use report::Refusal;
use serde::Serialize;
use workload::database::load::dial_tone::read_dial_tone;
use world::World;

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle protect dial-tone mail                  asks for the name of the set
  spindle protect dial-tone mail --dry-run        which databases and volumes, and who uses them
  spindle protect dial-tone mail --yes mail
  spindle protect dial-tone mail --yes mail --hooks site.toml       with the set's hooks, on the mail host
  spindle protect dial-tone mail 17 --yes mail    with the names and tables of backup 17

The databases of Spindle's own format are gone or damaged, and mail must be sent and received now: empty databases of the same \
names, page size and tables, with a new log, take the places of the set's volumes. The newest full backup says which there were. \
End the mail server and log out first: it is refused while a host is connected. What each volume held stays as VOLUME~1, to \
which 'spindle volume rollback' goes back. Numbers of new messages begin above those of the lost databases. Then restore the \
databases beside, with 'spindle protect restore SET BACKUP --as NAME'. If it ends early, give the same command again before a \
host connects. It takes a token with the role admin.

Exits with 0, and with 2 if it was refused or ended early.")]
pub struct DialToneArguments {
    /// Name of the set
    #[arg(value_name = "SET")]
    pub set: String,

    /// Number or name of the backup that says which databases there were [default: the newest full one]
    #[arg(value_name = "BACKUP")]
    pub backup: Option<String>,

    #[command(flatten)]
    pub work: PlaceArguments,

    /// Name of the set, in place of the question on the terminal
    #[arg(long, value_name = "SET")]
    pub yes: Option<String>,
}

/// The answer as JSON.
#[derive(Serialize)]
struct DialToneAnswer<'a> {
    set: &'a str,
    /// The backup that said which databases there were.
    backup: &'a str,
    /// *emptied*, or *looked at* by a dry run.
    done: &'static str,
    databases: Vec<&'a str>,
    volumes: Vec<RestoredRow>,
    /// Commands that bring back what was.
    undo: Vec<String>,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &DialToneArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = &place.connection(world)?;
    let known = &SetPoints::ask(server, &arguments.set).await?;
    let base = known.full_of(known.meant(arguments.backup.as_deref())?)?;
    let points = &points_to_restore(known, base)?;
    let chained = ChainedLogs { world, server, place, console, known, base, points, databases: &[] };
    let change = PlaceChange::dial_tone(&base.name);
    let replacements = Replacements { server, change: &change, points };
    let remedy = "if its databases are good, let the other site take over; or end the group first, which keeps its volumes: \
                  'spindle dr remove'";
    let places = GroupPlaces::look(&chained, &replacements, remedy).await?;
    let (work, is_decided) = (&arguments.work, !places.left.decided.is_empty());
    if !work.dry_run && work.hooks.is_none() {
        places.refuse_used()?;
    }
    if !is_decided {
        Box::pin(refuse_second(&chained, &places.volumes)).await?;
    }
    if work.dry_run {
        let rows = places.taken().map(RestoredVolume::row).collect();
        tell_outlook(arguments, (base, places.databases()), (is_decided, rows), console)?;
        return console.finish(ExitStatus::Pass);
    }
    confirm(arguments, &places.volumes, console)?;
    let named = (arguments.set.as_str(), base.name.as_str());
    let done = HostHooks::around(work.hooks.as_deref(), named, console, async || {
        // As they are once the hook has disconnected this host.
        let volumes = places.unused_volumes(&chained).await?;
        match is_decided {
            true => replacements.take_places(&places.left.decided, &volumes, console).await,
            false => {
                replacements.give_up(&places.left.undecided).await;
                Box::pin(stand_in(&chained, (&replacements, &places.groups), &volumes)).await
            }
        }
    });
    let done = Box::pin(done).await;
    let rows = noted(&chained, (&arguments.set, "dial tone: empty databases"), done).await?;
    let rows = rows.into_iter().filter(|row| row.made.is_some()).collect();
    tell(arguments, (base, places.databases()), rows, console)?;
    console.finish(ExitStatus::Pass)
}

/// Makes the empty databases on clones, which take the places.
async fn stand_in(
    chained: &ChainedLogs<'_>,
    (replacements, groups): (&Replacements<'_>, &[BackupGroup]),
    volumes: &[RestoredVolume],
) -> Result<Vec<RestoredRow>, EarlyEnd> {
    let ChainedLogs { world, server, place, console, known, base, .. } = *chained;
    let source = |index: usize| (index, CloneSource::of_point(&volumes[index].point));
    let wanted = (0..volumes.len()).filter(|&index| !volumes[index].is_done).map(source).collect();
    let name = |point: &BackupPointRow| temporary_clone_name(world, base, point);
    let mut made = replacements.clone(&wanted, name).await?;
    let paths = paths_of(&made);
    let of = ((server, place), (known, base), ("dialtone", console));
    let emptied = MailDatabases::with(world, of.0, of.1, of.2, async |lost: &MailDatabases| {
        chained.make_empty((groups, lost), &paths).await
    });
    replacements.decide_after(Box::pin(emptied).await, &mut made).await?;
    console.say_progress("empty databases are on clones, which change places with the volumes now");
    replacements.take_places(&made, volumes, console).await
}

/// Refuses a dial tone while one is in place. Databases that cannot be read are none.
async fn refuse_second(chained: &ChainedLogs<'_>, volumes: &[RestoredVolume]) -> Result<(), Refusal> {
    let looked = with_live(chained, volumes, async |live| {
        let mut marked = None;
        for database in live.iter().flat_map(|live| &live.databases) {
            if let Ok(Some(_)) = read_dial_tone(database.reader.database()).await {
                marked = Some(format!("{} on {}", database.name, database.point));
            }
        }
        Ok(marked)
    });
    match Box::pin(looked).await? {
        None => Ok(()),
        Some(marked) => Err(Refusal::new(
            format!("a dial tone is in place: {marked} stands in for a lost database; nothing was changed"),
            "let the mail server use it; 'spindle protect restore SET BACKUP --as NAME' brings the lost ones back beside it, and \
             'protect merge' joins the two",
        )),
    }
}

fn confirm(
    arguments: &DialToneArguments,
    volumes: &[RestoredVolume],
    console: &Console,
) -> Result<(), Refusal> {
    let names: Vec<String> =
        volumes.iter().filter(|volume| !volume.is_done).map(RestoredVolume::path).collect();
    let names = names.join(", ");
    let confirmation = NameConfirmation {
        question: &format!("{names} get empty databases; what each holds now stays as ~1, ~2 …"),
        name: &arguments.set,
        meant: "the name of the set: nothing was changed",
        unnamed: &format!("{names} would get empty databases: nothing was changed"),
    };
    confirmation.ask(console, arguments.yes.as_deref())
}

/// Notes what was put into the places, or its early end, in the catalogue of a set that the server keeps.
pub(super) async fn noted(
    chained: &ChainedLogs<'_>,
    (set, what): (&str, &str),
    done: Result<Vec<RestoredRow>, EarlyEnd>,
) -> Result<Vec<RestoredRow>, Refusal> {
    let ChainedLogs { server, console, base, .. } = *chained;
    let problems = match &done {
        Ok(_) => Vec::new(),
        Err(early) if !early.has_changed => return Err(early.refusal.clone()),
        Err(early) => vec![early.refusal.problem().to_owned()],
    };
    let body = RestoreBody {
        what: what.to_owned(),
        to: "in place".to_owned(),
        is_good: problems.is_empty(),
        problems,
    };
    let path = format!("/v1/sets/{}/backups/{}/restores", in_uri(set), base.note.sequence);
    let noting =
        async { server.change_to_its_end(Method::POST, &path, Some(&body)).await?.checked().map(drop) };
    // It stands all the same.
    if let Err(refusal) = noting.await {
        console.warn(&format!("it is not noted: {refusal}"));
    }
    done.map_err(|early| early.refusal)
}

/// Says what a dial tone would do.
fn tell_outlook(
    arguments: &DialToneArguments,
    (base, databases): (&PointsOfBackup, Vec<&str>),
    (is_decided, volumes): (bool, Vec<RestoredRow>),
    console: &Console,
) -> Result<(), Refusal> {
    let set = arguments.set.as_str();
    if is_decided {
        console.say("a dial tone ended early: it would be completed, with the empty databases that it made");
    }
    console.say(&format!("{set}: {} would be empty; nothing was changed", databases.join(" and ")));
    for row in &volumes {
        let used = if row.used_by.is_empty() { "" } else { "; used by " };
        console.say(&format!(
            "  {} gets a clone of {}{used}{}",
            row.volume,
            row.snapshot,
            row.used_by.join(", ")
        ));
    }
    if console.is_for_programs() {
        let (backup, undo) = (base.name.as_str(), Vec::new());
        console.json_of(&DialToneAnswer { set, backup, done: "looked at", databases, volumes, undo })?;
    }
    Ok(())
}

fn tell(
    arguments: &DialToneArguments,
    (base, databases): (&PointsOfBackup, Vec<&str>),
    volumes: Vec<RestoredRow>,
    console: &Console,
) -> Result<(), Refusal> {
    console.say(&format!("{}: {} are empty, and can be used", arguments.set, databases.join(" and ")));
    let left: Vec<&str> = volumes.iter().filter_map(|row| row.made.as_deref()).collect();
    for row in &volumes {
        console.say(&format!("  {}; before: {}", row.volume, row.made.as_deref().unwrap_or_default()));
    }
    let undo: Vec<String> = left.iter().map(|left| format!("spindle volume rollback {left}")).collect();
    console.say(&format!("what was comes back, in place of these, with {}", undo.join(" and ")));
    console.say(&format!(
        "the lost databases come back beside these with 'spindle protect restore {} {} --as NAME', and ⟨logs⟩ with the volume among {} \
         that has their log; then 'spindle protect merge {} --from NAME' joins both",
        arguments.set,
        base.note.sequence,
        left.join(", "),
        arguments.set
    ));
    if console.is_for_programs() {
        let (set, backup) = (arguments.set.as_str(), base.name.as_str());
        console.json_of(&DialToneAnswer { set, backup, done: "emptied", databases, volumes, undo })?;
    }
    Ok(())
}
