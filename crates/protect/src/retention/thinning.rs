//! Thinning out when a pool is full: room for mail comes before history.
//!
//! One backup at a time: the pool frees its room later, and the caller looks again before the next one.

use super::{
    BackupProof, KeepPolicy, KeepReason, OnFull, RetainedBackup,
    decision::{absolute_reasons, at_least, last_proven, newest_full},
};
use crate::{
    backup_schedule::SchedulePeriod,
    planted_keeping::{self, KeepingBug},
};
use std::{collections::BTreeSet, fmt};

/// Used part of a pool from which on backups are thinned out.
pub const FULL_PERCENT: u64 = 95;

/// The worth of what goes; the first is worth least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThinningStage {
    Damaged,
    Unproven,
    /// Proven, and `at_least` has enough without it.
    Proven,
}

/// The backup that goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinningStep {
    pub sequence: u64,
    pub stage: ThinningStage,
    /// The schedule that loses it: the sparsest of which it filled a slot. `None` if a person ordered it.
    pub period: Option<SchedulePeriod>,
    /// Bytes that its deletion frees, if known. Two backups may share room that only both together free.
    pub frees_bytes: Option<u64>,
}

impl fmt::Display for ThinningStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let worth = match self.stage {
            ThinningStage::Damaged => "it is damaged",
            ThinningStage::Unproven => "nothing has proven it",
            ThinningStage::Proven => "at_least has enough without it",
        };
        let whose = match self.period {
            Some(period) => format!("the oldest such one of the schedule of {period}"),
            None => "no schedule made it".to_owned(),
        };
        let number = self.sequence;
        write!(f, "backup {number} goes because the pool is {FULL_PERCENT} % full: {worth}, {whose}")
    }
}

/// True if backups make room in such a pool.
pub fn is_full(used_bytes: u64, capacity_bytes: u64) -> bool {
    u128::from(used_bytes) * 100 >= u128::from(capacity_bytes) * u128::from(FULL_PERCENT)
}

/// The backup of a set that goes next while its pool is full; `None` if none may go. `not_before` and schedules do not
/// keep it.
///
/// # Panics
///
/// If `backups` are not in the order of their sequence numbers.
pub fn thin_out(backups: &[RetainedBackup], policy: &KeepPolicy) -> Option<ThinningStep> {
    assert!(backups.is_sorted_by(|one, next| one.sequence < next.sequence), "in their order");
    if policy.on_full() == OnFull::Keep {
        return None;
    }
    let last_proven = last_proven(backups);
    let own: Vec<&RetainedBackup> = backups.iter().filter(|backup| backup.is_own).collect();
    let mut kept = at_least(&own, policy);
    kept.extend(newest_full(backups));
    // A full backup goes after the logs that need it.
    kept.extend(backups.iter().filter_map(|backup| backup.needs));
    let candidates = own.into_iter().filter(|backup| is_candidate(backup, last_proven, &kept));
    let next = candidates.min_by_key(|backup| rank(backup))?;
    Some(ThinningStep {
        sequence: next.sequence,
        stage: stage(next),
        period: sparsest(next),
        frees_bytes: next.frees_bytes,
    })
}

fn is_candidate(backup: &RetainedBackup, last_proven: Option<u64>, kept: &BTreeSet<u64>) -> bool {
    let mut reasons = absolute_reasons(backup, last_proven);
    if planted_keeping::is(KeepingBug::ThinningTakesHeld) {
        reasons.retain(|reason| !matches!(reason, KeepReason::Hold(_)));
    }
    reasons.is_empty() && !kept.contains(&backup.sequence)
}

/// The lowest goes first: worth, then the densest schedule (a person's order comes last), then age.
fn rank(backup: &RetainedBackup) -> (ThinningStage, bool, i64, u64) {
    let stage = stage(backup);
    let stage = match stage {
        ThinningStage::Proven if planted_keeping::is(KeepingBug::ThinningTakesProvenFirst) => {
            ThinningStage::Damaged
        }
        other => other,
    };
    let sequence = if planted_keeping::is(KeepingBug::ThinningTakesNewest) {
        u64::MAX - backup.sequence
    } else {
        backup.sequence
    };
    let period = sparsest(backup);
    (stage, period.is_none(), period.map_or(0, SchedulePeriod::shortest_s), sequence)
}

