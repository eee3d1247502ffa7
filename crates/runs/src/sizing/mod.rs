//! Sizing: the space, memory, writes and time of a run, computed before the first byte is written.
//!
//! The safe defaults (at most 4 GiB and 10 % of the free space, 25 % of memory, about two minutes)
//! bound a run whose size the user left open; a size given by the user is bounded only by
//! the storage and the machine. The costs themselves are the workload's estimate.

use crate::pools::size::{COPIES, DriveSize, MEMORY};
use maildb::PageStampMode;
use report::{Refusal, duration::show_duration, prose::counted};
use std::time::Duration;
use workload::database::plan::{GROWTH_PERCENT, RunPlan, estimate::SpeedGuess};
use world::ByteCount;

/// Default bound on a run's space on all volumes together.
pub const BARE_SPACE_MAX: ByteCount = ByteCount::gib(4);
/// Default bound on a run's share of a volume's free space.
pub const BARE_FREE_PERCENT_MAX: u64 = 10;
/// Default bound on a run's share of memory.
pub const BARE_MEMORY_PERCENT_MAX: u64 = 25;
/// Measured time by default: with creation, fill and verification, two minutes.
pub const BARE_DURATION: Duration = Duration::from_secs(60);
/// Default size of all databases together, which are made in well under a minute.
pub const BARE_SIZE_MAX: ByteCount = ByteCount::gib(1);
/// Share of every filesystem that stays free: the last part is slow and belongs to others.
pub const FILESYSTEM_RESERVE_PERCENT: u64 = 10;
/// More writes than this need `--allow-writes`.
pub const WRITES_MAX: ByteCount = ByteCount(1_000_000_000_000);
/// The smallest database whose tree has several levels.
pub const DATABASE_SIZE_MIN: ByteCount = ByteCount::mib(8);
/// A database that has grown to its bound keeps splitting pages before deletes free space: observed
/// up to 10 % beyond (1 GiB, one minute of exchange-2010).
const OVERRUN_PERCENT: u64 = 15;
/// A pool with backups is larger by this factor: they keep what is overwritten since.
const HISTORY_FACTOR: u64 = 3;
/// With fewer pages the cache cannot hold a path through a tree, a scan and the pages being written.
const CACHE_PAGES_MIN: u64 = 64;
/// The least cache of a group that the workload accepts.
const CACHE_MIN: ByteCount = ByteCount::mib(4);
/// A directory on a volume of a pool takes this much beside its files.
const DIRECTORY: ByteCount = ByteCount::mib(4);
/// A database with this share of its size is not filled further (as the workload does it).
const NEAR_ENOUGH_PERCENT: u64 = 97;

/// Input of [`size_run`].
#[derive(Clone, Debug)]
pub struct SizingRequest {
    /// The run; its sizes are filled in.
    pub plan: RunPlan,
    /// All databases together.
    pub size: Option<ByteCount>,
    /// Cache of one group.
    pub cache: Option<ByteCount>,
    /// Value of `--allow-writes`.
    pub allow_writes: Option<ByteCount>,
    /// Sizes of existing databases to use. Those of an interrupted creation are too small, and the run
    /// completes them.
    pub there: Option<Vec<ByteCount>>,
    /// Reserve space for pristine copies beside the databases.
    pub room_for_copies: bool,
    /// Copies are made or restored before the run.
    pub copying: bool,
    /// Pools are made beside the plain path, and a second run uses them.
    pub pools: bool,
    /// Assumed speed of the storage.
    pub guess: SpeedGuess,
}

/// One filesystem or raw device that the run uses.
#[derive(Clone, Debug)]
pub struct RunVolume {
    /// Name in messages.
    pub name: String,
    /// Identifies the volume.
    pub key: String,
    pub total: ByteCount,
    /// Bytes that may be taken, those of an earlier run of ours included.
    pub free: ByteCount,
    /// A filesystem keeps a reserve; a raw device is all ours.
    pub is_filesystem: bool,
    pub databases: u32,
    pub log_series: u32,
    /// Drives of database pools, and of log pools.
    pub drives: (u32, u32),
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub total: ByteCount,
    pub available: ByteCount,
}

/// Resources of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceNeeds {
    /// All databases together, before growth.
    pub size: ByteCount,
    /// Cache of one group.
    pub cache: ByteCount,
    /// Space on all volumes, with room to grow and logs.
    pub space: ByteCount,
    /// Memory of the process.
    pub memory: ByteCount,
    /// Bytes of existing databases that are still to be made; zero if all are new.
    pub missing: ByteCount,
    /// An estimate.
    pub writes: ByteCount,
    /// Bytes written at which the run ends.
    pub writes_max: ByteCount,
    /// Of all phases, an estimate.
    pub time: Duration,
}

