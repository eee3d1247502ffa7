//! Simulated storage that freezes, or loses a write, during measurement.

use std::{cell::Cell, future::pending, rc::Rc, sync::Arc, time::Duration};
use workload::{
    database::{
        Error,
        document::document,
        plan::{LoadPlan, RunPlan, profile::ServerProfile},
        results::{HostFacts, RunFrame, RunResults, outcome::GroupOutcome, test_log::Phase},
        run::{
            group::{GroupRun, GroupStorage},
            progress::RunState,
        },
    },
    meter::{IoKind, Slowness, VolumeRole},
    verdict::{RunVerdict, VerdictOutcome, judged_part::JudgedPart, limits::Measure},
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Cancellation, Directory, DirectoryEntry, ExtentDirectory,
    File, Geometry, IoResult, LocalFuture, Moment, Resizable, Stability, World,
    sim::{DriveOptions, SimLimits, Simulation},
};

const DATABASE: &str = "priv1.edb";
/// The two copies of a database's header.
const HEADERS_BYTES: u64 = 2 * 8192;

/// Times at which writes freeze and resume; None for never.
#[derive(Clone)]
struct Frost {
    world: World,
    from: Rc<Cell<Option<Moment>>>,
    until: Rc<Cell<Option<Moment>>>,
    /// Time from which one write of database pages is acknowledged but not done.
    lose_one_from: Rc<Cell<Option<Moment>>>,
}

impl Frost {
    async fn melt(&self) {
        if self.from.get().is_none_or(|from| self.world.now() < from) {
            return;
        }
        match self.until.get() {
            Some(until) => self.world.sleep_until(until).await,
            None => pending().await,
        }
    }
}

/// A directory whose writes freeze.
struct FreezingDirectory(Rc<dyn Directory>, Frost);

struct FreezingFile {
    file: Rc<dyn File>,
    frost: Frost,
    is_database: bool,
}

impl FreezingFile {
    fn loses(&self, at: ByteOffset) -> bool {
        let is_time = self.frost.lose_one_from.get().is_some_and(|from| self.frost.world.now() >= from);
        let is_lost = self.is_database && at.0 >= HEADERS_BYTES && is_time;
        if is_lost {
            self.frost.lose_one_from.set(None);
        }
        is_lost
    }
}

impl BlockDevice for FreezingFile {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.file.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let (file, frost, is_lost) = (Rc::clone(&self.file), self.frost.clone(), self.loses(at));
        Box::pin(async move {
            frost.melt().await;
            if is_lost {
                return Ok(());
            }
            file.write(at, from, stability).await
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.file.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.file.discard(at, length)
    }
}

impl Resizable for FreezingFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.file.resize(size)
    }
}

impl FreezingDirectory {
    fn freezing(
        &self,
        name: &str,
        opening: LocalFuture<IoResult<Rc<dyn File>>>,
    ) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (frost, is_database) = (self.1.clone(), name == DATABASE);
        Box::pin(async move {
            let file: Rc<dyn File> = Rc::new(FreezingFile { file: opening.await?, frost, is_database });
            Ok(file)
        })
    }
}

impl Directory for FreezingDirectory {
    fn describe(&self) -> String {
        self.0.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.freezing(name, self.0.open(name))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.freezing(name, self.0.create(name, size))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        self.0.rename(from, to)
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.0.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.0.sync()
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.0.free()
    }
}

pub fn plan(load: LoadPlan, duration_s: u64) -> RunPlan {
    RunPlan {
        profile: ServerProfile::load("exchange-2007").unwrap(),
        groups: 1,
        databases_per_group: 1,
        database_bytes: 8 << 20,
        database_bytes_max: 16 << 20,
        cache_bytes_per_group: 4 << 20,
        load,
        duration_s,
        judged: JudgedPart::All,
        fill_s_max: 4,
        seed: 7,
        volumes: Vec::new(),
        storage_cache_bytes: None,
        setup: None,
        notes: Vec::new(),
        layout: None,
        protection: None,
    }
}

