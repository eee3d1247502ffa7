//! State of a catalogue: a row for each backup.
//!
//! Invariants:
//!
//! 1. Sequence numbers rise from `begun` to `begun`, whatever clocks say; none is given twice.
//! 2. One backup at most has begun and not ended.
//! 3. A row is *begun*, then *cut* or *failed*; a cut one may be *deleting*, then *deleted*; its points may be *lost*.
//!    Only a cut one is verified, copied, held, locked, restored or drilled.
//! 4. Nothing that is held, or locked by the confirmed clock, is deleted. A lock becomes longer only.
//! 5. A backup fills its slots when it is cut, and they stay filled when it is deleted.
//! 6. Of a compacted catalogue the days that were summed up, and the end of that part, come before everything younger.
//!
//! [`BackupCatalogue::check`] names what contradicts this: in an order before it is written, and in a line that was read.

use super::{
    clock::CatalogueClock,
    entry::{
        BackupDeletion, BackupDrill, BackupRestore, BackupStart, BackupVerification, CatalogueEntry,
        CatalogueHeader, CutPoint, EvidenceLine, FilledSlotLine, FoundBackup, HookRunLine, LOGS_WENT,
        LabelWord, MissedRange,
    },
    line::CatalogueLine,
    summary::{CompactedPart, SummedDay},
};
use crate::{
    UnixSecond,
    backup_schedule::{BackupKind, FilledSlots, SchedulePeriod, ScheduleZone},
    planted_keeping::{self, KeepingBug},
    retention::{BackupProof, RetainedBackup},
};
use std::collections::{BTreeMap, BTreeSet};
use thiserror::Error;

/// The rows that a reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogueScope {
    /// Backups that exist, for a runner.
    Live,
    /// Everything that ever happened, for a report.
    All,
}

/// An entry that cannot be true after those before it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct CatalogueContradiction(pub String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupStage {
    Begun,
    Cut,
    Failed,
    Deleting,
    Deleted,
    Lost,
}

/// Everything about one backup.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupRow {
    pub start: BackupStart,
    pub stage: BackupStage,
    /// Civil time, and age of the catalogue, when it was cut; when it began until then.
    pub at_s: i64,
    pub age_s: u64,
    /// Civil time of its last entry.
    pub changed_s: i64,
    /// Of a backup that was cut.
    pub label: Option<LabelWord>,
    /// Why its label is not better, or why it failed, or was lost.
    pub reasons: Vec<String>,
    pub evidence: Vec<EvidenceLine>,
    pub window_ms: Option<u64>,
    pub points: Vec<CutPoint>,
    pub verifications: Vec<(i64, BackupVerification)>,
    /// Vaults and sites that have a copy.
    pub copies: BTreeSet<String>,
    pub holds: BTreeSet<String>,
    /// Seconds from the cut.
    pub locked_s: Option<i64>,
    pub deletion: Option<BackupDeletion>,
    /// Logs that went because it has them, with the civil time of each line.
    pub log_releases: Vec<(i64, HookRunLine)>,
}

/// The use of a backup's points now, which the catalogue does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointUse {
    pub is_in_use: bool,
    pub frees_bytes: Option<u64>,
}

/// The state after some lines.
#[derive(Clone, Debug, PartialEq)]
pub struct BackupCatalogue {
    scope: CatalogueScope,
    header: CatalogueHeader,
    /// Civil time of its first line.
    began_s: i64,
    clock: CatalogueClock,
    rows: BTreeMap<u64, BackupRow>,
    /// The backup that has begun and not ended.
    begun: Option<u64>,
    /// Highest number that was given.
    last_sequence: u64,
    filled: BTreeMap<SchedulePeriod, FilledSlots>,
    /// The newest copy at each vault and site.
    copy_bases: BTreeMap<String, u64>,
    /// Age of the catalogue at the last verification of any backup, in seconds.
    last_verified_age_s: Option<u64>,
    /// Civil time of the last drill.
    last_drill: Option<UnixSecond>,
    /// Age of the catalogue at the last good drill, in seconds.
    last_good_drill_age_s: Option<u64>,
    /// With the civil times of their lines; only in [`CatalogueScope::All`].
    missed: Vec<(i64, MissedRange)>,
    restores: Vec<(i64, BackupRestore)>,
    drills: Vec<(i64, BackupDrill)>,
    summed: Vec<SummedDay>,
    /// Start of the last day that was summed up.
    last_summed_s: Option<i64>,
    /// Civil time of the last line that may have been summed up, once that part has ended.
    summed_until: Option<UnixSecond>,
}

