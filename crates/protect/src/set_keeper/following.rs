//! A set at a site that does not keep it: its backups as the notes of the points tell them, and what the site that keeps it
//! told.

use super::{BackupView, SetView};
use crate::{
    UnixSecond,
    backup_schedule::time_in_name,
    catalogue::{CatalogueExtract, ExtractedBackup, FoundBackup, RebuiltSet},
    retention::BackupProof,
};
use std::collections::BTreeMap;

impl SetView {
    /// The backups of which this site has all points, and those that the other site's catalogue has. Nothing is due here.
    pub fn of_follower(set: &str, found: Option<&RebuiltSet>, told: Option<&CatalogueExtract>) -> Self {
        let mut backups: BTreeMap<u64, BackupView> = BTreeMap::new();
        for found in found.iter().flat_map(|found| &found.backups) {
            let told = told.and_then(|told| told.backup(found.backup));
            backups.insert(found.backup, BackupView::of_found(found, told));
        }
        for elsewhere in told.iter().flat_map(|told| &told.backups) {
            backups.entry(elsewhere.backup).or_insert_with(|| BackupView::of_told(elsewhere));
        }
        let id = found.map(|found| &found.id).or(told.and_then(|told| told.id.as_ref()));
        Self {
            set: set.to_owned(),
            id: id.map(ToString::to_string).unwrap_or_default(),
            next: UnixSecond(0),
            problems: BTreeMap::new(),
            verification_due: None,
            has_drill_due: false,
            copy_due: None,
            not_copied: None,
            summed_until: None,
            backups: backups.into_values().collect(),
        }
    }
}

impl BackupView {
    fn of_told(told: &ExtractedBackup) -> Self {
        Self {
            number: told.backup,
            name: told.name.clone(),
            at: UnixSecond(told.at_s),
            kind: told.kind,
            label: told.label,
            reasons: told.reasons.clone(),
            by: "found".to_owned(),
            periods: Vec::new(),
            window_ms: None,
            proof: match &told.verified {
                None => BackupProof::Unproven,
                Some(last) if last.is_good => BackupProof::Proven,
                Some(_) => BackupProof::Damaged,
            },
            verified: told.verified.as_ref().map(|last| (UnixSecond(last.at_s), last.level.clone())),
            verified_by: told.verified.as_ref().map(|last| last.by.clone()),
            not_verified: None,
            copies: told.copies.clone(),
            holds: told.holds.clone(),
            // The clock by which it is locked is the other site's.
            locked_for_s: None,
            stays: Vec::new(),
            points: Vec::new(),
            needs: None,
        }
    }

    fn of_found(found: &FoundBackup, told: Option<&ExtractedBackup>) -> Self {
        let unknown = || ExtractedBackup {
            backup: found.backup,
            name: found.name.clone(),
            kind: found.kind,
            at_s: time_in_name(&found.name).unwrap_or(UnixSecond(0)).0,
            label: found.label,
            reasons: vec![found.reason.clone()],
            verified: None,
            holds: Vec::new(),
            lock_s: found.lock_s,
            copies: Vec::new(),
        };
        let told = told.cloned().unwrap_or_else(unknown);
        Self {
            periods: found.slots.iter().map(|slot| slot.of).collect(),
            points: found.points.clone(),
            needs: found.needs,
            ..Self::of_told(&told)
        }
    }
}
