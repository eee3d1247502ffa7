//! The run itself: drives the workload on the locations, shows progress, and makes a document of the results.

use crate::{
    allowance::Allowance,
    control_sockets::ControlSockets,
    document::document_of,
    layout::{FileSlot, GroupLayout},
    observer::{ProgressDisplay, ProgressStatus, RunObserver},
    pools::open::{self, GroupPools, PoolEvents},
    record_writer::RunRecord,
    stop_switch::StopSwitch,
    storage_endpoint::StorageEndpoint,
    survey::StorageSurvey,
};
use maildb::log::LogError;
use report::{Document, Finding, Refusal};
use rustix::io::Errno;
use std::{collections::BTreeMap, path::Path, rc::Rc, sync::Arc, time::Duration};
use workload::database::{
    self, Error, OpenGroup, RunEnvironment,
    plan::RunPlan,
    record::{RecordHeader, Recorder, RunEnd, RunEvent},
    results::{RunResults, baseline::PathFigures, test_log::Phase},
    run::{
        group::{ControlPlace, GroupStorage},
        kernel::KernelLogReader,
        progress::RunProgress,
    },
};
use world::{
    Address, Directory, IoErrorKind, IoResult, World,
    real::{
        RealOptions, Sockets,
        host::{DeviceNames, KernelLog},
        host_files,
    },
};

/// Program and version, for reports.
const GENERATOR: &str = concat!("spindle ", env!("CARGO_PKG_VERSION"));

/// Everything a run takes from the program around it.
#[derive(Clone, Copy)]
pub struct RunContext<'a> {
    pub options: RealOptions,
    pub stop: &'a StopSwitch,
    pub observer: &'a dyn RunObserver,
    /// The command that began the run, for records and reports.
    pub command: &'a str,
}

/// A run that is ready to start.
pub struct ReadyRun<'a> {
    pub plan: &'a RunPlan,
    pub layout: &'a [GroupLayout],
    /// `None` for the plain path.
    pub pools: Option<&'a PoolRun>,
    pub survey: &'a StorageSurvey,
    pub control: &'a ControlSockets,
    pub context: RunContext<'a>,
}

/// A run on pools.
pub struct PoolRun {
    /// Those of each group.
    pub groups: Vec<GroupPools>,
    /// Figures of the plain path, for comparison.
    pub plain: PathFigures,
    pub events: Arc<dyn PoolEvents>,
}

pub struct RunOutcome {
    pub results: RunResults,
    pub document: Document,
}

/// Begins the record of a run of `plan`, before anything else is written.
pub fn begin_record(
    world: &World,
    plan: &RunPlan,
    survey: &StorageSurvey,
    path: &Path,
    command: &str,
) -> Result<RunRecord, Refusal> {
    let began_unix_s = world.wall().seconds;
    let (generator, command, host) = (GENERATOR.to_owned(), command.to_owned(), survey.host.clone());
    RunRecord::begin(path, RecordHeader::new(plan.clone(), generator, command, host, began_unix_s))
}

/// Makes the databases and shuts them down cleanly. An early end is a refusal: there is nothing to report.
pub async fn prepare(
    world: &World,
    run: &ReadyRun<'_>,
    record: &RunRecord,
    allowance: &mut Allowance,
) -> Result<(), Refusal> {
    let RunContext { stop, observer, .. } = run.context;
    let surroundings = surroundings(run, record.recorder());
    let mut display = observer.progress();
    let began = world.now();
    let outcome = database::prepare(world, run.plan, surroundings, |progress| {
        show(&mut *display, world.now().since(began), progress);
        if allowance.is_met() {
            stop.set();
            display.say("The write limit is reached. Ending.");
        }
    })
    .await;
    drop(display);
    if outcome.map_err(|error| refusal_of(error, run.control))? {
        Ok(())
    } else {
        Err(Refusal::new("ended before all databases were made", "the next run goes on"))
    }
}

/// Runs a plan to its end, until it is to stop, or until `allowance` is spent, which stops it.
pub async fn run(
    world: &World,
    run: &ReadyRun<'_>,
    record: RunRecord,
    mut allowance: Allowance,
) -> Result<RunOutcome, Refusal> {
    let RunContext { stop, observer, command, .. } = run.context;
    let plan = run.plan.clone();
    let mut display = observer.progress();
    let surroundings = surroundings(run, record.recorder());
    let began = world.now();
    let mut has_measured = false;
    stop.set_leaves_report(true);
    let mut outcome = database::run(world, plan, surroundings, |progress| {
        has_measured |= matches!(progress.phase, Phase::Measure | Phase::Verify);
        show(&mut *display, world.now().since(began), progress);
        if allowance.is_met() {
            stop.set();
            display.say("The write limit is reached. Ending, with a partial report.");
        }
    })
    .await;
    stop.set_leaves_report(false);
    drop(display);
    if let (Ok(results), Some(pools)) = (&mut outcome, run.pools) {
        results.baseline = Some(pools.plain.clone());
    }
    let remarks: Vec<Finding> = allowance.finding().into_iter().collect();
    let last = match &outcome {
        Ok(results) => {
            RunEvent::Ended(Box::new(RunEnd { results: results.clone(), remarks: remarks.clone() }))
        }
        Err(error) => RunEvent::Failed(error.to_string()),
    };
    let path = record.path().to_owned();
    if let Some(warning) = record.end(last).await {
        observer.warn(&warning);
    }
    if outcome.is_err() {
        match has_measured {
            true => observer
                .warn(&format!("report on what was measured until then: spindle report {}", path.display())),
            // It holds no measurement, and the same command must work again.
            false => drop(host_files::remove_file(&path)),
        }
    }
    let results = outcome.map_err(|error| refusal_of(error, run.control))?;
    let document = document_of(&results, &remarks, command)?;
    Ok(RunOutcome { results, document })
}

