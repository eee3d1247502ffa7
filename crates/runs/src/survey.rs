//! The survey of the paths and the machine before anything is written.
//!
//! Order matters: paths are resolved and compared with each other first, then each folder is
//! locked for this process, and only then is its content read. A folder that another Spindle works in
//! is thus never read half-way.

use crate::{
    acceptance::{accept, accept_kind, accept_together},
    layout::RunLocations,
    location::{
        DeviceFacts, DriveFacts, FolderFacts, LocationFacts, PathRole, ResolvedPath, RunLocation,
        StoragePathKind,
    },
    machine,
    manifest::is_harmless,
    remote::{RemoteDevice, RemoteResolver},
    request::RunRequest,
    sizing::Memory,
    storage_endpoint::StorageEndpoint,
};
use report::Refusal;
use rustix::fs::{Access, access, readlink};
use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};
use workload::database::results::HostFacts;
use world::{
    BlockDevice, ByteCount, IoError, IoErrorKind, World,
    real::{
        Engine, FileDevice, RealIoKind,
        host::{self, DeviceSignature},
        host_files::{self, FolderLock, PathKind},
    },
};

/// Default location of the databases.
const DEFAULT_PATH: &str = "./spindle-data";

/// Facts of all locations, and the locks that keep them true.
pub struct StorageSurvey {
    pub locations: RunLocations,
    /// I/O path of each location, as far as it is known.
    pub io: Vec<Option<RealIoKind>>,
    /// A sentence about the I/O method, if the best one is unavailable.
    pub io_notice: Option<String>,
    /// Memory of the machine.
    pub memory: Memory,
    /// The machine, for the report.
    pub host: HostFacts,
    #[expect(dead_code, reason = "held until it is dropped")]
    held: Vec<FolderLock>,
}

/// Existing paths, each once.
struct ResolvedPaths {
    all: Vec<(ResolvedPath, bool)>,
    databases: Vec<usize>,
    logs: Vec<usize>,
}

impl StorageSurvey {
    /// Surveys the paths of a run; refuses those that Spindle may not write to.
    pub async fn for_proving(world: &World, request: &RunRequest) -> Result<Self, Refusal> {
        let survey = Self::of(world, request, true).await?;
        for location in &survey.locations.all {
            accept(location, &request.unlock_signature)?;
        }
        Ok(survey)
    }

    /// Surveys paths to be cleaned; a path without Spindle's files is no failure.
    pub async fn for_cleaning(world: &World, request: &RunRequest) -> Result<Self, Refusal> {
        let survey = Self::of(world, request, false).await?;
        for location in &survey.locations.all {
            let is_concerned = match &location.facts {
                LocationFacts::Folder(folder) => {
                    !folder.writable || folder.manifest.is_some() || folder.manifest_damage.is_some()
                }
                LocationFacts::Device(device) => device.mounted.is_some() || device.held.is_some(),
            };
            if is_concerned {
                accept(location, &[])?;
            }
        }
        Ok(survey)
    }

    async fn of(world: &World, request: &RunRequest, make_default: bool) -> Result<Self, Refusal> {
        let paths = ResolvedPaths::resolve(request, make_default)?;
        let mut held = Vec::new();
        let mut all = Vec::new();
        let mut io = Vec::new();
        for (path, exists) in &paths.all {
            let given = path.given.clone();
            let unreadable =
                |error: IoError| Refusal::new(format!("{}: {error}", given.display()), "check the storage");
            let facts = if path.is_device {
                LocationFacts::Device(match &path.remote {
                    Some(remote) => remote_facts(world, path, remote).await.map_err(unreadable)?,
                    None => device_facts(world, path).await.map_err(unreadable)?,
                })
            } else {
                if *exists {
                    held.extend(hold(path)?);
                }
                LocationFacts::Folder(folder_facts(world, path, *exists).await.map_err(unreadable)?)
            };
            let location = RunLocation { given: path.given.clone(), facts };
            io.push(io_kind(&location, *exists));
            all.push(location);
        }
        watch_drives(world, &mut all).await;
        Ok(Self {
            locations: RunLocations { all, databases: paths.databases, logs: paths.logs },
            io,
            io_notice: Engine::current().fallback_notice(),
            memory: machine::memory(),
            host: machine::host_facts(),
            held,
        })
    }

