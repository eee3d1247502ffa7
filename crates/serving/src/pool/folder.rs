//! The folder of a pool: it lists the pool's drives, and is locked by the process that has the pool open.
//!
//! Invariants:
//!
//! 1. A pool is open in one process at a time: that process holds the lock on its folder.
//! 2. The record lists drives; only the drives say what they are and hold.
//! 3. While the pool is open its status is published in the folder (`status`); closing removes it.

pub use super::publisher::ShownDrives;

use super::{
    advice::OpeningAdvice,
    drive_search::{DriveSearch, PoolDrive},
    drive_space::secure,
    events::{KnownDrive, PoolContext},
    joining_drive::JoiningDrive,
    publisher::Publisher,
    record::{PoolRecord, RecordedDrive},
    shared_group,
    status::{self, DriveStatuses},
    volume_change::ChangeablePool,
    volume_import,
};
use crate::{
    figures::{DriveLabel, MeteredDrive, PoolMeters},
    notices::Notices,
};
use array::{
    error::Error,
    pool::{OpenSetting, Pool, ReadOnlyPool, events::PoolEventReader, open, open_read_only},
};
use report::{Refusal, RefusalCause};
use std::{
    cell::{Ref, RefCell},
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};
use world::{
    DeviceMeter, IoErrorKind, JoinHandle, LocalFuture, World,
    real::{
        AccessMode,
        host_files::{self, FolderLock},
    },
    with_deadline,
};

/// Time for the last events when a pool is closed.
pub const LAST_EVENTS_WITHIN: Duration = Duration::from_secs(1);

pub struct OpenPool {
    pub pool: Rc<Pool>,
    pub drives: DriveSearch,
    pub meters: Rc<PoolMeters>,
    /// Warnings that were printed when it was opened.
    pub warnings: Vec<String>,
    folder: PathBuf,
    record: PoolRecord,
    world: World,
    shown: Rc<RefCell<ShownDrives>>,
    publishing: JoinHandle<()>,
    following: Option<JoinHandle<()>>,
    /// Declared last: the lock is held until everything else is gone.
    #[expect(dead_code, reason = "held until it is dropped")]
    held: FolderLock,
}

impl OpenPool {
    pub async fn open(world: &World, folder: &Path, notices: &Rc<dyn Notices>) -> Result<Self, Refusal> {
        Self::open_as(world, folder, OpenSetting::default(), notices).await
    }

    /// As [`OpenPool::open`], without the missing drives, even if they alone hold some data.
    pub async fn open_without_missing(
        world: &World,
        folder: &Path,
        notices: &Rc<dyn Notices>,
    ) -> Result<Self, Refusal> {
        let setting = OpenSetting { forced: true, ..OpenSetting::default() };
        Self::open_as(world, folder, setting, notices).await
    }

    async fn open_as(
        world: &World,
        folder: &Path,
        setting: OpenSetting,
        notices: &Rc<dyn Notices>,
    ) -> Result<Self, Refusal> {
        let held = HeldPool::take(world, folder, AccessMode::ReadWrite).await?;
        match held.open(world, setting, notices).await {
            Ok(open) => Ok(open),
            Err(failure) => {
                let OpenFailure { held, error } = *failure;
                let next = OpeningAdvice::after(world, &held.drives.devices(), &error, setting.forced).await;
                Err(held.refusal(&error, &next.remedy(folder)))
            }
        }
    }

    /// Records the current paths of drives. The pool is open, and an outdated record only makes the next search longer.
    fn keep_record(&self, notices: &dyn Notices) {
        for drive in &self.drives.drives {
            if let Some(before) = &drive.moved_from {
                let name = drive.name(&self.folder);
                notices.note(&format!("{}: {name}, was {}", self.folder.display(), before.display()));
            }
        }
        if let Err(refusal) = self.record.write(&self.folder) {
            notices.warn(&format!("where the pool's drives are now could not be recorded: {refusal}"));
        }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn record(&self) -> &PoolRecord {
        &self.record
    }

    /// Replaces the folder's record.
    pub fn set_record(&mut self, record: PoolRecord) -> Result<(), Refusal> {
        record.write(&self.folder)?;
        self.record = record;
        Ok(())
    }

    /// Lists a drive that has joined among the open ones, for statuses, messages and the next change.
    pub(super) fn drive_joined(&mut self, joined: &JoiningDrive) {
        self.drives.add(joined.found(), &self.folder);
        self.drives_changed();
    }

    /// Drives that have left the pool for good, or were forgotten, leave the record. Returns their names.
    ///
    /// # Errors
    ///
    /// The record cannot be written; they stay in it.
    pub fn forget_departed(&mut self) -> Result<Vec<String>, Refusal> {
        let pool = Rc::clone(&self.pool);
        let has_left = |drive: &RecordedDrive| drive.drive.is_some_and(|drive| pool.has_left(drive));
        if !self.record.drives.iter().any(has_left) {
            return Ok(Vec::new());
        }
        let mut record = self.record.clone();
        let gone: Vec<_> = record.drives.extract_if(.., |drive| has_left(drive)).collect();
        self.set_record(record)?;
        self.drives_changed();
        Ok(gone.iter().map(|drive| drive.name(&self.folder, None)).collect())
    }

    /// The drives as they are shown at each moment.
    pub fn shown(&self) -> Ref<'_, ShownDrives> {
        self.shown.borrow()
    }