fn stage(backup: &RetainedBackup) -> ThinningStage {
    match backup.proof {
        BackupProof::Damaged => ThinningStage::Damaged,
        BackupProof::Unproven => ThinningStage::Unproven,
        BackupProof::Proven => ThinningStage::Proven,
    }
}

/// A backup that several schedules have belongs to the sparsest of them.
fn sparsest(backup: &RetainedBackup) -> Option<SchedulePeriod> {
    backup.periods.iter().copied().max_by_key(|period| period.shortest_s())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backup_schedule::BackupKind, retention::KeepSettings};

    fn backup(sequence: u64, periods: &str, proof: BackupProof) -> RetainedBackup {
        let periods: Vec<SchedulePeriod> =
            periods.split_whitespace().map(|text| text.parse().unwrap()).collect();
        let is_interim = periods.iter().all(|period| period.is_close()) && !periods.is_empty();
        RetainedBackup {
            sequence,
            kind: if is_interim { BackupKind::InterimCrash } else { BackupKind::Full },
            periods,
            proof,
            holds: Vec::new(),
            age_s: 0,
            locked_s: None,
            is_in_use: false,
            is_copy_base: false,
            frees_bytes: Some(sequence * 100),
            is_own: true,
            needs: None,
        }
    }

    fn policy(on_full: &str) -> KeepPolicy {
        let settings = KeepSettings {
            at_least: Some(2),
            not_before: Some("7d".to_owned()),
            only_after: Some("verified".to_owned()),
            on_full: Some(on_full.to_owned()),
            ..KeepSettings::default()
        };
        KeepPolicy::new(&settings).unwrap()
    }

    /// All that go, one after the other.
    fn order(mut backups: Vec<RetainedBackup>) -> Vec<u64> {
        let mut gone = Vec::new();
        while let Some(step) = thin_out(&backups, &policy("thin-out")) {
            backups.retain(|backup| backup.sequence != step.sequence);
            gone.push(step.sequence);
        }
        gone
    }

    #[test]
    fn damaged_and_unproven_ones_go_first_and_the_densest_schedule_s_oldest() {
        use BackupProof::{Damaged, Proven, Unproven};
        let backups = vec![
            backup(1, "1month 1h", Proven),
            backup(2, "1d", Proven),
            backup(3, "1h", Proven),
            backup(4, "1h", Unproven),
            backup(5, "1d", Damaged),
            backup(6, "1min", Unproven),
            backup(7, "1h", Proven),
            backup(8, "1min", Unproven),
            backup(9, "", Unproven),
            backup(10, "1h", Proven),
            backup(11, "1h", Unproven),
        ];
        // 7 and 10 are the proven ones of at_least, 11 is the newest.
        assert_eq!(order(backups), [5, 6, 8, 4, 9, 3, 2, 1]);
    }

    #[test]
    fn what_is_held_locked_used_or_needed_stays_however_full_the_pool_is() {
        let mut backups: Vec<RetainedBackup> =
            (1..=9).map(|sequence| backup(sequence, "1h", BackupProof::Unproven)).collect();
        backups[0].holds.push("upgrade".to_owned());
        backups[1].locked_s = Some(1);
        backups[2].is_in_use = true;
        backups[3].is_copy_base = true;
        backups[4].is_own = false;
        backups[5].kind = BackupKind::InterimLogs;
        backups[5].needs = Some(1);
        backups[6].proof = BackupProof::Proven;
        assert_eq!(order(backups), [6], "8 and 9 are at_least, while too few are proven");
        assert_eq!(thin_out(&[backup(1, "1h", BackupProof::Unproven)], &policy("keep")), None);
    }

    #[test]
    fn an_event_says_why_and_a_pool_is_full_at_95_percent() {
        let backups = [1, 2, 3, 4].map(|sequence| backup(sequence, "1h", BackupProof::Unproven));
        let step = thin_out(&backups, &policy("thin-out")).unwrap();
        assert_eq!(step.frees_bytes, Some(100));
        assert_eq!(
            step.to_string(),
            "backup 1 goes because the pool is 95 % full: nothing has proven it, the oldest such one of the \
             schedule of 1h"
        );
        assert!(is_full(95, 100) && !is_full(94, 100) && is_full(u64::MAX, u64::MAX));
    }
}