fn surroundings(run: &ReadyRun<'_>, recorder: Recorder) -> RunEnvironment {
    RunEnvironment {
        open: match run.pools {
            None => opener(run.layout, run.survey, run.control),
            Some(pools) => pool_opener(&pools.groups, &pools.events),
        },
        place: database::GroupPlacement::Threads(run.context.options),
        stop: run.context.stop.cancellation().clone(),
        generator: GENERATOR.to_owned(),
        host: run.survey.host.clone(),
        read_host: Some(Box::new(crate::machine::read_host)),
        recorder: Some(recorder),
        kernel: Some(kernel_log(run.survey)),
    }
}

fn show(display: &mut dyn ProgressDisplay, elapsed: Duration, progress: &RunProgress) {
    let status = (progress.phase != Phase::Done).then(|| ProgressStatus::of(progress));
    let lines: Vec<&str> = progress.lines.iter().map(|line| line.text.as_str()).collect();
    display.tell(elapsed, status.as_ref(), &lines);
}

/// The kernel log from now on, for the devices below all locations; an error says why it cannot be read.
fn kernel_log(survey: &StorageSurvey) -> Result<KernelLogReader, String> {
    let mut names = DeviceNames::default();
    for location in &survey.locations.all {
        names.merge(DeviceNames::of_path(location.canonical()));
    }
    if names.is_empty() {
        return Err("no device is known below the paths".to_owned());
    }
    let mut log = KernelLog::from_now(names).map_err(|error| error.to_string())?;
    Ok(Box::new(move || log.read_new()))
}

/// Opens the storage of each group on the group's thread; each location is opened once for a group.
fn opener(layout: &[GroupLayout], survey: &StorageSurvey, control: &ControlSockets) -> OpenGroup {
    let (layout, control) = (layout.to_vec(), control.clone());
    let endpoints: Vec<(StorageEndpoint, String)> = survey
        .locations
        .all
        .iter()
        .map(|location| (StorageEndpoint::of(&location.facts), location.given.display().to_string()))
        .collect();
    Arc::new(move |world, group| {
        let control = control.place(group);
        let (group, endpoints) = (layout[group as usize].clone(), endpoints.clone());
        Box::pin(async move {
            let control = control.map(|(path, keeps_logs)| ControlPlace {
                network: Rc::new(Sockets),
                at: Address::Unix(path),
                keeps_logs,
            });
            Ok(GroupStorage { control, ..open_group(&world, &group, &endpoints).await? })
        })
    })
}

/// Opens the pools of each group on the thread it runs on.
fn pool_opener(groups: &[GroupPools], events: &Arc<dyn PoolEvents>) -> OpenGroup {
    let (groups, events) = (groups.to_vec(), Arc::clone(events));
    Arc::new(move |world, group| {
        let (pools, events) = (groups[group as usize].clone(), Arc::clone(&events));
        Box::pin(async move { open::open_group(&world, &pools, &*events).await })
    })
}

async fn open_group(
    world: &World,
    group: &GroupLayout,
    endpoints: &[(StorageEndpoint, String)],
) -> IoResult<GroupStorage> {
    let mut opened: BTreeMap<usize, Rc<dyn Directory>> = BTreeMap::new();
    for location in group.locations() {
        opened.insert(location, endpoints[location].0.open(world).await?);
    }
    let directory = |slot: &FileSlot| Rc::clone(&opened[&slot.location]);
    let volume = |slot: &FileSlot| endpoints[slot.location].1.clone();
    Ok(GroupStorage {
        databases: group
            .databases
            .iter()
            .map(|slot| (directory(slot), slot.name.clone(), volume(slot)))
            .collect(),
        log: (directory(&group.log), volume(&group.log)),
        pools: None,
        control: None,
    })
}

/// The refusal for a run that ended without results.
fn refusal_of(error: Error, control: &ControlSockets) -> Refusal {
    let remedy = match &error {
        larger if has_errno(larger, &[Errno::FBIG]) => {
            "lift the limit on the size of a file (ulimit -f), and run again"
        }
        Error::Database(maildb::Error::Log(_)) if control.keeps_logs() && is_out_of_space(&error) => {
            "the logs wait for a proven backup ('spindle protect verify'); enlarge their volume, or run without ⟨keep-logs⟩"
        }
        full if is_out_of_space(full) => {
            "make room and run again, or start over with ⟨fresh⟩ and a smaller ⟨size⟩"
        }
        Error::Plan(_) | Error::Thread(_) => "",
        Error::Storage(_) => "check the storage; what was made stays until ⟨fresh⟩ or ⟨clean⟩",
        _ => "the files stay for inspection; ⟨fresh⟩ replaces them, ⟨clean⟩ removes them",
    };
    Refusal::new(error.to_string(), remedy)
}

/// True if an error in the chain is "no space" or "over quota", wherever it arose:
/// in a database, in its log, or beside them.
fn is_out_of_space(error: &Error) -> bool {
    if has_errno(error, &[Errno::NOSPC, Errno::DQUOT]) {
        return true;
    }
    // A raw device fills up without an error of the kernel: Spindle's own directory reports it.
    let kind = match error {
        Error::Database(maildb::Error::Log(LogError::Io(error))) => Some(error.kind()),
        other => other.storage_kind(),
    };
    kind == Some(IoErrorKind::NoSpace)
}

/// True if an error of the kernel in the chain is one of `codes`.
fn has_errno(error: &Error, codes: &[Errno]) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let code = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if code.is_some_and(|code| codes.contains(&Errno::from_raw_os_error(code))) {
            return true;
        }
        cause = error.source();
    }
    false
}