/// Computes the sizes of `request.plan` and the resources of the run; refuses if a limit is exceeded.
pub fn size_run(
    request: &SizingRequest,
    volumes: &[RunVolume],
    memory: Memory,
) -> Result<(RunPlan, ResourceNeeds), Refusal> {
    let count = database_count(request);
    let sum = |of: fn(&RunVolume) -> u32| volumes.iter().map(of).sum::<u32>();
    assert_eq!(u64::from(sum(|volume| volume.databases)), count, "every database has a volume");
    assert_eq!(sum(|volume| volume.log_series), request.plan.groups, "every log has a volume");

    let size = match request.size {
        Some(size) => size,
        None => safe_size(request, volumes)?,
    };
    let database = ByteCount(size.0 / count / page_bytes(request) * page_bytes(request));
    if database < DATABASE_SIZE_MIN {
        return Err(Refusal::new(
            format!("⟨size⟩ {size} is too small: {DATABASE_SIZE_MIN} is the least for each database"),
            format!("give at least {}", DATABASE_SIZE_MIN * count),
        ));
    }
    for volume in volumes {
        check_space(request, volume, database)?;
    }
    let cache = cache(request, database, memory)?;
    let plan = RunPlan {
        database_bytes: database.0,
        database_bytes_max: RunPlan::usual_growth(database.0),
        cache_bytes_per_group: cache.0,
        ..request.plan.clone()
    };
    plan.check().map_err(|error| Refusal::new(error.to_string(), ""))?;
    let needs = needs(request, &plan, volumes);
    if needs.memory > memory.total {
        return Err(Refusal::new(
            format!("about {} of memory are needed, this machine has {}", needs.memory, memory.total),
            "give a smaller ⟨cache⟩, a smaller ⟨size⟩, or fewer databases",
        ));
    }
    check_writes(needs.writes, request)?;
    Ok((plan, needs))
}

fn database_count(request: &SizingRequest) -> u64 {
    request.plan.database_count()
}

fn page_bytes(request: &SizingRequest) -> u64 {
    request.plan.profile.page_size().bytes() as u64
}

/// Log space of one group.
pub fn log_room(request: &SizingRequest) -> ByteCount {
    ByteCount(request.plan.estimate(request.guess).log_space.0 / u64::from(request.plan.groups))
}

/// Space on `volume` if each database is of `database` bytes: with growth and logs.
fn room(request: &SizingRequest, volume: &RunVolume, database: ByteCount) -> ByteCount {
    let databases = database.0.saturating_mul(u64::from(volume.databases));
    let grown = databases.saturating_add(databases / 100 * (GROWTH_PERCENT + OVERRUN_PERCENT));
    let logs = (log_room(request) * u64::from(volume.log_series)).0;
    let copies = if request.room_for_copies { databases.saturating_add(logs) } else { 0 };
    let (of_databases, of_logs) = pool_drives(request, database);
    let drives = of_databases.bytes.0.saturating_mul(volume.drives.0.into());
    let drives = drives.saturating_add(of_logs.bytes.0.saturating_mul(volume.drives.1.into()));
    ByteCount(grown.saturating_add(logs).saturating_add(copies).saturating_add(drives))
}

/// Drives of the pools of a group, for databases of `database` bytes each, and for logs.
pub fn pool_drives(request: &SizingRequest, database: ByteCount) -> (DriveSize, DriveSize) {
    let history = if request.plan.protection.is_some() { HISTORY_FACTOR } else { 1 };
    let databases = volume_bytes(request, database) * u64::from(request.plan.databases_per_group);
    let logs = log_room(request) + DIRECTORY;
    (DriveSize::for_storing(databases * history), DriveSize::for_storing(logs * history))
}

/// Bytes a volume with a database of `database` bytes grows to: the database with growth, its stamps, their directory.
pub fn volume_bytes(request: &SizingRequest, database: ByteCount) -> ByteCount {
    let grown = database.0.saturating_add(database.0 / 100 * (GROWTH_PERCENT + OVERRUN_PERCENT));
    let stamps = match request.plan.profile.page_stamps() {
        PageStampMode::Off => 0,
        PageStampMode::WhileOpen | PageStampMode::Durable => {
            maildb::stamps::space_max(grown / page_bytes(request)).0
        }
    };
    ByteCount(grown.saturating_add(stamps).saturating_add(DIRECTORY.0))
}

/// Bytes of `volume` that the run may take.
fn usable(volume: &RunVolume) -> ByteCount {
    let reserve = if volume.is_filesystem { volume.total.0 / 100 * FILESYSTEM_RESERVE_PERCENT } else { 0 };
    ByteCount(volume.free.0.saturating_sub(reserve))
}