    /// The drives as they are shown, for others on this thread.
    pub fn shared_shown(&self) -> Rc<RefCell<ShownDrives>> {
        Rc::clone(&self.shown)
    }

    /// Drops drives that the record lists no more, and shows the others.
    pub(super) fn drives_changed(&mut self) {
        self.drives.keep_recorded(&self.record);
        self.shown.replace(shown_drives(&self.folder, &self.drives, &self.warnings));
    }

    /// Follows its events until it is closed, those since it was opened included.
    pub fn follow_events(&mut self, follow: impl FnOnce(PoolEventReader, PoolContext) -> LocalFuture<()>) {
        let following = follow(self.pool.events(), context_of(&self.folder, &self.drives));
        self.following = Some(self.world.spawn("pool events", following));
    }

    /// Closes the pool: all acknowledged writes are stable.
    pub async fn close(self) -> Result<(), Refusal> {
        let closed = self.pool.close().await;
        let closed = closed.map_err(|error| self.refusal(&error, "check the drives"));
        self.publishing.await;
        if let Some(following) = self.following {
            with_deadline(self.world.sleep(LAST_EVENTS_WITHIN), following).await;
        }
        status::withdraw(&self.folder);
        closed
    }

    /// A pool's error, with its drives by their names.
    pub fn refusal(&self, error: &Error, remedy: &str) -> Refusal {
        let problem = format!("{}: {}", self.folder.display(), self.drives.in_words(error));
        Refusal::new(problem, remedy).caused_by(cause_of(error))
    }

    /// For changes of its volumes, which nobody else uses.
    pub fn changeable(&self) -> ChangeablePool<'_> {
        ChangeablePool::stopped(&self.world, &self.pool, &self.folder, &self.drives)
    }
}

pub(super) const READ_ONLY_CACHE_BYTES: usize = 64 << 20;

/// A pool that this process has locked, and its drives.
pub struct HeldPool {
    pub drives: DriveSearch,
    pub folder: PathBuf,
    record: PoolRecord,
    held: FolderLock,
}

/// A pool that did not open, and the error.
pub struct OpenFailure {
    /// For a caller that reads what can be read.
    pub held: HeldPool,
    pub error: Error,
}

impl HeldPool {
    /// Locks the folder, and finds the drives that its record lists.
    pub async fn take(world: &World, folder: &Path, access: AccessMode) -> Result<Self, Refusal> {
        let record = PoolRecord::read(folder)?;
        let held = hold(folder)?;
        status::withdraw(folder);
        let drives = DriveSearch::open(world, folder, &record, access).await?;
        if drives.devices().is_empty() {
            let problem = format!(
                "{}: none of its drives was found: {}",
                folder.display(),
                drives.missing(folder).join("; ")
            );
            return Err(Refusal::new(
                problem,
                "connect them, or look for them with 'spindle pool import --list'",
            ));
        }
        Ok(Self { drives, folder: folder.to_owned(), record, held })
    }

    pub async fn open(
        self,
        world: &World,
        setting: OpenSetting,
        notices: &Rc<dyn Notices>,
    ) -> Result<OpenPool, Box<OpenFailure>> {
        let warnings = secure_all(&self.folder, &self.drives, &**notices).await;
        let pool = match open(world, &self.drives.devices(), setting).await {
            Ok(pool) => pool,
            Err(error) => return Err(Box::new(OpenFailure { held: self, error })),
        };
        let Self { drives, folder, record, held } = self;
        let found = drives.record();
        let shown = Rc::new(RefCell::new(shown_drives(&folder, &drives, &warnings)));
        let publisher = Publisher::begin(world, &pool, (&folder, &shown), notices).await;
        let meters = PoolMeters::new(world);
        metered_drives(world, &folder, &drives).into_iter().for_each(|drive| meters.add_drive(drive));
        let open = OpenPool {
            pool,
            drives,
            meters,
            warnings,
            folder,
            record: found,
            world: world.clone(),
            shown,
            publishing: world.spawn("pool status", publisher.run()),
            following: None,
            held,
        };
        if open.record != record {
            open.keep_record(&**notices);
        }
        let unattached = volume_import::attach_all(world, &open.pool);
        for warning in shared_group::unsettled_warnings(&open).into_iter().chain(unattached) {
            notices.warn(&warning);
        }
        Ok(open)
    }

