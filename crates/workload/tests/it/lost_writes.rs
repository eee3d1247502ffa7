//! A database write that the storage acknowledges but does not do, in a simulated world.

use crate::frozen::{FaultPlan, SECOND, findings, plan, run};
use workload::{
    database::{
        document::document,
        plan::{LoadPlan, profile::ServerProfile},
    },
    verdict::VerdictOutcome,
};

const LOAD: LoadPlan = LoadPlan::Threads { per_group: 4 };

/// The write is lost late, so that no later write of the same page repairs it.
#[test]
fn a_lost_database_write_fails_the_run_of_every_shipped_profile() {
    for profile in ["exchange-2003", "exchange-2007", "exchange-2010", "exchange-2013"] {
        let profile = ServerProfile::load(profile).unwrap();
        assert_eq!(profile.page_stamps(), maildb::PageStampMode::WhileOpen, "{}", profile.name);
    }
    for after in [SECOND * 3, SECOND * 7 / 2] {
        let loses_a_database_write_after = Some(after);
        let (results, verdict) =
            run(plan(LOAD, 4), FaultPlan { loses_a_database_write_after, ..FaultPlan::default() });
        let said = findings(&results, &verdict);
        assert!(said.contains("a write was lost"), "lost after {after:?}: {said}");
        assert_eq!(verdict.answer, VerdictOutcome::Fail, "lost after {after:?}");
    }
}

#[test]
fn without_stamps_the_verdict_says_that_lost_writes_were_not_checked() {
    let mut plan = plan(LOAD, 3);
    plan.profile.set("page_stamps", "0").unwrap();
    let (results, verdict) = run(plan, FaultPlan::default());
    let answered = document(&results, &verdict).verdict.expect("judged").headline;
    assert_eq!(verdict.answer, VerdictOutcome::Pass, "{answered}");
    assert!(answered.contains("lost writes were not checked"), "{answered}");
    assert!(findings(&results, &verdict).contains("page_stamps = 1 detects them"));
}