type CheckResult = Result<(), CatalogueContradiction>;

fn contradiction(text: String) -> CheckResult {
    Err(CatalogueContradiction(text))
}

fn check_slots(backup: u64, slots: &[FilledSlotLine]) -> CheckResult {
    let is_wrong = |index: usize| {
        let is_double = slots[..index].iter().any(|other| other.of == slots[index].of);
        is_double || !ScheduleZone::TIMES_S.contains(&slots[index].start_s)
    };
    match (0..slots.len()).find(|index| is_wrong(*index)) {
        Some(index) => contradiction(format!("backup {backup} cannot fill a slot of {}", slots[index].of)),
        None => Ok(()),
    }
}

impl BackupCatalogue {
    pub(super) fn new(header: CatalogueHeader, scope: CatalogueScope) -> Self {
        Self {
            scope,
            header,
            began_s: 0,
            clock: CatalogueClock::default(),
            rows: BTreeMap::new(),
            begun: None,
            last_sequence: 0,
            filled: BTreeMap::new(),
            copy_bases: BTreeMap::new(),
            last_verified_age_s: None,
            last_drill: None,
            last_good_drill_age_s: None,
            missed: Vec::new(),
            restores: Vec::new(),
            drills: Vec::new(),
            summed: Vec::new(),
            last_summed_s: None,
            summed_until: None,
        }
    }

    /// Notes the time of the first line.
    pub(super) fn note_header(&mut self, at_s: i64) {
        self.began_s = at_s;
        self.clock.note_line(at_s, 0);
    }

    /// Civil time of its first line.
    pub fn began(&self) -> UnixSecond {
        UnixSecond(self.began_s)
    }

    pub fn header(&self) -> &CatalogueHeader {
        &self.header
    }

    pub fn clock(&self) -> &CatalogueClock {
        &self.clock
    }

    /// Rows in the order of their sequence numbers. In [`CatalogueScope::Live`] those of backups that exist, or have begun.
    pub fn rows(&self) -> impl DoubleEndedIterator<Item = (u64, &BackupRow)> {
        self.rows.iter().map(|(sequence, row)| (*sequence, row))
    }

    pub fn row(&self, sequence: u64) -> Option<&BackupRow> {
        self.rows.get(&sequence)
    }

    /// The backup that has begun and not ended: one under way, or one of a runner that died.
    pub fn begun(&self) -> Option<u64> {
        self.begun
    }

    /// The number of the next backup.
    pub fn next_sequence(&self) -> u64 {
        let is_again = planted_keeping::is(KeepingBug::SequenceAgain);
        if is_again {
            self.live().map(|(sequence, _)| sequence).max().unwrap_or(0) + 1
        } else {
            self.last_sequence + 1
        }
    }

    /// Slots that backups filled, deleted ones included.
    pub fn filled(&self) -> &BTreeMap<SchedulePeriod, FilledSlots> {
        &self.filled
    }

    /// Age of the catalogue when a backup was verified last, in seconds.
    pub fn last_verified_age_s(&self) -> Option<u64> {
        self.last_verified_age_s
    }

    /// Civil time of the last drill.
    pub fn last_drill(&self) -> Option<UnixSecond> {
        self.last_drill
    }

    /// Age of the catalogue at the last good drill, in seconds.
    pub fn last_good_drill_age_s(&self) -> Option<u64> {
        self.last_good_drill_age_s
    }

    /// The backup that exists and whose copy at a vault or site is the newest there.
    pub fn newest_copied(&self, to: &str) -> Option<(u64, &BackupRow)> {
        let number = *self.copy_bases.get(to)?;
        Some((number, self.row(number).expect("it goes with its backup")))
    }

    pub fn missed(&self) -> &[(i64, MissedRange)] {
        &self.missed
    }

    pub fn restores(&self) -> &[(i64, BackupRestore)] {
        &self.restores
    }

    pub fn drills(&self) -> &[(i64, BackupDrill)] {
        &self.drills
    }

    /// Days whose lines were summed up, in order.
    pub fn summed(&self) -> &[SummedDay] {
        &self.summed
    }

    /// Civil time up to which lines were summed up, if any were.
    pub fn summed_until(&self) -> Option<UnixSecond> {
        self.summed_until
    }

