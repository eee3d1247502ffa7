//! `spindle protect vault restore`.

use super::{
    arguments::VaultRestoreArguments,
    opening::OpenVault,
    targets::{ImageTarget, ServedTarget, remote_target},
    watch::VaultWatch,
};
use crate::{console::Console, exit_status::ExitStatus, server::place::ServerPlace};
use report::Refusal;
use serde::Serialize;
use vault::{
    contents::{CopiedBackup, CopiedVolume, copied_backups},
    locks::{LockKind, VaultLock},
    record::VolumeRecord,
    restoring::{self, VaultRestoreTarget, VolumeRestoreOutcome},
};
use world::{ByteCount, World};

/// The answer as JSON.
#[derive(Serialize)]
struct VaultRestoreAnswer<'a> {
    set: &'a str,
    backup: &'a str,
    volumes: Vec<RestoredCopy>,
}

#[derive(Serialize)]
struct RestoredCopy {
    /// `POOL/VOLUME`.
    volume: String,
    /// File, URI, or volume of the server.
    to: String,
    size_bytes: u64,
    written_bytes: u64,
    /// Bytes that were there already, of a restore that ended early.
    found_bytes: u64,
}

/// Runs the verb to its end.
pub async fn run(
    world: &World,
    arguments: &VaultRestoreArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    let vault = OpenVault::open(world, &arguments.from, &arguments.password).await?;
    // A vault that cannot be written cannot change, either.
    let lock = VaultLock::take_if_writable(&vault.repository, LockKind::Shared).await;
    let lock = lock.map_err(|error| vault.refused(&error))?;
    let restored = restore_all(world, (arguments, place), (&vault, lock.as_ref()), console).await;
    if let Some(lock) = lock {
        lock.release().await.map_err(|error| vault.refused(&error))?;
    }
    let (backup, volumes) = restored?;
    for RestoredCopy { volume, to, size_bytes, found_bytes, .. } in &volumes {
        let found = match found_bytes {
            0 => String::new(),
            found => format!("; {} of it were there already", ByteCount(*found)),
        };
        console.say(&format!("{volume} of {backup}: restored to {to} ({}){found}", ByteCount(*size_bytes)));
    }
    if console.is_for_programs() {
        console.json_of(&VaultRestoreAnswer { set: &arguments.set, backup: &backup, volumes })?;
    }
    console.finish(ExitStatus::Pass)
}

async fn restore_all(
    world: &World,
    (arguments, place): (&VaultRestoreArguments, &ServerPlace),
    (vault, lock): (&OpenVault, Option<&VaultLock>),
    console: &Console,
) -> Result<(String, Vec<RestoredCopy>), Refusal> {
    let copies = copied_backups(&vault.repository).await.map_err(|error| vault.refused(&error))?;
    let copy = chosen(&copies, arguments, vault)?;
    let volumes = chosen_volumes(copy, arguments)?;
    let mut restored = Vec::new();
    for record in volumes {
        let volume = CopiedVolume::open(&vault.repository, copy, record).await;
        let volume = volume.map_err(|error| vault.refused(&error))?;
        let one = OneRestore { world, vault, lock, console, volume: &volume };
        let (to, outcome) = one.run(arguments, place).await?;
        let VolumeRestoreOutcome { written_bytes, found_bytes } = outcome;
        let (volume, size_bytes) = (record.path(), record.size_bytes);
        restored.push(RestoredCopy { volume, to, size_bytes, written_bytes, found_bytes });
    }
    Ok((copy.record.name.clone(), restored))
}

/// The copy that the arguments name: the newest, if the backup was copied more than once.
fn chosen<'c>(
    copies: &'c [CopiedBackup],
    arguments: &VaultRestoreArguments,
    vault: &OpenVault,
) -> Result<&'c CopiedBackup, Refusal> {
    let (set, meant) = (&arguments.set, &arguments.backup);
    let is_meant = |copy: &&CopiedBackup| {
        let record = &copy.record;
        record.set == *set && (record.name == *meant || record.backup.to_string() == *meant)
    };
    let meant_copies: Vec<&CopiedBackup> = copies.iter().filter(is_meant).collect();
    let show = format!("see 'spindle protect vault list {}'", vault.place());
    let Some(last) = meant_copies.last() else {
        return Err(Refusal::new(format!("{} has no backup {meant} of {set}", vault.place()), show));
    };
    if let Some(other) = meant_copies.iter().find(|copy| copy.record.catalogue != last.record.catalogue) {
        let names = format!("{}, {}", other.record.name, last.record.name);
        return Err(Refusal::new(
            format!("{} has backups {meant} of several catalogues of {set}: {names}", vault.place()),
            "say the name of one",
        ));
    }
    Ok(last)
}

fn chosen_volumes<'c>(
    copy: &'c CopiedBackup,
    arguments: &VaultRestoreArguments,
) -> Result<Vec<&'c VolumeRecord>, Refusal> {
    let is_meant =
        |volume: &&VolumeRecord| arguments.volume.as_ref().is_none_or(|meant| volume.path() == *meant);
    let volumes: Vec<&VolumeRecord> = copy.record.volumes.iter().filter(is_meant).collect();
    let known: Vec<String> = copy.record.volumes.iter().map(VolumeRecord::path).collect();
    let known = known.join(", ");
    if volumes.is_empty() {
        return Err(Refusal::new(
            format!("{} has no such volume", copy.record.name),
            format!("it has {known}"),
        ));
    }
    if arguments.target.to.is_some() && volumes.len() > 1 {
        return Err(Refusal::new(
            format!("{} has several volumes, and --to names one device", copy.record.name),
            format!("say --volume POOL/VOLUME: {known}"),
        ));
    }
    Ok(volumes)
}

/// The restore of one volume.
struct OneRestore<'r> {
    world: &'r World,
    vault: &'r OpenVault,
    lock: Option<&'r VaultLock>,
    console: &'r Console,
    volume: &'r CopiedVolume,
}

impl OneRestore<'_> {
    async fn run(
        &self,
        arguments: &VaultRestoreArguments,
        place: &ServerPlace,
    ) -> Result<(String, VolumeRestoreOutcome), Refusal> {
        let target = &arguments.target;
        if let Some(folder) = &target.to_file {
            let image = ImageTarget::open(folder, &self.volume.record).await?;
            let outcome = self.write(&image.target).await?;
            return Ok((image.finish()?, outcome));
        }
        if let Some(uri) = &target.to {
            let target = remote_target(self.world, uri, &arguments.remote).await?;
            let outcome = self.write(&target).await?;
            return Ok((target.name, outcome));
        }
        let pool = target.to_pool.as_deref().expect("one of the three is required");
        let server = place.connection(self.world)?;
        let served = ServedTarget::open(self.world, (&server, place), pool, &self.volume.record).await?;
        let outcome = self.write(&served.target).await;
        let to = served.finish().await?;
        Ok((to, outcome?))
    }

    async fn write(&self, target: &VaultRestoreTarget) -> Result<VolumeRestoreOutcome, Refusal> {
        let watch = VaultWatch::begin(self.world, self.console, "restore");
        let restored =
            restoring::restore(&self.vault.repository, self.volume, target, self.lock, &watch.job).await;
        watch.end();
        restored.map_err(|error| self.vault.refused(&error))
    }
}
