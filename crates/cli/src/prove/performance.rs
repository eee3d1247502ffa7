//! The run itself: the workload driven on the places, shown as it goes, and made a document.

use super::{
    allowance::Allowance,
    ground::Door,
    layout::{GroupLayout, Spot},
    pools::open::{self, EventTelling, GroupPools},
    progress::{ProgressView, Standing},
    record::RunRecord,
    survey::Survey,
};
use crate::{answer::document_of, console::Console, refusal::Refusal};
use maildb::log::LogError;
use report::{Document, Finding};
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

/// What is run, and where.
pub struct Run<'a> {
    /// What is to be done.
    pub plan: &'a RunPlan,
    /// Where each file lies.
    pub layout: &'a [GroupLayout],
    /// The pools to run on, and what to set beside; none is the plain path.
    pub pools: Option<&'a OnPools>,
    /// The places.
    pub survey: &'a Survey,
    /// How files are reached.
    pub options: RealOptions,
    /// Ends it early.
    pub interruption: &'a Interruption,
}

/// A run on pools.
pub struct OnPools {
    /// Those of each group.
    pub groups: Vec<GroupPools>,
    /// What the plain path came to.
    pub plain: PathFigures,
    /// How their events are told.
    pub telling: EventTelling,
}

/// What a run came to.
pub struct Finished {
    /// Its results.
    pub results: RunResults,
    /// Its report.
    pub document: Document,
}

/// What the first Ctrl-C of this process does; the second ends it at once.
pub struct Interruption {
    /// Set by it, or by whoever else has the run end early.
    pub stop: Arc<AtomicBool>,
    /// Whether what is going on will leave a report however it ends.
    leaves_report: Rc<Cell<bool>>,
}

impl Interruption {
    /// Listens from now on. To be called once.
    pub fn listen(world: &World, console: &Console) -> Self {
        let interruption = Self { stop: Arc::default(), leaves_report: Rc::default() };
        world.spawn("interruption", {
            let (stop, leaves_report) =
                (Arc::clone(&interruption.stop), Rc::clone(&interruption.leaves_report));
            let console = console.clone();
            async move {
                interrupted().await;
                stop.store(true, Ordering::Relaxed);
                let with = if leaves_report.get() { ", with a partial report" } else { "" };
                console.say_progress(&format!("\nEnding{with}. Once more to end at once."));
            }
        });
        interruption
    }

    /// Whether what is going on is to end.
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
    survey: &Survey,
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
            run.interruption.set();
            view.say("As much is written as may be. Ending.");
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
) -> Result<Finished, Refusal> {
    let plan = run.plan.clone();
    let mut view = ProgressView::new(console);
    let surroundings = surroundings(run, record.recorder());
    let began = world.now();
    let mut has_measured = false;
    run.interruption.leaves_report.set(true);
    let mut outcome = database::run(world, plan, surroundings, |progress| {
        has_measured |= matches!(progress.phase, Phase::Measure | Phase::Verify);
        show(&mut view, world.now().since(began), progress);
        if allowance.is_met() {
            run.interruption.set();
            view.say("As much is written as may be. Ending, with a partial report.");
        }
    })
    .await;
    run.interruption.leaves_report.set(false);
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
            true => console.warn(&format!("what was measured until then: spindle report {}", path.display())),
            // It tells nothing, and the same command is to work again.
            false => drop(host_files::remove_file(&path)),
        }
    }
    let results = outcome.map_err(refusal_of)?;
    let document = document_of(&results, &remarks, &command_line(env::args()))?;
    Ok(Finished { results, document })
}

fn surroundings(run: &Run<'_>, recorder: Recorder) -> Surroundings {
    Surroundings {
        open: match run.pools {
            None => opener(run.layout, run.survey),
            Some(pools) => pool_opener(&pools.groups, pools.telling),
        },
        place: database::Place::Threads(run.options),
        stop: Arc::clone(&run.interruption.stop),
        generator: GENERATOR.to_owned(),
        host: run.survey.host.clone(),
        read_host: Some(Box::new(super::machine::read_host)),
        recorder: Some(recorder),
        kernel: Some(kernel_log(run.survey)),
    }
}

fn show(view: &mut ProgressView, elapsed: Duration, progress: &Progress) {
    let standing = (progress.phase != Phase::Done).then(|| Standing::of(progress));
    let lines: Vec<&str> = progress.lines.iter().map(|line| line.text.as_str()).collect();
    view.tell(elapsed, standing.as_ref(), &lines);
}

/// The kernel log from now on, for the devices below all places; an error says why not.
fn kernel_log(survey: &Survey) -> Result<LookAtKernel, String> {
    let mut names = DeviceNames::default();
    for place in &survey.places.all {
        names.merge(DeviceNames::of_path(place.canonical()));
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

/// Opens the storage of each group on the thread it runs on; a place is opened once for a group.
fn opener(layout: &[GroupLayout], survey: &Survey) -> OpenGroup {
    let layout = layout.to_vec();
    let doors: Vec<(Door, String)> = survey
        .places
        .all
        .iter()
        .map(|place| (Door::of(&place.ground), place.given.display().to_string()))
        .collect();
    Arc::new(move |world, group| {
        let (group, doors) = (layout[group as usize].clone(), doors.clone());
        Box::pin(async move { open_group(&world, &group, &doors).await })
    })
}

/// Opens the pools of each group on the thread it runs on.
fn pool_opener(groups: &[GroupPools], telling: EventTelling) -> OpenGroup {
    let groups = groups.to_vec();
    Arc::new(move |world, group| {
        let pools = groups[group as usize].clone();
        Box::pin(async move { open::open_group(&world, &pools, telling).await })
    })
}

async fn open_group(world: &World, group: &GroupLayout, doors: &[(Door, String)]) -> IoResult<GroupStorage> {
    let mut opened: BTreeMap<usize, Rc<dyn Directory>> = BTreeMap::new();
    for place in group.places() {
        opened.insert(place, doors[place].0.open(world).await?);
    }
    let directory = |spot: &Spot| Rc::clone(&opened[&spot.place]);
    let volume = |spot: &Spot| doors[spot.place].1.clone();
    Ok(GroupStorage {
        databases: group
            .databases
            .iter()
            .map(|spot| (directory(spot), spot.name.clone(), volume(spot)))
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
            "make room and run again, or begin anew with --fresh and a smaller --size"
        }
        Error::Plan(_) | Error::Thread(_) => "",
        Error::Storage(_) => "check the storage; what was made stays until --fresh or --clean",
        _ => "the files stay as they are for a look; --fresh replaces them, --clean removes them",
    };
    Refusal::new(error.to_string(), remedy)
}

/// True if the kernel's answer below the error was "no space" or "over quota", wherever it arose:
/// in a database, in its log, or beside them.
fn is_out_of_space(error: &Error) -> bool {
    if has_errno(error, &[Errno::NOSPC, Errno::DQUOT]) {
        return true;
    }
    // A raw device runs full without the kernel: Spindle's own directory says so.
    let kind = match error {
        Error::Database(maildb::Error::Log(LogError::Io(error))) => Some(error.kind()),
        other => other.storage_kind(),
    };
    kind == Some(IoErrorKind::NoSpace)
}

/// Whether the kernel's answer below the error was one of `codes`.
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