    /// A pool's error, with its drives by their names.
    pub fn refusal(&self, error: &Error, remedy: &str) -> Refusal {
        let problem = format!("{}: {}", self.folder.display(), self.drives.in_words(error));
        Refusal::new(problem, remedy).caused_by(cause_of(error))
    }
}

/// A pool open for reading; the folder's lock keeps writers out.
pub struct OpenReadOnlyPool {
    pub pool: Rc<ReadOnlyPool>,
    pub held: HeldPool,
}

impl OpenReadOnlyPool {
    /// Opens the pool of a folder read-only; it may be damaged. Nothing is written to its drives.
    pub async fn open(world: &World, folder: &Path) -> Result<Self, Refusal> {
        Self::of(HeldPool::take(world, folder, AccessMode::Read).await?).await
    }

    /// The pool of a locked folder.
    pub async fn of(held: HeldPool) -> Result<Self, Refusal> {
        match open_read_only(&held.drives.devices(), READ_ONLY_CACHE_BYTES).await {
            Ok(pool) => Ok(Self { pool, held }),
            Err(error) => Err(held.refusal(&error, "connect its drives")),
        }
    }
}

/// The drives with their meters, those that are missing included.
fn metered_drives(world: &World, folder: &Path, drives: &DriveSearch) -> Vec<MeteredDrive> {
    let metered = drives.drives.iter().filter_map(|drive| {
        let label = DriveLabel::of(&drive.recorded, folder)?;
        let idle = |_: &_| DeviceMeter::new(world);
        Some(MeteredDrive {
            label,
            meter: drive.state.as_ref().map_or_else(idle, |open| Rc::clone(&open.meter)),
        })
    });
    metered.collect()
}

/// Reserves space for drives that lack it, and returns warnings about what they may still lack.
async fn secure_all(folder: &Path, drives: &DriveSearch, notices: &dyn Notices) -> Vec<String> {
    let mut warnings = Vec::new();
    for drive in &drives.drives {
        if let Ok(open) = &drive.state {
            warnings.extend(secure(&drive.name(folder), open).await);
        }
    }
    warnings.iter().for_each(|warning| notices.warn(warning));
    warnings
}

fn shown_drives(folder: &Path, drives: &DriveSearch, warnings: &[String]) -> ShownDrives {
    ShownDrives { statuses: DriveStatuses::of(folder, drives, warnings), context: context_of(folder, drives) }
}

/// Names for the text of events.
fn context_of(folder: &Path, drives: &DriveSearch) -> PoolContext {
    let known = |drive: &PoolDrive| KnownDrive {
        drive: drive.recorded.drive,
        given: None,
        name: drive.name(folder),
        path: drive
            .state
            .as_ref()
            .map_or_else(|_| drive.recorded.place(folder).path, |open| open.path.clone()),
    };
    PoolContext {
        folder: Some(folder.to_owned()),
        name: folder.display().to_string(),
        drives: drives.drives.iter().map(known).collect(),
    }
}

/// True if some process, or another lock of this one, has the pool of a folder open.
pub fn is_held(folder: &Path) -> bool {
    host_files::lock_folder(folder).is_err_and(|error| error.kind() == IoErrorKind::Busy)
}

/// Locks the folder for this process.
pub fn hold(folder: &Path) -> Result<FolderLock, Refusal> {
    host_files::lock_folder(folder).map_err(|error| match error.kind() {
        IoErrorKind::Busy => Refusal::new(
            format!("{}: another Spindle has the pool open", folder.display()),
            "end it first: a pool is open in one process at a time",
        ),
        _ => Refusal::new(error.to_string(), "check the folder"),
    })
}

/// A pool's error, with its folder.
pub fn refusal(folder: &Path, error: &array::error::Error, remedy: &str) -> Refusal {
    Refusal::new(format!("{}: {error}", folder.display()), remedy).caused_by(cause_of(error))
}

/// The cause of a pool's error.
pub fn cause_of(error: &Error) -> RefusalCause {
    match error {
        Error::Stopped(_) => RefusalCause::StoppedPool,
        error if error.is_of_storage() => RefusalCause::Storage,
        _ => RefusalCause::Request,
    }
}

/// A volume or a snapshot by its path: `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePath {
    pub folder: PathBuf,
    pub volume: String,
    pub snapshot: Option<String>,
}

impl VolumePath {
    /// `None` if the path has no such parts.
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
