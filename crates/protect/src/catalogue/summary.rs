//! The rest of lines that were summed up: a line for each day, and the state that follows from them.
//!
//! Days are of UTC, by the runners' clocks. Fields that are zero or empty are left out of the line.

use super::entry::{BackupStart, BackupVerification, CatalogueEntry, LabelWord, MissedRange, bounded};
use crate::{
    UnixSecond,
    backup_schedule::{FilledSlots, SchedulePeriod, ScheduleZone},
    retention::DeletionRule,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(super) const DAY_S: i64 = 86_400;
/// Longest reason of a day, in bytes: the end of the first one.
const REASON_BYTES_MAX: usize = 256;

/// The lines of one day that were summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummedDay {
    /// Its beginning, in seconds since 1970.
    pub day_s: i64,
    /// Lowest and highest number of its backups, failed ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backups: Option<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SummedSlots>,
    /// Backups that were cut, by their labels.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub application: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filesystem: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crash: u64,
    /// Those of them that people ordered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ordered: u64,
    /// Those that were found in the pools.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub found: u64,
    /// Rounds that failed, and why the first one did.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failure: String,
    /// The reason for which the first slots were missed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub missed_why: String,
    /// Good verifications; damaged backups are not summed up.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub proven: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copied: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copied_bytes: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deleted: Vec<SummedDeletions>,
    /// The longest freeze, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms_max: Option<u64>,
}

/// Slots of one schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummedSlots {
    pub of: SchedulePeriod,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub made: u64,
    /// Rounds for a slot that failed; another one may have filled it later.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummedDeletions {
    pub rule: DeletionRule,
    pub count: u64,
}

/// The state at the end of the lines that were summed up, as far as the lines that stay do not say it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactedPart {
    /// Highest number that was given.
    pub last_backup: u64,
    pub filled: Vec<FilledRuns>,
    /// The backup whose copy is the newest, of each vault and site.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub copy_bases: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verified_age_s: Option<u64>,
}

/// Filled slots of a schedule: the first and the last one of each run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledRuns {
    pub of: SchedulePeriod,
    pub runs: Vec<(i64, i64)>,
}

pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl SummedDay {
    pub(super) fn new(at_s: i64) -> Self {
        let times = ScheduleZone::TIMES_S;
        let at_s = at_s.clamp(*times.start(), *times.end());
        Self { day_s: at_s - at_s.rem_euclid(DAY_S), ..Self::default() }
    }

    /// Days are in order, and say something.
    pub(super) fn check(&self, before_s: Option<i64>) -> Result<(), String> {
        let is_day = self.day_s.rem_euclid(DAY_S) == 0 && ScheduleZone::TIMES_S.contains(&self.day_s);
        if !is_day || before_s.is_some_and(|before_s| before_s >= self.day_s) {
            return Err(format!("the day that begins at {} is summed up out of order", self.day_s));
        }
        let is_double = |index: usize| self.slots[..index].iter().any(|one| one.of == self.slots[index].of);
        if (0..self.slots.len()).any(is_double) || self.backups.is_some_and(|(first, last)| first > last) {
            return Err(format!("the sum of the day that begins at {} contradicts itself", self.day_s));
        }
        Ok(())
    }

    /// Backups that were cut.
    pub fn cut(&self) -> u64 {
        self.application.saturating_add(self.filesystem).saturating_add(self.crash)
    }

    /// Counts a line of this day. `start` is the beginning of the backup that the line ends.
    pub(super) fn count(&mut self, entry: &CatalogueEntry, start: Option<&BackupStart>) {
        match entry {
            CatalogueEntry::Begun(start) => self.note_number(start.backup),
            CatalogueEntry::Cut(cut) => {
                self.note_cut(cut.label);
                self.window_ms_max = self.window_ms_max.max(cut.window_ms);
                if let Some(start) = start {
                    self.ordered += u64::from(start.by != "schedule");
                    start.slots.iter().for_each(|slot| self.slots_of(slot.of).made += 1);
                }
            }
            CatalogueEntry::Failed(failed) => {
                self.failed += 1;
                first_reason(&mut self.failure, &failed.problems.join("; "));
                let slots = start.iter().flat_map(|start| &start.slots);
                slots.for_each(|slot| self.slots_of(slot.of).failed += 1);
            }
            CatalogueEntry::Found(found) => {
                self.note_number(found.backup);
                self.note_cut(found.label);
                self.found += 1;
                found.slots.iter().for_each(|slot| self.slots_of(slot.of).made += 1);
            }
            CatalogueEntry::Missed(MissedRange { of, count, why, .. }) => {
                let slots = self.slots_of(*of);
                slots.missed = slots.missed.saturating_add(*count);
                first_reason(&mut self.missed_why, why);
            }
            CatalogueEntry::Verified(BackupVerification { is_good, .. }) => {
                self.proven += u64::from(*is_good)
            }
            CatalogueEntry::Copied(copy) => {
                self.copied += 1;
                self.copied_bytes = self.copied_bytes.saturating_add(copy.bytes);
            }
            CatalogueEntry::Deleted(deletion) => self.note_deletions(deletion.rule, 1),
            CatalogueEntry::Summed(day) => self.merge(day),
            // The backups of these are not summed up, or the line that ends what they begin is counted.
            CatalogueEntry::Header(_)
            | CatalogueEntry::Opened(_)
            | CatalogueEntry::Hook(_)
            | CatalogueEntry::Held(_)
            | CatalogueEntry::Released(_)
            | CatalogueEntry::Locked(_)
            | CatalogueEntry::Deleting(_)
            | CatalogueEntry::Lost(_)
            | CatalogueEntry::Restored(_)
            | CatalogueEntry::Drilled(_)
            | CatalogueEntry::Compacted(_) => {}
        }
    }

    /// Adds the sum of other lines of this day.
    fn merge(&mut self, other: &Self) {
        assert_eq!(self.day_s, other.day_s, "of one day");
        if let Some((first, last)) = other.backups {
            self.note_number(first);
            self.note_number(last);
        }
        for slots in &other.slots {
            let own = self.slots_of(slots.of);
            own.made = own.made.saturating_add(slots.made);
            own.failed = own.failed.saturating_add(slots.failed);
            own.missed = own.missed.saturating_add(slots.missed);
        }
        for (own, more) in [
            (&mut self.application, other.application),
            (&mut self.filesystem, other.filesystem),
            (&mut self.crash, other.crash),
            (&mut self.ordered, other.ordered),
            (&mut self.found, other.found),
            (&mut self.failed, other.failed),
            (&mut self.proven, other.proven),
            (&mut self.copied, other.copied),
            (&mut self.copied_bytes, other.copied_bytes),
        ] {
            *own = own.saturating_add(more);
        }
        first_reason(&mut self.failure, &other.failure);
        first_reason(&mut self.missed_why, &other.missed_why);
        for deletions in &other.deleted {
            self.note_deletions(deletions.rule, deletions.count);
        }
        self.window_ms_max = self.window_ms_max.max(other.window_ms_max);
    }

    fn note_number(&mut self, number: u64) {
        let (first, last) = self.backups.unwrap_or((number, number));
        self.backups = Some((first.min(number), last.max(number)));
    }

    fn note_cut(&mut self, label: LabelWord) {
        let count = match label {
            LabelWord::Application => &mut self.application,
            LabelWord::Filesystem => &mut self.filesystem,
            LabelWord::Crash => &mut self.crash,
        };
        *count = count.saturating_add(1);
    }

    fn note_deletions(&mut self, rule: DeletionRule, count: u64) {
        match self.deleted.iter_mut().find(|one| one.rule == rule) {
            Some(one) => one.count = one.count.saturating_add(count),
            None => self.deleted.push(SummedDeletions { rule, count }),
        }
    }

    fn slots_of(&mut self, of: SchedulePeriod) -> &mut SummedSlots {
        let index = self.slots.iter().position(|slots| slots.of == of).unwrap_or_else(|| {
            self.slots.push(SummedSlots { of, made: 0, failed: 0, missed: 0 });
            self.slots.len() - 1
        });
        &mut self.slots[index]
    }
}

fn first_reason(own: &mut String, reason: &str) {
    if own.is_empty() {
        let bounded = bounded(reason);
        let mut end = bounded.len().min(REASON_BYTES_MAX);
        while !bounded.is_char_boundary(end) {
            end -= 1;
        }
        bounded[..end].clone_into(own);
    }
}

impl CompactedPart {
    pub(super) fn of(
        last_backup: u64,
        filled: &BTreeMap<SchedulePeriod, FilledSlots>,
        copy_bases: &BTreeMap<String, u64>,
        last_verified_age_s: Option<u64>,
    ) -> Self {
        let runs = |filled: &FilledSlots| filled.runs().map(|(first, last)| (first.0, last.0)).collect();
        let filled = filled.iter().map(|(of, filled)| FilledRuns { of: *of, runs: runs(filled) }).collect();
        Self { last_backup, filled, copy_bases: copy_bases.clone(), last_verified_age_s }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for (index, FilledRuns { of, runs }) in self.filled.iter().enumerate() {
            let are_times = runs.iter().all(|(first_s, last_s)| {
                ScheduleZone::TIMES_S.contains(first_s) && ScheduleZone::TIMES_S.contains(last_s)
            });
            let is_double = self.filled[..index].iter().any(|other| other.of == *of);
            if !are_times || is_double || slots_of(runs).is_none() {
                return Err(format!("the slots of {of} that were filled contradict themselves"));
            }
        }
        Ok(())
    }

    /// Checked before.
    pub(super) fn filled(&self) -> BTreeMap<SchedulePeriod, FilledSlots> {
        let slots = |runs: &[_]| slots_of(runs).expect("checked before");
        self.filled.iter().map(|FilledRuns { of, runs }| (*of, slots(runs))).collect()
    }
}

fn slots_of(runs: &[(i64, i64)]) -> Option<FilledSlots> {
    FilledSlots::of_runs(runs.iter().map(|(first_s, last_s)| (UnixSecond(*first_s), UnixSecond(*last_s))))
}
