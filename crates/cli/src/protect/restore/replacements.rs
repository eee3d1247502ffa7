//! Clones that take the places of the volumes of a set in a restore in place.
//!
//! Invariants:
//!
//! 1. Before the last of them has its lasting name, no live volume was changed. An early end until then costs nothing: what it
//!    leaves is deleted by the same command, or once its time is over.
//! 2. From then on the restore is decided. They take their places in order, the last one last: while that is there, the same
//!    command goes on, and asks for no log any more.
//! 3. Their lasting names say of which backup they are. While they are there, no other one is restored in place.

use super::volumes::{EarlyEnd, RestoredRow, RestoredVolume, rollback_row};
use crate::{
    console::Console,
    protect::temporary_clones::{all_volumes, delete_volume, first_bytes, make_clone},
    server::connection::ServerConnection,
};
use control::web::{
    client::{BackupPointRow, Method, RollbackBody, VolumePatch, in_uri},
    rows::VolumeEntry,
};
use report::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// Between the name of the volume and that of the backup.
const LASTING: &str = "-restored-";
/// Bytes of the two in a lasting name: a name has 128 at most.
const VOLUME_BYTES_MAX: usize = 40;
const BACKUP_BYTES_MAX: usize = 64;

/// The volumes of a backup, as they are restored in place.
pub(super) struct Replacements<'r> {
    pub server: &'r ServerConnection,
    /// Name of the backup.
    pub backup: &'r str,
    pub points: &'r [BackupPointRow],
}

/// A clone that takes the place of the volume of a point.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    /// The point, as a place in their order.
    pub point: usize,
    pub pool: String,
    pub id: String,
    pub name: String,
}

/// The clones that a restore of the same backup has left, in their order.
#[derive(Debug, Default)]
pub(super) struct LeftReplacements {
    /// It was decided, and these have not taken their places.
    pub decided: Vec<Replacement>,
    /// It was not, and these are worth nothing.
    pub undecided: Vec<Replacement>,
}

/// A lasting name, read.
#[derive(Debug, PartialEq, Eq)]
struct LastingName {
    backup: String,
    /// Counted from 1.
    place: usize,
    of: usize,
}

impl LastingName {
    fn text(&self, volume: &str) -> String {
        let (volume, backup) =
            (first_bytes(volume, VOLUME_BYTES_MAX), first_bytes(&self.backup, BACKUP_BYTES_MAX));
        format!("{volume}{LASTING}{backup}-{}of{}", self.place, self.of)
    }

    /// Reads that of a clone of `volume`.
    fn of(name: &str, volume: &str) -> Option<Self> {
        let rest = name.strip_prefix(first_bytes(volume, VOLUME_BYTES_MAX))?.strip_prefix(LASTING)?;
        let (backup, place) = rest.rsplit_once('-')?;
        let (place, of) = place.split_once("of")?;
        let (place, of) = (place.parse().ok()?, of.parse().ok()?);
        (0 < place && place <= of).then(|| Self { backup: backup.to_owned(), place, of })
    }

    /// The last one decides.
    fn is_last(&self) -> bool {
        self.place == self.of
    }
}

