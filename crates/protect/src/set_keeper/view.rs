//! A set as others see it: backups with their worth, and the reasons for which they stay.

use super::{CopyDue, SetKeeper, SetProblem};
use crate::{
    UnixSecond,
    backup_schedule::{BackupKind, SchedulePeriod},
    catalogue::{BackupRow, CutPoint, LabelWord},
    retention::{BackupProof, KeepReason},
};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetView {
    pub set: String,
    /// Identity in the notes of its points.
    pub id: String,
    /// The next slot starts then, or a round is tried again, if no clock jumps.
    pub next: UnixSecond,
    /// Problems that last.
    pub problems: BTreeMap<SetProblem, String>,
    /// Number of the backup to verify here now.
    pub verification_due: Option<u64>,
    /// A drill is due.
    pub has_drill_due: bool,
    /// The copy to make now.
    pub copy_due: Option<CopyDue>,
    /// The reason why the last copy, since the keeper's start, did not end.
    pub not_copied: Option<String>,
    /// Older records of the catalogue are summed up.
    pub summed_until: Option<UnixSecond>,
    /// Oldest first.
    pub backups: Vec<BackupView>,
}

/// A backup that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupView {
    pub number: u64,
    pub name: String,
    /// Civil time of its cut, by the clock of then.
    pub at: UnixSecond,
    pub kind: BackupKind,
    pub label: LabelWord,
    /// Reasons why its label is not better, if it could be.
    pub reasons: Vec<String>,
    pub by: String,
    pub periods: Vec<SchedulePeriod>,
    /// Time from the beginning of the freeze to its end, in milliseconds.
    pub window_ms: Option<u64>,
    pub proof: BackupProof,
    /// Civil time and level of the last verification.
    pub verified: Option<(UnixSecond, String)>,
    /// Host, site or person of the last verification.
    pub verified_by: Option<String>,
    /// The reason why its last verification, since the keeper's start, did not end, or none can begin.
    pub not_verified: Option<String>,
    /// Vaults and sites that have a copy.
    pub copies: Vec<String>,
    pub holds: Vec<String>,
    /// Seconds for which it is locked from now on.
    pub locked_for_s: Option<i64>,
    /// Reasons for which it stays; if there are none, it goes after the next good round.
    pub stays: Vec<KeepReason>,
    pub points: Vec<CutPoint>,
    /// The full backup that these logs bring forward.
    pub needs: Option<u64>,
}

impl SetView {
    pub(super) fn of(keeper: &SetKeeper, next: UnixSecond) -> Self {
        let mut reasons: BTreeMap<u64, Vec<KeepReason>> = keeper.reasons().into_iter().collect();
        let age_s = keeper.age_s();
        let view = |(number, row): (u64, &BackupRow)| {
            let stays = reasons.remove(&number).unwrap_or_default();
            BackupView {
                not_verified: keeper.not_verified(number),
                ..BackupView::of(number, row, age_s, stays)
            }
        };
        Self {
            set: keeper.settings().name.clone(),
            id: keeper.catalogue().header().id.to_string(),
            next,
            problems: keeper.problems().clone(),
            verification_due: keeper
                .verification_due()
                .filter(|due| !due.is_at_replica)
                .map(|due| due.number),
            has_drill_due: keeper.has_drill_due(),
            copy_due: keeper.copy_due(),
            not_copied: keeper.not_copied(),
            summed_until: keeper.catalogue().summed_until(),
            backups: keeper.catalogue().live().map(view).collect(),
        }
    }
}

impl BackupView {
    fn of(number: u64, row: &BackupRow, age_s: u64, stays: Vec<KeepReason>) -> Self {
        Self {
            number,
            name: row.start.name.clone(),
            at: UnixSecond(row.at_s),
            kind: row.start.kind,
            label: row.label.unwrap_or(LabelWord::Crash),
            reasons: row.reasons.clone(),
            by: row.start.by.clone(),
            periods: row.start.slots.iter().map(|slot| slot.of).collect(),
            window_ms: row.window_ms,
            proof: row.proof(),
            verified: row.verifications.last().map(|(at_s, last)| (UnixSecond(*at_s), last.level.clone())),
            verified_by: row.verifications.last().map(|(_, last)| last.by.clone()),
            not_verified: None,
            copies: row.copies.iter().cloned().collect(),
            holds: row.holds.iter().cloned().collect(),
            locked_for_s: row.locked_s.map(|until| until - row.age_s_at(age_s)).filter(|left| *left > 0),
            stays,
            points: row.points.clone(),
            needs: row.start.needs,
        }
    }
}
