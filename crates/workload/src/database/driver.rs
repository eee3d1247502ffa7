//! A whole run: groups started, watched, and their outcomes gathered into results.

use super::{
    error::Error,
    group::{Group, GroupOutcome, GroupStorage},
    plan::RunPlan,
    progress::{Phase, Progress, Shared, merge_boards},
    results::{HostFacts, HostSample, RunFrame, RunResults},
};
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};
use world::{
    IoResult, JoinHandle, LocalFuture, Moment, World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// How often the driver looks at the boards and tells the caller.
const LOOK: Duration = Duration::from_millis(500);

/// Time left in a phase is not guessed before this many seconds of it.
const GUESS_AFTER_S: f64 = 2.0;

/// Opens the storage of a group, given the world of the thread it will run on and its number.
pub type OpenGroup = Arc<dyn Fn(World, u32) -> LocalFuture<IoResult<GroupStorage>> + Send + Sync>;

/// Where groups run.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// Each on a thread of its own, in a real world.
    Threads(RealOptions),
    /// All on the caller's thread, in the caller's world.
    Here,
}

/// What a run needs beside its plan.
pub struct Surroundings {
    /// Opens the storage of each group.
    pub open: OpenGroup,
    /// Where groups run.
    pub place: Place,
    /// Set from elsewhere to end the run early, cleanly, with what it has.
    pub stop: Arc<AtomicBool>,
    /// Program and version, for the report.
    pub generator: String,
    /// The machine, for the report.
    pub host: HostFacts,
    /// Reads the host's counters; called about once a second. None if there is nothing to read.
    pub read_host: Option<Box<dyn Fn() -> HostSample>>,
}

/// Runs `plan` and gives its results. `on_progress` is called about twice a second, and once at the
/// end, on the caller's thread.
///
/// # Errors
/// If the plan is refused, storage cannot be opened or runs out of space, a database is not what it
/// should be, or storage fails before measuring began. What fails later is part of the results.
pub async fn run(
    world: &World,
    plan: RunPlan,
    surroundings: Surroundings,
    mut on_progress: impl FnMut(&Progress),
) -> Result<RunResults, Error> {
    plan.check()?;
    let Surroundings { open, place, stop, generator, host, read_host } = surroundings;
    let shared = Shared::new(plan.groups, stop);
    let began_unix_s = world.wall().seconds;
    shared.line(world.wall(), format!("{generator}: testing begins"));
    let mut groups = Vec::new();
    for number in 0..plan.groups {
        groups.push(start_group(world, place, &plan, number, &shared, &open)?);
    }
    let mut watch = Watch::new(world);
    let mut host_samples = Vec::new();
    while !groups.iter().all(Started::is_finished) {
        world.sleep(LOOK).await;
        let progress = watch.look(world, &shared);
        if progress.phase == Phase::Measure
            && let Some(read_host) = &read_host
        {
            host_samples.push(HostSample { at_s: progress.elapsed_s, ..read_host() });
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
    shared.line(world.wall(), "testing ends");
    on_progress(&watch.look(world, &shared));
    let frame = RunFrame {
        plan,
        generator,
        host,
        unix_s: (began_unix_s, world.wall().seconds),
        host_samples,
        log: shared.lines_from(0),
    };
    Ok(RunResults::assemble(frame, &outcomes))
}

/// A group at work.
enum Started {
    Thread(ThreadHandle<Result<GroupOutcome, Error>>),
    Task(JoinHandle<Result<GroupOutcome, Error>>),
}

impl Started {
    fn is_finished(&self) -> bool {
        match self {
            Self::Thread(handle) => handle.is_finished(),
            Self::Task(handle) => handle.is_finished(),
        }
    }

    async fn join(self) -> Result<GroupOutcome, Error> {
        match self {
            Self::Thread(handle) => handle.join().await,
            Self::Task(handle) => handle.await,
        }
    }
}

fn start_group(
    world: &World,
    place: Place,
    plan: &RunPlan,
    number: u32,
    shared: &Shared,
    open: &OpenGroup,
) -> Result<Started, Error> {
    let (plan, shared, open) = (plan.clone(), shared.clone(), Arc::clone(open));
    let seed = plan.seed;
    let work = move |world: World| -> LocalFuture<Result<GroupOutcome, Error>> {
        Box::pin(async move {
            match open(world.clone(), number).await {
                Ok(storage) => Group::new(&world, plan, number, shared, storage).run().await,
                Err(error) => {
                    shared.abort();
                    Err(error.into())
                }
            }
        })
    };
    match place {
        Place::Here => Ok(Started::Task(world.spawn("storage group", work(world.clone())))),
        Place::Threads(options) => spawn_thread(&format!("group {number}"), seed, options, work)
            .map(Started::Thread)
            .map_err(|error| Error::Thread(error.to_string())),
    }
}

/// Turns boards into progress: keeps when the phase began and which lines were told.
struct Watch {
    phase: Phase,
    began: Moment,
    lines_told: usize,
}

impl Watch {
    fn new(world: &World) -> Self {
        Self { phase: Phase::Create, began: world.now(), lines_told: 0 }
    }

    fn look(&mut self, world: &World, shared: &Shared) -> Progress {
        let board = merge_boards(&shared.boards());
        if board.phase != self.phase {
            self.phase = board.phase;
            self.began = world.now();
        }
        let elapsed_s = world.now().since(self.began).as_secs_f64();
        let lines = shared.lines_from(self.lines_told);
        self.lines_told += lines.len();
        // A guess from the first moments would jump about.
        let can_guess = board.fraction > 0.01 && elapsed_s >= GUESS_AFTER_S;
        let left_s = can_guess.then(|| elapsed_s * (1.0 - board.fraction) / board.fraction);
        Progress {
            phase: board.phase,
            fraction: board.fraction,
            bytes: board.bytes,
            elapsed_s,
            left_s,
            live: board.live,
            lines,
        }
    }
}
