//! The run itself: drives the workload on the locations, shows progress, and makes a document of the results.

use super::{
    allowance::Allowance,
    layout::{FileSlot, GroupLayout},
    pools::open::{self, EventFormat, GroupPools},
    progress::{ProgressStatus, ProgressView},
    record::RunRecord,
    storage_endpoint::StorageEndpoint,
    survey::StorageSurvey,
};
use crate::{answer::document_of, console::Console};
use maildb::log::LogError;
use report::{Document, Finding, Refusal};
use rustix::io::Errno;
use std::{
    cell::Cell,
    collections::BTreeMap,
    env,
    path::Path,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use workload::database::{
    self, Error, OpenGroup, Surroundings,
    beside::PathFigures,
    group::GroupStorage,
    kernel::LookAtKernel,
    plan::RunPlan,
    progress::{Phase, Progress},
    record::{Ended, Header, News, Recorder},
    results::RunResults,
};
use world::{
    Directory, IoErrorKind, IoResult, World,
    real::{
        RealOptions,
        host::{DeviceNames, KernelLog},
        host_files,
        signals::interrupted,
    },
};

/// Program and version, for reports.
const GENERATOR: &str = concat!("spindle ", env!("CARGO_PKG_VERSION"));

/// A run that is ready to start.
pub struct Run<'a> {
    pub plan: &'a RunPlan,
    pub layout: &'a [GroupLayout],
    /// The pools to run on, and what to set beside; none is the plain path.
    pub pools: Option<&'a PoolRun>,
    pub survey: &'a StorageSurvey,
    pub options: RealOptions,
    /// Ends it early.
    pub stop_switch: &'a StopSwitch,
}

/// A run on pools.
pub struct PoolRun {
    /// Those of each group.
    pub groups: Vec<GroupPools>,
    /// Figures of the plain path, for comparison.
    pub plain: PathFigures,
    pub format: EventFormat,
}

pub struct RunOutcome {
    pub results: RunResults,
    pub document: Document,
}

/// Ends a run early: the first Ctrl-C sets it, the second ends the process at once.
pub struct StopSwitch {
    /// Set by the first Ctrl-C, or by a limit that ends the run.
    pub stop: Arc<AtomicBool>,
    /// True while an early end still leaves a report.
    leaves_report: Rc<Cell<bool>>,
}

impl StopSwitch {
    /// Listens from now on. To be called once.
    pub fn listen(world: &World, console: &Console) -> Self {
        let stop_switch = Self { stop: Arc::default(), leaves_report: Rc::default() };
        world.spawn("interruption", {
            let (stop, leaves_report) =
                (Arc::clone(&stop_switch.stop), Rc::clone(&stop_switch.leaves_report));
            let console = console.clone();
            async move {
                interrupted().await;
                stop.store(true, Ordering::Relaxed);
                let with = if leaves_report.get() { ", with a partial report" } else { "" };
                console.say_progress(&format!("\nEnding{with}. Ctrl-C again ends it at once."));
            }
        });
        stop_switch
    }

