//! `spindle protect vault list`.

use super::{arguments::VaultListArguments, opening::OpenVault};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use vault::{
    contents::{CopiedBackup, copied_backups},
    record::BackupRecord,
};
use world::{ByteCount, World};

/// A backup as JSON.
#[derive(Serialize)]
struct ListedCopy<'a> {
    /// Name of the snapshot.
    snapshot: String,
    copied_at: &'a str,
    #[serde(flatten)]
    record: &'a BackupRecord,
}

impl<'a> ListedCopy<'a> {
    fn of(copy: &'a CopiedBackup) -> Self {
        let (snapshot, copied_at) = (copy.id.to_string(), copy.snapshot.time.as_str());
        Self { snapshot, copied_at, record: &copy.record }
    }
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultListArguments,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let vault = OpenVault::open(world, &arguments.vault, &arguments.password).await?;
    let mut copies = copied_backups(&vault.repository).await.map_err(|error| vault.refused(&error))?;
    copies.retain(|copy| arguments.set.as_ref().is_none_or(|set| copy.record.set == *set));
    if copies.is_empty() {
        console.say(&format!("{}: no backups", vault.place()));
    }
    copies.iter().for_each(|copy| console.say(&line(copy)));
    if console.is_for_programs() {
        let rows: Vec<ListedCopy<'_>> = copies.iter().map(ListedCopy::of).collect();
        console.json_of(&rows)?;
    }
    console.finish(ExitStatus::Pass)
}

/// `mail 17 2026-11-28T18:30:00Z: full, application; mail-…-17; dbs/store 1 GiB, …; snapshot 0123abcd`.
fn line(copy: &CopiedBackup) -> String {
    let BackupRecord { set, backup, kind, label, name, volumes, cut_at, .. } = &copy.record;
    let volumes: Vec<String> =
        volumes.iter().map(|volume| format!("{} {}", volume.path(), ByteCount(volume.size_bytes))).collect();
    let (at, volumes) = (cut_at.as_deref().unwrap_or(&copy.snapshot.time), volumes.join(", "));
    format!("{set} {backup} {at}: {kind}, {label}; {name}; {volumes}; snapshot {}", copy.id.short())
}
