//! Storage groups for those who open them where they lie, with an engine that writes.

use super::group_files::{GroupFiles, StorageGroupLayout};
use crate::running::{
    places::{Candidate, FileDiscovery},
    rate_limiter::RateLimiter,
    resume::ResumeError,
    run::{Settings, run},
};
use maildb::InstanceConfig;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::World;

/// A storage group that Spindle's own engine can open.
#[derive(Clone, Debug)]
pub struct StorageGroupPlace {
    /// The folder or device with its log, as it is shown.
    pub log: PathBuf,
    /// Its databases in their order: the folder or device, and the name there.
    pub databases: Vec<(PathBuf, String)>,
    /// Settings that go with its files.
    pub config: InstanceConfig,
}

/// Storage groups, and the reasons why the engine cannot open others.
#[derive(Debug, Default)]
pub struct StorageGroupPlaces {
    pub groups: Vec<StorageGroupPlace>,
    pub problems: Vec<String>,
}

/// Finds the storage groups among the files that were found. All is only read.
///
/// # Errors
///
/// Nothing can be read there.
pub async fn storage_groups(
    world: &World,
    settings: &Settings,
    found: FileDiscovery,
    limiter: &RateLimiter,
) -> Result<StorageGroupPlaces, ResumeError> {
    let candidates = found.candidates.clone();
    let looked = run(world, settings, found, limiter, None).await?;
    let by_path: BTreeMap<&Path, &Candidate> = candidates.iter().map(|one| (one.path(), one)).collect();
    let mut all = StorageGroupPlaces { groups: Vec::new(), problems: looked.failures };
    for group in GroupFiles::all(&looked.files) {
        let layout = match group.why_not(&looked.sets) {
            Some(why) => Err(why),
            None => group.layout(&by_path).await,
        };
        match layout {
            Ok(layout) => all.groups.push(place_of(layout)),
            Err(why) => all.problems.push(format!("{}: {why}", group.names().join(", "))),
        }
    }
    Ok(all)
}

fn place_of(StorageGroupLayout { log, databases, config }: StorageGroupLayout) -> StorageGroupPlace {
    let databases = databases.iter().map(|one| (one.place.folder(), one.place.name())).collect();
    StorageGroupPlace { log: log.folder(), databases, config }
}
