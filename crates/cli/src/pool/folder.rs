//! The folder of a pool: it says which drives the pool has, and is held by whoever has the pool open.
//!
//! Invariants:
//!
//! 1. A pool is open in one process at a time: its folder is locked for as long.
//! 2. The record names drives; what they are and hold is said by the drives alone.

use super::{drive_search::DriveSearch, drive_space::secure, record::PoolRecord};
use crate::{console::Console, refusal::Refusal};
use array::{
    error::Error,
    pool::{OpenSetting, Pool, open},
};
use std::{
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    IoErrorKind, World,
    real::{
        Access,
        host_files::{self, FolderLock},
    },
};

/// A pool that this process has open.
pub struct OpenPool {
    /// The pool.
    pub pool: Rc<Pool>,
    /// Its drives, where they are and why not.
    pub drives: DriveSearch,
    /// What its drives lack: lines that were said when it was opened.
    pub warnings: Vec<String>,
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
        let drives = DriveSearch::open(world, folder, &record, Access::ReadWrite).await?;
        let devices = drives.devices();
        if devices.is_empty() {
            let problem = format!(
                "{}: none of its drives is there: {}",
                folder.display(),
                drives.missing(folder).join("; ")
            );
            return Err(Refusal::new(
                problem,
                "connect them, or look for them with 'spindle pool import --list'",
            ));
        }
        let warnings = secure_all(folder, &drives).await;
        let pool = open(world, &devices, setting).await;
        let pool = pool.map_err(|error| {
            let remedy = format!("or: spindle pool force-open {}", folder.display());
            let remedy = if matches!(error, Error::NotOpened(_)) { remedy } else { String::new() };
            Refusal::new(format!("{}: {}", folder.display(), drives.in_words(&error.to_string())), remedy)
        })?;
        let found = drives.record();
        let open = Self { pool, drives, warnings, folder: folder.to_owned(), record: found, held };
        if open.record != record {
            open.keep_record();
        }
        Ok(open)
    }

    /// Keeps where drives are now. The pool is open: a record that is behind makes the next search longer, no more.
    fn keep_record(&self) {
        let console = Console::new(true, false);
        for drive in &self.drives.drives {
            if let Some(before) = &drive.moved_from {
                let name = drive.name(&self.folder);
                console.say_progress(&format!("{}: {name}, was {}", self.folder.display(), before.display()));
            }
        }
        if let Err(refusal) = self.record.write(&self.folder) {
            console.warn(&format!("where the pool's drives are now could not be recorded: {refusal}"));
        }
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

/// Sets space aside for drives that lack it, and says what they may lack all the same.
async fn secure_all(folder: &Path, drives: &DriveSearch) -> Vec<String> {
    let mut warnings = Vec::new();
    for drive in &drives.drives {
        if let Ok(open) = &drive.state {
            warnings.extend(secure(&drive.name(folder), open).await);
        }
    }
    let console = Console::new(true, false);
    warnings.iter().for_each(|warning| console.warn(warning));
    warnings
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
