//! Open locations: a folder or a raw device as a directory, with the record of a run in it.

use crate::{
    location::LocationFacts,
    manifest::{MANIFEST_NAME, MANIFEST_NEXT, Manifest},
    remote::RemoteDevice,
};
use std::{collections::BTreeMap, path::Path, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, IoErrorKind, IoResult, Stability, World,
    extent_directory::ExtentDirectory,
    real::{AccessMode, FileDevice, FolderDirectory, RealIoKind, host_files},
};

/// Length of a record on a raw device is a multiple of this: every sector size divides it.
const RECORD_UNIT: usize = 4096;
/// A longer record is not ours.
const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Bytes that `wipe` clears at both ends of a raw device: the table of files, and whatever lies last.
const WIPE: ByteCount = ByteCount::mib(2);

/// Everything needed to open a location, on any thread.
#[derive(Clone, Debug)]
pub struct StorageEndpoint {
    /// Path without links.
    pub path: Arc<Path>,
    pub is_device: bool,
    /// Set for a device of another machine.
    pub remote: Option<Arc<dyn RemoteDevice>>,
}

impl StorageEndpoint {
    pub fn of(facts: &LocationFacts) -> Self {
        match facts {
            LocationFacts::Folder(folder) => Self::folder(&folder.canonical),
            LocationFacts::Device(device) => {
                Self { remote: device.remote.clone(), ..Self::device(&device.canonical) }
            }
        }
    }

    pub fn folder(path: &Path) -> Self {
        Self { path: path.into(), is_device: false, remote: None }
    }

    /// A raw device of this machine.
    pub fn device(path: &Path) -> Self {
        Self { path: path.into(), is_device: true, remote: None }
    }

    async fn raw(&self, world: &World) -> IoResult<Rc<dyn BlockDevice>> {
        assert!(self.is_device, "only a device is opened as one");
        match &self.remote {
            Some(remote) => Ok(remote.open(world).await?.device),
            None => Ok(Rc::new(FileDevice::open(&self.path, AccessMode::ReadWrite)?)),
        }
    }

    pub async fn open(&self, world: &World) -> IoResult<Rc<dyn Directory>> {
        if !self.is_device {
            return Ok(Rc::new(FolderDirectory::open(&self.path)?));
        }
        let device = self.raw(world).await?;
        Ok(Rc::new(ExtentDirectory::open(device).await?.named(self.path.display().to_string())))
    }

    /// Makes a raw device an empty directory; a folder is one already.
    pub async fn prepare(&self, world: &World) -> IoResult<()> {
        if self.is_device {
            ExtentDirectory::format(self.raw(world).await?).await?;
        }
        Ok(())
    }

    /// Blanks a raw device where Spindle's table was.
    pub async fn wipe(&self, world: &World) -> IoResult<()> {
        let device = self.raw(world).await?;
        let size = device.geometry().size;
        let length = WIPE.min(size);
        let zeroes = Arc::new(Buffer::zeroed(length.0 as usize));
        device.write(ByteOffset(0), vec![Arc::clone(&zeroes)], Stability::Stable).await?;
        device.write(ByteOffset(size.0 - length.0), vec![zeroes], Stability::Stable).await
    }

    /// I/O path of files there, as far as it is known before one is made.
    pub fn io_kind(&self) -> IoResult<Option<RealIoKind>> {
        if self.remote.is_some() {
            return Ok(None);
        }
        if self.is_device {
            return Ok(Some(FileDevice::open(&self.path, AccessMode::Read)?.io_kind()));
        }
        Ok(FolderDirectory::open(&self.path)?.io_kind())
    }

    /// Stores the record of a run; the old one stays until the new one is complete.
    pub async fn write_manifest(&self, world: &World, manifest: &Manifest) -> IoResult<()> {
        if !self.is_device {
            return host_files::write_atomically(&self.path.join(MANIFEST_NAME), &manifest.to_bytes());
        }
        self.write_record_in(&self.open(world).await?, manifest).await
    }

    /// As [`Self::write_manifest`], for a location that is already open: a raw device must not be opened twice.
    pub async fn write_record_in(&self, directory: &Rc<dyn Directory>, manifest: &Manifest) -> IoResult<()> {
        if !self.is_device {
            return host_files::write_atomically(&self.path.join(MANIFEST_NAME), &manifest.to_bytes());
        }
        let mut bytes = manifest.to_bytes();
        bytes.resize(bytes.len().next_multiple_of(RECORD_UNIT), 0);
        match directory.remove(MANIFEST_NEXT).await {
            Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = directory.create(MANIFEST_NEXT, ByteCount(bytes.len() as u64)).await?;
        file.write(ByteOffset(0), vec![Arc::new(Buffer::copy_of(&bytes))], Stability::Stable).await?;
        directory.rename(MANIFEST_NEXT, MANIFEST_NAME).await?;
        directory.sync().await
    }

    /// The files there that `manifest` owns, and their sizes.
    pub async fn files_of(
        &self,
        world: &World,
        manifest: &Manifest,
    ) -> IoResult<BTreeMap<String, ByteCount>> {
        let entries = self.open(world).await?.list().await?.into_iter();
        Ok(entries.filter(|entry| manifest.owns(&entry.name)).map(|entry| (entry.name, entry.size)).collect())
    }

    /// The stored record: `None` if there is none, an error text if it cannot be read.
    pub async fn read_manifest(&self, world: &World) -> IoResult<Option<Result<Manifest, String>>> {
        if self.is_device {
            return read_padded(&*self.open(world).await?).await;
        }
        match host_files::read(&self.path.join(MANIFEST_NAME)) {
            Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => Ok(Some(Manifest::from_bytes(&bytes))),
        }
    }
}

/// The record of a run in an open directory on a raw device; as [`StorageEndpoint::read_manifest`].
pub async fn read_padded(directory: &dyn Directory) -> IoResult<Option<Result<Manifest, String>>> {
    let file = match directory.open(MANIFEST_NAME).await {
        Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let length = file.geometry().size.0;
    if length == 0 || length > RECORD_BYTES_MAX {
        return Ok(Some(Err(format!("it has {length} bytes"))));
    }
    let buffers = file.read(ByteOffset(0), vec![Buffer::zeroed(length as usize)]).await?;
    Ok(Some(Manifest::from_bytes(&buffers[0])))
}
