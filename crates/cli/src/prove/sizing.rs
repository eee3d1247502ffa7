//! How much: what a run takes of space, memory, writes and time, worked out before the first byte.
//!
//! All figures are upper estimates. The safe defaults (at most 4 GiB and 10 % of the free space,
//! 25 % of memory, about two minutes) bound a run whose size the user left open; what the user asks
//! for by name is held only to what the storage and the machine have.

use crate::{quantity::show_duration, refusal::Refusal};
use std::time::Duration;
use world::ByteCount;

/// The most a run takes of all its volumes together, unless told otherwise.
pub const BARE_SPACE_MAX: ByteCount = ByteCount::gib(4);
/// The most it takes of a volume's free space, unless told otherwise.
pub const BARE_FREE_PERCENT_MAX: u64 = 10;
/// The most it takes of memory for caches, unless told otherwise.
pub const BARE_MEMORY_PERCENT_MAX: u64 = 25;
/// How long it measures, unless told otherwise: with creation, fill and verification, two minutes.
pub const BARE_DURATION: Duration = Duration::from_secs(60);
/// The size of all databases, unless told otherwise, so that they are made in well under a minute.
pub const BARE_SIZE_MAX: ByteCount = ByteCount::gib(1);
/// Of every filesystem this share stays free, always: the last part is slow and belongs to others.
pub const FILESYSTEM_RESERVE_PERCENT: u64 = 10;
/// More writes than this need a flag.
pub const WRITES_MAX: ByteCount = ByteCount(1_000_000_000_000);
/// The smallest database that has a tree to speak of.
pub const DATABASE_SIZE_MIN: ByteCount = ByteCount::mib(4);
/// A database grows by inserts during a run: room kept for that, in percent of its size.
const GROWTH_PERCENT: u64 = 10;
/// Room for the logs of one group: the checkpoint depth several times over, and the spare.
const LOG_ROOM: ByteCount = ByteCount::mib(128);
/// Memory of a group beside its cache: log buffers, I/O in flight, key counters, histograms.
const GROUP_MEMORY: ByteCount = ByteCount::mib(48);
/// Bytes written per byte of new database: pages, log, and pages written again as trees grow.
const CREATE_WRITES_PER_BYTE: u64 = 3;
/// Rates taken for estimates of time: what a middling SATA flash drive and one core do.
const CREATE_RATE: ByteCount = ByteCount::mib(40);
/// See [`CREATE_RATE`].
const VERIFY_RATE: ByteCount = ByteCount::mib(400);
/// Writes of one transaction: its share of page writes and its log, at the seeds' mixes.
const PAGES_PER_OPERATION_PERCENT: u64 = 150;
/// Operations a second of one closed-loop thread on fast storage.
const THREAD_RATE: u64 = 400;

/// What is asked for, as far as it was said.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Storage groups.
    pub groups: u32,
    /// Databases in each.
    pub databases: u32,
    /// All databases together.
    pub size: Option<ByteCount>,
    /// Cache of one group.
    pub cache: Option<ByteCount>,
    /// Cache of one group that the profile asks for.
    pub profile_cache: ByteCount,
    /// Measured time.
    pub duration: Duration,
    /// Bytes of a page.
    pub page_size: ByteCount,
    /// Transactional I/O a second that is held, or threads of the whole run.
    pub load: Load,
    /// What `--allow-writes` said.
    pub allow_writes: Option<ByteCount>,
    /// The databases are there already.
    pub attach: bool,
}

/// What drives the databases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// So many threads in all, each at work all the time.
    Threads(u32),
    /// A held rate of database I/O a second.
    Rate(f64),
}

/// One filesystem or raw device that the run uses.
#[derive(Clone, Debug)]
pub struct Volume {
    /// What to call it in a message.
    pub name: String,
    /// Its size.
    pub total: ByteCount,
    /// Bytes that may still be taken, counting those of an earlier run of ours.
    pub free: ByteCount,
    /// A filesystem keeps a reserve; a raw device is all ours.
    pub is_filesystem: bool,
    /// Databases of this run that lie on it.
    pub databases: u32,
    /// Log series of this run that lie on it.
    pub log_series: u32,
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All of it.
    pub total: ByteCount,
    /// What could be had now.
    pub available: ByteCount,
}

