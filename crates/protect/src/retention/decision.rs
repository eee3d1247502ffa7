//! Decisions about backups: the reasons why one stays, or the rule by which it goes.
//!
//! Backups are decided from the newest to the oldest: counts are used up by newer ones first, and the full backup that
//! logs need is older than they are.

use super::KeepPolicy;
use crate::{
    backup_schedule::{BackupKind, BackupSchedule, SchedulePeriod},
    planted_keeping::{self, KeepingBug},
    retention::policy::KeepSpan,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// The worth of a backup by its last verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BackupProof {
    /// Damage was found.
    Damaged,
    /// Nothing has been verified yet.
    Unproven,
    Proven,
}

/// A backup that exists, as far as rules look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedBackup {
    pub sequence: u64,
    pub kind: BackupKind,
    /// Periods of the schedules of which it filled a slot; none if a person ordered it.
    pub periods: Vec<SchedulePeriod>,
    pub proof: BackupProof,
    pub holds: Vec<String>,
    /// Seconds since its cut that a clock which never jumps confirms.
    pub age_s: i64,
    /// Locked until its age is this.
    pub locked_s: Option<i64>,
    /// A clone, a mount, an export or a restore needs it.
    pub is_in_use: bool,
    /// Copies elsewhere continue from it.
    pub is_copy_base: bool,
    /// Bytes that its deletion frees, if known.
    pub frees_bytes: Option<u64>,
    /// This set made it.
    pub is_own: bool,
    /// The full backup that these logs bring forward.
    pub needs: Option<u64>,
}

/// The end of the round before the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundOutcome {
    Succeeded,
    Failed,
}

/// A reason why a backup stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeepReason {
    /// Another set or a person made it.
    MadeByOthers,
    Hold(String),
    Locked {
        left_s: i64,
    },
    /// The site that keeps the set has deleted it. Seconds that its lock lasts here, if that is known.
    HeldAgainstSite {
        left_s: Option<i64>,
    },
    InUse,
    CopyBase,
    LastProven,
    /// Logs that stay, for a reason that no rule overrides or for one that does.
    NeededBy {
        sequence: u64,
        is_absolute: bool,
    },
    /// It is the newest full one.
    Newest,
    AtLeast,
    NotBefore {
        left_s: i64,
    },
    Schedule(SchedulePeriod),
    /// No rule wants it, but the round failed.
    FailedRound,
}

impl KeepReason {
    /// True if no rule deletes the backup in spite of it.
    pub fn is_absolute(&self) -> bool {
        match self {
            Self::MadeByOthers
            | Self::Hold(_)
            | Self::Locked { .. }
            | Self::HeldAgainstSite { .. }
            | Self::InUse
            | Self::CopyBase
            | Self::LastProven => true,
            Self::NeededBy { is_absolute, .. } => *is_absolute,
            Self::Newest | Self::AtLeast | Self::NotBefore { .. } | Self::Schedule(_) | Self::FailedRound => {
                false
            }
        }
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MadeByOthers => f.write_str("made by others"),
            Self::Hold(name) => write!(f, "held: {name}"),
            Self::Locked { left_s } => write!(f, "locked for {}", KeepSpan(*left_s)),
            Self::HeldAgainstSite { left_s: Some(left_s) } => {
                write!(f, "deleted where the set is kept, and locked here for {}", KeepSpan(*left_s))
            }
            Self::HeldAgainstSite { left_s: None } => {
                f.write_str("deleted where the set is kept, and locked here by a newer program")
            }
            Self::InUse => f.write_str("in use"),
            Self::CopyBase => f.write_str("base of a copy"),
            Self::LastProven => f.write_str("last proven one"),
            Self::NeededBy { sequence, .. } => write!(f, "needed by the logs of {sequence}"),
            Self::Newest => f.write_str("newest one"),
            Self::AtLeast => f.write_str("at_least"),
            Self::NotBefore { left_s } => write!(f, "not_before, for {}", KeepSpan(*left_s)),
            Self::Schedule(period) => write!(f, "schedule of {period}"),
            Self::FailedRound => f.write_str("the last round failed"),
        }
    }
}

/// The rule by which a backup is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeletionRule {
    /// No schedule and no other rule wants it.
    Surplus,
    /// It is older than `at_most`.
    AtMost,
    /// The pool is full.
    ThinnedOut,
    /// A person ordered it.
    Person,
}

