//! A lost catalogue, made again from the notes of points.
//!
//! Sequence numbers, kinds, slots, locks and the points themselves come back. Evidence of freezes, verifications, holds,
//! restores and drills are lost with the catalogue: labels are *crash* unless a note confirms more, nothing is proven, and
//! locks and ages begin again.

use super::{
    clock::MachineTime,
    entry::{CatalogueEntry, FoundBackup, SetId},
    file::{CatalogueFile, CatalogueFileError, NewCatalogue},
    note::{PointNote, PointNoteError},
    reconcile::{FoundPoint, points_of_set},
};
use crate::backup_schedule::set_and_sequence_of;
use std::collections::BTreeSet;
use thiserror::Error;
use world::StateFile;

#[derive(Debug, Error)]
pub enum RebuildError {
    #[error("no point of set {0:?} was found; see which sets the names of snapshots begin with")]
    NoPoint(String),
    #[error("two sets were called {set:?}: {ids}; say which one, by its identity")]
    SeveralSets { set: String, ids: String },
    #[error("point {name:?} of {volume}: {source}")]
    Note { name: String, volume: String, source: PointNoteError },
    #[error(transparent)]
    File(#[from] CatalogueFileError),
}

/// The backups of a set, by the notes of their points.
#[derive(Clone, Debug, PartialEq)]
pub struct RebuiltSet {
    pub set: String,
    pub id: SetId,
    /// In the order of their sequence numbers.
    pub backups: Vec<FoundBackup>,
    /// Names of backups that lack points. They are left as they are.
    pub incomplete: Vec<String>,
}

/// Collects the backups of `set`. `id` chooses among sets that had this name one after the other.
///
/// # Errors
///
/// There are none, or those of several sets, or a note is of a newer version.
pub fn rebuild(points: &[FoundPoint], set: &str, id: Option<&SetId>) -> Result<RebuiltSet, RebuildError> {
    let mut ids = BTreeSet::new();
    for FoundPoint { point, name, note } in points {
        let wrong = |source| {
            let volume = format!("{}/{}", point.pool, point.volume);
            RebuildError::Note { name: name.clone(), volume, source }
        };
        let of_set = set_and_sequence_of(name).filter(|(found, _)| *found == set);
        if let (Some(note), Some((_, sequence))) = (PointNote::decode(note).map_err(wrong)?, of_set)
            && note.sequence == sequence
        {
            ids.insert(note.set);
        }
    }
    if let Some(id) = id {
        ids.retain(|found| found == id);
    }
    let Some(id) = ids.first().cloned() else { return Err(RebuildError::NoPoint(set.to_owned())) };
    if ids.len() > 1 {
        let ids: Vec<&str> = ids.iter().map(SetId::as_str).collect();
        return Err(RebuildError::SeveralSets { set: set.to_owned(), ids: ids.join(", ") });
    }
    let (complete, incomplete): (Vec<_>, Vec<_>) =
        points_of_set(points, &id).into_values().partition(|points| points.is_complete());
    let backups = complete.iter().map(|points| points.found("the catalogue was lost")).collect();
    let incomplete = incomplete.into_iter().map(|points| points.name).collect();
    Ok(RebuiltSet { set: set.to_owned(), id, backups, incomplete })
}

impl RebuiltSet {
    /// Writes the catalogue into an empty file.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn write(
        &self,
        file: Box<dyn StateFile>,
        generator: &str,
        runner: &str,
        now: &MachineTime,
    ) -> Result<CatalogueFile, RebuildError> {
        let new = NewCatalogue { set: &self.set, id: self.id.clone(), generator, is_rebuilt: true };
        let mut catalogue = CatalogueFile::create(file, &new, runner, now)?;
        for backup in &self.backups {
            catalogue.append(CatalogueEntry::Found(backup.clone()), now)?;
        }
        Ok(catalogue)
    }
}