    /// A survey of imagined locations, to plan a run on.
    pub fn imagined(locations: RunLocations, memory: Memory) -> Self {
        let io = vec![None; locations.all.len()];
        Self { locations, io, io_notice: None, memory, host: machine::host_facts(), held: Vec::new() }
    }
}

impl ResolvedPaths {
    fn resolve(request: &RunRequest, make_default: bool) -> Result<Self, Refusal> {
        let mut databases = Vec::new();
        let role = |role| if make_default { role } else { PathRole::Cleaning };
        for path in &request.paths {
            databases.push((resolve(path, role(PathRole::Databases), request.remotes.as_deref())?, true));
        }
        if databases.is_empty() {
            databases.push(default_path(make_default)?);
        }
        let mut logs = Vec::new();
        for path in &request.logs {
            logs.push((resolve(path, role(PathRole::Logs), request.remotes.as_deref())?, true));
        }
        let paths =
            |pairs: &[(ResolvedPath, bool)]| pairs.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        accept_together(&paths(&databases), &paths(&logs))?;
        let mut paths = Self { databases: (0..databases.len()).collect(), logs: Vec::new(), all: databases };
        for log in logs {
            let known = paths.all.iter().position(|(path, _)| path.canonical == log.0.canonical);
            paths.logs.push(known.unwrap_or(paths.all.len()));
            if known.is_none() {
                paths.all.push(log);
            }
        }
        Ok(paths)
    }
}

/// Resolves a path to a folder or device.
fn resolve(
    given: &Path,
    role: PathRole,
    remotes: Option<&dyn RemoteResolver>,
) -> Result<ResolvedPath, Refusal> {
    let remote = remotes.map(|remotes| remotes.resolve(given)).transpose()?.flatten();
    if let Some(remote) = remote {
        // Different spellings of one URI are one device.
        let canonical = remote.to_string().into();
        let remote = Some(remote);
        return Ok(ResolvedPath { given: given.to_owned(), canonical, is_device: true, remote });
    }
    let is_device = accept_kind(given, role, storage_path_kind(given))?;
    let canonical = host_files::canonical(given).map_err(|error| {
        Refusal::new(error.to_string(), "check its permissions, or run as a user who may")
    })?;
    Ok(ResolvedPath { given: given.to_owned(), canonical, is_device, remote: None })
}

fn storage_path_kind(path: &Path) -> StoragePathKind {
    match host_files::kind(path) {
        Ok(PathKind::Folder) => StoragePathKind::Folder,
        Ok(PathKind::BlockDevice) => StoragePathKind::Device,
        Ok(PathKind::File) => StoragePathKind::NotStorage("a file"),
        Ok(PathKind::Other) => StoragePathKind::NotStorage("neither a folder nor a block device"),
        Ok(PathKind::Missing) => match dangling_link(path) {
            Some((link, target)) => StoragePathKind::DanglingLink { link, target },
            None => StoragePathKind::Missing { nearest: nearest_folder(path) },
        },
        Err(error) => StoragePathKind::Unreachable(error.to_string()),
    }
}

/// The part of a missing path that is a link to nothing, and its target.
pub fn dangling_link(path: &Path) -> Option<(PathBuf, PathBuf)> {
    let is_missing = |path: &Path| matches!(host_files::kind(path), Ok(PathKind::Missing));
    let mut missing = path.ancestors().take_while(|part| !part.as_os_str().is_empty() && is_missing(part));
    missing.find_map(|part| {
        let target = readlink(part, Vec::new()).ok()?;
        Some((part.to_owned(), OsStr::from_bytes(target.as_bytes()).into()))
    })
}

