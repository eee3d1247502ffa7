//! Pools found by the superblocks of their drives, from which a lost record is written again.

use super::{
    drive_search::check_one_disk,
    folder::hold,
    record::{Hardware, PoolRecord, RECORD_NAME, RecordedDrive, is_pool},
    remote_drive::{DrivePlace, to_record},
    sighting::{Observation, PathIdentity, Sighting, all_devices, files_in, look_at_all},
};
use crate::{
    notices::Notices,
    remote::{RemoteSettings, is_uri},
    uuid::parse_uuid,
};
use array::format::{DriveId, Member, PoolId, Superblock};
use report::Refusal;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use world::{
    World,
    real::host_files::{self, PathKind},
};

pub struct ImportRequest<'a> {
    /// Folders, files, devices and URIs to search; all block devices if empty.
    pub places: &'a [PathBuf],
    /// What the servers of the URIs ask for.
    pub access: &'a RemoteSettings,
    /// Name or UUID of the pool.
    pub pool: Option<&'a str>,
    /// Folder for the record.
    pub into: Option<&'a Path>,
}

/// A pool, by the drives that were found.
pub(super) struct FoundPool {
    pub(super) pool: PoolId,
    /// The paths that lead to each drive.
    pub(super) drives: BTreeMap<DriveId, Vec<Sighting>>,
}

#[derive(Serialize)]
pub struct ImportAnswer {
    pub pool: String,
    pub name: String,
    pub drives: Vec<ImportedDrive>,
    /// Members that were not found.
    pub missing: Vec<MissingDrive>,
    /// Folder of the record, if one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
}

#[derive(Serialize)]
pub struct ImportedDrive {
    pub drive: String,
    pub name: String,
    pub path: PathBuf,
    /// Generation of its superblock: the highest is the newest.
    pub generation: u64,
    #[serde(flatten)]
    pub hardware: Hardware,
}

#[derive(Serialize)]
pub struct MissingDrive {
    pub drive: String,
    /// Label printed on the drive, or the file's name.
    pub known_as: String,
}

/// The pools whose drives are found.
pub async fn list(
    world: &World,
    request: &ImportRequest<'_>,
    notices: &dyn Notices,
) -> Result<Vec<ImportAnswer>, Refusal> {
    let pools = find(world, request, notices).await?;
    Ok(pools.iter().map(|pool| pool.shown(None)).collect())
}

/// Writes the record of the only pool found.
pub async fn import(
    world: &World,
    request: &ImportRequest<'_>,
    notices: &dyn Notices,
) -> Result<ImportAnswer, Refusal> {
    let pool = one_of(find(world, request, notices).await?)?;
    let folder = folder_for(&pool, request)?;
    for sightings in pool.drives.values() {
        check_one_disk(&folder, sightings)?;
    }
    if is_pool(&folder) {
        let problem = format!("{} has a record already", folder.display());
        let remedy = format!(
            "'spindle pool show {0}' says what it has; else move {0}/{RECORD_NAME} away",
            folder.display()
        );
        return Err(Refusal::new(problem, remedy));
    }
    let is_new = matches!(host_files::kind(&folder), Ok(PathKind::Missing));
    let storage = |error: world::IoError| Refusal::new(error.to_string(), "check the folder");
    if is_new {
        host_files::create_dir_all(&folder).map_err(storage)?;
    }
    let written = hold(&folder).and_then(|_held| pool.record(&folder).write(&folder));
    if written.is_err() && is_new {
        // The error is reported already; only an empty folder is left.
        let _ = host_files::remove_folder_if_empty(&folder);
    }
    written?;
    Ok(pool.shown(Some(folder)))
}

/// Searches the places of the request.
pub(super) async fn find(
    world: &World,
    request: &ImportRequest<'_>,
    notices: &dyn Notices,
) -> Result<Vec<FoundPool>, Refusal> {
    let mut places: Vec<DrivePlace> = Vec::new();
    for place in request.places {
        if is_uri(place) {
            let (remote, access) = to_record(place, request.access)?;
            places.push(DrivePlace { path: remote.to_string().into(), access });
            continue;
        }
        match host_files::kind(place).map_err(|error| Refusal::new(error.to_string(), ""))? {
            PathKind::Folder => places.extend(files_in(place).into_iter().map(DrivePlace::from)),
            PathKind::Missing => {
                let problem = format!("{} is not there", place.display());
                return Err(Refusal::new(problem, "name folders, block devices, or files that are drives"));
            }
            _ => places.push(place.clone().into()),
        }
    }
    if request.places.is_empty() {
        places = all_devices().into_iter().map(DrivePlace::from).collect();
    }
    let mut pools: BTreeMap<PoolId, FoundPool> = BTreeMap::new();
    for (path, seen) in look_at_all(world, places).await {
        match seen {
            Observation::Drive(sighting) => {
                let pool = sighting.superblock.pool;
                let found = pools.entry(pool).or_insert_with(|| FoundPool { pool, drives: BTreeMap::new() });
                let sightings = found.drives.entry(sighting.superblock.drive()).or_default();
                // One disk under two given names.
                if sightings.iter().all(|known| known.identity != sighting.identity) {
                    sightings.push(*sighting);
                }
            }
            // An answer for a path that was named; of all devices most hold something else.
            Observation::Nothing(why) if is_uri(&path) || request.places.contains(&path) => {
                notices.warn(&why)
            }
            Observation::Nothing(_) => {}
            Observation::Denied(why) => notices.warn(&format!("{why}; run it as root to look there as well")),
        }
    }
    let mut pools: Vec<FoundPool> = pools.into_values().collect();
    if let Some(name) = request.pool {
        let id = parse_uuid(name).ok().map(PoolId);
        pools.retain(|pool| id == Some(pool.pool) || pool.newest().name == name);
    }
    Ok(pools)
}

