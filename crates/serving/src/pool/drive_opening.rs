//! Opening a drive that was found, and the reasons why one is missing.

use super::{
    drive_search::{OpenDrive, PoolDrive},
    record::{Hardware, RecordedDrive},
    remote_drive::open_remote,
    sighting::{Observation, PathIdentity, Sighting},
};
use array::superblocks::read_places;
use report::Refusal;
use std::path::{Path, PathBuf};
use world::{
    IoErrorKind, World,
    real::{AccessMode, FileDevice},
};

/// Opens a drive by the first path that works.
pub(super) async fn open_drive(
    world: &World,
    folder: &Path,
    mut recorded: RecordedDrive,
    (sightings, seen): (&[Sighting], Option<&Observation>),
    access: AccessMode,
) -> Result<PoolDrive, Refusal> {
    let mut failure = None;
    for sighting in sightings {
        match open_sighted(world, sighting, access).await {
            Ok(open) => {
                let moved_from = update(folder, &mut recorded, sighting);
                return Ok(PoolDrive { recorded, moved_from, state: Ok(open) });
            }
            Err(OpenFailure::Denied(why)) => {
                let remedy = "run it as root, or as a user who may read and write the pool's drives";
                return Err(Refusal::new(format!("{}: {why}", folder.display()), remedy));
            }
            Err(OpenFailure::Other(why)) => failure = Some(why),
        }
    }
    Ok(PoolDrive { state: Err(why_not(seen, failure)), recorded, moved_from: None })
}

pub(super) enum OpenFailure {
    Denied(String),
    Other(String),
}

/// Opens the sighted device and reads its superblock again: from now on no other disk can appear there.
pub(super) async fn open_sighted(
    world: &World,
    sighting: &Sighting,
    access: AccessMode,
) -> Result<OpenDrive, OpenFailure> {
    let open = match sighting.identity {
        PathIdentity::Remote(_) => open_there(world, sighting, access).await?,
        PathIdentity::Device(..) | PathIdentity::File(..) => open_here(world, sighting, access)?,
    };
    let newest = read_places(&open.device).await.newest;
    let is_same = newest.is_some_and(|found| {
        (found.pool, found.drive()) == (sighting.superblock.pool, sighting.superblock.drive())
    });
    if is_same {
        Ok(open)
    } else {
        Err(OpenFailure::Other(format!("{} became another drive meanwhile", sighting.path.display())))
    }
}

fn open_here(world: &World, sighting: &Sighting, access: AccessMode) -> Result<OpenDrive, OpenFailure> {
    // The kernel allows opening it for writing, and refuses the writes.
    if access == AccessMode::ReadWrite && sighting.disk.as_ref().is_some_and(|disk| disk.is_read_only) {
        return Err(OpenFailure::Other(format!("{} is read-only", sighting.path.display())));
    }
    let device = FileDevice::open(&sighting.path, access).map_err(|error| match error.kind() {
        IoErrorKind::PermissionDenied => OpenFailure::Denied(error.to_string()),
        IoErrorKind::Busy => {
            OpenFailure::Other(format!("another process has {} open", sighting.path.display()))
        }
        _ => OpenFailure::Other(error.to_string()),
    })?;
    Ok(OpenDrive::local(world, sighting.path.clone(), sighting.disk.clone(), device))
}

async fn open_there(
    world: &World,
    sighting: &Sighting,
    access: AccessMode,
) -> Result<OpenDrive, OpenFailure> {
    let opened = open_remote(world, &sighting.path, &sighting.access, access).await;
    let drive = opened.map_err(|error| OpenFailure::Other(error.to_string()))?;
    Ok(OpenDrive::remote(world, sighting.path.clone(), drive.device))
}

/// Updates the entry of a drive. Returns its former path if that no longer leads to it.
pub(super) fn update(folder: &Path, recorded: &mut RecordedDrive, sighting: &Sighting) -> Option<PathBuf> {
    let before = recorded.place(folder).path;
    let leads_there = match &sighting.identity {
        PathIdentity::Device(major, minor) => {
            world::real::host::device_number(&before).is_ok_and(|number| number == (*major, *minor))
        }
        PathIdentity::File(device, inode) => {
            world::real::host_files::metadata(&before).is_ok_and(|about| about.identity == (*device, *inode))
        }
        PathIdentity::Remote(uri) => before == Path::new(uri),
    };
    if let Some(disk) = &sighting.disk {
        recorded.hardware = Hardware::of(disk);
    }
    let by_id = sighting.disk.as_ref().and_then(|disk| disk.by_id.clone());
    if !(leads_there && is_lasting(&recorded.path))
        && let Some(by_id) = by_id
    {
        recorded.path = by_id;
    } else if !leads_there {
        let in_folder = sighting.path.strip_prefix(folder).ok();
        recorded.path = in_folder.unwrap_or(&sighting.path).to_owned();
    }
    (!leads_there).then_some(before)
}

/// True for a file in the folder, or a name that udev gives to one disk alone.
fn is_lasting(path: &Path) -> bool {
    !path.is_absolute() || path.starts_with("/dev/disk/by-id")
}

/// The reason why a drive is missing.
pub(super) fn why_not(seen: Option<&Observation>, failure: Option<String>) -> String {
    match (failure, seen) {
        (Some(failure), _) => failure,
        (None, Some(Observation::Nothing(why) | Observation::Denied(why))) => why.clone(),
        (None, Some(Observation::Drive(seen))) => {
            format!("{} is another drive now, of pool {:?}", seen.path.display(), seen.superblock.name)
        }
        (None, None) => "no device and no file has its superblock".to_owned(),
    }
}
