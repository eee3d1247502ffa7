//! The place of a file to check: in a filesystem, or on a device that an extent directory divides.

use super::{divided_device::DividedDevice, source::Source, stamps::ReadOnly};
use std::{
    fmt,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    Directory, IoResult,
    real::{
        FolderDirectory,
        host_files::{self, FileMetadata},
    },
};

#[derive(Clone)]
pub struct FilePlace {
    path: PathBuf,
    /// Set for a file on a device, with its name there.
    on_device: Option<(Rc<DividedDevice>, String)>,
}

impl FilePlace {
    pub fn in_filesystem(path: &Path) -> Self {
        Self { path: path.to_owned(), on_device: None }
    }

    /// The file `name` of a device.
    pub fn on_device(device: &Rc<DividedDevice>, name: &str) -> Self {
        let path = path_on_device(device.name(), name);
        Self { path, on_device: Some((Rc::clone(device), name.to_owned())) }
    }

    /// As it is shown: a path, or `DEVICE:FILE`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn is_in_filesystem(&self) -> bool {
        self.on_device.is_none()
    }

    /// The folder or the device that it lies in. Files of one folder belong together.
    pub fn folder(&self) -> PathBuf {
        match &self.on_device {
            Some((device, _)) => device.name().to_owned(),
            None => self.path.parent().unwrap_or(Path::new("")).to_owned(),
        }
    }

    /// The name in its folder.
    pub fn name(&self) -> String {
        match &self.on_device {
            Some((_, name)) => name.clone(),
            None => self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Opens the file for reading.
    pub async fn open(&self) -> IoResult<Source> {
        match &self.on_device {
            Some((device, name)) => Ok(Source::of(device.directory().open(name).await?)),
            None => Source::open(&self.path),
        }
    }

    /// Metadata that every change of the file changes.
    pub fn metadata(&self) -> IoResult<FileMetadata> {
        match &self.on_device {
            Some((device, name)) => Ok(device.metadata(name)),
            None => host_files::metadata(&self.path),
        }
    }

    /// True for a file of a device that somebody writes to.
    pub async fn is_on_changed_device(&self) -> bool {
        match &self.on_device {
            Some((device, _)) => device.has_changed().await.unwrap_or(true),
            None => false,
        }
    }

    /// Its folder as a directory, for reading alone.
    pub fn directory(&self) -> IoResult<Rc<dyn Directory>> {
        match &self.on_device {
            Some((device, _)) => Ok(Rc::clone(device.directory())),
            None => Ok(Rc::new(ReadOnly(FolderDirectory::open(folder_of(&self.path))?))),
        }
    }

    /// The file `name` of the same folder, which need not exist.
    pub fn sibling(&self, name: &str) -> Self {
        match &self.on_device {
            Some((device, _)) => Self::on_device(device, name),
            None => Self::in_filesystem(&self.path.with_file_name(name)),
        }
    }

    /// All files of its folder, itself included.
    pub fn neighbours(&self) -> Vec<Self> {
        match &self.on_device {
            Some((device, _)) => {
                device.entries().iter().map(|entry| Self::on_device(device, &entry.name)).collect()
            }
            None => {
                let names = host_files::list(folder_of(&self.path)).unwrap_or_default();
                names.into_iter().map(|name| Self::in_filesystem(&self.path.with_file_name(name))).collect()
            }
        }
    }
}

impl fmt::Debug for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilePlace").field(&self.path).finish()
    }
}

/// A file of a device as it is shown: `DEVICE:FILE`.
fn path_on_device(device: &Path, name: &str) -> PathBuf {
    let mut path = device.as_os_str().to_owned();
    path.push(":");
    path.push(name);
    path.into()
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}
