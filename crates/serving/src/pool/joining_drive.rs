//! A drive that joins a pool: a file made for it, a blank device here or on another machine, or a drive that comes back.

use super::{
    create::storage,
    departure::NamedDrive,
    drive_search::{OpenDrive, PoolDrive},
    drive_space::secure,
    folder::OpenPool,
    record::{Hardware, RecordedDrive},
    remote_drive::{in_full, open_remote, to_record},
};
use crate::{
    figures::{DriveLabel, MeteredDrive},
    notices::Notices,
    remote::{RemoteSettings, is_uri},
    uuid::random_uuid,
};
use array::{
    format::{DomainName, DriveId},
    pool::NewDrive,
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    Buffer, ByteCount, ByteOffset, IoResult, Stability, World,
    real::{
        AccessMode, FileDevice,
        host::{Disk, DiskCatalogue},
        host_files,
    },
};

const SERIAL_BYTES_MAX: usize = 48;

/// An open drive with its UUID.
pub struct JoiningDrive {
    /// The entry for the record.
    pub recorded: RecordedDrive,
    pub open: OpenDrive,
    /// Its failure domain.
    pub domain: Option<DomainName>,
    drive: DriveId,
    /// What it carries can be read on its way over a network.
    is_in_the_clear: bool,
}

impl JoiningDrive {
    /// A new file in the folder, with all its space reserved.
    pub async fn file(world: &World, folder: &Path, name: PathBuf, size: ByteCount) -> Result<Self, Refusal> {
        let path = folder.join(&name);
        let device = FileDevice::create(&path, size).await.map_err(|error| storage(&error))?;
        let drive = DriveId(random_uuid(world));
        let open = OpenDrive::local(world, path, None, device);
        Ok(Self {
            recorded: RecordedDrive::file(drive, name),
            open,
            domain: None,
            drive,
            is_in_the_clear: false,
        })
    }

    /// A device, by a lasting name if there is one; or one on another machine, by its URI.
    pub async fn device(world: &World, given: &Path, access: &RemoteSettings) -> Result<Self, Refusal> {
        if is_uri(given) { Self::remote(world, given, access).await } else { Self::device_here(world, given) }
    }

    async fn remote(world: &World, uri: &Path, access: &RemoteSettings) -> Result<Self, Refusal> {
        let (remote, access) = to_record(uri, access)?;
        let path = PathBuf::from(remote.to_string());
        let there = open_remote(world, &path, &access, AccessMode::ReadWrite).await;
        let there = there.map_err(|error| storage(&error))?;
        let (model, serial) = (there.model.clone(), there.serial.clone());
        let hardware = Hardware { model, serial, ..Hardware::default() };
        let drive = DriveId(random_uuid(world));
        let recorded = RecordedDrive { drive: Some(drive), path: path.clone(), hardware, access };
        let open = OpenDrive::remote(world, path, there.device);
        Ok(Self { recorded, open, domain: None, drive, is_in_the_clear: remote.is_in_the_clear() })
    }

    fn device_here(world: &World, given: &Path) -> Result<Self, Refusal> {
        let canonical = host_files::canonical(given).map_err(|error| storage(&error))?;
        let device = FileDevice::open(&canonical, AccessMode::ReadWrite).map_err(|error| storage(&error))?;
        let disk = DiskCatalogue::default().disk_at(&canonical).ok();
        let by_id = disk.as_ref().and_then(|disk| disk.by_id.clone());
        let is_lasting = given.starts_with("/dev/disk/by-id");
        let path = match by_id.filter(|_| !is_lasting) {
            Some(by_id) => by_id,
            // Links too: a link that leads to `dm-3` now may rightly lead to `dm-4` next time.
            None if given.is_absolute() => given.to_owned(),
            None => canonical.clone(),
        };
        let hardware = disk.as_ref().map(Hardware::of).unwrap_or_default();
        let drive = DriveId(random_uuid(world));
        let recorded =
            RecordedDrive { drive: Some(drive), path, hardware, access: RemoteSettings::default() };
        let open = OpenDrive::local(world, canonical, disk, device);
        Ok(Self { recorded, open, domain: None, drive, is_in_the_clear: false })
    }

    /// A drive of the pool that is there and not in use, under a new UUID: it is a new member.
    pub fn returned(world: &World, open: &OpenPool, returned: &NamedDrive) -> Result<Self, Refusal> {
        let (name, folder) = (&returned.name, open.folder().display());
        if open.pool.drives_in_use().contains(&returned.drive) {
            let remedy = format!("nothing has to be done; 'spindle pool show {folder}' lists the drives");
            return Err(Refusal::new(format!("{folder}: {name} is in use"), remedy));
        }
        let known = open.drives.drives.iter().find(|drive| drive.recorded.drive == Some(returned.drive));
        let Some((known, there)) = known.and_then(|known| Some((known, known.state.as_ref().ok()?))) else {
            let remedy = "connect it, and try again";
            return Err(Refusal::new(format!("{folder}: {name} is not there"), remedy));
        };
        let drive = DriveId(random_uuid(world));
        Ok(Self {
            recorded: RecordedDrive { drive: Some(drive), ..known.recorded.clone() },
            open: there.clone(),
            // It is where it was.
            domain: open.pool.domain_of(returned.drive),
            drive,
            is_in_the_clear: false,
        })
    }

