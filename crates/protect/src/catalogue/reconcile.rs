//! A catalogue compared with the points that pools have: what a crash, or a person, left unfinished.
//!
//! Rules:
//!
//! 1. A pool that did not answer has whatever the catalogue says: nothing is concluded from its silence.
//! 2. What has begun and not ended becomes a *crash* backup if all its points exist and the policy keeps such ones; else
//!    its points are removed, and it failed.
//! 3. What is being deleted is deleted again.
//! 4. A backup that lacks a point is lost. The points that are left are a person's to remove.
//! 5. A point of an unknown backup is never deleted: the backup is adopted if all its points exist.

use super::{
    entry::{
        BackupDeletion, CutPoint, FailedBackup, FilledSlotLine, FoundBackup, LabelWord, LostBackup, SetId,
    },
    note::PointNote,
    state::{BackupCatalogue, BackupRow, BackupStage},
};
use crate::{
    backup::UncoveredCut,
    planted_keeping::{self, KeepingBug},
};
use std::collections::{BTreeMap, BTreeSet};

/// A point that a pool has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPoint {
    pub point: CutPoint,
    /// Its name: that of the backup.
    pub name: String,
    pub note: Vec<u8>,
}

/// The next step to make catalogue and pools agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogueRepair {
    /// Write `found`.
    Adopt(FoundBackup),
    /// Remove the points, then write `failed`.
    Remove { points: Vec<CutPoint>, failed: FailedBackup },
    /// Remove the points, then write `deleted`, unless pools are silent that may have more of them.
    DeleteAgain { deletion: BackupDeletion, points: Vec<CutPoint>, silent: Vec<String> },
    /// Write `lost`. The points that are left stay.
    NoteLost { lost: LostBackup, left: Vec<CutPoint> },
    /// Tell a person: some points of a backup that is in no catalogue.
    Stray { name: String, points: Vec<CutPoint> },
    /// Nothing can be said before these pools answer.
    Wait { backup: u64, pools: Vec<String> },
}

/// The points of one backup of the set.
pub(super) struct PointsOfBackup {
    pub note: PointNote,
    pub name: String,
    pub points: Vec<CutPoint>,
}

/// The points of the backups of a set, by their notes. Points with damaged notes are nobody's.
pub(super) fn points_of_set(found: &[FoundPoint], set: &SetId) -> BTreeMap<u64, PointsOfBackup> {
    let mut backups: BTreeMap<u64, PointsOfBackup> = BTreeMap::new();
    for FoundPoint { point, name, note } in found {
        let Ok(Some(note)) = PointNote::decode(note) else { continue };
        if note.set != *set {
            continue;
        }
        let new = |note| PointsOfBackup { note, name: name.clone(), points: Vec::new() };
        let sequence = note.sequence;
        backups.entry(sequence).or_insert_with(|| new(note)).points.push(point.clone());
    }
    for backup in backups.values_mut() {
        backup.points.sort();
        backup.points.dedup();
    }
    backups
}

impl PointsOfBackup {
    pub fn is_complete(&self) -> bool {
        let volumes: BTreeSet<(&str, &str)> =
            self.points.iter().map(|point| (point.pool.as_str(), point.volume.as_str())).collect();
        volumes.len() == self.note.points as usize
    }

    /// The backup as its points tell it.
    pub fn found(&self, reason: &str) -> FoundBackup {
        let note = &self.note;
        let (label, reason) = match note.label {
            LabelWord::Crash => (LabelWord::Crash, reason.to_owned()),
            label if note.is_confirmed => (label, reason.to_owned()),
            _ => (LabelWord::Crash, format!("{reason}; whether its freeze held until the cut is not known")),
        };
        FoundBackup {
            backup: note.sequence,
            name: self.name.clone(),
            kind: note.kind,
            label,
            reason,
            slots: note.slots.iter().copied().map(FilledSlotLine::from).collect(),
            points: self.points.clone(),
            lock_s: note.lock_s,
            needs: note.needs,
        }
    }
}

