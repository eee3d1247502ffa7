//! `spindle protect vault copy`.

use super::{
    arguments::VaultCopyArguments,
    copying::{BackupCopier, CopyingWay, note_copy},
    opening::OpenVault,
    watch::VaultWatch,
};
use crate::{
    console::Console, exit_status::ExitStatus, protect::backup_points::SetPoints, server::place::ServerPlace,
};
use control::web::client::{SetKeeperName, SetRow, in_uri};
use report::Refusal;
use serde::Serialize;
use world::{ByteCount, World};

/// The answer as JSON.
#[derive(Serialize)]
struct CopyAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    vault: String,
    /// Name of the snapshot there.
    snapshot: String,
    /// The vault had it already.
    was_there: bool,
    read_bytes: u64,
    stored_bytes: u64,
    /// Volumes that were read as a whole.
    read_whole: Vec<String>,
    /// The catalogue of the set has it.
    is_noted: bool,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultCopyArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let server = place.connection(world)?;
    let known = SetPoints::ask(&server, &arguments.set).await?;
    let backup = known.meant(arguments.backup.as_deref())?;
    let vault = OpenVault::open(world, &arguments.to, &arguments.password).await?;
    let row: SetRow = server.get(&format!("/v1/sets/{}", in_uri(&arguments.set))).await?;
    let copier = BackupCopier { world, server: &server, place, vault: &vault };
    let way = CopyingWay { chunk: arguments.chunk, throttle: arguments.throttle, stay: None };
    let watch = VaultWatch::begin(world, console, "copy");
    let made = copier.copy((&known, backup, &row), way, &watch.job).await;
    watch.end();
    let made = made?;
    let name = &backup.name;
    if made.was_there {
        console.say(&format!("{name}: {} has it already", vault.place()));
    } else {
        let (read, stored) = (ByteCount(made.read_bytes), ByteCount(made.stored_bytes));
        console.say(&format!("{name}: copied to {}: {read} read, {stored} stored", vault.place()));
    }
    for (volume, why) in &made.whole {
        console.say(&format!("  {volume}: all that is allocated was read: {why}"));
    }
    if made.resumed_packs > 0 {
        console.say(&format!("  {} packs of a copy that ended early were used", made.resumed_packs));
    }
    let is_noted = row.kept_by == SetKeeperName::Server;
    let known = row.backups.iter().find(|known| known.number == backup.note.sequence);
    let has_note = known.is_some_and(|known| known.copies.contains(&vault.noted_place()));
    // One that was there already may not have been noted: its copier died.
    if is_noted && !(made.was_there && has_note) {
        note_copy(&server, (&arguments.set, backup.note.sequence), &made.body(&vault)).await?;
    } else if !is_noted && !made.was_there {
        console.warn("an agent keeps the set: its catalogue does not have this copy");
    }
    if console.is_for_programs() {
        console.json_of(&CopyAnswer {
            set: &arguments.set,
            backup: name,
            vault: vault.place(),
            read_whole: made.whole.iter().map(|(volume, _)| volume.clone()).collect(),
            snapshot: made.snapshot,
            was_there: made.was_there,
            read_bytes: made.read_bytes,
            stored_bytes: made.stored_bytes,
            is_noted,
        })?;
    }
    console.finish(ExitStatus::Pass)
}