    /// False within the part of a compacted catalogue that was summed up.
    pub(super) fn is_whole(&self) -> bool {
        self.header.compactions == 0 || self.summed_until.is_some()
    }

    /// The slots that backups filled, and all else that lines say which a compaction leaves out.
    pub(super) fn compacted_part(&self) -> CompactedPart {
        CompactedPart::of(self.last_sequence, &self.filled, &self.copy_bases, self.last_verified_age_s)
    }

    /// Differences of the runner's state of a catalogue from that of the same one after a compaction; `None` if there are none
    /// but the times of last entries.
    pub(super) fn difference_of_compacted(&self, compacted: &Self) -> Option<String> {
        let comparable = |catalogue: &Self| {
            let mut catalogue = catalogue.clone();
            catalogue.header = self.header.clone();
            (catalogue.last_summed_s, catalogue.summed_until) = (None, None);
            catalogue.rows.values_mut().for_each(|row| row.changed_s = 0);
            catalogue
        };
        let (before, after) = (comparable(self), comparable(compacted));
        if before == after {
            return None;
        }
        let rows = before.rows.keys().chain(after.rows.keys());
        let row = rows.copied().find(|number| before.rows.get(number) != after.rows.get(number));
        Some(match row {
            Some(number) => format!("backup {number} is not the same"),
            None => "numbers, slots or copies are not the same".to_owned(),
        })
    }

    /// Backups that exist and may be restored.
    pub fn live(&self) -> impl DoubleEndedIterator<Item = (u64, &BackupRow)> {
        self.rows().filter(|(_, row)| row.stage == BackupStage::Cut)
    }

    /// The backups that exist, as retention looks at them. `age_s` is the age of the catalogue now; a backup that is not
    /// in `uses` is not in use.
    pub fn retained(&self, age_s: u64, uses: &BTreeMap<u64, PointUse>) -> Vec<RetainedBackup> {
        let retained = |(sequence, row): (u64, &BackupRow)| {
            let PointUse { is_in_use, frees_bytes } = uses.get(&sequence).copied().unwrap_or_default();
            RetainedBackup {
                sequence,
                kind: row.start.kind,
                periods: row.start.slots.iter().map(|slot| slot.of).collect(),
                proof: row.proof(),
                holds: row.holds.iter().cloned().collect(),
                age_s: row.age_s_at(age_s),
                locked_s: row.locked_s,
                is_in_use,
                is_copy_base: self.copy_bases.values().any(|base| *base == sequence),
                frees_bytes,
                is_own: true,
                needs: row.start.needs.filter(|base| self.is_live(*base)),
            }
        };
        self.live().map(retained).collect()
    }

    /// Compares a line with those before it.
    ///
    /// # Errors
    ///
    /// The line cannot be true.
    pub fn check(&self, line: &CatalogueLine) -> CheckResult {
        match &line.entry {
            CatalogueEntry::Header(_) => contradiction("a header follows the first line".to_owned()),
            CatalogueEntry::Begun(start) => self.check_start(start),
            CatalogueEntry::Hook(_) | CatalogueEntry::Opened(_) => Ok(()),
            CatalogueEntry::Missed(missed) if missed.count == 0 || missed.first_s > missed.last_s => {
                contradiction(format!("no slot of {} is missed", missed.of))
            }
            CatalogueEntry::Missed(_) => Ok(()),
            CatalogueEntry::Cut(cut) => {
                self.expect_begun(cut.backup, "is cut")?;
                if cut.points.is_empty() {
                    return contradiction(format!("backup {} is cut without a point", cut.backup));
                }
                Ok(())
            }
            CatalogueEntry::Failed(failed) => self.expect_begun(failed.backup, "failed"),
            CatalogueEntry::Found(found) => self.check_found(found),
            CatalogueEntry::Verified(verified) => self.expect_live(verified.backup, "is verified"),
            CatalogueEntry::Copied(copy) => self.expect_live(copy.backup, "is copied"),
            CatalogueEntry::Held(hold) => self.expect_live(hold.backup, "is held"),
            CatalogueEntry::Released(hold) => {
                self.expect_live(hold.backup, "is released")?;
                if self.rows[&hold.backup].holds.contains(&hold.hold) {
                    return Ok(());
                }
                contradiction(format!(
                    "backup {} is released of {:?}, which does not hold it",
                    hold.backup, hold.hold
                ))
            }
            CatalogueEntry::Locked(lock) => {
                self.expect_live(lock.backup, "is locked")?;
                match self.rows[&lock.backup].locked_s {
                    Some(before) if lock.for_s < before => contradiction(format!(
                        "the lock of backup {} becomes shorter, {} s instead of {before} s",
                        lock.backup, lock.for_s
                    )),
                    _ => Ok(()),
                }
            }
            CatalogueEntry::Deleting(deletion) => self.check_deleting(deletion, line.age_s),
            CatalogueEntry::Deleted(deletion) => {
                self.expect_stage(deletion.backup, "is deleted", BackupStage::Deleting)
            }
            CatalogueEntry::Lost(lost) => self.expect_live(lost.backup, "is lost"),
            CatalogueEntry::Restored(restore) => self.expect_live(restore.backup, "is restored"),
            CatalogueEntry::Drilled(drill) => self.expect_live(drill.backup, "is drilled"),
            CatalogueEntry::Summed(_) | CatalogueEntry::Compacted(_) if self.is_whole() => {
                contradiction("a sum stands outside of the part that was summed up".to_owned())
            }
            CatalogueEntry::Summed(day) => day.check(self.last_summed_s).map_err(CatalogueContradiction),
            CatalogueEntry::Compacted(part) => self.check_compacted(part),
        }
    }

