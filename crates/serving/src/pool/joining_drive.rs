//! A drive that joins a pool: a file made for it, a blank device, or a drive that comes back.

use super::{
    create::storage,
    departure::NamedDrive,
    drive_search::OpenDrive,
    drive_space::secure,
    folder::OpenPool,
    record::{Hardware, RecordedDrive},
};
use crate::{notices::Notices, uuid::random_uuid};
use array::{
    format::{DomainName, DriveId},
    pool::NewDrive,
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, ByteCount, World,
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
}

impl JoiningDrive {
    /// A new file in the folder, with all its space reserved.
    pub async fn file(world: &World, folder: &Path, name: PathBuf, size: ByteCount) -> Result<Self, Refusal> {
        let path = folder.join(&name);
        let device = Rc::new(FileDevice::create(&path, size).await.map_err(|error| storage(&error))?);
        let drive = DriveId(random_uuid(world));
        let open = OpenDrive { path, disk: None, device };
        Ok(Self { recorded: RecordedDrive::file(drive, name), open, domain: None, drive })
    }

    /// A device, by a lasting name if there is one.
    pub fn device(world: &World, given: &Path) -> Result<Self, Refusal> {
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
        let recorded = RecordedDrive { drive: Some(drive), path, hardware };
        let open = OpenDrive { path: canonical, disk, device: Rc::new(device) };
        Ok(Self { recorded, open, domain: None, drive })
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
        })
    }

    pub fn size(&self) -> ByteCount {
        self.open.device.geometry().size
    }

    /// Name in messages.
    pub fn name(&self, folder: &Path) -> String {
        self.recorded.name(folder, Some(&self.open.path))
    }

    /// Warns if it may run out of space.
    pub async fn warn(&self, folder: &Path, notices: &dyn Notices) {
        secure(&self.name(folder), &self.open).await.iter().for_each(|warning| notices.warn(warning));
    }

    pub fn new_drive(&self) -> NewDrive {
        NewDrive {
            drive: self.drive,
            serial: self.serial(),
            device: Rc::clone(&self.open.device) as Rc<dyn BlockDevice>,
            domain: self.domain,
        }
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
        let Some(disk) = disk else { continue };
        let is_same = |other: &Disk| {
            other.number == disk.number
                || (other.wwid.is_some() && other.wwid == disk.wwid && other.size == disk.size)
        };
        let twin = disks[..index].iter().find(|(_, other)| other.as_ref().is_some_and(is_same));
        if let Some((other, _)) = twin {
            let problem = format!("{} and {} are the same disk", other.display(), path.display());
            return Err(Refusal::new(problem, "name each disk once, and one of the paths to it"));
        }
    }
    Ok(())
}