/// The largest size within the safe defaults.
fn safe_size(request: &SizingRequest, volumes: &[RunVolume]) -> Result<ByteCount, Refusal> {
    const STEP: u64 = 1 << 20;
    let count = database_count(request);
    let copies = u64::from(request.room_for_copies);
    let before_growth = |bytes: u64| bytes / (100 + GROWTH_PERCENT + OVERRUN_PERCENT + 100 * copies) * 100;
    let all_logs = log_room(request) * (u64::from(request.plan.groups) * (1 + copies));
    let mut size = BARE_SIZE_MAX.0.min(before_growth(BARE_SPACE_MAX.0.saturating_sub(all_logs.0)));
    for volume in volumes.iter().filter(|volume| volume.databases > 0) {
        let most = usable(volume).0.min(volume.free.0 / 100 * BARE_FREE_PERCENT_MAX);
        let logs = log_room(request) * (u64::from(volume.log_series) * (1 + copies));
        size = size.min(before_growth(most.saturating_sub(logs.0)) / u64::from(volume.databases) * count);
    }
    let each = with_pools(request, volumes, size / count / STEP * STEP);
    if each >= DATABASE_SIZE_MIN.0 {
        return Ok(ByteCount(each) * count);
    }
    for volume in volumes {
        check_space(request, volume, DATABASE_SIZE_MIN)?;
    }
    Err(Refusal::new(
        format!(
            "{} {} not fit the safe default of 4 GiB and 10 % of the free space",
            counted(count, "database"),
            if count == 1 { "does" } else { "do" }
        ),
        format!("give their size, such as ⟨size⟩ {}", shown_exactly(DATABASE_SIZE_MIN * (4 * count))),
    ))
}

/// The largest size of a database, at most `each`, with which pools beside it are within the safe defaults too.
fn with_pools(request: &SizingRequest, volumes: &[RunVolume], each: u64) -> u64 {
    const STEP: u64 = 1 << 20;
    let fits = |database: u64| {
        let rooms = volumes.iter().map(|volume| (volume, room(request, volume, ByteCount(database)).0));
        let is_within = |(volume, room): (&RunVolume, u64)| {
            (room <= usable(volume).0.min(volume.free.0 / 100 * BARE_FREE_PERCENT_MAX)).then_some(room)
        };
        let sum = rooms.map(is_within).try_fold(0_u64, |sum, room| Some(sum.saturating_add(room?)));
        sum.is_some_and(|sum| sum <= BARE_SPACE_MAX.0)
    };
    if !request.pools {
        return each;
    }
    let (mut fitting, mut too_large) = (0, each / STEP + 1);
    while too_large - fitting > 1 {
        let middle = fitting + (too_large - fitting) / 2;
        if fits(middle * STEP) { fitting = middle } else { too_large = middle }
    }
    fitting * STEP
}

/// A size in the form the command line takes.
fn shown_exactly(size: ByteCount) -> String {
    format!("{}MiB", size.0 >> 20)
}

fn check_space(request: &SizingRequest, volume: &RunVolume, database: ByteCount) -> Result<(), Refusal> {
    let needed = room(request, volume, database);
    if needed <= usable(volume) {
        return Ok(());
    }
    let reserve = if volume.is_filesystem {
        format!(" beyond the {FILESYSTEM_RESERVE_PERCENT} % that stay free")
    } else {
        String::new()
    };
    Err(Refusal::new(
        format!("no space on {}: {needed} are needed, {} can be used{reserve}", volume.name, usable(volume)),
        "give a smaller ⟨size⟩, or a larger volume",
    ))
}

fn cache(request: &SizingRequest, database: ByteCount, memory: Memory) -> Result<ByteCount, Refusal> {
    let groups = u64::from(request.plan.groups);
    let pages_min = CACHE_PAGES_MIN * u64::from(request.plan.databases_per_group);
    let cache_min = ByteCount(pages_min * page_bytes(request)).max(CACHE_MIN);
    let Some(cache) = request.cache else {
        let fitting =
            RunPlan::fitting_cache(&request.plan.profile, request.plan.databases_per_group, database.0);
        let bare = ByteCount(memory.total.0 / 100 * BARE_MEMORY_PERCENT_MAX / groups);
        let available = ByteCount(memory.available.0 / 2 / groups);
        // A small database keeps a cache that cannot swallow it.
        let quarter = ByteCount(database.0 * u64::from(request.plan.databases_per_group) / 4);
        return Ok(fitting.min(bare).min(available).min(quarter).max(cache_min));
    };
    if cache < cache_min {
        return Err(Refusal::new(
            format!("⟨cache⟩ {cache} is too small to hold a path through each database"),
            format!("give at least {cache_min}"),
        ));
    }
    // Compared without multiplying: 16 EiB times 64 groups would overflow.
    if cache.0 > memory.total.0 / groups {
        return Err(Refusal::new(
            format!(
                "⟨cache⟩ {cache} for each of {} is more than this machine's memory ({})",
                counted(request.plan.groups.into(), "group"),
                memory.total
            ),
            "give less",
        ));
    }
    Ok(cache)
}