impl Replacements<'_> {
    /// The clones that restores in place which ended early have left under lasting names.
    ///
    /// # Errors
    ///
    /// Another backup's restore is decided, and has not ended.
    pub async fn left(&self) -> Result<LeftReplacements, Refusal> {
        let own = first_bytes(self.backup, BACKUP_BYTES_MAX);
        let all = self.with_lasting_names().await?;
        if let Some((other, name)) = all.iter().find(|(_, name)| name.backup != own && name.is_last()) {
            return Err(Refusal::new(
                format!(
                    "the restore of {} ended early: {}/{} has not taken the place of its volume",
                    name.backup, other.pool, other.name
                ),
                "restore that backup again, which completes it; or delete that volume, which gives the rest of it up",
            ));
        }
        let own: BTreeMap<usize, (Replacement, bool)> = all
            .into_iter()
            .filter(|(_, name)| name.backup == own)
            .map(|(clone, name)| (name.place, (clone, name.is_last())))
            .collect();
        let is_decided = own.values().any(|(_, is_last)| *is_last);
        let clones = own.into_values().map(|(clone, _)| clone).collect();
        Ok(match is_decided {
            true => LeftReplacements { decided: clones, undecided: Vec::new() },
            false => LeftReplacements { decided: Vec::new(), undecided: clones },
        })
    }

    async fn with_lasting_names(&self) -> Result<Vec<(Replacement, LastingName)>, Refusal> {
        let mut found = Vec::new();
        for volume in all_volumes(self.server).await? {
            let mut points = self.points.iter().enumerate();
            let read = points.find_map(|(index, point)| {
                let name = LastingName::of(&volume.name, &point.volume);
                name.filter(|_| volume.pool == point.pool).map(|name| (index, name))
            });
            if let Some((point, name)) = read {
                let VolumeEntry { pool, id, name: shown, .. } = volume;
                found.push((Replacement { point, pool, id, name: shown }, name));
            }
        }
        Ok(found)
    }

    /// Clones the points with these places, under names that `temporary` gives.
    ///
    /// # Errors
    ///
    /// The server refuses one. Those before it are deleted.
    pub async fn clone(
        &self,
        wanted: &BTreeSet<usize>,
        temporary: impl Fn(&BackupPointRow) -> String,
    ) -> Result<Vec<Replacement>, Refusal> {
        let mut made = Vec::new();
        for &point in wanted {
            let row = &self.points[point];
            match make_clone(self.server, &row.volume_id, (Some(&row.name), &temporary(row))).await {
                Ok(VolumeEntry { id, name, .. }) => {
                    made.push(Replacement { point, pool: row.pool.clone(), id, name });
                }
                Err(refusal) => {
                    self.give_up(&made).await;
                    return Err(refusal);
                }
            }
        }
        Ok(made)
    }

    /// Deletes clones before the decision. One that cannot be deleted goes once its time is over.
    pub async fn give_up(&self, made: &[Replacement]) {
        for clone in made {
            let _ = delete_volume(self.server, &clone.pool, &clone.name).await;
        }
    }

    /// Gives the clones their lasting names, the last one last.
    ///
    /// # Errors
    ///
    /// The server refuses one. Nothing is decided then.
    pub async fn decide(&self, made: &mut [Replacement]) -> Result<(), Refusal> {
        let of = made.len();
        for (before, clone) in made.iter_mut().enumerate() {
            let name = LastingName { backup: self.backup.to_owned(), place: before + 1, of };
            let name = name.text(&self.points[clone.point].volume);
            let patch = VolumePatch { name: Some(name.clone()), ..VolumePatch::default() };
            let path = format!("/v1/volumes/{}", in_uri(&clone.id));
            self.server.change_to_its_end(Method::PATCH, &path, Some(&patch)).await?.checked()?;
            clone.name = name;
        }
        Ok(())
    }

    /// Lets the clones take their places. `volumes` are those of the points.
    ///
    /// # Errors
    ///
    /// The server refuses one: the same command goes on.
    pub async fn take_places(
        &self,
        decided: &[Replacement],
        volumes: &[RestoredVolume],
        console: &Console,
    ) -> Result<Vec<RestoredRow>, EarlyEnd> {
        assert_eq!(volumes.len(), self.points.len(), "a volume for each point");
        let mut rows: Vec<RestoredRow> = volumes.iter().map(RestoredVolume::row).collect();
        for clone in decided {
            let volume = &volumes[clone.point];
            let body =
                RollbackBody { to_volume: Some(clone.name.clone()), force: true, ..RollbackBody::default() };
            rows[clone.point] = rollback_row(self.server, volume, &body).await.map_err(|refusal| {
                let problem = format!(
                    "{}: {}; its databases are brought forward on {}",
                    volume.path(),
                    refusal.problem(),
                    clone.name
                );
                let remedy =
                    format!("{}; then give the same command again, before a host connects", refusal.remedy());
                EarlyEnd::after_changes(problem, remedy)
            })?;
            console.say_progress(&format!("{}: restored", volume.path()));
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lasting_names_are_read_back_and_no_others() {
        let backup = "mail-2026-11-28-1830-17";
        let name = LastingName { backup: backup.to_owned(), place: 2, of: 3 };
        let text = name.text("store");
        assert_eq!(text, "store-restored-mail-2026-11-28-1830-17-2of3");
        assert_eq!(LastingName::of(&text, "store"), Some(name));
        assert_eq!(LastingName::of(&text, "log"), None);
        for other in
            ["store", "store-restored-", "store-restored-x-0of1", "store-restored-x-2of1", "store-x-1of1"]
        {
            assert_eq!(LastingName::of(other, "store"), None, "{other}");
        }
        let long = LastingName { backup: "ö".repeat(100), place: 128, of: 128 };
        assert!(long.text(&"ä".repeat(100)).len() <= 128);
    }
}
