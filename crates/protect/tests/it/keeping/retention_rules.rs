//! Rules of retention for any backups: each is said here once more, in other words than the product's.

use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{RngAlgorithm, RngSeed, TestRng, TestRunner},
};
use protect::{
    backup_schedule::{BackupKind, BackupSchedule, SchedulePeriod},
    retention::{
        BackupProof, DeletionRule, KeepPolicy, KeepReason, KeepSettings, RetainedBackup, RetentionDecision,
        RetentionOutcome, RoundOutcome, decide, thin_out,
    },
};
use std::collections::BTreeSet;

const DAY_S: i64 = 86_400;

/// A set at one moment.
#[derive(Clone, Debug)]
struct Case {
    backups: Vec<RetainedBackup>,
    schedules: Vec<BackupSchedule>,
    policy: KeepPolicy,
    round: RoundOutcome,
}

fn schedules() -> impl Strategy<Value = Vec<BackupSchedule>> {
    (vec(1_u32..6, 3), 0_usize..8).prop_map(|(counts, chosen)| {
        let periods = ["1min", "1h", "1d"].into_iter().zip(counts).enumerate();
        let chosen = periods.filter(|(index, _)| chosen & (1 << index) != 0);
        chosen.map(|(_, (period, count))| format!("{count}x{period}").parse().unwrap()).collect()
    })
}

fn policies() -> impl Strategy<Value = KeepPolicy> {
    (1_u32..5, 0_i64..4, prop::option::of(4_i64..9), any::<bool>()).prop_map(
        |(at_least, days, at_most, verified)| {
            KeepPolicy::new(&KeepSettings {
                at_least: Some(at_least),
                not_before: Some(format!("{days}d")),
                at_most: at_most.map(|days| format!("{days}d")),
                only_after: verified.then(|| "verified".to_owned()),
                ..KeepSettings::default()
            })
            .unwrap()
        },
    )
}

