//! A drive that joins a pool, and the copies that are missing.

use super::{
    create::{check_device, drive_name, storage},
    departure::{NamedDrive, refusal_to_leave},
    folder::OpenPool,
    joining_drive::JoiningDrive,
    record::{Hardware, RecordedDrive},
    remote_drive::resolved,
    sparing::SparingStatus,
};
use crate::{notices::Notices, remote::RemoteSettings};
use array::format::{DomainName, DriveId};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::{
    ByteCount, World,
    real::host_files::{self, PathKind},
};

#[derive(Clone, Copy)]
pub enum DriveSource<'a> {
    /// A file in the pool's folder, of that size.
    File(ByteCount),
    /// A raw device that holds nothing, or the URI of one on another machine and what its server asks for.
    Device(&'a Path, &'a RemoteSettings),
    /// A drive of the pool that is there and fell behind. What it has is compared, not erased.
    Returned(&'a NamedDrive),
}

/// The result of adding a drive.
#[derive(Serialize)]
pub struct AddDriveAnswer {
    pub path: PathBuf,
    pub size_bytes: u64,
    #[serde(flatten)]
    pub copies: CopiesAnswer,
}

/// The result of making the copies that are missing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesAnswer {
    /// Copies made on it and on other drives.
    pub rebuilt_bytes: u64,
    /// Of these, bytes that a drive that came back had already.
    pub matched_bytes: u64,
    /// Segments without any copy on a drive in use.
    pub lost_segments: u64,
    pub degraded_segments: u64,
    /// Drives without any data, which were removed from the record.
    pub forgotten: Vec<String>,
    /// The drives are not equally full: an export levels them, or `pool level`.
    pub is_uneven: bool,
    pub sparing: SparingStatus,
}

/// Refuses a device that cannot become a drive, before the pool is opened.
pub async fn check_source(world: &World, source: DriveSource<'_>) -> Result<(), Refusal> {
    match source {
        DriveSource::Device(device, access) => check_device(world, device, access).await,
        DriveSource::File(_) | DriveSource::Returned(_) => Ok(()),
    }
}