impl DeletionRule {
    pub const ALL: [Self; 4] = [Self::Surplus, Self::AtMost, Self::ThinnedOut, Self::Person];

    pub fn word(self) -> &'static str {
        match self {
            Self::Surplus => "surplus",
            Self::AtMost => "at_most",
            Self::ThinnedOut => "on_full",
            Self::Person => "person",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetentionOutcome {
    /// One reason at least.
    Stays(Vec<KeepReason>),
    Goes(DeletionRule),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetentionDecision {
    pub sequence: u64,
    pub outcome: RetentionOutcome,
}

/// Decides about all backups of a set, in the order of their sequence numbers.
///
/// # Panics
///
/// If `backups` are not in that order.
pub fn decide(
    backups: &[RetainedBackup],
    schedules: &[BackupSchedule],
    policy: &KeepPolicy,
    round: RoundOutcome,
) -> Vec<RetentionDecision> {
    let mut wants = Wants::new(backups, schedules, policy);
    let decide_one = |backup: &RetainedBackup| {
        let outcome = wants.decide(backup, round);
        RetentionDecision { sequence: backup.sequence, outcome }
    };
    let mut decisions: Vec<RetentionDecision> = backups.iter().rev().map(decide_one).collect();
    decisions.reverse();
    decisions
}

/// Reasons that do not depend on counts, and that no rule overrides, but for [`KeepReason::NeededBy`].
pub(super) fn absolute_reasons(backup: &RetainedBackup, last_proven: Option<u64>) -> Vec<KeepReason> {
    let mut reasons = Vec::new();
    if !backup.is_own && !planted_keeping::is(KeepingBug::OthersCount) {
        reasons.push(KeepReason::MadeByOthers);
    }
    reasons.extend(backup.holds.iter().cloned().map(KeepReason::Hold));
    if let Some(until) = backup.locked_s
        && backup.age_s < until
    {
        reasons.push(KeepReason::Locked { left_s: until - backup.age_s.max(0) });
    }
    if backup.is_in_use {
        reasons.push(KeepReason::InUse);
    }
    if backup.is_copy_base {
        reasons.push(KeepReason::CopyBase);
    }
    if last_proven == Some(backup.sequence) && !planted_keeping::is(KeepingBug::LastProvenGoes) {
        reasons.push(KeepReason::LastProven);
    }
    reasons
}

/// The newest proven backup of the set's own.
pub(super) fn last_proven(backups: &[RetainedBackup]) -> Option<u64> {
    let is_proven = |backup: &&RetainedBackup| backup.is_own && backup.proof == BackupProof::Proven;
    backups.iter().rev().find(is_proven).map(|backup| backup.sequence)
}

/// The newest full backup of the set's own.
pub(super) fn newest_full(backups: &[RetainedBackup]) -> Option<u64> {
    let is_full = |backup: &&RetainedBackup| backup.is_own && backup.kind.is_full();
    backups.iter().rev().find(is_full).map(|backup| backup.sequence)
}

/// Full backups that `at_least` wants. Of proven ones, if the policy says so; while there are fewer of them, of others
/// as well.
pub(super) fn at_least(backups: &[&RetainedBackup], policy: &KeepPolicy) -> BTreeSet<u64> {
    let newest = |is_counted: &dyn Fn(&RetainedBackup) -> bool| -> Vec<u64> {
        let counted = backups.iter().rev().filter(|backup| backup.kind.is_full() && is_counted(backup));
        counted.map(|backup| backup.sequence).take(policy.at_least()).collect()
    };
    let any = newest(&|backup| backup.proof != BackupProof::Damaged);
    if !policy.only_verified() || planted_keeping::is(KeepingBug::UnprovenCountForMinimum) {
        return any.into_iter().collect();
    }
    let mut wanted = newest(&|backup| backup.proof == BackupProof::Proven);
    if wanted.len() < policy.at_least() {
        wanted.extend(any);
    }
    wanted.into_iter().collect()
}

/// The wishes of all rules, while backups are decided from the newest on.
struct Wants<'b> {
    schedules: &'b [BackupSchedule],
    policy: &'b KeepPolicy,
    last_proven: Option<u64>,
    newest_full: Option<u64>,
    at_least: BTreeSet<u64>,
    /// Good backups that each schedule has so far.
    counts: BTreeMap<SchedulePeriod, u32>,
    /// Full backups that logs which stay need: those logs, and whether they stay for a reason that no rule overrides.
    needed: BTreeMap<u64, (u64, bool)>,
    /// The one before.
    newer: Option<u64>,
}

impl<'b> Wants<'b> {
    fn new(backups: &[RetainedBackup], schedules: &'b [BackupSchedule], policy: &'b KeepPolicy) -> Self {
        let last_proven = last_proven(backups);
        // A backup that goes by law uses up no count.
        let is_counted = |backup: &&RetainedBackup| {
            let is_own = backup.is_own || planted_keeping::is(KeepingBug::OthersCount);
            is_own && (!is_too_old(backup, policy) || !absolute_reasons(backup, last_proven).is_empty())
        };
        let counted: Vec<&RetainedBackup> = backups.iter().filter(is_counted).collect();
        Self {
            schedules,
            policy,
            last_proven,
            newest_full: newest_full(backups),
            at_least: at_least(&counted, policy),
            counts: BTreeMap::new(),
            needed: BTreeMap::new(),
            newer: None,
        }
    }

    fn decide(&mut self, backup: &RetainedBackup, round: RoundOutcome) -> RetentionOutcome {
        assert!(
            self.newer.replace(backup.sequence).is_none_or(|newer| backup.sequence < newer),
            "in their order"
        );
        let mut reasons = absolute_reasons(backup, self.last_proven);
        if let Some(&(sequence, is_absolute)) = self.needed.get(&backup.sequence)
            && !planted_keeping::is(KeepingBug::NeededGoes)
        {
            reasons.push(KeepReason::NeededBy { sequence, is_absolute });
        }
        let is_absolute = reasons.iter().any(KeepReason::is_absolute);
        if is_too_old(backup, self.policy) && !is_absolute {
            return RetentionOutcome::Goes(DeletionRule::AtMost);
        }
        if backup.is_own || planted_keeping::is(KeepingBug::OthersCount) {
            self.add_wishes(backup, &mut reasons);
        }
        if reasons.is_empty() {
            if round == RoundOutcome::Succeeded || planted_keeping::is(KeepingBug::FailedRoundDeletes) {
                return RetentionOutcome::Goes(DeletionRule::Surplus);
            }
            reasons.push(KeepReason::FailedRound);
        }
        if let Some(base) = backup.needs {
            assert!(base < backup.sequence, "logs follow their full backup");
            let (_, is_needed_absolutely) = *self.needed.get(&base).unwrap_or(&(0, false));
            self.needed.insert(base, (backup.sequence, is_absolute || is_needed_absolutely));
        }
        RetentionOutcome::Stays(reasons)
    }

    /// Reasons that a law overrides.
    fn add_wishes(&mut self, backup: &RetainedBackup, reasons: &mut Vec<KeepReason>) {
        if self.newest_full == Some(backup.sequence) {
            reasons.push(KeepReason::Newest);
        }
        if self.at_least.contains(&backup.sequence) {
            reasons.push(KeepReason::AtLeast);
        }
        let left_s = self.policy.not_before_s() - backup.age_s.max(0);
        if backup.kind.is_full() && left_s > 0 {
            reasons.push(KeepReason::NotBefore { left_s });
        }
        for schedule in self.schedules {
            if !backup.periods.contains(&schedule.period()) {
                continue;
            }
            let count = self.counts.entry(schedule.period()).or_insert(0);
            let is_wanted = if planted_keeping::is(KeepingBug::AgesInsteadOfCounts) {
                backup.age_s < schedule.period().longest_s(schedule.count())
            } else {
                *count < schedule.count()
            };
            if is_wanted {
                reasons.push(KeepReason::Schedule(schedule.period()));
                // A damaged one stays beside an older good one, until good ones push it out.
                *count += u32::from(backup.proof != BackupProof::Damaged);
            }
        }
    }
}

fn is_too_old(backup: &RetainedBackup, policy: &KeepPolicy) -> bool {
    policy.at_most_s().is_some_and(|at_most| backup.is_own && backup.age_s > at_most)
}