    fn check_compacted(&self, part: &CompactedPart) -> CheckResult {
        if part.last_backup < self.last_sequence {
            return contradiction(format!(
                "the part that was summed up ends with backup {}, and has backup {}",
                part.last_backup, self.last_sequence
            ));
        }
        let is_there = |backup: &u64| self.rows.get(backup).is_some_and(|row| row.stage.is_open());
        if let Some((to, backup)) = part.copy_bases.iter().find(|(_, backup)| !is_there(backup)) {
            return contradiction(format!(
                "backup {backup}, whose copy is the newest of {to}, does not exist"
            ));
        }
        part.check().map_err(CatalogueContradiction)
    }

    fn check_start(&self, start: &BackupStart) -> CheckResult {
        if let Some(begun) = self.begun {
            return contradiction(format!("backup {} begins before backup {begun} has ended", start.backup));
        }
        if start.backup <= self.last_sequence {
            let last = self.last_sequence;
            return contradiction(format!(
                "backup {} begins after backup {last}: numbers go back",
                start.backup
            ));
        }
        check_slots(start.backup, &start.slots)?;
        self.check_base(start.backup, start.kind, start.needs)
    }

    fn check_base(&self, backup: u64, kind: BackupKind, needs: Option<u64>) -> CheckResult {
        let Some(base) = needs else { return Ok(()) };
        if base >= backup || kind != BackupKind::InterimLogs {
            return contradiction(format!("backup {backup} cannot need backup {base}"));
        }
        Ok(())
    }

    fn check_found(&self, found: &FoundBackup) -> CheckResult {
        let stage = self.rows.get(&found.backup).map(|row| row.stage);
        if matches!(stage, Some(BackupStage::Cut | BackupStage::Deleting)) {
            return contradiction(format!("backup {} is found and was never missing", found.backup));
        }
        if found.points.is_empty() {
            return contradiction(format!("backup {} is found without a point", found.backup));
        }
        check_slots(found.backup, &found.slots)?;
        self.check_base(found.backup, found.kind, found.needs)
    }

    fn check_deleting(&self, deletion: &BackupDeletion, age_s: u64) -> CheckResult {
        let backup = deletion.backup;
        self.expect_live(backup, "is being deleted")?;
        let row = &self.rows[&backup];
        if let Some(hold) = row.holds.first() {
            return contradiction(format!("backup {backup} is being deleted while {hold:?} holds it"));
        }
        match row.locked_s {
            Some(until) if row.age_s_at(age_s) < until => contradiction(format!(
                "backup {backup} is being deleted {} s before its lock ends",
                until - row.age_s_at(age_s)
            )),
            _ => Ok(()),
        }
    }

    fn expect_begun(&self, backup: u64, what: &str) -> CheckResult {
        self.expect_stage(backup, what, BackupStage::Begun)
    }

    fn expect_live(&self, backup: u64, what: &str) -> CheckResult {
        self.expect_stage(backup, what, BackupStage::Cut)
    }

