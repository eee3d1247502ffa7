//! Clones that take the places of the volumes of a set: in a restore in place, or a dial tone.
//!
//! Invariants:
//!
//! 1. Before the last of them has its lasting name, no live volume was changed. An early end until then costs nothing: what it
//!    leaves is deleted by the same command, or once its time is over.
//! 2. From then on the change is decided. They take their places in order, the last one last: while that is there, the same
//!    command goes on, and asks for no log any more.
//! 3. Their lasting names say what put them there. While they are there, nothing else takes the places.

use super::{
    lasting_name::{LastingName, PlaceChange},
    volumes::{EarlyEnd, RestoredRow, RestoredVolume, rollback_row},
};
use crate::{
    console::Console,
    protect::temporary_clones::{all_volumes, delete_volume, make_clone},
    server::connection::ServerConnection,
};
use control::web::{
    client::{BackupPointRow, Method, RollbackBody, VolumePatch, in_uri},
    rows::VolumeEntry,
};
use report::Refusal;
use std::collections::BTreeMap;

/// The volumes of a backup, as clones take their places.
pub struct Replacements<'r> {
    pub server: &'r ServerConnection,
    pub change: &'r PlaceChange,
    pub points: &'r [BackupPointRow],
}

/// A clone that takes the place of the volume of a point.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// The point, as a place in their order.
    pub point: usize,
    pub pool: String,
    pub id: String,
    pub name: String,
}

/// The source of a clone: a volume by its identity, as it is or as a snapshot has it.
#[derive(Clone, Debug)]
pub struct CloneSource {
    pub volume_id: String,
    pub snapshot: Option<String>,
}

/// Paths of clones, by their points.
pub fn paths_of(made: &[Replacement]) -> BTreeMap<usize, String> {
    made.iter().map(|clone| (clone.point, format!("{}/{}", clone.pool, clone.name))).collect()
}

impl CloneSource {
    pub fn of_point(point: &BackupPointRow) -> Self {
        Self { volume_id: point.volume_id.clone(), snapshot: Some(point.name.clone()) }
    }
}

/// The clones that the same change has left, in their order.
#[derive(Debug, Default)]
pub struct LeftReplacements {
    /// It was decided, and these have not taken their places.
    pub decided: Vec<Replacement>,
    /// It was not, and these are worth nothing.
    pub undecided: Vec<Replacement>,
}

impl Replacements<'_> {
    /// The clones that changes which ended early have left under lasting names.
    ///
    /// # Errors
    ///
    /// Another change is decided, and has not ended.
    pub async fn left(&self) -> Result<LeftReplacements, Refusal> {
        let all = self.with_lasting_names().await?;
        if let Some((other, name)) =
            all.iter().find(|(_, name)| name.change != *self.change && name.is_last())
        {
            return Err(Refusal::new(
                format!(
                    "{} ended early: {}/{} has not taken the place of its volume",
                    name.change.text(),
                    other.pool,
                    other.name
                ),
                "give that command again, which completes it; or delete that volume, which gives the rest of it up",
            ));
        }
        let own: BTreeMap<usize, (Replacement, bool)> = all
            .into_iter()
            .filter(|(_, name)| name.change == *self.change)
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

    /// Clones what is to take the places of the points with these places in their order, under names that `temporary` gives.
    ///
    /// # Errors
    ///
    /// The server refuses one. Those before it are deleted.
    pub async fn clone(
        &self,
        wanted: &BTreeMap<usize, CloneSource>,
        temporary: impl Fn(&BackupPointRow) -> String,
    ) -> Result<Vec<Replacement>, Refusal> {
        let mut made = Vec::new();
        for (&point, source) in wanted {
            let row = &self.points[point];
            let snapshot = source.snapshot.as_deref();
            match make_clone(self.server, &source.volume_id, (snapshot, &temporary(row))).await {
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
            let name = LastingName { change: self.change.clone(), place: before + 1, of };
            let name = name.text(&self.points[clone.point].volume);
            let patch = VolumePatch { name: Some(name.clone()), ..VolumePatch::default() };
            let path = format!("/v1/volumes/{}", in_uri(&clone.id));
            self.server.change_to_its_end(Method::PATCH, &path, Some(&patch)).await?.checked()?;
            clone.name = name;
        }
        Ok(())
    }

    /// Decides after the clones were made ready, and returns the outcome of that; gives them up if it was not good.
    ///
    /// # Errors
    ///
    /// They are not ready, or the server refuses a name: nothing was changed.
    pub async fn decide_after<T>(
        &self,
        ready: Result<T, Refusal>,
        made: &mut [Replacement],
    ) -> Result<T, Refusal> {
        let decided = match ready {
            Ok(ready) => self.decide(made).await.map(|()| ready),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = decided {
            self.give_up(made).await;
            let problem = format!("{}; nothing was changed", refusal.problem());
            return Err(Refusal::new(problem, refusal.remedy()));
        }
        decided
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
                let problem =
                    format!("{}: {}; its databases are on {}", volume.path(), refusal.problem(), clone.name);
                let remedy =
                    format!("{}; then give the same command again, before a host connects", refusal.remedy());
                EarlyEnd::after_changes(problem, remedy)
            })?;
            console.say_progress(&format!("{}: restored", volume.path()));
        }
        Ok(rows)
    }
}
