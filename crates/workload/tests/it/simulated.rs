//! Runs of one group in a simulated world, for tests: minutes of storage in seconds.

use maildb::log::LogFiles;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use workload::{
    database::{
        GroupPlacement, RunEnvironment,
        measure::pools::PoolSet,
        plan::{LoadPlan, RunPlan, profile::ServerProfile},
        results::{HostFacts, RunResults, test_log::Phase},
        run::{
            driver::run,
            group::{ControlPlace, GroupStorage},
        },
    },
    verdict::judged_part::JudgedPart,
};
use world::{
    ByteCount, Cancellation, Directory, ExtentDirectory, LocalFuture, World,
    network::{Address, Network},
    sim::{DriveOptions, NetworkOptions, ServiceTime, SimLimits, Simulation},
};

/// Folders of databases and logs.
type Directories = (Rc<dyn Directory>, Rc<dyn Directory>);

/// Visits a run from outside, at its socket.
pub type Visit = fn(World, ControlPlace) -> LocalFuture<()>;

/// Makes the pools of a run.
type MakePools = fn(World) -> Rc<dyn PoolSet>;

thread_local! {
    /// Those of the one group. A simulation is one thread.
    static DIRECTORIES: RefCell<Option<Directories>> = const { RefCell::new(None) };
    /// Makes the pools that are said to be below them.
    pub static POOLS: Cell<Option<MakePools>> = const { Cell::new(None) };
    /// Visits it. Its run has a socket.
    pub static VISIT: Cell<Option<Visit>> = const { Cell::new(None) };
    static CONTROL: RefCell<Option<ControlPlace>> = const { RefCell::new(None) };
}

/// Storage of a test: reads of one mean length, so many at once. Writes cost next to nothing, as where a
/// controller caches them: they come in bursts, of which queueing theory has no closed form.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Mean length of a read.
    pub mean: Duration,
    /// Reads at once.
    pub servers: usize,
}

/// A run of one small database that does not fit into its cache.
pub fn plan(load: LoadPlan, duration_s: u64) -> RunPlan {
    let mut profile = ServerProfile::load("exchange-2007").unwrap();
    // One page for each I/O, as in a simple queue.
    profile.set("coalesce_bytes", "8192").unwrap();
    RunPlan {
        profile,
        groups: 1,
        databases_per_group: 1,
        database_bytes: 24 << 20,
        database_bytes_max: 48 << 20,
        cache_bytes_per_group: 4 << 20,
        load,
        duration_s,
        judged: JudgedPart::All,
        fill_s_max: 20,
        seed: 11,
        volumes: Vec::new(),
        storage_cache_bytes: None,
        setup: None,
        notes: Vec::new(),
        layout: None,
        protection: None,
    }
}

/// Log generations of the one group, the current one not counted.
pub async fn archived_logs() -> BTreeSet<u32> {
    let log = DIRECTORIES.with_borrow(|all| Rc::clone(&all.as_ref().expect("a run is under way").1));
    let files = LogFiles::scan(&log, "E00").await.expect("the logs can be read");
    let all: BTreeSet<u32> = files.iter().map(|file| file.header.generation).collect();
    let newest = all.last().copied();
    all.into_iter().filter(|&generation| Some(generation) != newest).collect()
}

/// Runs `plan` with its database on `drive` and its log on a fast one; stops it after `stop_after` trials.
pub fn run_on(drive: Drive, plan: RunPlan, stop_after: Option<u32>) -> RunResults {
    let random = ServiceTime { least: Duration::ZERO, mean_above: drive.mean, per_mib: Duration::ZERO };
    let cached = ServiceTime { least: Duration::from_micros(5), mean_above: Duration::ZERO, ..random };
    let slow = DriveOptions {
        queue_depth: drive.servers,
        read: random,
        write: cached,
        flush: cached,
        ..DriveOptions::new(ByteCount::mib(256))
    };
    run_on_drives(slow, DriveOptions::new(ByteCount::mib(256)), plan, stop_after)
}

/// As [`run_on`], with the database and the log on drives of any manners.
pub fn run_on_drives(
    database: DriveOptions,
    log: DriveOptions,
    plan: RunPlan,
    stop_after: Option<u32>,
) -> RunResults {
    let mut simulation = Simulation::new(plan.seed);
    let (database, log) = (simulation.add_drive(database), simulation.add_drive(log));
    let visit = VISIT.get().map(|visit| (visit, simulation.add_network(NetworkOptions::rack())));
    let main = move |world: World| async move {
        let visit = visit.map(|(visit, network)| {
            let network: Rc<dyn Network> = network.host("mail");
            let place =
                ControlPlace { network, at: Address::Unix("/run/mail.sock".into()), keeps_logs: false };
            CONTROL.set(Some(place.clone()));
            world.spawn("visit", visit(world.clone(), place))
        });
        let database: Rc<dyn Directory> = Rc::new(ExtentDirectory::format(database).await.unwrap());
        let log: Rc<dyn Directory> = Rc::new(ExtentDirectory::format(log).await.unwrap());
        DIRECTORIES.set(Some((database, log)));
        let stop = Cancellation::default();
        let surroundings = RunEnvironment {
            open: Arc::new(|world, _| {
                let (database, log) = DIRECTORIES.with_borrow(|all| all.clone().expect("set above"));
                let databases = vec![(database, "priv1.edb".to_owned(), "databases".to_owned())];
                let pools = POOLS.get().map(|make| make(world));
                let control = CONTROL.with_borrow(Clone::clone);
                let storage = GroupStorage { databases, log: (log, "logs".to_owned()), pools, control };
                Box::pin(async move { Ok(storage) })
            }),
            place: GroupPlacement::CallerThread,
            stop: stop.clone(),
            generator: "spindle test".to_owned(),
            host: HostFacts::default(),
            read_host: None,
            recorder: None,
            kernel: None,
        };
        let results = run(&world, plan, surroundings, |progress| {
            let trials = progress.search.map_or(0, |search| search.probe);
            if progress.phase == Phase::Search && stop_after.is_some_and(|after| trials > after) {
                stop.cancel();
            }
        });
        let results = results.await.unwrap();
        if let Some(visit) = visit {
            visit.await;
        }
        results
    };
    let results = simulation.run(SimLimits::generous(), main).completed();
    DIRECTORIES.set(None);
    CONTROL.set(None);
    results
}

/// The test log.
pub fn describe(results: &RunResults) -> String {
    let lines: Vec<&str> = results.log.iter().map(|line| line.text.as_str()).collect();
    lines.join("\n")
}
