//! Backups of a simulated run: what is kept and deleted, and the freeze as the sessions see it.

use crate::simulated::{Drive, POOLS, archived_logs, describe, plan, run_on};
use protect::backup::{BackupCutter, StepError, StepResult};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    future::ready,
    rc::Rc,
    time::Duration,
};
use workload::database::{
    measure::pools::{PoolFacts, PoolSet},
    plan::{LoadPlan, RunPlan, protection::ProtectionPlan},
    results::backups::BackupResults,
};
use world::{IoResult, LocalFuture, Moment, World};

const DRIVE: Drive = Drive { mean: Duration::from_millis(4), servers: 4 };
/// A cut that takes longer than a freeze may last.
const SLOW: u32 = 5;
/// A cut that fails.
const FAILING: u32 = 3;

thread_local! {
    /// Everything that was cut and removed, in its order.
    static JOURNAL: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// Log generations of each backup that was cut.
    static LOGS: RefCell<Vec<BTreeSet<u32>>> = const { RefCell::new(Vec::new()) };
}

/// Pools that cut in 3 ms, except for two cuts.
struct FakePools {
    world: World,
    cuts: Rc<Cell<u32>>,
}

impl PoolSet for FakePools {
    fn facts(&self) -> Vec<PoolFacts> {
        Vec::new()
    }

    fn cutter(&self) -> Option<Rc<dyn BackupCutter>> {
        Some(Rc::new(Self { world: self.world.clone(), cuts: Rc::clone(&self.cuts) }))
    }

    fn close(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(ready(Ok(())))
    }
}

impl BackupCutter for FakePools {
    fn hold(&self, _deadline: Moment) -> LocalFuture<StepResult> {
        Box::pin(ready(Ok(())))
    }

    fn cut(&self, name: &str, _deadline: Moment) -> LocalFuture<StepResult> {
        self.cuts.set(self.cuts.get() + 1);
        let (number, world, name) = (self.cuts.get(), self.world.clone(), short(name));
        Box::pin(async move {
            let span = if number == SLOW { 15_000 } else { 3 };
            world.sleep(Duration::from_millis(span)).await;
            let logs = archived_logs().await;
            if number == FAILING {
                return Err(StepError("as scripted".to_owned()));
            }
            JOURNAL.with_borrow_mut(|journal| journal.push(format!("+{name}")));
            // The slow one is given up, and cut while the group works on.
            if number != SLOW {
                LOGS.with_borrow_mut(|all| all.push(logs));
            }
            Ok(())
        })
    }

    fn release(&self) -> LocalFuture<StepResult> {
        Box::pin(ready(Ok(())))
    }

    fn remove(&self, name: &str) -> LocalFuture<StepResult> {
        let name = short(name);
        JOURNAL.with_borrow_mut(|journal| journal.push(format!("-{name}")));
        Box::pin(ready(Ok(())))
    }
}

/// The number of a backup.
fn short(name: &str) -> String {
    name.rsplit('-').next().expect("a number").to_owned()
}

#[test]
fn the_oldest_backup_goes_after_a_new_one_and_failing_ones_delete_nothing() {
    POOLS.set(Some(|world| Rc::new(FakePools { world, cuts: Rc::default() })));
    let protection = Some(ProtectionPlan { every_s: 2, keep: 2, keeps_logs: false });
    let results = run_on(DRIVE, RunPlan { protection, ..plan(LoadPlan::Threads { per_group: 4 }, 28) }, None);
    POOLS.set(None);

    assert_eq!(results.failures, [], "no commit fails");
    let journal = JOURNAL.with_borrow(|journal| journal.join(" "));
    // 3 failed, and what there might be of it was removed; so was 5, which came too late.
    assert!(journal.starts_with("+1 +2 -3 +4 -1 -5 +6 -2 +7 -4"), "{journal}");
    let of = |number: usize| -> &BackupResults { &results.backups[number - 1] };
    let labels: Vec<Option<&str>> = results.backups.iter().map(|backup| backup.label.as_deref()).collect();
    let application = Some("application");
    let first = [application, application, None, application, None, application, application];
    assert_eq!(labels[..7], first, "{}", describe(&results));
    assert_eq!(of(3).problems, ["the cut failed: as scripted"]);
    assert!(of(5).problems[0].starts_with("the cut failed: it did not end in time"), "{:?}", of(5).problems);
    assert_eq!((of(3).kept, of(4).kept, of(4).deleted.len()), (2, 2, 1));
    for backup in results.backups.iter().filter(|backup| backup.label.is_some()) {
        let (window, freeze) = (backup.window_ms.expect("answered"), backup.freeze_ms.expect("frozen"));
        assert!((3.0..1000.0).contains(&window), "{backup:?}");
        assert!((3.0..1000.0).contains(&freeze), "{backup:?}");
    }
    let slow = of(5).window_ms.expect("the group thawed by itself");
    assert!((9_900.0..11_000.0).contains(&slow), "commits wait no longer than the budget: {slow} ms");
}

/// Log generations of the backups of a run, each on its own.
fn logs_of_backups(keeps_logs: bool) -> Vec<BTreeSet<u32>> {
    POOLS.set(Some(|world| Rc::new(FakePools { world, cuts: Rc::default() })));
    let protection = Some(ProtectionPlan { every_s: 4, keep: 2, keeps_logs });
    let mut plan = RunPlan { protection, ..plan(LoadPlan::Threads { per_group: 4 }, 40) };
    plan.profile.set("checkpoint_depth_bytes", "1048576").expect("a possible figure");
    let results = run_on(DRIVE, plan, None);
    POOLS.set(None);
    assert_eq!(results.failures, [], "no commit fails");
    let problems = |backup: &&BackupResults| backup.problems.iter().any(|one| one.contains("released"));
    assert_eq!(results.backups.iter().find(problems), None, "{}", describe(&results));
    LOGS.take()
}

#[test]
fn kept_logs_reach_from_each_backup_to_the_next_and_circular_ones_do_not() {
    let reaches = |pair: &[BTreeSet<u32>]| {
        let (newest, oldest) = (pair[0].last().expect("logs"), pair[1].first().expect("logs"));
        *oldest <= newest + 1
    };
    let kept = logs_of_backups(true);
    assert!(kept.len() > 3, "{kept:?}");
    assert!(kept.windows(2).all(reaches), "{kept:?}");
    for logs in &kept {
        let (first, last) = (*logs.first().expect("logs"), *logs.last().expect("logs"));
        assert_eq!(logs.len() as u32, last - first + 1, "without a gap: {logs:?}");
    }
    // Logs that a backup has go, except those that recovery needs.
    let oldest = |logs: &BTreeSet<u32>| *logs.first().expect("logs");
    assert!(oldest(&kept[kept.len() - 1]) > oldest(&kept[1]), "{kept:?}");

    let circular = logs_of_backups(false);
    assert!(!circular.windows(2).all(reaches), "{circular:?}");
}
