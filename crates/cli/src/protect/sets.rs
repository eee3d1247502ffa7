//! The verbs about sets that a server keeps: lists, and orders about backups.

use super::{
    backup_points::SetPoints,
    freed_space::FreedSpace,
    set_arguments::{BackupArguments, BackupHoldArguments, SetVerb},
};
use crate::{
    console::Console,
    exit_status::ExitStatus,
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::client::{
    BackupLockBody, Method, NewBackupBody, SetBackupRow, SetKeeperName, SetRow, in_uri,
};
use report::Refusal;
use serde::Serialize;
use world::World;

const PATH: &str = "/v1/sets";

/// A set with its backups, as JSON.
#[derive(Serialize)]
struct ListedSet {
    #[serde(flatten)]
    row: SetRow,
    /// By the number of the backup: what its deletion alone would free.
    #[serde(skip_serializing_if = "Option::is_none")]
    frees_bytes: Option<FreedSpace>,
}

/// The answer to a deletion as JSON.
#[derive(Serialize)]
struct DeletedBackup<'a> {
    set: &'a str,
    number: u64,
    done: &'static str,
}

/// Runs a verb to its end.
pub async fn run(
    world: &World,
    verb: &SetVerb,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    match verb {
        SetVerb::List { set: None, space } => {
            let rows: Vec<SetRow> = server.get(PATH).await?;
            let mut listed = Vec::new();
            for row in rows {
                listed.push(ListedSet::of(row, *space, &server).await?);
            }
            if console.is_for_programs() {
                console.json_of(&listed)?;
            }
            for set in &listed {
                set.say(&server, console).await?;
            }
            if listed.is_empty() {
                console.say("no sets: [[protect]] of the site file describes them (docs/protect.md)");
            }
        }
        SetVerb::List { set: Some(set), space } => {
            let listed = ListedSet::of(server.get(&path_of(set)).await?, *space, &server).await?;
            if console.is_for_programs() {
                console.json_of(&listed)?;
            }
            listed.say(&server, console).await?;
        }
        SetVerb::Now { set, hold } => {
            let path = format!("{}/backups", path_of(set));
            let body = NewBackupBody { hold: hold.clone() };
            let reply = server.change_to_its_end(Method::POST, &path, Some(&body)).await?;
            done(&reply.parsed()?, "made", console)?;
        }
        SetVerb::Hold(hold) => done(&change(&server, Method::PUT, &hold_path(hold)).await?, "held", console)?,
        SetVerb::Release(hold) => {
            done(&change(&server, Method::DELETE, &hold_path(hold)).await?, "released", console)?;
        }
        SetVerb::Lock { backup, span } => {
            let for_seconds = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
            let path = format!("{}/lock", backup_path(backup));
            let reply =
                server.change_to_its_end(Method::PUT, &path, Some(&BackupLockBody { for_seconds })).await?;
            done(&reply.parsed()?, "locked", console)?;
        }
        SetVerb::Delete { backup, last } => {
            let query = if *last { "?last=true" } else { "" };
            let path = format!("{}{query}", backup_path(backup));
            server.change_to_its_end(Method::DELETE, &path, None::<&()>).await?.checked()?;
            let BackupArguments { set, number } = backup;
            if console.is_for_programs() {
                console.json_of(&DeletedBackup { set, number: *number, done: "deleted" })?;
            }
            console.say(&format!("{set} {number}: deleted"));
        }
    }
    console.finish(ExitStatus::Pass)
}

async fn change(server: &ServerConnection, method: Method, path: &str) -> Result<SetBackupRow, Refusal> {
    server.change_to_its_end(method, path, None::<&()>).await?.parsed()
}

fn path_of(set: &str) -> String {
    format!("{PATH}/{}", in_uri(set))
}

fn backup_path(BackupArguments { set, number }: &BackupArguments) -> String {
    format!("{}/backups/{number}", path_of(set))
}

fn hold_path(BackupHoldArguments { backup, hold }: &BackupHoldArguments) -> String {
    format!("{}/holds/{}", backup_path(backup), in_uri(hold))
}

fn done(row: &SetBackupRow, what: &str, console: &Console) -> Result<(), Refusal> {
    if console.is_for_programs() {
        console.json_of(row)?;
    }
    console.say(&format!("{}: {what}; {}", row.name, backup_text(row, true)));
    Ok(())
}

impl ListedSet {
    async fn of(row: SetRow, with_space: bool, server: &ServerConnection) -> Result<Self, Refusal> {
        let frees_bytes = match with_space {
            true => Some(FreedSpace::count(server, &row.name).await?),
            false => None,
        };
        Ok(Self { row, frees_bytes })
    }

    async fn say(&self, server: &ServerConnection, console: &Console) -> Result<(), Refusal> {
        let freed = |number| self.frees_bytes.as_ref().map(|space| space.text(number)).unwrap_or_default();
        say_set(&self.row, &freed, console);
        say_of_agent(&self.row, &freed, server, console).await
    }
}

