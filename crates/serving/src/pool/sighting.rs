//! Identification of a path: a drive of a pool, by its superblock, or the reason why not.
//!
//! Nothing is written, and no lock is taken: a device that another process has open is identified as well. A device that
//! is mounted, swap, or part of another device is not read.

use super::remote_drive::{DrivePlace, in_full, open_remote};
use crate::remote::{RemoteSettings, is_uri};
use array::{format::Superblock, superblocks::read_places};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use world::{
    BlockDevice, IoErrorKind, World,
    real::{
        AccessMode, FileDevice,
        host::{self, Disk, DiskCatalogue, usages_text},
        host_files::{self, PathKind},
    },
    with_deadline,
};

/// A device that does not answer within this time counts as missing.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub enum Observation {
    /// A drive of some pool.
    Drive(Box<Sighting>),
    /// No drive, and the reason.
    Nothing(String),
    /// This process has no permission to read it.
    Denied(String),
}

/// A drive of a pool, and its path.
#[derive(Clone, Debug)]
pub struct Sighting {
    /// Path to open; of a device its node, on another machine its URI.
    pub path: PathBuf,
    /// Independent of the path.
    pub identity: PathIdentity,
    /// `None` for a file, and on another machine.
    pub disk: Option<Disk>,
    /// The access that the server of a URI asks for.
    pub access: RemoteSettings,
    /// The newest superblock on the drive.
    pub superblock: Superblock,
}

/// Identifies a device or file under any path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathIdentity {
    Device(u32, u32),
    File(u64, u64),
    /// The URI of a device on another machine: two of them may lead to one device.
    Remote(String),
}

impl Sighting {
    /// True if both are one disk: the same device or file, or two paths with one WWID.
    pub fn is_same_disk(&self, other: &Self) -> bool {
        let wwid =
            |sighting: &Self| Some((sighting.disk.as_ref()?.wwid.clone()?, sighting.disk.as_ref()?.size));
        self.identity == other.identity || wwid(self).is_some_and(|own| wwid(other) == Some(own))
    }
}

/// Identifies one path or URI.
pub async fn look_at(world: &World, DrivePlace { path, access }: DrivePlace) -> Observation {
    let recognised = if is_uri(&path) { Ok(of_uri(&path)) } else { recognise(&path) };
    let (path, identity, disk) = match recognised {
        Ok(recognised) => recognised,
        Err(seen) => return seen,
    };
    let read = async {
        let device: Rc<dyn BlockDevice> = match identity {
            PathIdentity::Remote(_) => open_remote(world, &path, &access, AccessMode::Read).await?.device,
            PathIdentity::Device(..) | PathIdentity::File(..) => {
                Rc::new(FileDevice::open_shared(&path).await?)
            }
        };
        Ok::<_, world::IoError>(read_places(&device).await)
    };
    let places = match with_deadline(world.sleep(ANSWER_WITHIN), read).await {
        None => {
            let waited = ANSWER_WITHIN.as_secs();
            return Observation::Nothing(format!("{} did not answer for {waited} s", path.display()));
        }
        Some(Err(error)) if error.kind() == IoErrorKind::PermissionDenied => {
            return Observation::Denied(error.to_string());
        }
        Some(Err(error)) => return Observation::Nothing(error.to_string()),
        Some(Ok(places)) => places,
    };
    match (places.newest, places.unreadable.first(), places.refused.first()) {
        (Some(superblock), ..) => {
            Observation::Drive(Box::new(Sighting { path, identity, disk, access, superblock }))
        }
        (None, Some(error), _) => Observation::Nothing(error.to_string()),
        (None, None, Some(refusal)) => {
            Observation::Nothing(format!("no superblock on {} is right: {refusal}", path.display()))
        }
        (None, None, None) => Observation::Nothing(format!("{} holds no drive of a pool", path.display())),
    }
}

fn of_uri(uri: &Path) -> (PathBuf, PathIdentity, Option<Disk>) {
    let uri = in_full(uri);
    let identity = PathIdentity::Remote(uri.display().to_string());
    (uri, identity, None)
}

/// Identifies a path before it is opened, or says why it is not opened.
fn recognise(path: &Path) -> Result<(PathBuf, PathIdentity, Option<Disk>), Observation> {
    let shown = path.display();
    match host_files::kind(path) {
        Ok(PathKind::File) => {
            let about =
                host_files::metadata(path).map_err(|error| Observation::Nothing(error.to_string()))?;
            let (device, inode) = about.identity;
            Ok((path.to_owned(), PathIdentity::File(device, inode), None))
        }
        Ok(PathKind::BlockDevice) => {
            let disk = DiskCatalogue::default().disk_at(path).ok();
            let usages =
                host::usage_of_device(path).map_err(|error| Observation::Nothing(error.to_string()))?;
            if let Some(usage) = usages_text(&usages) {
                return Err(Observation::Nothing(format!("{shown} is {usage}")));
            }
            let node = disk.as_ref().map(|disk| disk.node.clone());
            // In a container the kernel's name may lead nowhere, or elsewhere.
            let leads_there = |node: &PathBuf| {
                let numbers = [node, path].map(|path| host::device_number(path).ok());
                numbers[0].is_some() && numbers[0] == numbers[1]
            };
            let (major, minor) =
                host::device_number(path).map_err(|error| Observation::Nothing(error.to_string()))?;
            let node = node.filter(leads_there).unwrap_or_else(|| path.to_owned());
            Ok((node, PathIdentity::Device(major, minor), disk))
        }
        Ok(PathKind::Missing) => Err(Observation::Nothing(format!("{shown} is not there"))),
        Ok(_) => Err(Observation::Nothing(format!("{shown} is neither a file nor a block device"))),
        Err(error) if error.kind() == IoErrorKind::PermissionDenied => {
            Err(Observation::Denied(error.to_string()))
        }
        Err(error) => Err(Observation::Nothing(error.to_string())),
    }
}

/// Identifies many places at once, so that a slow one does not delay the others.
pub async fn look_at_all(world: &World, places: Vec<DrivePlace>) -> Vec<(PathBuf, Observation)> {
    let looks: Vec<_> = places
        .into_iter()
        .map(|place| {
            let inner = world.clone();
            world.spawn("look at a drive", async move {
                let path = place.path.clone();
                (path, look_at(&inner, place).await)
            })
        })
        .collect();
    let mut seen = Vec::new();
    for look in looks {
        seen.push(look.await);
    }
    seen
}

/// Nodes of all block devices; empty without sysfs.
pub fn all_devices() -> Vec<PathBuf> {
    let disks = DiskCatalogue::default().disks().unwrap_or_default();
    disks.into_iter().map(|disk| disk.node).collect()
}

/// Regular files of a folder that are large enough for a drive, without hidden ones.
pub fn files_in(folder: &Path) -> Vec<PathBuf> {
    let names = host_files::list(folder).unwrap_or_default();
    let paths = names.iter().filter(|name| !name.starts_with('.')).map(|name| folder.join(name));
    let is_large = |path: &PathBuf| {
        let about = host_files::metadata(path);
        matches!(host_files::kind(path), Ok(PathKind::File))
            && about.is_ok_and(|about| about.size >= FILE_BYTES_MIN)
    };
    paths.filter(is_large).collect()
}

/// A file smaller than the area of superblocks is no drive.
const FILE_BYTES_MIN: u64 = 1 << 20;
