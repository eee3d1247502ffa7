//! Copies of volumes in another pool by their paths, in pools that this process has open.

use super::folder::{OpenPool, VolumePath};
use array::{
    error::{Error, Result as PoolResult},
    pool::{CopySource, FinishedCopy, MovedVolume, RefreshedCopy},
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{path::Path, pin::pin, time::Duration};
use world::{ByteCount, Job, JobProgress, World, with_deadline};

/// Between two looks at a copy.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The result of a copy, a refresh or a move, as the verbs print it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferAnswer {
    pub done: TransferDone,
    pub size_bytes: u64,
    /// Bytes that were read and written.
    pub copied_bytes: u64,
    /// Of a copy: bytes that an interrupted one had left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_bytes: Option<u64>,
    /// Of a refresh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discarded_bytes: Option<u64>,
    /// Of a refresh: the snapshot that the copy was as before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Of a copy or a refresh: the snapshot that it is as now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Of a move: snapshots that came along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<usize>,
}

/// Work between two pools that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferDone {
    Copied,
    Refreshed,
    Moved,
}

impl TransferAnswer {
    fn new(done: TransferDone, size_bytes: u64, copied_bytes: u64) -> Self {
        Self {
            done,
            size_bytes,
            copied_bytes,
            found_bytes: None,
            discarded_bytes: None,
            since: None,
            snapshot: None,
            snapshots: None,
        }
    }

    /// Of a copy as of the snapshot of that name.
    pub fn copied(copy: &FinishedCopy, snapshot: &str) -> Self {
        Self {
            found_bytes: Some(copy.found_bytes),
            snapshot: Some(snapshot.to_owned()),
            ..Self::new(TransferDone::Copied, copy.size_bytes, copy.copied_bytes)
        }
    }

    pub fn refreshed(copy: &RefreshedCopy) -> Self {
        Self {
            discarded_bytes: Some(copy.discarded_bytes),
            since: Some(copy.since.clone()),
            snapshot: Some(copy.until.clone()),
            ..Self::new(TransferDone::Refreshed, copy.size_bytes, copy.copied_bytes)
        }
    }

    pub fn moved(moved: &MovedVolume) -> Self {
        Self {
            snapshots: Some(moved.snapshots),
            ..Self::new(TransferDone::Moved, moved.size_bytes, moved.copied_bytes)
        }
    }

    /// In words, for the volume at `path` that came from `source`.
    pub fn text(&self, path: &Path, source: &Path) -> String {
        let (path, source, size) = (path.display(), source.display(), ByteCount(self.size_bytes));
        let copied = ByteCount(self.copied_bytes);
        match self.done {
            TransferDone::Copied => {
                let found = match self.found_bytes.unwrap_or(0) {
                    0 => String::new(),
                    bytes => format!(", {} were there", ByteCount(bytes)),
                };
                format!("{path}: a copy of {source}, {size}; {copied} copied{found}")
            }
            TransferDone::Refreshed => format!(
                "{path}: @{} → as of {source}, {size}; {copied} copied, {} discarded",
                self.since.as_deref().unwrap_or_default(),
                ByteCount(self.discarded_bytes.unwrap_or(0))
            ),
            TransferDone::Moved => {
                let snapshots = match self.snapshots.unwrap_or(0) {
                    1 => "1 snapshot came along".to_owned(),
                    count => format!("{count} snapshots came along"),
                };
                format!("{path}: moved from {source}, {size}; {copied} copied, {snapshots}")
            }
        }
    }
}

/// The snapshot to copy, in its open pool.
#[derive(Clone, Copy)]
pub struct SnapshotToCopy<'a> {
    open: &'a OpenPool,
    volume: &'a str,
    snapshot: &'a str,
}

impl<'a> SnapshotToCopy<'a> {
    /// The snapshot that a path names.
    ///
    /// # Errors
    ///
    /// It names a volume as it is now.
    pub fn of(open: &'a OpenPool, path: &'a VolumePath) -> Result<Self, Refusal> {
        let Some(snapshot) = path.snapshot.as_deref() else {
            let shown = path.folder.join(&path.volume);
            let problem =
                format!("a copy in another pool is one of a snapshot, and {} is none", shown.display());
            let remedy = format!("take one: spindle volume snapshot {}@NAME", shown.display());
            return Err(Refusal::new(problem, remedy));
        };
        Ok(Self { open, volume: &path.volume, snapshot })
    }

