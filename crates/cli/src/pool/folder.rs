//! The folder of a pool: it says which drives the pool has, and is held by whoever has the pool open.
//!
//! Invariants:
//!
//! 1. A pool is open in one process at a time: its folder is locked for as long.
//! 2. The record names drives; what they are and hold is said by the drives alone.

use crate::refusal::Refusal;
use array::{
    error::Error,
    pool::{OpenSetting, Pool, open},
};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, IoErrorKind, World,
    real::{
        Access, FileDevice,
        host_files::{self, FolderLock, PathKind},
    },
};

/// The record in the folder.
pub const RECORD_NAME: &str = "spindle-pool.json";
/// Its format.
const RECORD_FORMAT: u32 = 1;

/// Which drives a pool has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Of this record.
    format: u32,
    /// Paths of drives; those that are not absolute are in the folder.
    pub drives: Vec<PathBuf>,
}

impl PoolRecord {
    /// A record of those drives.
    pub fn new(drives: Vec<PathBuf>) -> Self {
        Self { format: RECORD_FORMAT, drives }
    }

    /// Stores it.
    pub fn write(&self, folder: &Path) -> Result<(), Refusal> {
        let text = serde_json::to_string_pretty(self).expect("plain fields") + "\n";
        host_files::write_atomically(&folder.join(RECORD_NAME), text.as_bytes())
            .map_err(|error| Refusal::new(error.to_string(), "check the folder"))
    }

    /// The one in a folder.
    fn read(folder: &Path) -> Result<Self, Refusal> {
        let path = folder.join(RECORD_NAME);
        let text = host_files::read_to_string(&path).map_err(|error| match error.kind() {
            IoErrorKind::NotFound => Refusal::new(
                format!("{} is no pool: it has no {RECORD_NAME}", folder.display()),
                format!("make one: spindle pool create {} --size SIZE", folder.display()),
            ),
            _ => Refusal::new(error.to_string(), "check its permissions"),
        })?;
        let refuse = |why: String| Refusal::new(format!("{}: {why}", path.display()), "put it right by hand");
        let record: Self = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if record.format != RECORD_FORMAT {
            return Err(refuse(format!("it has format {}, and {RECORD_FORMAT} is known", record.format)));
        }
        Ok(record)
    }
}

/// Whether a folder is one of a pool.
pub fn is_pool(folder: &Path) -> bool {
    matches!(host_files::kind(&folder.join(RECORD_NAME)), Ok(PathKind::File))
}

/// A pool that this process has open.
pub struct OpenPool {
    /// The pool.
    pub pool: Rc<Pool>,
    /// Paths of its drives, and whether each is there.
    pub drives: Vec<(PathBuf, bool)>,
    folder: PathBuf,
    record: PoolRecord,
    /// Declared last: it is held until everything else is gone.
    #[expect(dead_code, reason = "held for what its being held means")]
    held: FolderLock,
}

impl OpenPool {
    /// Opens the pool of a folder.
    pub async fn open(world: &World, folder: &Path) -> Result<Self, Refusal> {
        Self::open_as(world, folder, OpenSetting::default()).await
    }

    /// As [`OpenPool::open`], without the drives that are missing, whatever they alone may hold.
    pub async fn open_without_missing(world: &World, folder: &Path) -> Result<Self, Refusal> {
        Self::open_as(world, folder, OpenSetting { forced: true, ..OpenSetting::default() }).await
    }

    async fn open_as(world: &World, folder: &Path, setting: OpenSetting) -> Result<Self, Refusal> {
        let record = PoolRecord::read(folder)?;
        let held = hold(folder)?;
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        let mut drives = Vec::new();
        for drive in &record.drives {
            let path = folder.join(drive);
            let is_there = match FileDevice::open(&path, Access::ReadWrite) {
                Ok(device) => {
                    devices.push(Rc::new(device));
                    true
                }
                // The pool decides whether it can do without.
                Err(error) if error.kind() == IoErrorKind::NotFound => false,
                Err(error) => return Err(Refusal::new(error.to_string(), "check the drive")),
            };
            drives.push((path, is_there));
        }
        let pool = open(world, &devices, setting).await;
        let pool = pool.map_err(|error| {
            let remedy = format!("or: spindle pool force-open {}", folder.display());
            let remedy = if matches!(error, Error::NotOpened(_)) { remedy } else { String::new() };
            refusal(folder, &error, &remedy)
        })?;
        Ok(Self { pool, drives, folder: folder.to_owned(), record, held })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What its folder says.
    pub fn record(&self) -> &PoolRecord {
        &self.record
    }

    /// Has its folder say that from now on.
    pub fn set_record(&mut self, record: PoolRecord) -> Result<(), Refusal> {
        record.write(&self.folder)?;
        self.record = record;
        Ok(())
    }

    /// Closes it: what was answered is stable.
    pub async fn close(self) -> Result<(), Refusal> {
        self.pool.close().await.map_err(|error| refusal(&self.folder, &error, "check the drives"))
    }
}

/// Takes the folder for this process.
pub fn hold(folder: &Path) -> Result<FolderLock, Refusal> {
    host_files::lock_folder(folder).map_err(|error| match error.kind() {
        IoErrorKind::Busy => Refusal::new(
            format!("{}: another Spindle has the pool open", folder.display()),
            "end it first: a pool is open in one process at a time",
        ),
        _ => Refusal::new(error.to_string(), "check the folder"),
    })
}

/// What a pool refused, with its folder.
pub fn refusal(folder: &Path, error: &array::error::Error, remedy: &str) -> Refusal {
    Refusal::new(format!("{}: {error}", folder.display()), remedy)
}

/// A volume or a snapshot by its path: `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePath {
    /// Folder of the pool.
    pub folder: PathBuf,
    /// Name of the volume.
    pub volume: String,
    /// Name of the snapshot.
    pub snapshot: Option<String>,
}

impl VolumePath {
    /// Takes a path apart; none if it has no such parts.
    pub fn of(path: &Path) -> Option<Self> {
        let (name, folder) = (path.file_name()?.to_str()?, path.parent()?);
        let (volume, snapshot) = match name.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (name, None),
        };
        let is_whole = !volume.is_empty() && !folder.as_os_str().is_empty() && snapshot != Some("");
        is_whole.then(|| Self {
            folder: folder.to_owned(),
            volume: volume.to_owned(),
            snapshot: snapshot.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_a_volume_has_a_pool_a_name_and_perhaps_a_snapshot() {
        let of = |path: &str| VolumePath::of(Path::new(path));
        let found = of("/srv/mail/store@monday").unwrap();
        assert_eq!((found.folder.to_str(), found.volume.as_str()), (Some("/srv/mail"), "store"));
        assert_eq!(found.snapshot.as_deref(), Some("monday"));
        assert_eq!(of("mail/store").unwrap().snapshot, None);
        for path in ["store", "mail/@monday", "mail/store@", "/"] {
            assert_eq!(of(path), None, "{path}");
        }
    }
}