    pub fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn set(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Begins the record of a run of `plan`, before anything else is written.
pub fn begin_record(
    world: &World,
    plan: &RunPlan,
    survey: &StorageSurvey,
    path: &Path,
) -> Result<RunRecord, Refusal> {
    let (command, host) = (command_line(env::args()), survey.host.clone());
    let began_unix_s = world.wall().seconds;
    RunRecord::begin(path, Header::new(plan.clone(), GENERATOR.to_owned(), command, host, began_unix_s))
}

/// Makes the databases and shuts them down cleanly. An early end is a refusal: there is nothing to report.
pub async fn prepare(
    world: &World,
    run: &Run<'_>,
    record: &RunRecord,
    allowance: &mut Allowance,
    console: &Console,
) -> Result<(), Refusal> {
    let surroundings = surroundings(run, record.recorder());
    let mut view = ProgressView::new(console);
    let began = world.now();
    let outcome = database::prepare(world, run.plan, surroundings, |progress| {
        show(&mut view, world.now().since(began), progress);
        if allowance.is_met() {
            run.stop_switch.set();
            view.say("The write limit is reached. Ending.");
        }
    })
    .await;
    drop(view);
    match outcome.map_err(refusal_of)? {
        true => Ok(()),
        false => Err(Refusal::new("ended before all databases were made", "the next run goes on")),
    }
}

/// Runs a plan to its end, until it is to stop, or until `allowance` is spent, which stops it.
pub async fn run(
    world: &World,
    run: &Run<'_>,
    record: RunRecord,
    mut allowance: Allowance,
    console: &Console,
) -> Result<RunOutcome, Refusal> {
    let plan = run.plan.clone();
    let mut view = ProgressView::new(console);
    let surroundings = surroundings(run, record.recorder());
    let began = world.now();
    let mut has_measured = false;
    run.stop_switch.leaves_report.set(true);
    let mut outcome = database::run(world, plan, surroundings, |progress| {
        has_measured |= matches!(progress.phase, Phase::Measure | Phase::Verify);
        show(&mut view, world.now().since(began), progress);
        if allowance.is_met() {
            run.stop_switch.set();
            view.say("The write limit is reached. Ending, with a partial report.");
        }
    })
    .await;
    run.stop_switch.leaves_report.set(false);
    drop(view);
    if let (Ok(results), Some(pools)) = (&mut outcome, run.pools) {
        results.beside = Some(pools.plain.clone());
    }
    let remarks: Vec<Finding> = allowance.finding().into_iter().collect();
    let last = match &outcome {
        Ok(results) => News::Ended(Box::new(Ended { results: results.clone(), remarks: remarks.clone() })),
        Err(error) => News::Failed(error.to_string()),
    };
    let path = record.path().to_owned();
    if let Some(warning) = record.end(last).await {
        console.warn(&warning);
    }
    if outcome.is_err() {
        match has_measured {
            true => console
                .warn(&format!("report on what was measured until then: spindle report {}", path.display())),
            // It tells nothing, and the same command is to work again.
            false => drop(host_files::remove_file(&path)),
        }
    }
    let results = outcome.map_err(refusal_of)?;
    let document = document_of(&results, &remarks, &command_line(env::args()))?;
    Ok(RunOutcome { results, document })
}

fn surroundings(run: &Run<'_>, recorder: Recorder) -> Surroundings {
    Surroundings {
        open: match run.pools {
            None => opener(run.layout, run.survey),
            Some(pools) => pool_opener(&pools.groups, pools.format),
        },
        place: database::Place::Threads(run.options),
        stop: Arc::clone(&run.stop_switch.stop),
        generator: GENERATOR.to_owned(),
        host: run.survey.host.clone(),
        read_host: Some(Box::new(super::machine::read_host)),
        recorder: Some(recorder),
        kernel: Some(kernel_log(run.survey)),
    }
}

fn show(view: &mut ProgressView, elapsed: Duration, progress: &Progress) {
    let status = (progress.phase != Phase::Done).then(|| ProgressStatus::of(progress));
    let lines: Vec<&str> = progress.lines.iter().map(|line| line.text.as_str()).collect();
    view.tell(elapsed, status.as_ref(), &lines);
}

/// The kernel log from now on, for the devices below all locations; an error says why it cannot be read.
fn kernel_log(survey: &StorageSurvey) -> Result<LookAtKernel, String> {
    let mut names = DeviceNames::default();
    for location in &survey.locations.all {
        names.merge(DeviceNames::of_path(location.canonical()));
    }
    if names.is_empty() {
        return Err("no device is known below the paths".to_owned());
    }
    let mut log = KernelLog::from_now(names).map_err(|error| error.to_string())?;
    Ok(Box::new(move || log.look()))
}

/// The command as it may be typed again: words that a shell would take apart are quoted.
pub fn command_line(words: impl Iterator<Item = String>) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,%+@".contains(c);
    let quoted = words.enumerate().map(|(index, word)| match (index, word.chars().all(is_plain)) {
        (0, _) => "spindle".to_owned(),
        (_, true) if !word.is_empty() => word,
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Opens the storage of each group on the group's thread; each location is opened once for a group.
fn opener(layout: &[GroupLayout], survey: &StorageSurvey) -> OpenGroup {
    let layout = layout.to_vec();
    let endpoints: Vec<(StorageEndpoint, String)> = survey
        .locations
        .all
        .iter()
        .map(|location| (StorageEndpoint::of(&location.facts), location.given.display().to_string()))
        .collect();
    Arc::new(move |world, group| {
        let (group, endpoints) = (layout[group as usize].clone(), endpoints.clone());
        Box::pin(async move { open_group(&world, &group, &endpoints).await })
    })
}

/// Opens the pools of each group on the thread it runs on.
fn pool_opener(groups: &[GroupPools], format: EventFormat) -> OpenGroup {
    let groups = groups.to_vec();
    Arc::new(move |world, group| {
        let pools = groups[group as usize].clone();
        Box::pin(async move { open::open_group(&world, &pools, format).await })
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
    })
}

/// A run that ended without results, in one line.
fn refusal_of(error: Error) -> Refusal {
    let remedy = match &error {
        larger if has_errno(larger, &[Errno::FBIG]) => {
            "lift the limit on the size of a file (ulimit -f), and run again"
        }
        full if is_out_of_space(full) => {
            "make room and run again, or start over with --fresh and a smaller --size"
        }
        Error::Plan(_) | Error::Thread(_) => "",
        Error::Storage(_) => "check the storage; what was made stays until --fresh or --clean",
        _ => "the files stay for inspection; --fresh replaces them, --clean removes them",
    };
    Refusal::new(error.to_string(), remedy)
}

/// True if the kernel's answer below the error was "no space" or "over quota", wherever it arose:
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_report_may_be_typed_again() {
        let words = ["target/debug/spindle", "prove", "/mnt/my mail", "it's", "--size", "4GiB", ""];
        assert_eq!(
            command_line(words.map(str::to_owned).into_iter()),
            r"spindle prove '/mnt/my mail' 'it'\''s' --size 4GiB ''"
        );
    }
}
