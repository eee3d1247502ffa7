//! Whole runs on real files, small and short.

use std::{path::Path, rc::Rc, sync::Arc};
use tempfile::TempDir;
use workload::{
    database::{
        Error, GroupPlacement, OpenGroup, RunEnvironment,
        plan::{LoadPlan, RunPlan, VolumeFacts, profile::ServerProfile},
        results::{HostFacts, RunResults, test_log::Phase},
        run::{driver::run, group::GroupStorage},
    },
    meter::VolumeRole,
    verdict::{RunVerdict, VerdictOutcome, judged_part::JudgedPart},
};
use world::{
    Cancellation, Directory,
    real::{self, FolderDirectory, RealOptions, host_files},
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

pub fn plan(profile: &str, load: LoadPlan) -> RunPlan {
    RunPlan {
        profile: ServerProfile::load(profile).unwrap(),
        groups: 1,
        databases_per_group: 2,
        database_bytes: 12 * MIB,
        database_bytes_max: 20 * MIB,
        cache_bytes_per_group: 6 * MIB,
        load,
        duration_s: 3,
        judged: JudgedPart::All,
        fill_s_max: 20,
        seed: 42,
        volumes: vec![VolumeFacts {
            name: "databases".to_owned(),
            databases: true,
            logs: false,
            io: "a folder".to_owned(),
            direct: true,
            description: "a temporary folder".to_owned(),
        }],
        storage_cache_bytes: None,
        setup: None,
        notes: Vec::new(),
        layout: None,
        protection: None,
    }
}

/// Databases of group g in `<folder>/<g>`, logs beside them.
fn open_in(folder: &Path) -> OpenGroup {
    let folder = folder.to_owned();
    Arc::new(move |_, group| {
        let folder = folder.join(group.to_string());
        Box::pin(async move {
            let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(&folder)?);
            let database =
                |number| (Rc::clone(&directory), format!("priv{number}.edb"), "databases".to_owned());
            Ok(GroupStorage {
                databases: vec![database(1), database(2)],
                log: (Rc::clone(&directory), "logs".to_owned()),
                pools: None,
                control: None,
            })
        })
    })
}

pub fn folders(groups: u32) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for group in 0..groups {
        host_files::create_dir_all(&folder.path().join(group.to_string())).unwrap();
    }
    folder
}

/// Runs `plan` in `folder`; ends it when `until` says so of a phase.
fn run_until(
    plan: RunPlan,
    folder: &Path,
    place: GroupPlacement,
    until: impl Fn(Phase) -> bool,
) -> Result<RunResults, Error> {
    run_on(plan, open_in(folder), place, until)
}

fn run_on(
    plan: RunPlan,
    open: OpenGroup,
    place: GroupPlacement,
    until: impl Fn(Phase) -> bool,
) -> Result<RunResults, Error> {
    let stop = Cancellation::default();
    let surroundings = RunEnvironment {
        open,
        place,
        stop: stop.clone(),
        generator: "spindle test".to_owned(),
        host: HostFacts::default(),
        read_host: None,
        kernel: None,
        recorder: None,
    };
    real::run(plan.seed, RealOptions::default(), async |world| {
        run(&world, plan, surroundings, |progress| {
            if until(progress.phase) {
                stop.cancel();
            }
        })
        .await
    })
}

pub fn run_here(plan: RunPlan, folder: &Path) -> RunResults {
    run_until(plan, folder, GroupPlacement::CallerThread, |_| false).unwrap()
}

/// Runs `plan` on storage opened by `open`.
pub fn run_opened(plan: RunPlan, open: OpenGroup) -> RunResults {
    run_on(plan, open, GroupPlacement::CallerThread, |_| false).unwrap()
}

#[test]
fn a_closed_loop_runs_through_all_phases_and_is_then_attached_to() {
    let folder = folders(1);
    let plan = plan("exchange-2007", LoadPlan::Threads { per_group: 8 });
    let first = run_here(plan.clone(), folder.path());
    assert_eq!(first.failures, [], "nothing may go wrong");
    assert!(first.created_bytes > 12 * MIB, "two databases were made: {}", first.created_bytes);
    assert!(first.fill.reached, "{:?}", first.fill);
    assert!((2.9..4.5).contains(&first.measured_s), "{}", first.measured_s);
    assert!(first.transactions.records_checked > 50, "{:?}", first.transactions);
    assert_eq!(first.verified.len(), 3, "two databases and the log");
    let shares: u64 = first.operations.iter().map(|operation| operation.count).sum();
    for (operation, percent) in first.operations.iter().zip([40, 5, 30, 25]) {
        let share = operation.count as f64 * 100.0 / shares as f64;
        assert!((share - f64::from(percent)).abs() < 6.0, "{operation:?} of {shares}");
    }
    assert!(first.databases.iter().all(|database| database.bytes_after <= 20 * MIB), "{:?}", first.databases);
    let database = first.in_role(VolumeRole::Database).next().unwrap();
    let log = first.in_role(VolumeRole::Log).next().unwrap();
    assert!(database.tallies.read.count > 0 && log.tallies.write.count > 0);
    assert!(database.read.p99_ms >= database.read.p50_ms && database.read.max_ms >= database.read.p99_9_ms);

    let records: Vec<u64> = first.databases.iter().map(|database| database.records).collect();
    let second = run_here(plan, folder.path());
    let found: Vec<u64> = second.databases.iter().map(|database| database.records_found).collect();
    assert_eq!(found, records, "what the first run left is what the second finds, record by record");
    assert_eq!(second.created_bytes, 0);
    assert_eq!(second.failures, []);
}