    pub fn size(&self) -> ByteCount {
        self.open.device.geometry().size
    }

    /// Name in messages.
    pub fn name(&self, folder: &Path) -> String {
        self.recorded.name(folder, Some(&self.open.path))
    }

    /// Warns if it may run out of space, or can be read on its way.
    pub async fn warn(&self, folder: &Path, notices: &dyn Notices) {
        if self.is_in_the_clear {
            let uri = self.recorded.path.display();
            notices.warn(&format!(
                "{uri}: everything that lies there goes over the network unencrypted; nbds:// encrypts it"
            ));
        }
        secure(&self.name(folder), &self.open).await.iter().for_each(|warning| notices.warn(warning));
    }

    pub fn new_drive(&self) -> NewDrive {
        NewDrive {
            drive: self.drive,
            serial: self.serial(),
            device: Rc::clone(&self.open.device),
            domain: self.domain,
        }
    }

    /// Gives it an identity that was chosen before.
    pub(super) fn identify(&mut self, drive: DriveId) {
        (self.drive, self.recorded.drive) = (drive, Some(drive));
    }

    /// The drive, as a search would have found it.
    pub(super) fn found(&self) -> PoolDrive {
        PoolDrive { recorded: self.recorded.clone(), moved_from: None, state: Ok(self.open.clone()) }
    }

    /// The drive with its meter.
    pub(super) fn metered(&self, folder: &Path) -> Option<MeteredDrive> {
        let label = DriveLabel::of(&self.recorded, folder)?;
        Some(MeteredDrive { label, meter: Rc::clone(&self.open.meter) })
    }

    /// Serial number, or the file's name: printable, and not too long.
    fn serial(&self) -> String {
        let stem = || {
            let path = &self.recorded.path;
            path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        };
        let serial = self.recorded.hardware.serial.clone().unwrap_or_else(stem);
        serial.chars().filter(char::is_ascii_graphic).take(SERIAL_BYTES_MAX).collect()
    }
}

/// Refuses devices that are the same disk.
pub fn check_distinct(devices: &[PathBuf]) -> Result<(), Refusal> {
    let catalogue = DiskCatalogue::default();
    let disks: Vec<(&PathBuf, Option<Disk>)> =
        devices.iter().map(|device| (device, catalogue.disk_at(device).ok())).collect();
    for (index, (path, disk)) in disks.iter().enumerate() {
        let is_same = |(other, known): &&(&PathBuf, Option<Disk>)| match (disk, known) {
            (Some(disk), Some(known)) => {
                known.number == disk.number
                    || (known.wwid.is_some() && known.wwid == disk.wwid && known.size == disk.size)
            }
            _ => is_uri(path) && in_full(path) == in_full(other),
        };
        if let Some((other, _)) = disks[..index].iter().find(is_same) {
            return Err(one_disk(other, path));
        }
    }
    Ok(())
}

fn one_disk(first: &Path, second: &Path) -> Refusal {
    let problem = format!("{} and {} are the same disk", first.display(), second.display());
    Refusal::new(problem, "name each disk once, and one of the paths to it")
}

/// Refuses drives that are one disk under two names: of one on another machine only a write shows it. They hold nothing
/// yet, and hold nothing afterwards.
pub async fn check_apart(drives: &[JoiningDrive]) -> Result<(), Refusal> {
    if !drives.iter().any(|drive| is_uri(&drive.recorded.path)) {
        return Ok(());
    }
    let twins = marked_twins(drives).await;
    for drive in drives {
        let zeroes = vec![Arc::new(Buffer::zeroed(MARK_BYTES))];
        let cleared = drive.open.device.write(ByteOffset(0), zeroes, Stability::Stable).await;
        cleared.map_err(|error| storage(&error))?;
    }
    match twins.map_err(|error| storage(&error))? {
        Some((first, second)) => Err(one_disk(&drives[first].recorded.path, &drives[second].recorded.path)),
        None => Ok(()),
    }
}

const MARK_BYTES: usize = 4096;

/// Writes the UUID of each drive to it, and finds the first whose mark became that of a later one.
async fn marked_twins(drives: &[JoiningDrive]) -> IoResult<Option<(usize, usize)>> {
    for drive in drives {
        let mut mark = Buffer::zeroed(MARK_BYTES);
        mark[..16].copy_from_slice(&drive.drive.0);
        drive.open.device.write(ByteOffset(0), vec![Arc::new(mark)], Stability::Volatile).await?;
    }
    for (index, drive) in drives.iter().enumerate() {
        let there = drive.open.device.read(ByteOffset(0), vec![Buffer::zeroed(MARK_BYTES)]).await?;
        let marked = |other: &JoiningDrive| there[0][..16] == other.drive.0;
        if let Some(other) = drives.iter().position(marked)
            && other != index
        {
            return Ok(Some((index, other)));
        }
    }
    Ok(None)
}