/// The steps that make a catalogue agree with the points that the pools in `asked` have. `uncovered` is the policy for
/// cuts whose freeze is not known to have held; a set that freezes nothing keeps them.
pub fn reconcile(
    catalogue: &BackupCatalogue,
    found: &[FoundPoint],
    asked: &BTreeSet<String>,
    uncovered: UncoveredCut,
) -> Vec<CatalogueRepair> {
    let mut by_backup = points_of_set(found, &catalogue.header().id);
    let mut repairs = Vec::new();
    for (sequence, row) in catalogue.rows() {
        let points = by_backup.remove(&sequence);
        repairs.extend(match row.stage {
            BackupStage::Begun => end_begun(sequence, row, points, asked, uncovered),
            BackupStage::Deleting => delete_again(row, points, asked),
            BackupStage::Cut => miss_points(sequence, row, points, asked),
            BackupStage::Failed | BackupStage::Deleted | BackupStage::Lost => {
                points.map(|points| adopt(&points))
            }
        });
    }
    repairs.extend(by_backup.values().map(adopt));
    repairs
}

fn end_begun(
    sequence: u64,
    row: &BackupRow,
    points: Option<PointsOfBackup>,
    asked: &BTreeSet<String>,
    uncovered: UncoveredCut,
) -> Option<CatalogueRepair> {
    let pools = row.start.volumes.iter().map(|volume| volume.split('/').next().unwrap_or_default());
    let silent = silent(pools, asked);
    if !silent.is_empty() {
        return Some(CatalogueRepair::Wait { backup: sequence, pools: silent });
    }
    let reason = "the runner ended before it had noted the cut";
    let points = match points {
        Some(points) if uncovered == UncoveredCut::KeepAsCrash && points.is_complete() => {
            return Some(CatalogueRepair::Adopt(points.found(reason)));
        }
        Some(points) => points.points,
        None => Vec::new(),
    };
    let failed = FailedBackup { backup: sequence, problems: vec![reason.to_owned()] };
    Some(CatalogueRepair::Remove { points, failed })
}

fn delete_again(
    row: &BackupRow,
    points: Option<PointsOfBackup>,
    asked: &BTreeSet<String>,
) -> Option<CatalogueRepair> {
    if planted_keeping::is(KeepingBug::DeletionForgotten) {
        return None;
    }
    let deletion = row.deletion.clone().expect("a deletion under way was ordered");
    let silent = silent(row.points.iter().map(|point| point.pool.as_str()), asked);
    let points = points.map(|points| points.points).unwrap_or_default();
    Some(CatalogueRepair::DeleteAgain { deletion, points, silent })
}

fn miss_points(
    sequence: u64,
    row: &BackupRow,
    points: Option<PointsOfBackup>,
    asked: &BTreeSet<String>,
) -> Option<CatalogueRepair> {
    let left = points.map(|points| points.points).unwrap_or_default();
    let has_answered =
        |pool: &str| asked.contains(pool) || planted_keeping::is(KeepingBug::SilentPoolIsEmpty);
    let gone = row
        .points
        .iter()
        .filter(|point| has_answered(&point.pool) && !left.iter().any(|left| left.is_same(point)));
    let gone: Vec<String> = gone.map(|point| format!("{}/{}", point.pool, point.volume)).collect();
    if gone.is_empty() {
        return None;
    }
    let why = format!("its points are gone: {}", gone.join(", "));
    Some(CatalogueRepair::NoteLost { lost: LostBackup { backup: sequence, why }, left })
}

/// The fate of points of a backup that the catalogue does not have. If some are missing, nothing says in which pools
/// they were.
fn adopt(points: &PointsOfBackup) -> CatalogueRepair {
    if points.is_complete() {
        CatalogueRepair::Adopt(points.found("the catalogue did not have it"))
    } else {
        CatalogueRepair::Stray { name: points.name.clone(), points: points.points.clone() }
    }
}

fn silent<'p>(pools: impl Iterator<Item = &'p str>, asked: &BTreeSet<String>) -> Vec<String> {
    if planted_keeping::is(KeepingBug::SilentPoolIsEmpty) {
        return Vec::new();
    }
    let silent: BTreeSet<&str> = pools.filter(|pool| !asked.contains(*pool)).collect();
    silent.into_iter().map(str::to_owned).collect()
}