/// What the run will take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// All databases together.
    pub size: ByteCount,
    /// Cache of one group.
    pub cache: ByteCount,
    /// Space on all volumes, with room to grow and logs.
    pub space: ByteCount,
    /// Memory of the process.
    pub memory: ByteCount,
    /// Bytes written, about.
    pub writes: ByteCount,
    /// Time of all phases, about.
    pub time: Duration,
}

/// Works out what the run takes, or says which limit it meets.
pub fn needs(wanted: &Wanted, volumes: &[Volume], memory: Memory) -> Result<Needs, Refusal> {
    let count = wanted.groups * wanted.databases;
    assert!(count > 0 && !volumes.is_empty());
    assert_eq!(
        volumes.iter().map(|volume| volume.databases).sum::<u32>(),
        count,
        "every database has a volume"
    );
    assert_eq!(
        volumes.iter().map(|volume| volume.log_series).sum::<u32>(),
        wanted.groups,
        "every log has a volume"
    );

    let size_min = DATABASE_SIZE_MIN * u64::from(count);
    let size = match wanted.size {
        Some(size) if size < size_min => {
            return Err(Refusal::new(
                format!("--size {size} is too small: {DATABASE_SIZE_MIN} is the least for each database"),
                format!("give at least {size_min}"),
            ));
        }
        Some(size) => size,
        None => safe_size(wanted, volumes, size_min)?,
    };
    for volume in volumes {
        check_space(volume, share(size, volume.databases, count))?;
    }
    let cache = cache(wanted, memory)?;
    let writes = writes(wanted, size);
    check_writes(writes, wanted)?;
    let space = volumes
        .iter()
        .map(|volume| room(volume, share(size, volume.databases, count)))
        .fold(ByteCount(0), |a, b| a + b);
    Ok(Needs {
        size,
        cache,
        space,
        memory: (cache + GROUP_MEMORY) * u64::from(wanted.groups),
        writes,
        time: time(wanted, size),
    })
}

fn share(size: ByteCount, databases: u32, count: u32) -> ByteCount {
    ByteCount(size.0.div_ceil(u64::from(count)) * u64::from(databases))
}

/// Space on `volume` for `databases` bytes of databases: with growth and logs.
fn room(volume: &Volume, databases: ByteCount) -> ByteCount {
    ByteCount(databases.0 + databases.0 / 100 * GROWTH_PERCENT) + LOG_ROOM * u64::from(volume.log_series)
}

/// What may be taken of `volume` at all.
fn usable(volume: &Volume) -> ByteCount {
    let reserve = if volume.is_filesystem { volume.total.0 / 100 * FILESYSTEM_RESERVE_PERCENT } else { 0 };
    ByteCount(volume.free.0.saturating_sub(reserve))
}

/// The largest size within the safe defaults.
fn safe_size(wanted: &Wanted, volumes: &[Volume], size_min: ByteCount) -> Result<ByteCount, Refusal> {
    const STEP: u64 = 1 << 20;
    let count = u64::from(wanted.groups * wanted.databases);
    let logs = LOG_ROOM * u64::from(wanted.groups);
    let within = |bytes: u64| bytes / (100 + GROWTH_PERCENT) * 100;
    let mut size = BARE_SIZE_MAX.0.min(within(BARE_SPACE_MAX.0.saturating_sub(logs.0)));
    for volume in volumes.iter().filter(|volume| volume.databases > 0) {
        let most = usable(volume).0.min(volume.free.0 / 100 * BARE_FREE_PERCENT_MAX);
        let for_databases = within(most.saturating_sub((LOG_ROOM * u64::from(volume.log_series)).0));
        size = size.min(for_databases / u64::from(volume.databases) * count);
    }
    let size = ByteCount(size / STEP * STEP);
    if size >= size_min {
        return Ok(size);
    }
    match volumes
        .iter()
        .find(|volume| usable(volume) < room(volume, DATABASE_SIZE_MIN * u64::from(volume.databases)))
    {
        Some(volume) => Err(no_space(volume, room(volume, DATABASE_SIZE_MIN * u64::from(volume.databases)))),
        None => Err(Refusal::new(
            format!("{count} databases do not fit the safe default of 4 GiB and 10 % of the free space"),
            format!("say how large they shall be, such as --size {}", size_min * 4),
        )),
    }
}

