//! Copies of a log that were made after a backup, opened one by one, the newest first.
//!
//! Invariants:
//!
//! 1. All of it is only read.
//! 2. Its exports and its clone have names of [`temporary_clones`](crate::protect::temporary_clones): what one that was killed
//!    left is deleted once its time has passed.

use super::{
    devices::{DirectoryAccess, open_directory},
    log_arguments::LogSource,
};
use crate::{
    protect::{
        backup_exports::{begin_export_of, delete_export},
        backup_points::{PointsOfBackup, SetPoints},
        temporary_clones::{OF_RESTORE, delete_clone, first_bytes, make_clone, name_end},
    },
    server::{connection::ServerConnection, place::ServerPlace},
};
use control::web::{
    client::{BackupPointRow, in_uri},
    rows::VolumePage,
};
use maildb::log::LogFolder;
use report::Refusal;
use std::collections::VecDeque;
use world::World;

/// Bytes of a volume's name in those of its clone and exports: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 48;
/// A restore has ended after so long, however large its volumes are.
const ENDED_WITHIN_S: i64 = 2 * 86_400;

/// A copy of the log, before it is opened.
enum LogCopyPlace {
    /// The volume as it is now: its identity and name.
    Volume { id: String, name: String },
    /// A snapshot of a later backup.
    Point(BackupPointRow),
}

/// The copies of one log.
pub(super) struct LaterLogs {
    pool: String,
    volume: String,
    /// Ends the names of what it makes.
    name_end: String,
    /// Newest first.
    waiting: VecDeque<LogCopyPlace>,
    /// Newest first.
    open: Vec<LogFolder>,
    exports: Vec<String>,
    clone: Option<String>,
}

impl LaterLogs {
    /// Those of the log on the volume of `point`, which belongs to `base`.
    ///
    /// # Errors
    ///
    /// `newest` names something that is not there, or is older than the backup.
    pub async fn of(
        world: &World,
        server: &ServerConnection,
        (known, base): (&SetPoints, &PointsOfBackup),
        (point, newest): (&BackupPointRow, &LogSource),
    ) -> Result<Self, Refusal> {
        let mut last = u64::MAX;
        let mut waiting = VecDeque::new();
        match newest {
            LogSource::Live => {
                let (id, name) = (point.volume_id.clone(), point.volume.clone());
                waiting.push_back(LogCopyPlace::Volume { id, name });
            }
            LogSource::Left(name) => waiting.push_back(volume_named(server, &point.pool, name).await?),
            LogSource::Backup(meant) => {
                let backup = known.whole(meant)?;
                last = backup.note.sequence;
                if last < base.note.sequence {
                    let problem = format!("⟨logs⟩: {} is older than {}", backup.name, base.name);
                    return Err(Refusal::new(problem, "give a later backup, all, or none"));
                }
            }
        }
        let later = known.backups().filter(|backup| {
            backup.note.set == base.note.set
                && (base.note.sequence + 1..=last).contains(&backup.note.sequence)
        });
        let points = later.flat_map(|backup| &backup.points);
        let points: Vec<_> = points.filter(|one| one.volume_id == point.volume_id).cloned().collect();
        waiting.extend(points.into_iter().rev().map(LogCopyPlace::Point));
        Ok(Self {
            pool: point.pool.clone(),
            volume: point.volume.clone(),
            name_end: end_of_names(world, base),
            waiting,
            open: Vec::new(),
            exports: Vec::new(),
            clone: None,
        })
    }

    /// Those that are open.
    pub fn open(&self) -> &[LogFolder] {
        &self.open
    }

    /// Opens the next older copy; false if there is none.
    ///
    /// # Errors
    ///
    /// The server does not answer, or the copy cannot be read.
    pub async fn open_next(
        &mut self,
        world: &World,
        server: &ServerConnection,
        place: &ServerPlace,
    ) -> Result<bool, Refusal> {
        let Some(next) = self.waiting.pop_front() else { return Ok(false) };
        let (exported, name) = match next {
            LogCopyPlace::Volume { id, name } => {
                let clone = temporary_name(&self.volume, "", &self.name_end);
                self.clone = Some(clone.clone());
                make_clone(server, &id, (None, &clone)).await?;
                (format!("{}/{clone}", self.pool), format!("{}/{name}", self.pool))
            }
            LogCopyPlace::Point(point) => {
                let snapshot = format!("{}/{}@{}", point.pool, point.volume, point.name);
                (snapshot.clone(), snapshot)
            }
        };
        let export = temporary_name(&self.volume, &format!("-{}", self.exports.len()), &self.name_end);
        self.exports.push(export.clone());
        let uri = begin_export_of(world, server, (&export, exported, true), place).await?;
        let directory = open_directory(world, (&uri, &name), DirectoryAccess::Read).await?;
        self.open.push(LogFolder { directory, name });
        Ok(true)
    }

    /// Deletes what was made.
    ///
    /// # Errors
    ///
    /// The server does not answer, or refuses. The rest is deleted also if something is not.
    pub async fn delete(self, server: &ServerConnection) -> Result<(), Refusal> {
        drop(self.open);
        let mut first = Ok(());
        for export in &self.exports {
            first = first.and(delete_export(server, export).await);
        }
        if let Some(clone) = &self.clone {
            first = first.and(delete_clone(server, &self.pool, clone).await);
        }
        first
    }
}

async fn volume_named(server: &ServerConnection, pool: &str, name: &str) -> Result<LogCopyPlace, Refusal> {
    let page: VolumePage = server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
    match page.volumes.into_iter().find(|volume| volume.pool == pool) {
        Some(volume) => Ok(LogCopyPlace::Volume { id: volume.id, name: volume.name }),
        None => {
            let problem = format!("⟨logs⟩: there is no volume {pool}/{name}");
            Err(Refusal::new(problem, "give a backup, the volume that a restore left, all, or none"))
        }
    }
}

/// The end of the names that a restore of `base` gives from now on.
pub(super) fn end_of_names(world: &World, base: &PointsOfBackup) -> String {
    let until_s = world.wall().seconds + ENDED_WITHIN_S;
    format!("{OF_RESTORE}-{}", name_end(base.note.sequence, until_s))
}

/// The name of a clone of a point that may take the place of its volume.
pub fn temporary_clone_name(world: &World, base: &PointsOfBackup, point: &BackupPointRow) -> String {
    temporary_name(&point.volume, "-place", &end_of_names(world, base))
}

/// The name of a clone of a live volume, for reading.
pub fn live_clone_name(world: &World, base: &PointsOfBackup, point: &BackupPointRow) -> String {
    temporary_name(&point.volume, "-live", &end_of_names(world, base))
}

/// The name of a clone or an export of a volume.
pub(super) fn temporary_name(volume: &str, kind: &str, end: &str) -> String {
    format!("{}{kind}{end}", first_bytes(volume, VOLUME_BYTES_MAX))
}