fn needs(request: &SizingRequest, plan: &RunPlan, volumes: &[RunVolume]) -> ResourceNeeds {
    let mut estimate = plan.estimate(request.guess);
    let all = ByteCount(plan.database_bytes) * plan.database_count();
    let mut missing = ByteCount(0);
    if let Some(there) = &request.there {
        missing = still_missing(there, plan.database_bytes);
        // Existing databases are read and checked completely; missing parts are written as at first.
        let read: u64 = there.iter().map(|size| size.0).sum();
        let share = missing.0 as f64 / all.0 as f64;
        estimate.written_by_creation = ByteCount((estimate.written_by_creation.0 as f64 * share) as u64);
        let moved = estimate.written_by_creation.0.saturating_add(read);
        estimate.create_s = moved / request.guess.sequential_bytes_per_second.max(1) + 1;
    }
    if request.copying {
        // Each byte is read, then written; copies are read again when the run attaches to them.
        estimate.written_by_creation = ByteCount(estimate.written_by_creation.0.saturating_add(all.0));
        estimate.create_s += all.0.saturating_mul(3) / request.guess.sequential_bytes_per_second.max(1) + 1;
    }
    let rooms = volumes.iter().map(|volume| room(request, volume, ByteCount(plan.database_bytes)).0);
    let mut memory = estimate.memory;
    let mut writes = estimate.written_by_creation.0.saturating_add(estimate.written_by_run.0);
    let mut time_s = estimate.total_s();
    if request.pools {
        // The same load through the array, which writes everything twice, and cleaning rewrites most of it once more.
        let drives = drive_bytes(request, volumes, ByteCount(plan.database_bytes)).0;
        memory += MEMORY * u64::from(plan.groups);
        writes = writes.saturating_mul(1 + u64::from(COPIES) + 1).saturating_add(drives);
        time_s = time_s * 2 + drives / request.guess.sequential_bytes_per_second.max(1);
    }
    ResourceNeeds {
        size: all,
        cache: ByteCount(plan.cache_bytes_per_group),
        space: ByteCount(rooms.sum()),
        memory,
        missing,
        writes: ByteCount(writes),
        writes_max: writes_max(request),
        time: Duration::from_secs(time_s),
    }
}

/// Bytes of all drives of pools that are still to be made.
fn drive_bytes(request: &SizingRequest, volumes: &[RunVolume], database: ByteCount) -> ByteCount {
    let (of_databases, of_logs) = pool_drives(request, database);
    let on = |volume: &RunVolume| {
        of_databases.bytes * u64::from(volume.drives.0) + of_logs.bytes * u64::from(volume.drives.1)
    };
    match request.there {
        Some(_) => ByteCount(0),
        None => volumes.iter().fold(ByteCount(0), |sum, volume| sum + on(volume)),
    }
}

/// Bytes missing from databases that should have `database_bytes` each.
fn still_missing(there: &[ByteCount], database_bytes: u64) -> ByteCount {
    let near_enough = database_bytes / 100 * NEAR_ENOUGH_PERCENT;
    let short = there.iter().filter(|size| size.0 < near_enough);
    ByteCount(short.map(|size| database_bytes - size.0).sum())
}

fn writes_max(request: &SizingRequest) -> ByteCount {
    request.allow_writes.unwrap_or(WRITES_MAX)
}

fn check_writes(writes: ByteCount, request: &SizingRequest) -> Result<(), Refusal> {
    if writes <= writes_max(request) {
        return Ok(());
    }
    let (number, unit) = decimal(writes);
    Err(Refusal::new(
        format!("about {number} {unit} would be written in {}", show_duration(request.plan.duration())),
        format!("if the storage may wear by that much, say ⟨allow-writes⟩ {number}{unit}"),
    ))
}

/// Bytes in decimal units, as drives state their endurance: `1.6 TB`, rounded up.
pub fn show_decimal(bytes: ByteCount) -> String {
    let (number, unit) = decimal(bytes);
    format!("{number} {unit}")
}

/// Bytes rounded up to a tenth of the decimal unit that fits.
fn decimal(bytes: ByteCount) -> (String, &'static str) {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB")];
    let (factor, unit) = UNITS.into_iter().find(|(factor, _)| bytes.0 >= *factor).unwrap_or(UNITS[2]);
    let tenths = bytes.0.div_ceil(factor / 10);
    let number = match tenths % 10 {
        0 => (tenths / 10).to_string(),
        tenth => format!("{}.{tenth}", tenths / 10),
    };
    (number, unit)
}

#[cfg(test)]
pub(super) mod tests;