#[test]
fn groups_on_threads_hold_a_rate_beside_a_background_scan() {
    let folder = folders(2);
    let mut plan = plan("exchange-2010", LoadPlan::Mailboxes { count: 400, iops_each: 0.5 });
    plan.groups = 2;
    plan.duration_s = 6;
    let results =
        run_until(plan, folder.path(), GroupPlacement::Threads(RealOptions::default()), |_| false).unwrap();
    assert_eq!(results.failures, []);
    assert_eq!(results.databases.len(), 4);
    assert_eq!(results.volumes.len(), 2, "groups share volumes of one name");
    let achieved = results.achieved_iops();
    assert!((120.0..320.0).contains(&achieved), "target 200 IOPS, {achieved} achieved");
    let scan = results.scan.unwrap();
    assert!(scan.pages > 100 && scan.damaged == 0, "{scan:?}");
    let database = results.in_role(VolumeRole::Database).next().unwrap();
    let scanned = &database.tallies.scan;
    assert!(scanned.count > 20, "{scanned:?}");
    // The last read of a pass over a database ends with its file; each of the four may also have ended a pass
    // between the meters' start and the scan's.
    let whole = scanned.count * 256 * KIB;
    let short_reads = scan.passes + 4;
    assert!(
        scanned.bytes <= whole && whole - scanned.bytes < short_reads * 256 * KIB,
        "scans read 256 KiB at a time: {scanned:?}, {scan:?}"
    );
}

#[test]
fn a_database_of_other_content_is_refused_and_named() {
    let folder = folders(1);
    let plan = plan("exchange-2007", LoadPlan::Threads { per_group: 2 });
    run_until(plan.clone(), folder.path(), GroupPlacement::CallerThread, |phase| phase == Phase::Fill)
        .unwrap();
    let mut other = plan;
    other.profile.set("compressible_percent", "50%").unwrap();
    let error =
        run_until(other, folder.path(), GroupPlacement::CallerThread, |_| false).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "made of records that are compressible by 0 %, not 50 %; use --set compressible_percent=0 or \
             another folder"
        ),
        "{error}"
    );
}

#[test]
fn a_run_that_is_ended_early_says_so_and_can_be_resumed() {
    let folder = folders(1);
    let mut plan = plan("exchange-2003", LoadPlan::Threads { per_group: 4 });
    plan.duration_s = 600;
    let ended =
        run_until(plan.clone(), folder.path(), GroupPlacement::CallerThread, |phase| phase == Phase::Measure)
            .unwrap();
    assert!(ended.interrupted && ended.measured_s < 60.0);
    assert!(ended.verified.is_empty());
    let verdict = RunVerdict::of(&ended).unwrap();
    // On a busy machine a latency may exceed its limit even so.
    assert_ne!(verdict.answer, VerdictOutcome::Pass, "what was not verified has not passed");
    assert_eq!(verdict.answer == VerdictOutcome::Fail, verdict.broken().count() > 0);

    plan.duration_s = 2;
    plan.database_bytes = 14 * MIB;
    let resumed = run_here(plan, folder.path());
    assert!(
        resumed.databases.iter().all(|database| database.records_found > 1000),
        "{:?}",
        resumed.databases
    );
    assert!(resumed.databases.iter().all(|database| database.bytes_before >= 13 * MIB));
    assert_eq!(resumed.failures, []);
}

#[test]
fn a_creation_that_was_stopped_goes_on_where_it_was() {
    let folder = folders(1);
    let plan = plan("exchange-2007", LoadPlan::Threads { per_group: 4 });
    let mut large = plan.clone();
    large.database_bytes = 400 * MIB;
    large.database_bytes_max = 500 * MIB;
    let ended = run_until(large, folder.path(), GroupPlacement::CallerThread, |phase| phase == Phase::Create)
        .unwrap();
    assert!(ended.interrupted && ended.measured_s == 0.0);
    let begun: Vec<u64> = ended.databases.iter().map(|database| database.records).collect();
    let mut plan = plan;
    // Further off than the size tolerance.
    plan.database_bytes = ended.databases[0].bytes_after * 9 / 8 + 4 * MIB;
    plan.database_bytes_max = plan.database_bytes * 2;
    let resumed = run_here(plan, folder.path());
    for (database, begun) in resumed.databases.iter().zip(begun) {
        assert_eq!(database.records_found, begun);
    }
    assert!(resumed.created_bytes > 0);
    assert_eq!(resumed.failures, []);
}

#[test]
fn damage_between_two_runs_does_not_go_unnoticed() {
    let folder = folders(1);
    let plan = plan("exchange-2007", LoadPlan::Threads { per_group: 4 });
    run_here(plan.clone(), folder.path());
    let path = folder.path().join("0/priv2.edb");
    let mut bytes = host_files::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    host_files::write_atomically(&path, &bytes).unwrap();
    let error = run_until(plan, folder.path(), GroupPlacement::CallerThread, |_| false).unwrap_err();
    assert!(error.to_string().contains("priv2.edb: page"), "{error}");
}

#[test]
fn a_database_made_for_other_records_is_refused() {
    let folder = folders(1);
    let mut plan = plan("exchange-2007", LoadPlan::Threads { per_group: 4 });
    run_here(plan.clone(), folder.path());
    plan.profile.set("record_bytes", "2000").unwrap();
    let error = run_until(plan, folder.path(), GroupPlacement::CallerThread, |_| false).unwrap_err();
    let said = "priv1.edb: made for records of 1000 bytes, not 2000";
    assert!(error.to_string().starts_with(said), "{error}");
}
