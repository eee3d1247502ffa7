//! Locks of backups in a pool that no server has open: nobody deletes their snapshots before these end.
//!
//! The catalogue of a set counts the time, by a clock that nobody can set. It is read if the pool lies in the state folder of its
//! server; otherwise the note of the snapshot and the machine's clock count.

use crate::protect::read_catalogue;
use control::sets::{
    catalogues_in,
    locks::{lock_of_note, locked},
    points::point_id,
};
use protect::catalogue::{BackupCatalogue, MachineTime, PointNote, PointNoteError};
use report::Refusal;
use serving::pool::{
    folder::OpenPool,
    volume_change::{SnapshotRef, VolumeRef},
};
use std::path::Path;
use world::World;

/// Refuses the deletion of a snapshot of a locked backup. One that is not there is left to the pool.
///
/// # Errors
///
/// It is locked, or a newer program made it.
pub fn check_unlocked(
    world: &World,
    open: &OpenPool,
    (volume, snapshot): (&VolumeRef, &SnapshotRef),
) -> Result<(), Refusal> {
    let Some(info) = open.pool.volumes().into_iter().find(|info| volume.is(info)) else { return Ok(()) };
    let snapshots = open.pool.snapshots(info.volume).unwrap_or_default();
    let Some(found) = snapshots.into_iter().find(|known| snapshot.is(known)) else { return Ok(()) };
    let note = match PointNote::decode(&found.note) {
        Ok(Some(note)) => note,
        Ok(None) | Err(PointNoteError::Damaged(_)) => return Ok(()),
        Err(error @ PointNoteError::OtherVersion(_)) => {
            return Err(Refusal::new(format!("{}: {error}", found.name), "it may be locked, so it stays"));
        }
    };
    let now_s = world.wall().seconds;
    let of_catalogue = catalogue_of(open.folder(), &note).map(|catalogue| {
        let left_s = catalogue.row(note.sequence).and_then(|row| {
            let is_of_row = row.points.iter().any(|point| point.id == point_id(info.volume, found.snapshot));
            let age_s = catalogue.clock().age_at(&MachineTime::of(world));
            row.locked_s.filter(|_| is_of_row).map(|until| until - row.age_s_at(age_s))
        });
        left_s.map(|left_s| now_s + left_s)
    });
    let until_s = of_catalogue.unwrap_or_else(|| lock_of_note(&found));
    match until_s.filter(|until_s| now_s < *until_s) {
        None => Ok(()),
        Some(until_s) => Err(locked(&found.name, until_s)),
    }
}

/// The catalogue of a backup's set, if the pool is `pools/NAME` of a state folder that has it and it can be read.
fn catalogue_of(pool: &Path, note: &PointNote) -> Option<BackupCatalogue> {
    let state = pool.parent()?.parent()?;
    let read = |path| read_catalogue(path).ok().flatten();
    catalogues_in(state)
        .iter()
        .filter_map(|path| read(path))
        .find(|catalogue| catalogue.header().id == note.set)
}