/// Makes or opens the drive, records it in the folder, and adds it to the pool. `replaced` leaves from then on; without
/// another domain the new drive has that of the replaced one. With an identity that an interrupted addition of a file had, that
/// file is made again.
pub(super) async fn join(
    world: &World,
    open: &mut OpenPool,
    (source, domain, identity): (DriveSource<'_>, Option<DomainName>, Option<DriveId>),
    replaced: Option<&NamedDrive>,
    notices: &dyn Notices,
) -> Result<(PathBuf, ByteCount), Refusal> {
    // Another source is never removed: a drive that comes back may hold the last copy of something.
    if let (Some(identity), DriveSource::File(_)) = (identity, source) {
        remove_unfinished(open, identity)?;
    }
    let mut joining = match source {
        DriveSource::Device(device, access) => JoiningDrive::device(world, device, access).await?,
        DriveSource::File(size) => new_file(world, open, size).await?,
        DriveSource::Returned(drive) => JoiningDrive::returned(world, open, drive)?,
    };
    if let Some(identity) = identity {
        joining.identify(identity);
    }
    let inherited = || replaced.and_then(|replaced| open.pool.domain_of(replaced.drive));
    joining.domain = domain.or(joining.domain).or_else(inherited);
    joining.warn(open.folder(), notices).await;
    let (path, size) = (joining.recorded.path.clone(), joining.size());
    // Recorded first: a drive of the pool that the record does not list would be missing at the next opening, while
    // a recorded drive that is not the pool's is ignored.
    let before = open.record().clone();
    let mut record = before.clone();
    // This disk was another drive of the pool before: it had fallen behind.
    let Hardware { serial, .. } = &joining.recorded.hardware;
    record.drives.retain(|drive| drive.path != path || drive.hardware.serial != *serial);
    record.drives.push(joining.recorded.clone());
    open.set_record(record)?;
    let new = joining.new_drive();
    let joined = match replaced {
        Some(replaced) => open.pool.replace(replaced.drive, &new).await,
        None => open.pool.add_drive(&new).await,
    };
    if let Err(error) = joined {
        if open.pool.is_listed(new.drive) {
            // The pool stopped on the way, and may need the drive when it is opened again.
            return Err(open.refusal(&error, "the drive was added; open the pool again"));
        }
        drop((new, joining));
        open.set_record(before)?;
        if let DriveSource::File(_) = source {
            // The error is reported already; only an empty file is left.
            let _ = host_files::remove_file(&open.folder().join(&path));
        }
        return Err(match replaced {
            Some(replaced) => refusal_to_leave(open, replaced, &error),
            None => open.refusal(&error, "give it another drive"),
        });
    }
    open.drive_joined(&joining);
    joining.metered(open.folder()).into_iter().for_each(|drive| open.meters.add_drive(drive));
    Ok((resolved(open.folder(), &path), size))
}

/// Waits until the copies that were missing are made on a drive that has joined and on others, as far as there is room. Drives
/// that are missing and hold nothing any more leave the record.
///
/// # Errors
///
/// The pool has stopped. The drive is the pool's.
pub async fn await_copies(
    open: &mut OpenPool,
    path: PathBuf,
    size: ByteCount,
) -> Result<AddDriveAnswer, Refusal> {
    let rebuilt = open.pool.rebuild().await;
    rebuilt.map_err(|error| open.refusal(&error, "the drive was added; see 'spindle pool show'"))?;
    Ok(AddDriveAnswer { path, size_bytes: size.0, copies: conclude_copies(open)? })
}

/// The result of copies that were made just now. Drives that are missing and hold nothing any more leave the record.
///
/// # Errors
///
/// The record cannot be written.
pub fn conclude_copies(open: &mut OpenPool) -> Result<CopiesAnswer, Refusal> {
    let degraded = open.pool.degraded();
    let mut forgotten = Vec::new();
    if degraded.segments == 0 && degraded.lost == 0 {
        let there = open.drives.drives.iter().filter(|drive| drive.state.is_ok());
        let there = there.filter_map(|drive| drive.recorded.drive);
        let there: BTreeSet<DriveId> = there.chain(open.pool.drives_in_use()).collect();
        let mut record = open.record().clone();
        let is_gone = |drive: &mut RecordedDrive| drive.drive.is_none_or(|drive| !there.contains(&drive));
        let gone: Vec<_> = record.drives.extract_if(.., is_gone).collect();
        forgotten.extend(gone.iter().map(|drive| drive.name(open.folder(), None)));
        if !forgotten.is_empty() {
            open.set_record(record)?;
            open.drives_changed();
        }
    }
    let progress = open.pool.rebuild_progress();
    Ok(CopiesAnswer {
        rebuilt_bytes: progress.done_bytes,
        matched_bytes: progress.matched_bytes,
        lost_segments: degraded.lost,
        degraded_segments: degraded.segments,
        forgotten,
        is_uneven: open.pool.is_uneven(),
        sparing: SparingStatus::of(&open.pool),
    })
}

/// A new file in the folder. One that cannot be made leaves nothing.
async fn new_file(world: &World, open: &OpenPool, size: ByteCount) -> Result<JoiningDrive, Refusal> {
    let name = free_name(open)?;
    let made = JoiningDrive::file(world, open.folder(), name.clone(), size).await;
    if made.is_err() {
        // The error is reported already.
        let _ = host_files::remove_file(&open.folder().join(name));
    }
    made
}

/// Removes the file that an interrupted addition with that identity has left, which is not the pool's.
fn remove_unfinished(open: &mut OpenPool, identity: DriveId) -> Result<(), Refusal> {
    let is_it = |drive: &RecordedDrive| drive.drive == Some(identity) && drive.path.is_relative();
    if open.pool.is_listed(identity) || !open.record().drives.iter().any(is_it) {
        return Ok(());
    }
    let mut record = open.record().clone();
    let left: Vec<_> = record.drives.extract_if(.., |drive| is_it(drive)).collect();
    let names = left.iter().filter_map(|drive| drive.path.to_str());
    host_files::remove_files(open.folder(), names).map_err(|error| storage(&error))?;
    open.set_record(record)?;
    open.drives_changed();
    Ok(())
}

/// A name that neither a file in the folder nor a recorded drive has: a missing drive may come back.
fn free_name(open: &OpenPool) -> Result<PathBuf, Refusal> {
    for number in 1.. {
        let name = drive_name(number);
        let found = host_files::kind(&open.folder().join(&name)).map_err(|error| storage(&error))?;
        if matches!(found, PathKind::Missing) && open.record().drives.iter().all(|drive| drive.path != name) {
            return Ok(name);
        }
    }
    unreachable!("there are fewer drives than numbers")
}
