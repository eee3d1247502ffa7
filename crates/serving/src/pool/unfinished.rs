//! A pool whose making was interrupted: finished, or cleared away.
//!
//! Invariants:
//!
//! 1. Only a pool with the UUID that was chosen before its making began is finished.
//! 2. A file is removed only if it was read, and has no superblock but of that pool: the folder's record is written last, so
//!    nobody can have used it.

use super::{
    create::{NewPoolDrives, drive_name, storage},
    folder::hold,
    import::{self, ImportRequest},
    record::{RECORD_NAME, is_pool},
};
use crate::{notices::Notices, remote::RemoteSettings};
use array::{
    format::PoolId,
    superblocks::{SuperblockPlaces, read_places},
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, World,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

/// Finishes the pool that was being made in `folder` with the UUID `id`. True if it is there now; false if nothing of it is
/// left, and it can be made.
///
/// # Errors
///
/// Something else is there; or a part of it is on devices, which only a person can say are free.
pub async fn settle(
    world: &World,
    folder: &Path,
    (drives, id): (&NewPoolDrives<'_>, PoolId),
    notices: &dyn Notices,
) -> Result<bool, Refusal> {
    if is_pool(folder) {
        return Ok(true);
    }
    let usual = RemoteSettings::default();
    let is_missing = matches!(host_files::kind(folder), Ok(PathKind::Missing));
    let (places, access): (Vec<PathBuf>, &RemoteSettings) = match drives {
        NewPoolDrives::Files { .. } if is_missing => return Ok(false),
        NewPoolDrives::Files { .. } => (vec![folder.to_owned()], &usual),
        NewPoolDrives::Devices(devices, access) => (devices.to_vec(), access),
    };
    let name = id.to_string();
    let request = ImportRequest { places: &places, access, pool: None, into: Some(folder) };
    let found = import::list(world, &request, notices).await?;
    if found.iter().any(|pool| pool.pool == name && pool.missing.is_empty()) {
        host_files::create_dir_all(folder).map_err(|error| storage(&error))?;
        let request = ImportRequest { pool: Some(&name), ..request };
        import::import(world, &request, notices).await?;
        notices.note("its making had been interrupted after its drives were written; it is finished now");
        return Ok(true);
    }
    if !is_missing {
        clear(folder, id).await?;
    }
    Ok(false)
}

/// Removes what the making of a pool leaves in its folder, if nothing else is there.
async fn clear(folder: &Path, id: PoolId) -> Result<(), Refusal> {
    let _held = hold(folder)?;
    let names = host_files::list(folder).map_err(|error| storage(&error))?;
    for name in &names {
        let is_record = name.starts_with(&format!(".{RECORD_NAME}.")) && name.ends_with(".tmp");
        if !is_record && !is_unfinished_drive(&folder.join(name), name, id).await? {
            return Err(Refusal::new(
                format!(
                    "{}: a pool was being made there, and {name:?} is none of its files",
                    folder.display()
                ),
                "look at it, and move it away",
            ));
        }
    }
    host_files::remove_files(folder, names.iter().map(String::as_str)).map_err(|error| storage(&error))
}

/// True if a file has a drive's name, and no superblock but of the pool with the UUID `id`.
async fn is_unfinished_drive(path: &Path, name: &str, id: PoolId) -> Result<bool, Refusal> {
    let number = name.strip_prefix("drive-").and_then(|rest| rest.strip_suffix(".spindle")?.parse().ok());
    if number.is_none_or(|number| drive_name(number) != Path::new(name)) {
        return Ok(false);
    }
    if host_files::metadata(path).map_err(|error| storage(&error))?.size == 0 {
        return Ok(true);
    }
    let device = FileDevice::open(path, AccessMode::Read).map_err(|error| storage(&error))?;
    let device: Rc<dyn BlockDevice> = Rc::new(device);
    let SuperblockPlaces { newest, others, refused, unreadable } = read_places(&device).await;
    let is_ours = newest.iter().chain(&others).all(|superblock| superblock.pool == id);
    Ok(is_ours && refused.is_empty() && unreadable.is_empty())
}