fn one_of(mut pools: Vec<FoundPool>) -> Result<FoundPool, Refusal> {
    match pools.len() {
        0 => Err(Refusal::new(
            "no drive of such a pool was found",
            "connect its drives, or name the folder they are in as files; 'spindle pool import --list' says what is found",
        )),
        1 => Ok(pools.remove(0)),
        _ => {
            let names = pools.iter().map(|pool| format!("{:?} ({})", pool.newest().name, pool.pool));
            let problem = format!("several pools were found: {}", names.collect::<Vec<_>>().join(", "));
            Err(Refusal::new(problem, "say which one with ⟨pool⟩ UUID"))
        }
    }
}

/// Folder of the record. Files are locked by the folder they are in: a record elsewhere would let two processes open
/// them.
pub(super) fn folder_for(pool: &FoundPool, request: &ImportRequest<'_>) -> Result<PathBuf, Refusal> {
    let sightings = pool.drives.values().flatten();
    let files = sightings.filter(|sighting| is_file(sighting));
    let folders: Vec<PathBuf> = files
        .map(|file| match file.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        })
        .collect();
    let Some(folder) = folders.first() else {
        return match request.into {
            Some(into) => Ok(into.to_owned()),
            None => folder_named(&pool.newest().name),
        };
    };
    let same = |one: &Path, other: &Path| {
        let real = [one, other].map(|path| host_files::canonical(path).ok());
        real[0].is_some() && real[0] == real[1]
    };
    if let Some(other) = folders.iter().find(|other| !same(folder, other)) {
        let problem =
            format!("drives of the pool are files in {} and in {}", folder.display(), other.display());
        return Err(Refusal::new(problem, "put them into one folder: it is locked while the pool is open"));
    }
    match request.into {
        Some(into) if !same(folder, into) => {
            let problem = format!("drives of the pool are files in {}", folder.display());
            Err(Refusal::new(problem, "leave ⟨into⟩ out: the record is written beside them"))
        }
        _ => Ok(folder.clone()),
    }
}

/// The name comes from the drives: it must not lead out of the current folder.
fn folder_named(name: &str) -> Result<PathBuf, Refusal> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        Err(Refusal::new(format!("the pool's name {name:?} is none of a folder"), "say ⟨into⟩ FOLDER"))
    } else {
        Ok(PathBuf::from(name))
    }
}

pub(super) fn is_file(sighting: &Sighting) -> bool {
    matches!(sighting.identity, PathIdentity::File(..))
}

impl FoundPool {
    /// The newest superblock found.
    pub(super) fn newest(&self) -> &Superblock {
        let superblocks = self.drives.values().flatten().map(|sighting| &sighting.superblock);
        superblocks.max_by_key(|superblock| superblock.generation).expect("a pool is found by a drive")
    }

    /// Members that hold superblocks and were not found.
    fn missing(&self) -> impl Iterator<Item = &Member> {
        let members = self.newest().members.iter();
        members.filter(|member| member.state.holds_superblocks() && !self.drives.contains_key(&member.drive))
    }

    pub(super) fn record(&self, folder: &Path) -> PoolRecord {
        let drives = self.drives.iter().map(|(drive, sightings)| {
            let recorded = recorded(&sightings[0]);
            // A file beside the record is recorded by its name alone.
            let path = match (is_file(&sightings[0]), recorded.path.file_name()) {
                (true, Some(name)) if host_files::kind(&folder.join(name)).is_ok() => PathBuf::from(name),
                _ => recorded.path.clone(),
            };
            RecordedDrive { drive: Some(*drive), path, ..recorded }
        });
        PoolRecord { pool: Some(self.pool), drives: drives.collect() }
    }

    pub(super) fn shown(&self, path: Option<PathBuf>) -> ImportAnswer {
        let drives = self.drives.values().flatten().map(|sighting| {
            let RecordedDrive { hardware, .. } = recorded(sighting);
            ImportedDrive {
                drive: sighting.superblock.drive().to_string(),
                name: recorded(sighting).name(Path::new(""), Some(&sighting.path)),
                path: sighting.path.clone(),
                generation: sighting.superblock.generation.0,
                hardware,
            }
        });
        let missing = self
            .missing()
            .map(|member| MissingDrive { drive: member.drive.to_string(), known_as: member.serial.clone() });
        ImportAnswer {
            pool: self.pool.to_string(),
            name: self.newest().name.clone(),
            drives: drives.collect(),
            missing: missing.collect(),
            path,
        }
    }
}

fn recorded(sighting: &Sighting) -> RecordedDrive {
    let disk = sighting.disk.as_ref();
    let path = disk.and_then(|disk| disk.by_id.clone()).unwrap_or_else(|| sighting.path.clone());
    RecordedDrive {
        drive: Some(sighting.superblock.drive()),
        path,
        hardware: disk.map(Hardware::of).unwrap_or_default(),
        access: sighting.access.clone(),
    }
}