/// Faults of a run, timed from the start of measurement or verification; a freeze during creation from the
/// start of the run.
#[derive(Clone, Copy, Default)]
pub struct FaultPlan {
    pub frozen_after: Option<Duration>,
    pub thawed_after: Option<Duration>,
    pub stopped_in_verify: bool,
    pub in_creation: bool,
    pub loses_a_database_write_after: Option<Duration>,
}

/// Runs one group on a simulated drive and judges it.
pub fn run(plan: RunPlan, faults: FaultPlan) -> (RunResults, RunVerdict) {
    let results = try_run(plan, faults).unwrap();
    let verdict = RunVerdict::of(&results).unwrap();
    (results, verdict)
}

fn try_run(plan: RunPlan, faults: FaultPlan) -> Result<RunResults, Error> {
    let mut simulation = Simulation::new(plan.seed);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount::mib(256)));
    let main = move |world: World| async move {
        let frost = Frost {
            world: world.clone(),
            from: Rc::default(),
            until: Rc::default(),
            lose_one_from: Rc::default(),
        };
        let directory: Rc<dyn Directory> = Rc::new(ExtentDirectory::format(drive).await.unwrap());
        let directory: Rc<dyn Directory> = Rc::new(FreezingDirectory(directory, frost.clone()));
        let stop = Cancellation::default();
        let shared = RunState::new(1, stop.clone(), None);
        let storage = GroupStorage {
            databases: vec![(Rc::clone(&directory), DATABASE.to_owned(), "drive".to_owned())],
            log: (directory, "drive".to_owned()),
            pools: None,
            control: None,
        };
        let group = GroupRun::new(&world, plan.clone(), 0, shared.clone(), storage);
        let running = world.spawn("group", group.run());
        let mut losing = false;
        while !running.is_finished() {
            world.sleep(Duration::from_millis(1)).await;
            let phase = shared.groups()[0].phase;
            if (phase == Phase::Measure || faults.in_creation) && frost.from.get().is_none() {
                frost.from.set(faults.frozen_after.map(|after| world.now() + after));
                frost.until.set(faults.thawed_after.map(|after| world.now() + after));
            }
            if phase == Phase::Measure && !losing {
                losing = true;
                let lost_after = faults.loses_a_database_write_after;
                frost.lose_one_from.set(lost_after.map(|after| world.now() + after));
            }
            if phase == Phase::Verify && faults.stopped_in_verify {
                stop.cancel();
            }
        }
        let outcome: GroupOutcome = running.await?;
        let frame = RunFrame {
            cut_off: None,
            plan,
            generator: "spindle test".to_owned(),
            host: HostFacts::default(),
            unix_s: (0, 0),
            host_samples: Vec::new(),
            kernel: None,
            log: shared.lines_from(0),
            search: None,
        };
        Ok(RunResults::assemble(frame, &[outcome]))
    };
    simulation.run(SimLimits::generous(), main).completed()
}

pub fn findings(results: &RunResults, verdict: &RunVerdict) -> String {
    let document = document(results, verdict);
    let lines =
        document.findings.iter().map(|finding| format!("{}: {}", finding.severity.word(), finding.text));
    lines.collect::<Vec<_>>().join("\n")
}

pub const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_freeze_that_outlasts_measuring_is_counted_with_its_full_latency() {
    if !crate::is_full_run("a long freeze is of") {
        return;
    }
    let faults = FaultPlan {
        frozen_after: Some(17 * SECOND),
        thawed_after: Some(25 * SECOND),
        ..FaultPlan::default()
    };
    let (results, verdict) = run(plan(LoadPlan::Threads { per_group: 4 }, 20), faults);
    assert_eq!(results.failures, []);
    let log = results.in_role(VolumeRole::Log).next().unwrap();
    assert!(log.tallies.late >= 1, "{:?}", log.tallies);
    let longest_ms = log.write.max_ms.unwrap();
    assert!((7_500.0..8_500.0).contains(&longest_ms), "frozen for 8 s: {longest_ms} ms");
    let sampled: u64 = results.samples.iter().map(|sample| sample.volumes[1].write.max_ns).max().unwrap();
    assert_eq!(sampled as f64 / 1e6, longest_ms, "windows hold it, too");
    assert!(results.late.count > 0 && results.late.unanswered == 0, "{:?}", results.late);
    assert!((2.5..3.5).contains(&results.late.oldest_s), "{:?}", results.late);
    assert!(results.all_operations.max_ms.unwrap() > 7_500.0);
    let said = findings(&results, &verdict);
    assert!(
        said.contains("Outstanding when measuring ended: 2 device operations, the oldest for 3.0 s"),
        "{said}"
    );
    assert_eq!(results.verified.len(), 2, "it goes on when the storage does");
}