    fn source(&self) -> CopySource<'a> {
        let (volume, snapshot) = (self.volume.into(), self.snapshot.into());
        CopySource { pool: &self.open.pool, volume, snapshot }
    }

    /// The refusal of a copy, with the pool that it is about.
    fn refusal(&self, target: &OpenPool, path: &Path, error: &Error) -> Refusal {
        let of_source = matches!(error, Error::NoVolume(name) if name == self.volume)
            || matches!(error, Error::NoSnapshot { volume, .. } if volume == self.volume);
        let remedy = match error {
            Error::CopyWritten { snapshot, .. } => {
                format!("spindle volume rollback {}@{snapshot}", path.display())
            }
            Error::NothingInCommon { .. } => "make a new copy, under another name".to_owned(),
            Error::Copy(_) | Error::Full => {
                "what was copied stays: run the command again to go on".to_owned()
            }
            _ => "see 'spindle volume --help'".to_owned(),
        };
        if of_source { self.open.refusal(error, &remedy) } else { target.refusal(error, &remedy) }
    }
}

/// Copies a snapshot to a new volume of another pool, or goes on with that.
///
/// # Errors
///
/// A refusal of one of both pools. What was copied stays, as an incomplete copy.
pub async fn copy(
    world: &World,
    source: SnapshotToCopy<'_>,
    (target, path, name): (&OpenPool, &Path, &str),
    show: &mut dyn FnMut(JobProgress),
) -> Result<FinishedCopy, Refusal> {
    let job = Job::under_way(world);
    let copied = shown(world, &job, show, target.pool.copy_from(source.source(), name, &job)).await;
    copied.map_err(|error| source.refusal(target, path, &error))
}

/// Refreshes a copy to a snapshot of its source.
///
/// # Errors
///
/// As [`copy`].
pub async fn refresh(
    world: &World,
    source: SnapshotToCopy<'_>,
    (target, path, name): (&OpenPool, &Path, &str),
    show: &mut dyn FnMut(JobProgress),
) -> Result<RefreshedCopy, Refusal> {
    let job = Job::under_way(world);
    let refreshed = shown(world, &job, show, target.pool.refresh_from(source.source(), name, &job)).await;
    refreshed.map_err(|error| source.refusal(target, path, &error))
}

/// Moves a volume to another pool, or goes on with that. Nobody has it open.
///
/// # Errors
///
/// A refusal of one of both pools. The volume is under its name in one of them, unless the refusal says that the move
/// waits.
pub async fn move_volume(
    world: &World,
    (source, volume): (&OpenPool, &str),
    (target, name): (&OpenPool, &str),
    show: &mut dyn FnMut(JobProgress),
) -> Result<MovedVolume, Refusal> {
    let job = Job::under_way(world);
    let moved = shown(world, &job, show, target.pool.move_from(&source.pool, volume, name, None, &job)).await;
    moved.map_err(|error| {
        let of_target = match &error {
            Error::NameTaken(_) | Error::OtherCopy(_) | Error::TooSmallForCopy { .. } | Error::BadName(_) => {
                true
            }
            Error::IncompleteCopy(of) => of != volume,
            _ => false,
        };
        let remedy = match error {
            Error::Copy(_) | Error::Full => "what was copied stays: run the command again to go on",
            _ => "see 'spindle volume move --help'",
        };
        if of_target { target.refusal(&error, remedy) } else { source.refusal(&error, remedy) }
    })
}

/// Shows a job until its work ends.
pub async fn shown<T>(
    world: &World,
    job: &Job,
    show: &mut dyn FnMut(JobProgress),
    work: impl Future<Output = PoolResult<T>>,
) -> PoolResult<T> {
    let mut work = pin!(work);
    loop {
        if let Some(done) = with_deadline(world.sleep(LOOK_EVERY), work.as_mut()).await {
            return done;
        }
        show(job.progress());
    }
}
