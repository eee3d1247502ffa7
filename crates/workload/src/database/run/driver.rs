//! The driver of a run: starts the groups, monitors them, and assembles their outcomes into results.

use crate::database::{
    load::error::Error,
    plan::{RunPlan, profile::ServerProfileError},
    record::{CREATION_INTERVAL, CreationProgress, Recorder, RunEvent, interval_s},
    results::{HostFacts, HostSample, RunFrame, RunResults, test_log::Phase},
    run::{
        group::{GroupRun, GroupStorage},
        kernel::{KernelLogReader, KernelMonitor},
        load_search::LoadSearch,
        progress::{RunProgress, RunState, merge_progress, unit_of},
    },
};
use std::{sync::Arc, time::Duration};
use world::{
    Cancellation, IoResult, Job, JobProgress, JoinHandle, LocalFuture, Moment, World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// Interval of the progress callback.
const LOOK: Duration = Duration::from_millis(500);

/// Opens the storage of a group, given the world of its thread and its number.
pub type OpenGroup = Arc<dyn Fn(World, u32) -> LocalFuture<IoResult<GroupStorage>> + Send + Sync>;

/// Threads that run the groups.
#[derive(Clone, Copy, Debug)]
pub enum GroupPlacement {
    /// One real thread for each group.
    Threads(RealOptions),
    /// The caller's thread, in the caller's world.
    CallerThread,
}

/// A run's connections to its surroundings.
pub struct RunEnvironment {
    pub open: OpenGroup,
    pub place: GroupPlacement,
    /// Ends the run early, cleanly, with partial results.
    pub stop: Cancellation,
    /// Program and version, for the report.
    pub generator: String,
    /// The machine, for the report.
    pub host: HostFacts,
    /// Reads the host's counters, about once a second. None if there are none.
    pub read_host: Option<Box<dyn Fn() -> HostSample>>,
    /// Receives the events of the run's record; see [`record`](crate::database::record).
    pub recorder: Option<Recorder>,
    /// Reads the kernel log about twice a second, or says why it cannot. None if there is no kernel log.
    pub kernel: Option<Result<KernelLogReader, String>>,
}

/// Runs `plan` and returns its results. Calls `on_progress` about twice a second, and once at the end, on the
/// caller's thread.
///
/// # Errors
/// If the plan is rejected, storage cannot be opened or runs out of space, a database does not match the
/// plan, or storage fails before measurement. Later failures are part of the results.
pub async fn run(
    world: &World,
    plan: RunPlan,
    surroundings: RunEnvironment,
    mut on_progress: impl FnMut(&RunProgress),
) -> Result<RunResults, Error> {
    plan.check()?;
    let RunEnvironment { open, place, stop, generator, host, read_host, recorder, kernel } = surroundings;
    let mut kernel = kernel.map(KernelMonitor::new);
    let shared = RunState::new(plan.groups, stop, recorder);
    let began_unix_s = world.wall().seconds;
    shared.line(world.wall(), format!("{generator}: testing begins"));
    let mut seeker =
        LoadSearch::new(&plan).map_err(|error| Error::Plan(ServerProfileError::from(error).into()))?;
    let mut groups = Vec::new();
    for number in 0..plan.groups {
        groups.push(start_group(world, place, &plan, number, &shared, &open, |group| Box::pin(group.run()))?);
    }
    let mut watch = ProgressMonitor::new(world, interval_s(plan.duration()));
    let mut host_samples: Vec<HostSample> = Vec::new();
    while !groups.iter().all(GroupHandle::is_finished) {
        world.sleep(LOOK).await;
        kernel.iter_mut().for_each(|kernel| kernel.look(world, &shared));
        if let Some(seeker) = &mut seeker {
            seeker.look(world, &shared);
        }
        let mut progress = watch.look(world, &shared);
        if let Some(creating) = watch.creating(world, &progress) {
            shared.record(|| RunEvent::Creating(creating));
        }
        if let Some(search) =
            seeker.as_ref().and_then(LoadSearch::progress).filter(|_| progress.phase == Phase::Search)
        {
            progress.work = JobProgress::of_schedule(search.done, search.left);
            progress.search = Some(search);
        }
        if host_samples.last().is_some_and(|last| last.at_s > progress.elapsed_s)
            && progress.phase == Phase::Measure
        {
            // Another hold has begun: samples of the previous one no longer belong to the run.
            host_samples.clear();
        }
        if progress.phase == Phase::Measure
            && let Some(read_host) = &read_host
        {
            let sample = HostSample { at_s: progress.elapsed_s, ..read_host() };
            host_samples.push(sample);
            if watch.is_recorded(sample.at_s) {
                shared.record(|| RunEvent::Host(sample));
            }
        }
        on_progress(&progress);
    }
    let mut outcomes = Vec::new();
    let mut failed = None;
    for group in groups {
        match group.join().await {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    kernel.iter_mut().for_each(|kernel| kernel.look(world, &shared));
    shared.line(world.wall(), "testing ends");
    on_progress(&watch.look(world, &shared));
    let frame = RunFrame {
        plan,
        generator,
        host,
        unix_s: (began_unix_s, world.wall().seconds),
        host_samples,
        kernel: kernel.map(KernelMonitor::into_results),
        log: shared.lines_from(0),
        cut_off: None,
        search: seeker.map(LoadSearch::results),
    };
    Ok(RunResults::assemble(frame, &outcomes))
}

/// Creates or completes the databases of `plan` and shuts them down cleanly, without running a load; false if
/// the run was stopped before all were complete. Records only creation progress. Calls `on_progress` like
/// [`run`].
///
/// # Errors
/// As [`run`].
pub async fn prepare(
    world: &World,
    plan: &RunPlan,
    surroundings: RunEnvironment,
    mut on_progress: impl FnMut(&RunProgress),
) -> Result<bool, Error> {
    plan.check()?;
    let RunEnvironment { open, place, stop, recorder, .. } = surroundings;
    let shared = RunState::new(plan.groups, stop, None);
    let mut groups = Vec::new();
    for number in 0..plan.groups {
        groups.push(start_group(world, place, plan, number, &shared, &open, |group| {
            Box::pin(group.prepare())
        })?);
    }
    let mut watch = ProgressMonitor::new(world, interval_s(plan.duration()));
    while !groups.iter().all(GroupHandle::is_finished) {
        world.sleep(LOOK).await;
        let progress = watch.look(world, &shared);
        if let (Some(creating), Some(recorder)) = (watch.creating(world, &progress), &recorder) {
            recorder.tell(RunEvent::Creating(creating));
        }
        on_progress(&progress);
    }
    let mut complete = Ok(true);
    for group in groups {
        complete = match (complete, group.join().await) {
            (Ok(all), Ok(one)) => Ok(all && one),
            (Err(first), _) | (Ok(_), Err(first)) => Err(first),
        };
    }
    on_progress(&watch.look(world, &shared));
    complete
}

/// A running group.
enum GroupHandle<T> {
    Thread(ThreadHandle<Result<T, Error>>),
    Task(JoinHandle<Result<T, Error>>),
}

impl<T: Send + 'static> GroupHandle<T> {
    fn is_finished(&self) -> bool {
        match self {
            Self::Thread(handle) => handle.is_finished(),
            Self::Task(handle) => handle.is_finished(),
        }
    }

    async fn join(self) -> Result<T, Error> {
        match self {
            Self::Thread(handle) => handle.join().await,
            Self::Task(handle) => handle.await,
        }
    }
}

type Work<T> = fn(GroupRun) -> LocalFuture<Result<T, Error>>;

fn start_group<T: Send + 'static>(
    world: &World,
    place: GroupPlacement,
    plan: &RunPlan,
    number: u32,
    shared: &RunState,
    open: &OpenGroup,
    work: Work<T>,
) -> Result<GroupHandle<T>, Error> {
    let (plan, shared, open) = (plan.clone(), shared.clone(), Arc::clone(open));
    let seed = plan.seed;
    let work = move |world: World| -> LocalFuture<Result<T, Error>> {
        Box::pin(async move {
            match open(world.clone(), number).await {
                Ok(storage) => work(GroupRun::new(&world, plan, number, shared, storage)).await,
                Err(error) => {
                    shared.abort();
                    Err(error.into())
                }
            }
        })
    };
    match place {
        GroupPlacement::CallerThread => {
            Ok(GroupHandle::Task(world.spawn("storage group", work(world.clone()))))
        }
        GroupPlacement::Threads(options) => spawn_thread(&format!("group {number}"), seed, options, work)
            .map(GroupHandle::Thread)
            .map_err(|error| Error::Thread(error.to_string())),
    }
}

/// Turns the groups' progress into that of the run.
struct ProgressMonitor {
    phase: Phase,
    /// The work of the phase.
    job: Job,
    began: Moment,
    lines_told: usize,
    /// Interval between recorded host samples, in seconds.
    record_interval_s: u64,
    /// Number of recorded host samples.
    recorded: u64,
    /// Time of the last recorded creation progress.
    creating_told: Option<Moment>,
}

impl ProgressMonitor {
    fn new(world: &World, record_interval_s: u64) -> Self {
        Self {
            phase: Phase::Create,
            job: Job::under_way_in(unit_of(Phase::Create), world),
            began: world.now(),
            lines_told: 0,
            record_interval_s,
            recorded: 0,
            creating_told: None,
        }
    }

    /// Creation progress, if it is due to be recorded.
    fn creating(&mut self, world: &World, progress: &RunProgress) -> Option<CreationProgress> {
        let (done_bytes, bytes) = progress.work.bytes().filter(|_| progress.phase == Phase::Create)?;
        let now = world.now();
        if self.creating_told.is_some_and(|told| now.since(told) < CREATION_INTERVAL) {
            return None;
        }
        self.creating_told = Some(now);
        Some(CreationProgress { done_bytes, bytes })
    }

    /// True if a host sample at this time of measurement is due to be recorded.
    fn is_recorded(&mut self, measured_s: f64) -> bool {
        let is_due = measured_s >= (self.recorded * self.record_interval_s) as f64;
        self.recorded += u64::from(is_due);
        is_due
    }

    fn look(&mut self, world: &World, shared: &RunState) -> RunProgress {
        let (phase, work, live) = merge_progress(&shared.groups());
        if phase != self.phase {
            self.phase = phase;
            self.job = Job::under_way_in(unit_of(phase), world);
            self.began = world.now();
            shared.record(|| RunEvent::Phase(phase));
        }
        self.job.reach(work.done, work.total);
        let elapsed_s = world.now().since(self.began).as_secs_f64();
        let lines = shared.lines_from(self.lines_told);
        self.lines_told += lines.len();
        RunProgress { phase, work: self.job.progress(), elapsed_s, live, search: None, lines }
    }
}
