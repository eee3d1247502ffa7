//! A device that an extent directory divides into files: a volume, a snapshot, an image of either.
//!
//! Invariants:
//!
//! 1. Nothing is written to the device.
//! 2. Files are found once, when it is opened. [`DividedDevice::has_changed`] says whether that still holds.

use crate::{kind::START_BYTES, log::LOG_BYTES_MAX, running::places::is_live_file};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use thiserror::Error;
use world::{
    BlockDevice, Buffer, ByteOffset, Crc32c, Directory, DirectoryEntry, ExtentDirectory, IoError, IoResult,
    Probe, WallTime, overlay::ReadOnlyView, real::host_files::FileMetadata,
};

/// An open device, for reading alone.
pub struct DividedDevice {
    name: PathBuf,
    device: Rc<dyn BlockDevice>,
    directory: Rc<dyn Directory>,
    entries: Vec<DirectoryEntry>,
    table_copies: u8,
    /// Checksum over what a live volume changes first.
    mark: u32,
}

/// The reason why a device has no files to check.
#[derive(Debug, Error)]
pub enum UndividedDevice {
    #[error("{0}")]
    Io(#[from] IoError),
    #[error("{} is blank: no database was ever put there", _0.display())]
    Blank(PathBuf),
    /// A filesystem, another program's data, or a table of files of which both copies are damaged.
    #[error("{} holds no extent directory of Spindle, or both copies of its file table are damaged", _0.display())]
    Foreign(PathBuf),
}

impl DividedDevice {
    /// Finds the files on `device`, which is called `name` in results.
    ///
    /// # Errors
    ///
    /// It cannot be read, or holds no extent directory.
    pub async fn open(name: &Path, device: Rc<dyn BlockDevice>) -> Result<Rc<Self>, UndividedDevice> {
        let device: Rc<dyn BlockDevice> = Rc::new(ReadOnlyView(device));
        match ExtentDirectory::probe(&*device).await? {
            Probe::Ours => {}
            Probe::Blank => return Err(UndividedDevice::Blank(name.to_owned())),
            Probe::Foreign => return Err(UndividedDevice::Foreign(name.to_owned())),
        }
        let table_copies = ExtentDirectory::table_copies(&*device).await?;
        let (directory, entries, mark) = look(&device, name).await?;
        Ok(Rc::new(Self { name: name.to_owned(), device, directory, entries, table_copies, mark }))
    }

    /// The name of the device in results.
    pub fn name(&self) -> &Path {
        &self.name
    }

    /// The files found.
    pub fn entries(&self) -> &[DirectoryEntry] {
        &self.entries
    }

    /// A warning if one copy of the table of files is all there is.
    pub(super) fn table_warning(&self) -> Option<String> {
        (self.table_copies < 2 && !self.entries.is_empty()).then(|| {
            format!(
                "{}: one of the two copies of its file table does not verify: a crash interrupted its last change, or it \
                 is damaged",
                self.name.display()
            )
        })
    }

    pub(super) fn directory(&self) -> &Rc<dyn Directory> {
        &self.directory
    }

    /// As for a file of a filesystem. Files of a device have no time of change: the mark of the device tells as much.
    pub(super) fn metadata(&self, name: &str) -> FileMetadata {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        FileMetadata {
            size: entry.map_or(0, |entry| entry.size.0),
            modified: WallTime { seconds: self.mark.into(), nanos: 0 },
            identity: (0, 0),
        }
    }

    /// True if somebody writes to the device: its files, their headers, the checkpoint or the current log are not
    /// those that were found.
    pub async fn has_changed(&self) -> IoResult<bool> {
        Ok(look(&self.device, &self.name).await?.2 != self.mark)
    }
}

/// Reads the table of files, and the parts of the files that a running engine changes within seconds.
async fn look(
    device: &Rc<dyn BlockDevice>,
    name: &Path,
) -> IoResult<(Rc<dyn Directory>, Vec<DirectoryEntry>, u32)> {
    let directory = ExtentDirectory::open(Rc::clone(device)).await?.named(name.display().to_string());
    let entries = directory.list().await?;
    let mut mark = Crc32c::default();
    for entry in &entries {
        mark.update(entry.name.as_bytes());
        mark.update(&entry.size.0.to_le_bytes());
        let most = if is_live_file(&entry.name) { LOG_BYTES_MAX } else { START_BYTES as u64 };
        let length = entry.size.0.min(most) as usize;
        if length > 0 {
            let file = directory.open(&entry.name).await?;
            // An unreadable start is a finding of the check, and stays unreadable.
            if let Ok(bytes) = file.read(ByteOffset(0), vec![Buffer::zeroed(length)]).await {
                mark.update(&bytes[0]);
            }
        }
    }
    Ok((Rc::new(directory), entries, mark.value()))
}