fn backup() -> impl Strategy<Value = RetainedBackup> {
    let proof =
        prop_oneof![Just(BackupProof::Proven), Just(BackupProof::Unproven), Just(BackupProof::Damaged)];
    let rare = || prop::bool::weighted(0.08);
    let flags = (rare(), rare(), rare(), rare(), rare());
    (0_usize..8, proof, 0_i64..12 * DAY_S, flags, any::<bool>(), prop::option::of(0_u64..9)).prop_map(
        |(chosen, proof, age_s, (held, locked, used, base, others), logs, frees_bytes)| {
            let periods = ["1min", "1h", "1d"].into_iter().enumerate();
            let periods: Vec<SchedulePeriod> = periods
                .filter(|(index, _)| chosen & (1 << index) != 0)
                .map(|(_, period)| period.parse().unwrap())
                .collect();
            let is_interim = periods.len() == 1 && periods[0].is_close();
            let interim = if logs { BackupKind::InterimLogs } else { BackupKind::InterimCrash };
            RetainedBackup {
                sequence: 0,
                kind: if is_interim { interim } else { BackupKind::Full },
                periods,
                proof,
                holds: if held { vec!["upgrade".to_owned()] } else { Vec::new() },
                age_s,
                locked_s: locked.then_some(6 * DAY_S),
                is_in_use: used,
                is_copy_base: base,
                frees_bytes,
                is_own: !others,
                needs: None,
            }
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let round = prop_oneof![3 => Just(RoundOutcome::Succeeded), 1 => Just(RoundOutcome::Failed)];
    (vec(backup(), 0..30), schedules(), policies(), round).prop_map(
        |(mut backups, schedules, policy, round)| {
            let mut full = None;
            for (index, backup) in backups.iter_mut().enumerate() {
                backup.sequence = index as u64 * 3 + 1;
                match backup.kind {
                    BackupKind::Full if backup.is_own => full = Some(backup.sequence),
                    BackupKind::InterimLogs if backup.is_own => backup.needs = full,
                    _ => {}
                }
            }
            Case { backups, schedules, policy, round }
        },
    )
}

fn is_protected(backup: &RetainedBackup) -> bool {
    let is_locked = backup.locked_s.is_some_and(|until| backup.age_s < until);
    !backup.is_own || !backup.holds.is_empty() || is_locked || backup.is_in_use || backup.is_copy_base
}

fn last_proven(backups: &[RetainedBackup]) -> Option<u64> {
    let proven = backups.iter().filter(|backup| backup.is_own && backup.proof == BackupProof::Proven);
    proven.map(|backup| backup.sequence).max()
}

fn left(backups: &[RetainedBackup], gone: &BTreeSet<u64>) -> Vec<RetainedBackup> {
    backups.iter().filter(|backup| !gone.contains(&backup.sequence)).cloned().collect()
}

fn gone(decisions: &[RetentionDecision]) -> BTreeSet<u64> {
    let gone = decisions.iter().filter(|decision| matches!(decision.outcome, RetentionOutcome::Goes(_)));
    gone.map(|decision| decision.sequence).collect()
}

fn check(case: &Case) {
    let Case { backups, schedules, policy, round } = case;
    let decisions = decide(backups, schedules, policy, *round);
    let gone = gone(&decisions);
    let left = left(backups, &gone);
    assert_eq!(decisions.len(), backups.len());
    for (backup, decision) in backups.iter().zip(&decisions) {
        assert_eq!(backup.sequence, decision.sequence);
        check_one(case, backup, &decision.outcome);
    }
    // Nothing lacks the full backup that it needs, if it was there.
    for backup in &left {
        if let Some(base) = backup.needs.filter(|base| gone.contains(base)) {
            let law = policy.at_most_s().expect("only the law takes a needed one");
            let base = backups.iter().find(|other| other.sequence == base).unwrap();
            assert!(base.age_s > law && !is_protected(backup), "{backup:?}");
        }
    }
    check_counts(case, &left);
    assert_eq!(last_proven(backups), last_proven(&left), "the last proven one stays");
    let again = decide(&left, schedules, policy, *round);
    assert!(again.iter().all(|decision| matches!(decision.outcome, RetentionOutcome::Stays(_))), "{again:?}");
    check_thinning(case);
}

fn check_one(case: &Case, backup: &RetainedBackup, outcome: &RetentionOutcome) {
    let too_old = case.policy.at_most_s().is_some_and(|law| backup.age_s > law);
    match outcome {
        RetentionOutcome::Stays(reasons) => {
            assert!(!reasons.is_empty());
            let is_overridden = reasons.iter().all(|reason| !reason.is_absolute());
            assert!(!(too_old && is_overridden), "the law takes {backup:?}");
            assert_eq!(reasons.contains(&KeepReason::FailedRound), reasons == &[KeepReason::FailedRound]);
        }
        RetentionOutcome::Goes(rule) => {
            assert!(!is_protected(backup), "{backup:?}");
            assert_ne!(last_proven(&case.backups), Some(backup.sequence));
            match rule {
                DeletionRule::AtMost => assert!(too_old),
                DeletionRule::Surplus => {
                    assert_eq!(case.round, RoundOutcome::Succeeded, "a failed round deletes nothing");
                    let is_young =
                        backup.age_s < case.policy.not_before_s() && backup.kind == BackupKind::Full;
                    assert!(!is_young, "{backup:?}");
                }
                DeletionRule::ThinnedOut | DeletionRule::Person => panic!("{rule:?} is no rule of a round"),
            }
        }
    }
}

/// Counts are of backups that exist: as many as before, or as many as are wanted.
fn check_counts(case: &Case, left: &[RetainedBackup]) {
    let law = case.policy.at_most_s().unwrap_or(i64::MAX);
    let stays: BTreeSet<u64> = left.iter().map(|backup| backup.sequence).collect();
    let own = |backups: &[RetainedBackup]| -> Vec<RetainedBackup> {
        let is_counted = |backup: &&RetainedBackup| {
            backup.is_own && (backup.age_s <= law || stays.contains(&backup.sequence))
        };
        backups.iter().filter(is_counted).cloned().collect()
    };
    let (before, after) = (own(&case.backups), own(left));
    for schedule in &case.schedules {
        let good = |backups: &[RetainedBackup]| -> Vec<u64> {
            let of = backups.iter().filter(|backup| backup.periods.contains(&schedule.period()));
            of.filter(|backup| backup.proof != BackupProof::Damaged).map(|backup| backup.sequence).collect()
        };
        let (before, after) = (good(&before), good(&after));
        let wanted = &before[before.len().saturating_sub(schedule.count() as usize)..];
        assert!(
            wanted.iter().all(|sequence| after.contains(sequence)),
            "{schedule}: {wanted:?} of {after:?}"
        );
    }
    let full = |backups: &[RetainedBackup], is_counted: &dyn Fn(&RetainedBackup) -> bool| -> Vec<u64> {
        let full = backups.iter().filter(|backup| backup.kind == BackupKind::Full && is_counted(backup));
        full.map(|backup| backup.sequence).collect()
    };
    let is_proven = |backup: &RetainedBackup| backup.proof == BackupProof::Proven;
    let is_good = |backup: &RetainedBackup| backup.proof != BackupProof::Damaged;
    let (is_counted, has_too_few): (&dyn Fn(&RetainedBackup) -> bool, bool) = if case.policy.only_verified() {
        (&is_proven, full(&before, &is_proven).len() < case.policy.at_least())
    } else {
        (&is_good, false)
    };
    let mut wanted = full(&before, is_counted);
    wanted = wanted.split_off(wanted.len().saturating_sub(case.policy.at_least()));
    if has_too_few {
        let good = full(&before, &is_good);
        wanted.extend(&good[good.len().saturating_sub(case.policy.at_least())..]);
    }
    let after = full(&after, &|_| true);
    assert!(wanted.iter().all(|sequence| after.contains(sequence)), "at_least: {wanted:?} of {after:?}");
}

/// Thinning out, until nothing goes any more.
fn check_thinning(case: &Case) {
    let mut left = case.backups.clone();
    let mut last: Option<RetainedBackup> = None;
    while let Some(step) = thin_out(&left, &case.policy) {
        let index = left.iter().position(|backup| backup.sequence == step.sequence).unwrap();
        let gone = left.remove(index);
        assert!(!is_protected(&gone), "{gone:?}");
        assert_ne!(last_proven(&case.backups), Some(gone.sequence));
        assert!(!left.iter().any(|backup| backup.needs == Some(gone.sequence)), "{gone:?} is needed");
        let density = |backup: &RetainedBackup| {
            let longest = backup.periods.iter().map(|period| period.shortest_s()).max();
            longest.unwrap_or(i64::MAX)
        };
        let is_free =
            |backup: &RetainedBackup| !left.iter().any(|other| other.needs == Some(backup.sequence));
        if let Some(before) =
            last.filter(|_| is_free(&gone) && case.backups.iter().all(|backup| backup.needs.is_none()))
        {
            let order = |backup: &RetainedBackup| (backup.proof, density(backup), backup.sequence);
            assert!(order(&before) < order(&gone), "{before:?} goes before {gone:?}");
        }
        last = Some(gone);
    }
    let proven = |backups: &[RetainedBackup]| {
        let own = backups.iter().filter(|backup| backup.is_own && backup.kind == BackupKind::Full);
        own.filter(|backup| backup.proof == BackupProof::Proven).count()
    };
    if case.policy.only_verified() {
        let wanted = proven(&case.backups).min(case.policy.at_least());
        assert!(proven(&left) >= wanted, "at_least proven ones stay");
    }
}

/// One case of a seed.
pub fn check_seed(seed: u64) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    check(&cases().new_tree(&mut runner).expect("nothing is filtered").current());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(27), ..ProptestConfig::default()
    })]

    #[test]
    fn nothing_that_a_rule_wants_is_deleted_and_a_second_run_deletes_nothing(case in cases()) {
        check(&case);
    }

    #[test]
    fn less_confirmed_age_deletes_nothing_more(case in cases(), confirmed in vec(0.0..1.0_f64, 30)) {
        // Without a law: whatever part of its age is confirmed, only what goes with all of it may go.
        let policy = KeepPolicy::new(&KeepSettings {
            at_least: Some(case.policy.at_least() as u32),
            not_before: Some("3d".to_owned()),
            ..KeepSettings::default()
        }).unwrap();
        let all = gone(&decide(&case.backups, &case.schedules, &policy, case.round));
        let mut younger = case.backups.clone();
        for (backup, part) in younger.iter_mut().zip(&confirmed) {
            backup.age_s = (backup.age_s as f64 * part) as i64;
        }
        let some = gone(&decide(&younger, &case.schedules, &policy, case.round));
        prop_assert!(some.is_subset(&all), "{some:?} of {all:?}");
    }

    #[test]
    fn after_weeks_off_nothing_goes_but_by_count(case in cases(), off_days in 0_i64..60) {
        // Kopia #3758: hours gone by are no reason. Ages grow, rules without ages decide the same.
        let policy = KeepPolicy::new(&KeepSettings {
            at_least: Some(case.policy.at_least() as u32),
            ..KeepSettings::default()
        }).unwrap();
        let unlocked = |off_s: i64| -> Vec<RetainedBackup> {
            case.backups.iter().cloned().map(|mut backup| {
                backup.age_s += off_s;
                backup.locked_s = None;
                backup
            }).collect()
        };
        let before = decide(&unlocked(0), &case.schedules, &policy, case.round);
        prop_assert_eq!(before, decide(&unlocked(off_days * DAY_S), &case.schedules, &policy, case.round));
    }
}
