//! Removing what Spindle made, only that.
//!
//! The record says what is Spindle's. Files go first, the record last, so that a clean that was cut
//! short can be done again. What the record does not name stays, and is named.

use super::{
    ground::Door,
    manifest::{MANIFEST_NAME, Manifest, is_harmless},
    survey::Survey,
};
use crate::{console::Console, ending::Ending, refusal::Refusal};
use report::prose::counted;
use std::path::Path;
use world::{ByteCount, Directory, IoResult, World, real::host_files};

/// Cleans every place of the survey and says what became of each.
pub async fn clean_all(world: &World, survey: &Survey, console: &Console) -> Result<Ending, Refusal> {
    for place in &survey.places.all {
        let Some(manifest) = place.manifest() else {
            console.say_always(&format!("{}: nothing of Spindle's is there", place.given.display()));
            continue;
        };
        let cleaned = clean(world, &Door::of(&place.ground), manifest).await.map_err(|error| {
            Refusal::new(format!("{} could not be cleaned: {error}", place.given.display()), "try again")
        })?;
        console.say_always(&cleaned.line(&place.given, place.is_device()));
    }
    Ok(Ending::Pass)
}

/// Says what cleaning would remove, and removes nothing.
pub fn show_all(survey: &Survey, console: &Console) -> Ending {
    for place in &survey.places.all {
        let given = place.given.display();
        if place.manifest().is_none() {
            console.say_always(&format!("{given}: nothing of Spindle's is there"));
            continue;
        }
        let made = place.made();
        let bytes = made.values().fold(ByteCount(0), |sum, &size| sum + size);
        console
            .say_always(&format!("{given}: would remove {} ({bytes}):", counted(made.len() as u64, "file")));
        for (name, size) in made {
            console.say_always(&format!("  {name}  {size}"));
        }
    }
    console.say("Nothing was removed: this was a dry run.");
    Ending::Pass
}

/// What became of one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Files removed, the record included.
    pub removed: u32,
    /// Their bytes.
    pub bytes: ByteCount,
    /// Names of what stayed.
    pub kept: Vec<String>,
    /// The place itself is gone (a folder Spindle made) or blank (a raw device).
    pub place_gone: bool,
}

/// Removes the files that `manifest` owns from the place behind `door`.
pub async fn clean(world: &World, door: &Door, manifest: &Manifest) -> IoResult<Cleaned> {
    let mut cleaned = {
        let directory = door.open(world).await?;
        remove_owned(&*directory, manifest).await?
    };
    if door.is_device {
        // Names we do not know can only come from a newer Spindle; its device is not ours to wipe.
        cleaned.place_gone = cleaned.kept.is_empty();
        if cleaned.place_gone {
            door.wipe(world).await?;
        }
        return Ok(cleaned);
    }
    // A directory lists plain files only; folders and links are foreign too.
    cleaned.kept = host_files::list(&door.path)?;
    if manifest.folder_made && cleaned.kept.is_empty() {
        cleaned.place_gone = host_files::remove_folder_if_empty(&door.path)?;
    }
    cleaned.kept.retain(|name| !is_harmless(name));
    Ok(cleaned)
}

async fn remove_owned(directory: &dyn Directory, manifest: &Manifest) -> IoResult<Cleaned> {
    let mut cleaned = Cleaned::default();
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
        cleaned.removed += 1;
        cleaned.bytes += entry.size;
    }
    cleaned.kept = foreign.into_iter().map(|entry| entry.name).collect();
    Ok(cleaned)
}

impl Cleaned {
    /// What happened, in one line.
    pub fn line(&self, given: &Path, is_device: bool) -> String {
        let mut line =
            format!("{}: removed {} ({})", given.display(), counted(self.removed as u64, "file"), self.bytes);
        match (self.place_gone, is_device) {
            (true, false) => line.push_str(" and the folder"),
            (true, true) => line.push_str(", the device is blank again"),
            (false, _) => {}
        }
        if !self.kept.is_empty() {
            line.push_str(&format!("; left alone: {}", super::place::name_some(&self.kept)));
        }
        line
    }
}