    fn expect_stage(&self, backup: u64, what: &str, expected: BackupStage) -> CheckResult {
        match self.rows.get(&backup).map(|row| row.stage) {
            Some(stage) if stage == expected => Ok(()),
            Some(stage) if stage.is_open() => {
                contradiction(format!("backup {backup} {what}; it is {}", stage.word()))
            }
            // Runners forget those that have ended: both scopes say the same.
            _ => contradiction(format!("backup {backup} {what}; it is unknown, or has ended")),
        }
    }

    fn is_live(&self, backup: u64) -> bool {
        self.rows.get(&backup).is_some_and(|row| row.stage == BackupStage::Cut)
    }

    /// Applies a line.
    ///
    /// # Panics
    ///
    /// If [`check`](Self::check) refuses the line: nothing is written or read without it.
    pub(super) fn apply(&mut self, line: &CatalogueLine) {
        assert_eq!(self.check(line), Ok(()), "checked before");
        let at_s = line.at_s;
        self.clock.note_line(at_s, line.age_s);
        match &line.entry {
            CatalogueEntry::Header(_) => {}
            CatalogueEntry::Hook(hook) => {
                if let Some(row) = self.rows.get_mut(&hook.backup).filter(|_| hook.phase == LOGS_WENT) {
                    row.log_releases.push((at_s, hook.clone()));
                }
            }
            CatalogueEntry::Opened(opening) => self.clock.note_opening(opening),
            CatalogueEntry::Begun(start) => {
                (self.begun, self.last_sequence) = (Some(start.backup), start.backup);
                self.rows.insert(start.backup, BackupRow::begun(start.clone(), at_s, line.age_s));
            }
            CatalogueEntry::Cut(cut) => {
                self.begun = None;
                let row = self.change(cut.backup, at_s);
                (row.stage, row.label, row.window_ms) = (BackupStage::Cut, Some(cut.label), cut.window_ms);
                (row.at_s, row.age_s) = (at_s, line.age_s);
                row.reasons = cut.reason.iter().cloned().collect();
                row.evidence.clone_from(&cut.evidence);
                row.points.clone_from(&cut.points);
                row.holds = row.start.holds.iter().cloned().collect();
                row.locked_s = row.start.lock_s;
                for slot in row.start.slots.clone() {
                    self.filled.entry(slot.of).or_default().note((&slot).into());
                }
            }
            CatalogueEntry::Failed(failed) => {
                self.begun = None;
                self.change(failed.backup, at_s).reasons.clone_from(&failed.problems);
                self.end(failed.backup, BackupStage::Failed);
            }
            CatalogueEntry::Found(found) => self.apply_found(found, at_s, line.age_s),
            CatalogueEntry::Verified(verified) => {
                self.last_verified_age_s = Some(line.age_s);
                self.change(verified.backup, at_s).verifications.push((at_s, verified.clone()));
            }
            CatalogueEntry::Copied(copy) => {
                self.change(copy.backup, at_s).copies.insert(copy.to.clone());
                for removed in &copy.removed {
                    self.rows.get_mut(removed).map(|row| row.copies.remove(&copy.to));
                }
                let base = self.copy_bases.entry(copy.to.clone()).or_insert(copy.backup);
                *base = (*base).max(copy.backup);
            }
            CatalogueEntry::Held(hold) => {
                self.change(hold.backup, at_s).holds.insert(hold.hold.clone());
            }
            CatalogueEntry::Released(hold) => {
                self.change(hold.backup, at_s).holds.remove(&hold.hold);
            }
            CatalogueEntry::Locked(lock) => self.change(lock.backup, at_s).locked_s = Some(lock.for_s),
            CatalogueEntry::Deleting(deletion) => {
                let row = self.change(deletion.backup, at_s);
                (row.stage, row.deletion) = (BackupStage::Deleting, Some(deletion.clone()));
            }
            CatalogueEntry::Deleted(deletion) => {
                self.change(deletion.backup, at_s);
                self.end(deletion.backup, BackupStage::Deleted);
            }
            CatalogueEntry::Lost(lost) => {
                self.change(lost.backup, at_s).reasons.push(lost.why.clone());
                self.end(lost.backup, BackupStage::Lost);
            }
            CatalogueEntry::Missed(missed) => self.keep_in_all(|all| all.missed.push((at_s, missed.clone()))),
            CatalogueEntry::Restored(restore) => {
                self.keep_in_all(|all| all.restores.push((at_s, restore.clone())))
            }
            CatalogueEntry::Drilled(drill) => {
                self.last_drill = Some(UnixSecond(at_s));
                if drill.is_good {
                    self.last_good_drill_age_s = Some(line.age_s);
                }
                self.keep_in_all(|all| all.drills.push((at_s, drill.clone())));
            }
            CatalogueEntry::Summed(day) => {
                self.last_summed_s = Some(day.day_s);
                self.keep_in_all(|all| all.summed.push(day.clone()));
            }
            CatalogueEntry::Compacted(part) => {
                self.summed_until = Some(UnixSecond(at_s));
                self.last_sequence = part.last_backup;
                self.filled = part.filled();
                self.copy_bases.clone_from(&part.copy_bases);
                self.last_verified_age_s = part.last_verified_age_s;
            }
        }
        assert!(self.begun.is_none_or(|begun| begun <= self.last_sequence), "numbers rise");
    }

