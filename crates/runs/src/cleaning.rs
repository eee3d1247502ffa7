//! Removing what Spindle made, only that.
//!
//! The record lists what is Spindle's. Files are removed first, the record last, so that an interrupted clean
//! can be repeated. Files that the record does not list stay, and are named.

use crate::{
    manifest::{MANIFEST_NAME, Manifest, is_harmless},
    observer::RunObserver,
    storage_endpoint::StorageEndpoint,
    survey::StorageSurvey,
};
use report::{Refusal, prose::counted};
use std::path::Path;
use world::{ByteCount, Directory, IoResult, World, real::host_files};

/// Cleans every location of the survey, and tells the observer the outcome of each.
pub async fn clean_all(
    world: &World,
    survey: &StorageSurvey,
    observer: &dyn RunObserver,
) -> Result<(), Refusal> {
    for location in &survey.locations.all {
        let Some(manifest) = location.manifest() else {
            observer.say_always(&format!("{}: nothing of Spindle's is there", location.given.display()));
            continue;
        };
        let outcome = clean(world, &StorageEndpoint::of(&location.facts), manifest).await;
        let outcome = outcome.map_err(|error| {
            Refusal::new(format!("{} could not be cleaned: {error}", location.given.display()), "try again")
        })?;
        observer.say_always(&outcome.line(&location.given, location.is_device()));
    }
    Ok(())
}

/// Tells the observer the files that cleaning would remove, and removes nothing.
pub fn show_all(survey: &StorageSurvey, observer: &dyn RunObserver) {
    for location in &survey.locations.all {
        let given = location.given.display();
        if location.manifest().is_none() {
            observer.say_always(&format!("{given}: nothing of Spindle's is there"));
            continue;
        }
        let made = location.made();
        let bytes = made.values().fold(ByteCount(0), |sum, &size| sum + size);
        let files = counted(made.len() as u64, "file");
        observer.say_always(&format!("{given}: would remove {files} ({bytes}):"));
        for (name, size) in made {
            observer.say_always(&format!("  {name}  {size}"));
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanOutcome {
    /// The record included.
    pub removed: u32,
    pub bytes: ByteCount,
    /// Names of the files that stayed.
    pub kept: Vec<String>,
    /// The location itself was removed (a folder Spindle made) or is blank again (a raw device).
    pub location_gone: bool,
}

/// Removes the files that `manifest` owns at `endpoint`.
pub async fn clean(world: &World, endpoint: &StorageEndpoint, manifest: &Manifest) -> IoResult<CleanOutcome> {
    let mut outcome = {
        let directory = endpoint.open(world).await?;
        remove_owned(&*directory, manifest).await?
    };
    if endpoint.is_device {
        // Names we do not know can only come from a newer Spindle; its device is not ours to wipe.
        outcome.location_gone = outcome.kept.is_empty();
        if outcome.location_gone {
            endpoint.wipe(world).await?;
        }
        return Ok(outcome);
    }
    // A directory lists plain files only; folders and links are foreign too.
    outcome.kept = host_files::list(&endpoint.path)?;
    if manifest.folder_made && outcome.kept.is_empty() {
        outcome.location_gone = host_files::remove_folder_if_empty(&endpoint.path)?;
    }
    outcome.kept.retain(|name| !is_harmless(name));
    Ok(outcome)
}

async fn remove_owned(directory: &dyn Directory, manifest: &Manifest) -> IoResult<CleanOutcome> {
    let mut outcome = CleanOutcome::default();
    let (owned, foreign): (Vec<_>, Vec<_>) =
        directory.list().await?.into_iter().partition(|entry| manifest.owns(&entry.name));
    let (record, files): (Vec<_>, Vec<_>) = owned.into_iter().partition(|entry| entry.name == MANIFEST_NAME);
    for entry in &files {
        directory.remove(&entry.name).await?;
    }
    // The record must not go before the files it names, not even in a power loss.
    directory.sync().await?;
    for entry in &record {
        directory.remove(&entry.name).await?;
    }
    directory.sync().await?;
    for entry in files.iter().chain(&record) {
        outcome.removed += 1;
        outcome.bytes += entry.size;
    }
    outcome.kept = foreign.into_iter().map(|entry| entry.name).collect();
    Ok(outcome)
}

impl CleanOutcome {
    /// The outcome in one line.
    pub fn line(&self, given: &Path, is_device: bool) -> String {
        let mut line =
            format!("{}: removed {} ({})", given.display(), counted(self.removed as u64, "file"), self.bytes);
        match (self.location_gone, is_device) {
            (true, false) => line.push_str(" and the folder"),
            (true, true) => line.push_str(", the device is blank again"),
            (false, _) => {}
        }
        if !self.kept.is_empty() {
            line.push_str(&format!("; left alone: {}", super::location::name_some(&self.kept)));
        }
        line
    }
}
