//! All pools that are found by the superblocks of their drives, opened for reading without a folder or a record.
//!
//! Nothing is written to a drive. A pool whose drives are files is locked while it is read.

use super::{
    drive_opening::{OpenFailure, open_sighted},
    drive_search::check_one_disk,
    folder::{READ_ONLY_CACHE_BYTES, hold},
    import::{FoundPool, ImportAnswer, ImportRequest, find, folder_for, is_file},
    record::{PoolRecord, is_pool},
    sighting::Sighting,
};
use crate::notices::Notices;
use array::{
    format::PoolId,
    pool::{ReadOnlyPool, open_read_only},
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, World,
    real::{
        AccessMode,
        host_files::{self, FolderLock, PathKind},
    },
};

/// A pool that was found and opened for reading.
pub struct PoolOnDrives {
    pub id: PoolId,
    /// Its name, as its drives have it.
    pub name: String,
    pub pool: Rc<ReadOnlyPool>,
    /// The folder in which its drives are files; `None` of devices.
    pub files_in: Option<PathBuf>,
    /// Paths of its drives that stay the same over restarts, or URIs; none of files.
    pub devices: Vec<String>,
    found: FoundPool,
    #[expect(dead_code, reason = "held until it is dropped")]
    held: Option<FolderLock>,
}

/// A pool that was found and could not be read.
pub struct UnreadPool {
    pub id: PoolId,
    pub answer: ImportAnswer,
    pub refusal: Refusal,
}

/// The pools whose drives are found at the places of the request, in folders directly below them too, or without places
/// on all block devices; each by itself.
///
/// # Errors
///
/// A place is not there. What cannot be read is told to `notices`.
pub async fn read_all(
    world: &World,
    request: &ImportRequest<'_>,
    notices: &dyn Notices,
) -> Result<(Vec<PoolOnDrives>, Vec<UnreadPool>), Refusal> {
    let places: Vec<PathBuf> = request.places.iter().flat_map(|place| with_folders_below(place)).collect();
    let request = ImportRequest { places: &places, ..*request };
    let (mut read, mut unread) = (Vec::new(), Vec::new());
    for found in find(world, &request, notices).await? {
        let (id, answer) = (found.pool, found.shown(None));
        match PoolOnDrives::open(world, found, &request).await {
            Ok(pool) => read.push(pool),
            Err(refusal) => unread.push(UnreadPool { id, answer, refusal }),
        }
    }
    Ok((read, unread))
}

/// The first path to a drive that opens, or all reasons.
async fn first_open(world: &World, sightings: &[Sighting]) -> Result<Rc<dyn BlockDevice>, String> {
    let mut failures = Vec::new();
    for sighting in sightings {
        match open_sighted(world, sighting, AccessMode::Read).await {
            Ok(open) => return Ok(open.device),
            Err(OpenFailure::Denied(why) | OpenFailure::Other(why)) => failures.push(why),
        }
    }
    Err(failures.join("; "))
}

/// The reason why the pool's rows may not be the newest: a list of volumes of last week would have a server make the others
/// again, empty.
fn lacking(pool: &ReadOnlyPool) -> Option<String> {
    let condition = pool.condition();
    if let Some(gap) = condition.catalogue_gaps.first() {
        return Some(format!("a part of its list of volumes cannot be read: {gap}"));
    }
    if !condition.may_be_older() {
        return None;
    }
    let absent = condition.drives.iter().filter(|drive| drive.given.is_none());
    let names: Vec<String> = absent.map(|drive| format!("{} ({})", drive.serial, drive.drive)).collect();
    Some(match names.as_slice() {
        [] => "what its drives say is not the last that was written".to_owned(),
        names => format!(
            "what is there may be older than what is on the drives that are missing: {}",
            names.join(", ")
        ),
    })
}

fn with_folders_below(place: &Path) -> Vec<PathBuf> {
    let mut places = vec![place.to_owned()];
    if matches!(host_files::kind(place), Ok(PathKind::Folder)) {
        let names = host_files::list(place).unwrap_or_default();
        let below = names.iter().filter(|name| !name.starts_with('.')).map(|name| place.join(name));
        places.extend(below.filter(|path| matches!(host_files::kind(path), Ok(PathKind::Folder))));
    }
    places
}

impl PoolOnDrives {
    async fn open(world: &World, found: FoundPool, request: &ImportRequest<'_>) -> Result<Self, Refusal> {
        let name = found.newest().name.clone();
        for sightings in found.drives.values() {
            check_one_disk(Path::new(&name), sightings)?;
        }
        let is_of_files = found.drives.values().flatten().any(is_file);
        let files_in = match is_of_files {
            true => Some(folder_for(&found, request)?),
            false => None,
        };
        let held = files_in.as_deref().map(hold).transpose()?;
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        let mut failures = Vec::new();
        for sightings in found.drives.values() {
            match first_open(world, sightings).await {
                Ok(device) => devices.push(device),
                Err(why) => failures.push(why),
            }
        }
        let remedy = "connect its other drives, and end what uses them";
        let with_failures = |problem: String| match failures.as_slice() {
            [] => problem,
            failures => format!("{problem}; {}", failures.join("; ")),
        };
        let refused = |error: array::error::Error| Refusal::new(with_failures(error.to_string()), remedy);
        let pool = open_read_only(&devices, READ_ONLY_CACHE_BYTES).await.map_err(refused)?;
        if let Some(problem) = lacking(&pool) {
            return Err(Refusal::new(with_failures(problem), remedy));
        }
        let lasting = found.record(Path::new("")).drives.into_iter();
        let devices = lasting.map(|drive| drive.path.display().to_string());
        let devices = if is_of_files { Vec::new() } else { devices.collect() };
        Ok(Self { id: found.pool, name, pool, files_in, devices, found, held })
    }

    /// The drives that were found, and those that were not.
    pub fn shown(&self) -> ImportAnswer {
        self.found.shown(None)
    }

    /// The number of drives that were found.
    pub fn drives(&self) -> usize {
        self.found.drives.len()
    }

    /// Writes the pool's record into a folder, which is made if it is missing. False if the folder has one of this pool.
    ///
    /// # Errors
    ///
    /// The folder has the record of another pool, or cannot be written.
    pub fn write_record(&self, folder: &Path) -> Result<bool, Refusal> {
        if is_pool(folder) {
            return match PoolRecord::read(folder)?.pool {
                None => Err(Refusal::new(
                    format!("{} has a record that does not name its pool", folder.display()),
                    "open the pool once with 'spindle pool show', or move the record away",
                )),
                Some(pool) if pool == self.id => Ok(false),
                Some(other) => Err(Refusal::new(
                    format!("{} is the folder of another pool, {other}", folder.display()),
                    "name another folder of the server with ⟨state⟩ FOLDER",
                )),
            };
        }
        host_files::create_dir_all(folder)
            .map_err(|error| Refusal::new(error.to_string(), "check the folder"))?;
        self.found.record(folder).write(folder)?;
        Ok(true)
    }
}