fn check_space(volume: &Volume, databases: ByteCount) -> Result<(), Refusal> {
    let needed = room(volume, databases);
    if needed > usable(volume) { Err(no_space(volume, needed)) } else { Ok(()) }
}

fn no_space(volume: &Volume, needed: ByteCount) -> Refusal {
    let reserve = match volume.is_filesystem {
        true => format!(" beyond the {FILESYSTEM_RESERVE_PERCENT} % that stay free"),
        false => String::new(),
    };
    Refusal::new(
        format!("{}: {needed} are needed, {} can be used{reserve}", volume.name, usable(volume)),
        "give a smaller --size, or a larger volume",
    )
}

fn cache(wanted: &Wanted, memory: Memory) -> Result<ByteCount, Refusal> {
    let groups = u64::from(wanted.groups);
    let cache_min = wanted.page_size * 64;
    let Some(cache) = wanted.cache else {
        let bare = ByteCount(memory.total.0 / 100 * BARE_MEMORY_PERCENT_MAX / groups);
        let available = ByteCount(memory.available.0 / 2 / groups);
        return Ok(wanted.profile_cache.min(bare).min(available).max(cache_min));
    };
    if cache < cache_min {
        return Err(Refusal::new(
            format!("--cache {cache} is less than 64 pages"),
            format!("give at least {cache_min}"),
        ));
    }
    // Compared without multiplying: a size of 16 EiB and 64 groups would overflow.
    if cache.0 > memory.total.0.saturating_sub((GROUP_MEMORY * groups).0) / groups {
        return Err(Refusal::new(
            format!(
                "--cache {cache} for each of {groups} group{} is more than this machine's memory ({})",
                if groups == 1 { "" } else { "s" },
                memory.total
            ),
            "give less",
        ));
    }
    Ok(cache)
}

/// Bytes written by all phases, about.
fn writes(wanted: &Wanted, size: ByteCount) -> ByteCount {
    let create = if wanted.attach { 0 } else { size.0.saturating_mul(CREATE_WRITES_PER_BYTE) };
    let operations = match wanted.load {
        Load::Threads(threads) => (u64::from(threads) * THREAD_RATE) as f64,
        Load::Rate(rate) => rate,
    } * wanted.duration.as_secs_f64();
    let measured = operations * wanted.page_size.0 as f64 * PAGES_PER_OPERATION_PERCENT as f64 / 100.0;
    ByteCount(create.saturating_add(measured as u64))
}

fn check_writes(writes: ByteCount, wanted: &Wanted) -> Result<(), Refusal> {
    let allowed = wanted.allow_writes.unwrap_or(WRITES_MAX);
    if writes <= allowed {
        return Ok(());
    }
    let terabytes = |bytes: ByteCount| (bytes.0 as f64 / 1e12 * 10.0).ceil() / 10.0;
    Err(Refusal::new(
        format!("about {} TB would be written in {}", terabytes(writes), show_duration(wanted.duration)),
        format!("if the storage may wear by that much, say --allow-writes {}TB", terabytes(writes)),
    ))
}