/// The closest parent that exists.
fn nearest_folder(path: &Path) -> PathBuf {
    let is_folder = |path: &Path| matches!(host_files::kind(path), Ok(PathKind::Folder));
    let parent = path.ancestors().skip(1).find(|parent| parent.as_os_str().is_empty() || is_folder(parent));
    match parent {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The folder for a run without paths, which may be made.
fn default_path(make: bool) -> Result<(ResolvedPath, bool), Refusal> {
    let given = Path::new(DEFAULT_PATH);
    if storage_path_kind(given) != (StoragePathKind::Missing { nearest: ".".into() }) || !make {
        let role = if make { PathRole::Databases } else { PathRole::Cleaning };
        return Ok((resolve(given, role, None)?, true));
    }
    let here = resolve(Path::new("."), PathRole::Databases, None)?;
    let name = given.file_name().expect("the default has a name");
    let canonical = here.canonical.join(name);
    Ok((ResolvedPath { given: given.to_owned(), canonical, is_device: false, remote: None }, false))
}

/// Locks a folder for this process. Filesystems that cannot lock, and folders that cannot be opened,
/// are left to the rules that follow.
fn hold(path: &ResolvedPath) -> Result<Option<FolderLock>, Refusal> {
    match host_files::lock_folder(&path.canonical) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == IoErrorKind::Busy => Err(Refusal::new(
            format!("{}: another Spindle is at work there", path.given.display()),
            "wait until it has ended, or choose another folder",
        )),
        Err(_) => Ok(None),
    }
}

async fn folder_facts(world: &World, path: &ResolvedPath, exists: bool) -> Result<FolderFacts, IoError> {
    // The facts of a folder that is not made yet are its parent's.
    let there = if exists {
        path.canonical.as_path()
    } else {
        path.canonical.parent().expect("the default lies in a folder")
    };
    let filesystem = host::filesystem_of(there)?;
    let drive = host::drive_of_path(there).map(machine::drive_facts);
    let mut facts = FolderFacts {
        canonical: path.canonical.clone(),
        exists,
        filesystem: filesystem.kind,
        mount_point: filesystem.mount_point,
        source: filesystem.source,
        total: filesystem.total,
        free: filesystem.free,
        read_only: filesystem.read_only,
        writable: access(there, Access::WRITE_OK | Access::EXEC_OK | Access::READ_OK).is_ok(),
        foreign: Vec::new(),
        manifest: None,
        manifest_damage: None,
        made: BTreeMap::new(),
        drive: drive.unwrap_or_default(),
    };
    if exists && facts.writable {
        look_inside(world, &mut facts).await?;
    }
    Ok(facts)
}

/// Adds the content of the folder: the record of a run, its files, and foreign names.
async fn look_inside(world: &World, facts: &mut FolderFacts) -> Result<(), IoError> {
    let endpoint = StorageEndpoint::folder(&facts.canonical);
    match endpoint.read_manifest(world).await? {
        Some(Ok(manifest)) => facts.manifest = Some(manifest),
        Some(Err(damage)) => facts.manifest_damage = Some(damage),
        None => {}
    }
    let owns = |name: &str| facts.manifest.as_ref().is_some_and(|manifest| manifest.owns(name));
    let foreign = host_files::list(&facts.canonical)?;
    let foreign = foreign.into_iter().filter(|name| !owns(name) && !is_harmless(name)).collect();
    if let Some(manifest) = &facts.manifest {
        facts.made = endpoint.files_of(world, manifest).await?;
    }
    facts.foreign = foreign;
    Ok(())
}

async fn device_facts(world: &World, path: &ResolvedPath) -> Result<DeviceFacts, IoError> {
    let drive = host::drive_of_device(&path.canonical)?;
    let mut facts = DeviceFacts {
        canonical: path.canonical.clone(),
        size: ByteCount(0),
        mounted: host::usages_text(&host::usage_of_device(&path.canonical)?),
        signature: None,
        is_unmarked: false,
        ours: None,
        made: BTreeMap::new(),
        read_only: drive.read_only,
        held: None,
        drive: machine::drive_facts(drive),
        remote: None,
    };
    if facts.mounted.is_some() {
        return Ok(facts);
    }
    let device = match FileDevice::open(&path.canonical, world::real::AccessMode::Read) {
        Ok(device) => device,
        Err(error) => {
            facts.held = Some(error);
            return Ok(facts);
        }
    };
    look_at(&mut facts, &device).await?;
    drop(device);
    look_into(world, &mut facts).await?;
    Ok(facts)
}

/// Facts of a remote device: only what the device reports.
async fn remote_facts(
    world: &World,
    path: &ResolvedPath,
    remote: &Arc<dyn RemoteDevice>,
) -> Result<DeviceFacts, IoError> {
    let mut facts = DeviceFacts {
        canonical: path.canonical.clone(),
        size: ByteCount(0),
        mounted: None,
        signature: None,
        is_unmarked: false,
        ours: None,
        made: BTreeMap::new(),
        read_only: false,
        held: None,
        drive: DriveFacts::default(),
        remote: Some(Arc::clone(remote)),
    };
    let opened = match remote.open(world).await {
        Ok(opened) => opened,
        Err(error) => {
            facts.held = Some(error);
            return Ok(facts);
        }
    };
    facts.read_only = opened.is_read_only;
    facts.drive = DriveFacts { model: opened.model, serial: opened.serial, ..DriveFacts::default() };
    look_at(&mut facts, &*opened.device).await?;
    drop(opened.device);
    look_into(world, &mut facts).await?;
    Ok(facts)
}

/// Adds the facts in the first bytes of a device.
async fn look_at(facts: &mut DeviceFacts, device: &dyn BlockDevice) -> Result<(), IoError> {
    facts.size = device.geometry().size;
    match host::signature_of(device).await? {
        DeviceSignature::Spindle => facts.ours = Some(None),
        DeviceSignature::Blank => {}
        other => {
            facts.signature = Some(other.to_string());
            facts.is_unmarked = other == DeviceSignature::Unknown;
        }
    }
    Ok(())
}

/// Adds the content of a device of ours: the record of a run, and its files.
async fn look_into(world: &World, facts: &mut DeviceFacts) -> Result<(), IoError> {
    if facts.ours.is_some() && !facts.read_only {
        let endpoint =
            StorageEndpoint { remote: facts.remote.clone(), ..StorageEndpoint::device(&facts.canonical) };
        // An unreadable record counts as none: the device is ours.
        let manifest = endpoint.read_manifest(world).await?.and_then(Result::ok);
        if let Some(manifest) = &manifest {
            facts.made = endpoint.files_of(world, manifest).await?;
        }
        facts.ours = Some(manifest);
    }
    Ok(())
}

/// Adds the load of others on each drive.
async fn watch_drives(world: &World, locations: &mut [RunLocation]) {
    let names: BTreeSet<String> =
        locations.iter().filter_map(|location| location.drive().name.clone()).collect();
    let percents = machine::busy_percents(world, names.into_iter().collect()).await;
    for location in locations {
        let drive = location.drive_mut();
        drive.busy_percent = drive.name.as_ref().and_then(|name| percents.get(name).copied());
    }
}

fn io_kind(location: &RunLocation, exists: bool) -> Option<RealIoKind> {
    let mut endpoint = StorageEndpoint::of(&location.facts);
    if !exists {
        endpoint.path = endpoint.path.parent()?.into();
    }
    let may_open = match &location.facts {
        LocationFacts::Folder(folder) => folder.writable && !folder.read_only,
        LocationFacts::Device(device) => device.mounted.is_none() && device.held.is_none(),
    };
    if may_open { endpoint.io_kind().ok().flatten() } else { None }
}