/// `freed` has the words about the space of each backup.
fn say_set(row: &SetRow, freed: &dyn Fn(u64) -> String, console: &Console) {
    let volume = |one: &control::web::client::SetVolumeRow| {
        let suffix = if one.holds_logs { " (logs)" } else { "" };
        format!("{}/{}{suffix}", one.pool, one.volume)
    };
    let volumes: Vec<String> = row.volumes.iter().map(volume).collect();
    let schedules = row.schedules.join(", ");
    console.say(&format!("{}: {schedules} in {}: {}", row.name, row.zone, volumes.join(", ")));
    if row.kept_by == SetKeeperName::Agent {
        console.say("  an agent on the mail host keeps it: 'spindle protect run'");
    }
    if let Some(verification) = &row.verification {
        console.say(&format!("  verified: {}", verification.text));
    }
    if let Some(vault) = &row.vault {
        console.say(&format!("  copied: {}", vault.text));
        if let Some(why) = &vault.not_copied {
            console.warn(&format!("set {}: the last copy did not end: {why}", row.name));
        }
    }
    if let Some(drill) = &row.drill {
        console.say(&format!("  drills: {}", drill.text));
    }
    if let Some(next) = &row.next_at {
        console.say(&format!("  next backup {next}"));
    }
    if let Some(until) = &row.summed_until {
        console
            .say(&format!("  records before {until} are summed up, a line a day: 'spindle protect report'"));
    }
    say_replication(row, console);
    for text in row.problems.values() {
        console.warn(&format!("set {}: {text}", row.name));
    }
    let is_kept = row.replication.as_ref().is_none_or(|replication| replication.role == "keeps");
    for backup in &row.backups {
        let (number, freed) = (backup.number, freed(backup.number));
        console.say(&format!("  {number} {}: {}{freed}", backup.at, backup_text(backup, is_kept)));
    }
    if row.backups.is_empty() && row.kept_by == SetKeeperName::Server {
        console.say("  no backups yet");
    }
}

/// The part of this site in a set whose volumes lie in DR groups.
fn say_replication(row: &SetRow, console: &Console) {
    let Some(replication) = &row.replication else { return };
    match (replication.role.as_str(), replication.text.as_str()) {
        ("keeps", "") => console.say(&format!("  kept here; site {} follows", replication.site)),
        ("keeps", text) => console.warn(&format!("set {}: {text}", row.name)),
        ("divided", text) => console.warn(&format!("set {}: {text}", row.name)),
        (_, text) => console.say(&format!("  not kept here: {text}")),
    }
}

/// The backups of a set that an agent keeps, as far as their points tell.
async fn say_of_agent(
    row: &SetRow,
    freed: &dyn Fn(u64) -> String,
    server: &ServerConnection,
    console: &Console,
) -> Result<(), Refusal> {
    if row.kept_by != SetKeeperName::Agent {
        return Ok(());
    }
    let known = SetPoints::ask(server, &row.name).await?;
    for backup in known.backups().rev() {
        let (number, points) = (backup.note.sequence, backup.points.len());
        let missing = if points == backup.note.points as usize { "" } else { ", others are missing" };
        console.say(&format!(
            "  {number} {}: {}; {points} snapshots{missing}{}",
            backup.name,
            backup.label_text(),
            freed(number)
        ));
    }
    if !known.silent_text().is_empty() {
        console.warn(&format!("set {}{}", row.name, known.silent_text()));
    }
    Ok(())
}

/// `full, crash, unproven; stays: schedule of 1h, held: upgrade`.
fn backup_text(row: &SetBackupRow, is_kept: bool) -> String {
    let stays = match &row.stays[..] {
        // The site that keeps the set decides whether it stays.
        [] if !is_kept => held_text(row),
        [] => "goes after the next backup".to_owned(),
        reasons => format!("stays: {}", reasons.join(", ")),
    };
    // A kind of its own is said once.
    let label = if row.kind == row.label { row.kind.clone() } else { format!("{}, {}", row.kind, row.label) };
    let proof = match &row.not_verified {
        Some(why) => format!("{} (not verified yet: {why})", row.proof),
        None => row.proof.clone(),
    };
    // Only in DR groups are there several places for it.
    let by = row.verified_by.as_ref().filter(|_| !row.sites.is_empty());
    let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
    let copies = match &row.copies[..] {
        [] => String::new(),
        places => format!(", copied to {}", places.join(", ")),
    };
    let sites = match &row.sites[..] {
        [] => String::new(),
        sites => format!(", at {}", sites.join(" and ")),
    };
    format!("{label}, {proof}{by}{sites}{copies}; {stays}")
}

fn held_text(row: &SetBackupRow) -> String {
    match &row.holds[..] {
        [] => "kept by the other site".to_owned(),
        holds => format!("held: {}", holds.join(", ")),
    }
}