/// Time of all phases, about.
fn time(wanted: &Wanted, size: ByteCount) -> Duration {
    let seconds = |bytes: u64, rate: ByteCount| Duration::from_secs(bytes.div_ceil(rate.0));
    let create = if wanted.attach { Duration::ZERO } else { seconds(size.0, CREATE_RATE) };
    create + wanted.duration + seconds(size.0, VERIFY_RATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            groups: 1,
            databases: 1,
            size: None,
            cache: None,
            profile_cache: ByteCount::mib(256),
            duration: BARE_DURATION,
            page_size: ByteCount::kib(32),
            load: Load::Threads(4),
            allow_writes: None,
            attach: false,
        }
    }

    fn volume(total: ByteCount, free: ByteCount) -> Volume {
        Volume {
            name: "/mnt/db (ext4 at /mnt)".to_owned(),
            total,
            free,
            is_filesystem: true,
            databases: 1,
            log_series: 1,
        }
    }

    const MEMORY: Memory = Memory { total: ByteCount::gib(16), available: ByteCount::gib(12) };

    #[track_caller]
    fn refused(wanted: &Wanted, volume: Volume, expected: &str) {
        let refusal = needs(wanted, &[volume], MEMORY).expect_err("refused");
        assert_eq!(refusal.to_string(), expected);
    }

    #[test]
    fn the_bare_run_takes_at_most_4_gib_10_percent_of_free_space_and_25_percent_of_memory() {
        for free_gib in [4, 20, 40, 100, 1_000, 50_000] {
            for total_gib in [free_gib, free_gib * 2, free_gib * 5] {
                for memory_mib in [512, 2_048, 65_536] {
                    let memory =
                        Memory { total: ByteCount::mib(memory_mib), available: ByteCount::mib(memory_mib) };
                    let volumes = [volume(ByteCount::gib(total_gib), ByteCount::gib(free_gib))];
                    let needs = needs(&wanted(), &volumes, memory).expect("fits");
                    assert!(needs.space <= BARE_SPACE_MAX, "{needs:?}");
                    assert!(
                        needs.space.0 <= ByteCount::gib(free_gib).0 / 10,
                        "{free_gib} GiB free: {needs:?}"
                    );
                    assert!(needs.cache.0 <= memory.total.0 / 4, "{needs:?}");
                    assert!(needs.time <= Duration::from_secs(130), "{needs:?}");
                }
            }
        }
    }

    #[test]
    fn the_last_tenth_of_a_filesystem_is_never_taken() {
        let mut wanted = wanted();
        wanted.size = Some(ByteCount::gib(15));
        refused(
            &wanted,
            volume(ByteCount::gib(100), ByteCount::gib(20)),
            "/mnt/db (ext4 at /mnt): 16.6 GiB are needed, 10.0 GiB can be used beyond the 10 % that stay free; give a smaller --size, or a larger volume",
        );
        let mut device = volume(ByteCount::gib(20), ByteCount::gib(20));
        device.is_filesystem = false;
        assert!(needs(&wanted, &[device], MEMORY).is_ok(), "a raw device is used whole");
    }

    #[test]
    fn a_full_filesystem_refuses_the_bare_run() {
        refused(
            &wanted(),
            volume(ByteCount::gib(10), ByteCount::mib(1_100)),
            "/mnt/db (ext4 at /mnt): 132 MiB are needed, 76.0 MiB can be used beyond the 10 % that stay free; give a smaller --size, or a larger volume",
        );
    }

    #[test]
    fn absurd_sizes_are_refused() {
        let roomy = || volume(ByteCount::gib(100), ByteCount::gib(80));
        let with = |change: fn(&mut Wanted)| {
            let mut wanted = wanted();
            change(&mut wanted);
            wanted
        };
        refused(
            &with(|w| w.size = Some(ByteCount::kib(1))),
            roomy(),
            "--size 1.00 KiB is too small: 4.00 MiB is the least for each database; give at least 4.00 MiB",
        );
        refused(
            &with(|w| w.cache = Some(ByteCount::gib(64))),
            roomy(),
            "--cache 64.0 GiB for each of 1 group is more than this machine's memory (16.0 GiB); give less",
        );
        refused(
            &with(|w| w.cache = Some(ByteCount(u64::MAX))),
            roomy(),
            "--cache 16384 PiB for each of 1 group is more than this machine's memory (16.0 GiB); give less",
        );
        refused(
            &with(|w| w.cache = Some(ByteCount(1))),
            roomy(),
            "--cache 1 B is less than 64 pages; give at least 2.00 MiB",
        );
    }

    #[test]
    fn more_than_a_terabyte_of_writes_needs_the_flag() {
        let mut long = wanted();
        long.duration = Duration::from_hours(24);
        refused(
            &long,
            volume(ByteCount::gib(100), ByteCount::gib(80)),
            "about 6.8 TB would be written in 1 d; if the storage may wear by that much, say --allow-writes 6.8TB",
        );
        long.allow_writes = Some(ByteCount(6_800_000_000_000));
        assert!(needs(&long, &[volume(ByteCount::gib(100), ByteCount::gib(80))], MEMORY).is_ok());
    }
}