    fn apply_found(&mut self, found: &FoundBackup, at_s: i64, age_s: u64) {
        let start = BackupStart {
            backup: found.backup,
            name: found.name.clone(),
            kind: found.kind,
            slots: found.slots.clone(),
            volumes: found.points.iter().map(|point| format!("{}/{}", point.pool, point.volume)).collect(),
            by: "found".to_owned(),
            holds: Vec::new(),
            lock_s: found.lock_s,
            needs: found.needs,
        };
        if self.begun == Some(found.backup) {
            self.begun = None;
        }
        for slot in &found.slots {
            let filled = self.filled.entry(slot.of).or_default();
            if found.backup < self.last_sequence {
                filled.note_earlier(slot.into())
            } else {
                filled.note(slot.into())
            }
        }
        self.last_sequence = self.last_sequence.max(found.backup);
        let mut row = BackupRow::begun(start, at_s, age_s);
        (row.stage, row.label, row.locked_s) = (BackupStage::Cut, Some(found.label), found.lock_s);
        row.reasons = vec![found.reason.clone()];
        row.points.clone_from(&found.points);
        self.rows.insert(found.backup, row);
    }

    fn change(&mut self, backup: u64, at_s: i64) -> &mut BackupRow {
        let row = self.rows.get_mut(&backup).expect("checked before");
        row.changed_s = at_s;
        row
    }

    /// Ends a row. A runner forgets it.
    fn end(&mut self, backup: u64, stage: BackupStage) {
        self.copy_bases.retain(|_, base| *base != backup);
        if self.scope == CatalogueScope::Live {
            self.rows.remove(&backup);
        } else {
            self.rows.get_mut(&backup).expect("checked before").stage = stage;
        }
    }

    fn keep_in_all(&mut self, keep: impl FnOnce(&mut Self)) {
        if self.scope == CatalogueScope::All {
            keep(self);
        }
    }
}

impl BackupRow {
    fn begun(start: BackupStart, at_s: i64, age_s: u64) -> Self {
        Self {
            start,
            stage: BackupStage::Begun,
            at_s,
            age_s,
            changed_s: at_s,
            label: None,
            reasons: Vec::new(),
            evidence: Vec::new(),
            window_ms: None,
            points: Vec::new(),
            verifications: Vec::new(),
            copies: BTreeSet::new(),
            holds: BTreeSet::new(),
            locked_s: None,
            deletion: None,
            log_releases: Vec::new(),
        }
    }

    /// Its worth by its last verification.
    pub fn proof(&self) -> BackupProof {
        match self.verifications.last() {
            None => BackupProof::Unproven,
            Some((_, last)) if last.is_good => BackupProof::Proven,
            Some(_) => BackupProof::Damaged,
        }
    }

    /// Confirmed seconds since its cut, when the catalogue is `age_s` old.
    pub fn age_s_at(&self, age_s: u64) -> i64 {
        i64::try_from(age_s.saturating_sub(self.age_s)).unwrap_or(i64::MAX)
    }
}

impl BackupStage {
    /// True if its points exist, or may exist.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Begun | Self::Cut | Self::Deleting)
    }

    fn word(self) -> &'static str {
        match self {
            Self::Begun => "begun and not cut",
            Self::Cut => "cut",
            Self::Failed => "failed",
            Self::Deleting => "being deleted",
            Self::Deleted => "deleted",
            Self::Lost => "lost",
        }
    }
}