#[test]
fn storage_that_never_answers_again_fails_and_does_not_hang_the_run() {
    let faults = FaultPlan { frozen_after: Some(8 * SECOND), ..FaultPlan::default() };
    let (results, verdict) = run(plan(LoadPlan::Mailboxes { count: 200, iops_each: 1.0 }, 10), faults);
    assert_eq!(verdict.answer, VerdictOutcome::Fail);
    assert!(results.failure_counts.io > 0, "{:?}", results.failures);
    assert!(results.late.unanswered > 0, "{:?}", results.late);
    assert!(results.unfinished_operations > 50, "what had arrived and not ended is counted");
    assert!(results.in_role(VolumeRole::Log).next().unwrap().write.max_ms.unwrap() > 200_000.0);
    assert_eq!(results.verified, []);
    let said = findings(&results, &verdict);
    assert!(said.contains(" unanswered 238 s later"), "{said}");
}

#[test]
fn healthy_storage_causes_no_warning() {
    let (results, verdict) = run(plan(LoadPlan::Threads { per_group: 4 }, 10), FaultPlan::default());
    assert_eq!(results.failures, []);
    assert_eq!((results.late.unanswered, results.unfinished_operations), (0, 0));
    let said = findings(&results, &verdict);
    assert!(!said.contains("outstanding"), "{said}");
    assert_eq!(verdict.answer, VerdictOutcome::Pass, "{:?}", verdict.rows);
}

#[test]
fn a_run_ended_while_it_verifies_keeps_what_was_measured_and_verified() {
    let faults = FaultPlan { stopped_in_verify: true, ..FaultPlan::default() };
    let (results, verdict) = run(plan(LoadPlan::Threads { per_group: 4 }, 5), faults);
    assert!(results.interrupted && results.measured_s >= 5.0);
    assert!(results.verified.len() < 2, "{:?}", results.verified);
    assert_eq!(verdict.answer, VerdictOutcome::Incomplete);
    assert!(results.achieved_iops() > 0.0);
}

#[test]
fn fast_storage_is_never_asked_for_less_than_the_held_rate() {
    for (count, duration_s) in [(100, 30), (600, 20)] {
        let mut plan = plan(LoadPlan::Mailboxes { count, iops_each: 1.0 }, duration_s);
        plan.fill_s_max = 10;
        let (results, verdict) = run(plan, FaultPlan::default());
        let percent = results.achieved_iops() / count as f64 * 100.0;
        assert!((100.0..106.0).contains(&percent), "{percent} % of {count}");
        assert_eq!(verdict.answer, VerdictOutcome::Pass, "{:?}", verdict.rows);
    }
}

/// A low load, so that a simulated minute passes quickly.
const LIGHT: LoadPlan = LoadPlan::Mailboxes { count: 40, iops_each: 1.0 };

fn failed(verdict: &RunVerdict, measure: Measure) -> bool {
    verdict.broken().any(|row| row.measure == measure)
}

fn said(results: &RunResults, words: &str) -> usize {
    results.log.iter().filter(|line| line.text.contains(words)).count()
}

#[test]
fn an_operation_of_a_minute_is_a_long_one_and_fails() {
    let faults = FaultPlan {
        frozen_after: Some(10 * SECOND),
        thawed_after: Some(70 * SECOND),
        ..FaultPlan::default()
    };
    let (results, verdict) = run(plan(LIGHT, 75), faults);
    assert_eq!(results.failures, []);
    assert!(results.slow.long >= 1 && results.slow.hung == 0, "{:?}", results.slow);
    let longest =
        results.slow.operations.iter().max_by(|one, other| one.took_s.total_cmp(&other.took_s)).unwrap();
    assert!((59.0..61.0).contains(&longest.took_s) && longest.answered, "{longest:?}");
    assert!((9.0..12.0).contains(&longest.at_s.unwrap()), "{longest:?}");
    assert_eq!((longest.kind, longest.slowness, &*longest.volume), (IoKind::Write, Slowness::Long, "drive"));
    assert!(longest.file == "priv1.edb" || longest.file.starts_with("E00"), "{longest:?}");
    // One line for each second in which operations became long, not one for each operation.
    assert!((1..=5).contains(&said(&results, "long, 41 s without an answer")), "{:?}", results.log);
    assert_eq!(said(&results, "answered; the longest"), 1, "{:?}", results.log);
    assert_eq!(verdict.answer, VerdictOutcome::Fail);
    assert!(failed(&verdict, Measure::LongOperations) && !failed(&verdict, Measure::HungOperations));
    assert!(results.measured_s >= 75.0, "it was answered, so the run went on");
}

#[test]
fn a_run_ends_with_a_partial_report_when_an_operation_hangs() {
    let faults = FaultPlan { frozen_after: Some(10 * SECOND), ..FaultPlan::default() };
    let (results, verdict) = run(plan(LIGHT, 3_600), faults);
    assert!((245.0..260.0).contains(&results.measured_s), "{}", results.measured_s);
    assert!(results.slow.hung >= 1, "{:?}", results.slow);
    assert!(results.slow.operations.iter().any(|operation| !operation.answered));
    assert_eq!(said(&results, "hung, 240 s without an answer"), 1, "{:?}", results.log);
    assert_eq!(said(&results, "a mail server would be restarted"), 1);
    assert_eq!(verdict.answer, VerdictOutcome::Fail);
    assert!(failed(&verdict, Measure::HungOperations));
    let said = findings(&results, &verdict);
    assert!(said.contains("was not answered in 24"), "{said}");
}

#[test]
fn storage_that_hangs_while_databases_are_made_is_refused_in_a_line() {
    let faults =
        FaultPlan { frozen_after: Some(Duration::from_millis(5)), in_creation: true, ..FaultPlan::default() };
    let error = try_run(plan(LIGHT, 10), faults).unwrap_err().to_string();
    assert!(error.starts_with("the storage does not answer: "), "{error}");
    assert!(error.contains("on drive was not answered in 240 s"), "{error}");
}

#[test]
fn a_stall_of_three_seconds_is_one_spike() {
    let faults = FaultPlan {
        frozen_after: Some(15 * SECOND),
        thawed_after: Some(18 * SECOND),
        ..FaultPlan::default()
    };
    let (results, verdict) = run(plan(LIGHT, 25), faults);
    let spikes = &results.in_role(VolumeRole::Log).next().unwrap().spikes.write;
    assert_eq!(spikes.count(), 1, "{spikes:?}");
    let spell = spikes.longest().unwrap();
    assert!((2.9..3.6).contains(&(spell.span_ns() as f64 / 1e9)), "{spell:?}");
    assert!((14.9..16.0).contains(&(spell.from_ns as f64 / 1e9)), "{spell:?}");
    assert_eq!((results.slow.count(), spikes.over_ns), (0, Some(50_000_000)));
    let said = findings(&results, &verdict);
    let warned =
        said.lines().find(|line| line.contains("log writes on drive took over 50 ms")).expect("said");
    assert!(
        warned.starts_with("warning: ") && warned.contains(", in 1 episode; the slowest took 2.9"),
        "{said}"
    );
    let (calm, _) = run(plan(LIGHT, 25), FaultPlan::default());
    assert!(calm.volumes.iter().all(|volume| volume.spikes.write.count() == 0), "{:?}", calm.volumes);
}
