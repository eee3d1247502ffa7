//! Division of disks into the pools of databases and logs, and of their room into volumes.

use report::Refusal;
use std::path::PathBuf;
use world::ByteCount;

/// Each block lies on two drives.
const COPIES: u64 = 2;
/// A pool needs two drives; so do both pools.
const DISKS_APART: usize = 4;
/// Pools of so many drives keep room for a lost one.
const SPARING_FROM: usize = 4;
/// Drives in files of a trial.
const FILES: u32 = 4;
const GIB: f64 = (1u64 << 30) as f64;

/// Shares of a pool's room that volumes take: alone in it, and where databases and logs share it.
const SHARE_ALONE: f64 = 0.60;
const SHARES_TOGETHER: [f64; 2] = [0.45, 0.15];

/// A disk that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupDisk {
    pub path: PathBuf,
    pub size: ByteCount,
    /// `None` if the kernel does not tell.
    pub is_rotational: Option<bool>,
}

/// Storage of the pools.
#[derive(Clone, Debug, PartialEq)]
pub enum SetupStorage {
    Disks {
        /// At least two.
        disks: Vec<SetupDisk>,
        logs: LogDisks,
    },
    /// Files for a trial, in a folder of their own below this one, with this size together.
    Files { folder: PathBuf, bytes: ByteCount },
}

/// Disks of the logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogDisks {
    /// To be chosen.
    Chosen,
    /// Logs lie in the pool of the databases.
    None,
    /// These, of the disks.
    Named(Vec<PathBuf>),
}

/// Sizes of the volumes in GiB, where they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct VolumeSizes {
    pub databases: Option<f64>,
    pub logs: Option<f64>,
}

/// Pools, and the reasons for them.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskDivision {
    /// One or two; that of the databases first.
    pub pools: Vec<PlannedPool>,
    /// Lines for people.
    pub reasons: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedPool {
    pub name: &'static str,
    pub drives: PlannedDrives,
    /// Drives for whose loss room is kept.
    pub spares: u32,
    /// Room for data and backups, each block counted once.
    pub room: ByteCount,
    pub volumes: Vec<PlannedVolume>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PlannedDrives {
    Devices(Vec<PathBuf>),
    /// With the size of each in GB, as drives are sold.
    Files {
        folder: PathBuf,
        count: u32,
        drive_gb: f64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlannedVolume {
    pub name: &'static str,
    pub role: &'static str,
    pub gb: f64,
}

impl PlannedPool {
    pub fn drive_count(&self) -> usize {
        match &self.drives {
            PlannedDrives::Devices(devices) => devices.len(),
            PlannedDrives::Files { count, .. } => *count as usize,
        }
    }
}

impl DiskDivision {
    /// Divides storage into pools.
    ///
    /// # Errors
    ///
    /// A pool would have fewer than two disks, or a volume is larger than the room of its pool.
    pub fn of(storage: &SetupStorage, sizes: VolumeSizes) -> Result<Self, Refusal> {
        let (mut pools, reasons) = match storage {
            SetupStorage::Files { folder, bytes } => files(folder, *bytes),
            SetupStorage::Disks { disks, logs } => {
                let (databases, logs, reason) = divided(disks, logs)?;
                let mut pools = vec![pool("mail", &databases)];
                pools.extend((!logs.is_empty()).then(|| pool("logs", &logs)));
                (pools, vec![reason])
            }
        };
        let mut division = Self { pools: Vec::new(), reasons };
        add_volumes(&mut pools, sizes)?;
        for pool in &pools {
            division.reasons.push(match pool.spares {
                0 => format!(
                    "pool {}: {} drives, {} of room; too few to keep room for a lost drive",
                    pool.name,
                    pool.drive_count(),
                    pool.room
                ),
                _ => format!(
                    "pool {}: {} drives, {} of room, besides that kept for a lost drive",
                    pool.name,
                    pool.drive_count(),
                    pool.room
                ),
            });
        }
        division.pools = pools;
        Ok(division)
    }
}

fn files(folder: &std::path::Path, bytes: ByteCount) -> (Vec<PlannedPool>, Vec<String>) {
    let each = bytes.0 / u64::from(FILES);
    let drives = PlannedDrives::Files {
        folder: folder.join("mail"),
        count: FILES,
        drive_gb: (each as f64 / 1e6).floor() / 1e3,
    };
    let room = room_of(&vec![each; FILES as usize], 0);
    let pool = PlannedPool { name: "mail", drives, spares: 0, room, volumes: Vec::new() };
    let reason = "one pool of drives in files: they lie on one filesystem, so this protects nothing, and is for trying it";
    (vec![pool], vec![reason.to_owned()])
}

/// Disks of the databases, disks of the logs (none if they share a pool), and the reason.
fn divided(
    disks: &[SetupDisk],
    logs: &LogDisks,
) -> Result<(Vec<SetupDisk>, Vec<SetupDisk>, String), Refusal> {
    if disks.len() < 2 {
        return Err(Refusal::new(
            "a pool needs two disks: each block has two copies on different ones",
            "give another disk; to try it without disks, say ⟨folder⟩ FOLDER ⟨gb⟩ N",
        ));
    }
    let (chosen, reason): (Vec<&SetupDisk>, String) = match logs {
        LogDisks::None => (Vec::new(), "databases and logs share one pool, as ⟨log-disks⟩ says".to_owned()),
        LogDisks::Named(paths) => {
            let named = disks.iter().filter(|disk| paths.contains(&disk.path)).collect();
            (named, "logs have a pool of their own, of the disks of ⟨log-disks⟩".to_owned())
        }
        LogDisks::Chosen if disks.len() < DISKS_APART => {
            let reason = format!(
                "databases and logs share one pool: a pool needs two disks, and there are {}; with four, logs lie apart",
                disks.len()
            );
            (Vec::new(), reason)
        }
        LogDisks::Chosen => chosen_for_logs(disks),
    };
    let is_of_logs = |disk: &&SetupDisk| chosen.iter().any(|log| log.path == disk.path);
    let (of_logs, of_databases): (Vec<&SetupDisk>, Vec<&SetupDisk>) = disks.iter().partition(is_of_logs);
    for (name, pool) in [("logs", &of_logs), ("databases", &of_databases)] {
        if pool.len() == 1 || pool.is_empty() && name == "databases" {
            return Err(Refusal::new(
                format!(
                    "the pool of the {name} would have {}: a pool needs two disks",
                    disks_text(pool.len())
                ),
                "give more disks, or one pool of all with ⟨log-disks⟩ none",
            ));
        }
    }
    let owned = |disks: Vec<&SetupDisk>| disks.into_iter().cloned().collect();
    Ok((owned(of_databases), owned(of_logs), reason))
}

fn disks_text(count: usize) -> &'static str {
    if count == 0 { "no disk" } else { "one disk" }
}

/// The disks of the logs among four or more, and the rule that chose them.
fn chosen_for_logs(disks: &[SetupDisk]) -> (Vec<&SetupDisk>, String) {
    let apart =
        "logs have a pool of their own, so that a lost pool does not take databases and their logs together";
    let of_kind = |is_rotational: bool| -> Vec<&SetupDisk> {
        disks.iter().filter(|disk| disk.is_rotational == Some(is_rotational)).collect()
    };
    let (rotating, solid) = (of_kind(true), of_kind(false));
    if rotating.len() >= 2 && solid.len() >= 2 && rotating.len() + solid.len() == disks.len() {
        let bytes = |disks: &[&SetupDisk]| disks.iter().map(|disk| disk.size.0).sum::<u64>();
        let (logs, kind) =
            if bytes(&solid) <= bytes(&rotating) { (solid, "not rotating") } else { (rotating, "rotating") };
        let reason = format!(
            "{apart}: the {} disks that are {kind}, since two kinds of disks do not share a pool, and logs need less room",
            logs.len()
        );
        return (logs, reason);
    }
    let count = (disks.len() / 4).max(2);
    let mut by_size: Vec<(usize, &SetupDisk)> = disks.iter().enumerate().collect();
    // Of equal ones the last: the first listed disks stay those of the databases.
    by_size.sort_by_key(|(index, disk)| (disk.size, std::cmp::Reverse(*index)));
    let logs = by_size.into_iter().take(count).map(|(_, disk)| disk).collect();
    let is_alike = disks.iter().all(|disk| disk.size == disks[0].size);
    let word = if is_alike { "last" } else { "smallest" };
    let reason = format!(
        "{apart}: the {count} {word} of {} disks (a quarter, at least two), since logs need less room",
        disks.len()
    );
    (logs, reason)
}

fn pool(name: &'static str, disks: &[SetupDisk]) -> PlannedPool {
    let spares = u32::from(disks.len() >= SPARING_FROM);
    let sizes: Vec<u64> = disks.iter().map(|disk| disk.size.0).collect();
    PlannedPool {
        name,
        drives: PlannedDrives::Devices(disks.iter().map(|disk| disk.path.clone()).collect()),
        spares,
        room: room_of(&sizes, spares),
        volumes: Vec::new(),
    }
}

/// Room of drives of these sizes: each block on two of them, less the largest ones for whose loss room is kept.
fn room_of(sizes: &[u64], spares: u32) -> ByteCount {
    let mut sorted = sizes.to_vec();
    sorted.sort_unstable();
    sorted.truncate(sizes.len() - spares as usize);
    let all: u64 = sorted.iter().sum();
    let largest = sorted.last().copied().unwrap_or(0);
    // What the largest has beyond all others has no place for its second copy.
    ByteCount((all / COPIES).min(all - largest))
}

fn add_volumes(pools: &mut [PlannedPool], sizes: VolumeSizes) -> Result<(), Refusal> {
    let [store, log] = match pools.len() {
        1 => SHARES_TOGETHER,
        _ => [SHARE_ALONE; 2],
    };
    let last = pools.len() - 1;
    let volume = |pool: &PlannedPool, (name, role), (share, given): (f64, Option<f64>), option| {
        let room_gb = pool.room.0 as f64 / GIB;
        let gb = given.unwrap_or_else(|| rounded(room_gb * share));
        if gb <= 0.0 || gb > room_gb {
            let problem =
                format!("a volume of {gb} GiB does not fit the pool {}, which has {}", pool.name, pool.room);
            return Err(Refusal::new(problem, format!("say a smaller {option}, or give more disks")));
        }
        Ok(PlannedVolume { name, role, gb })
    };
    let store = volume(&pools[0], ("store", "database"), (store, sizes.databases), "⟨database-gb⟩")?;
    let log = volume(&pools[last], ("log", "log"), (log, sizes.logs), "⟨log-gb⟩")?;
    pools[0].volumes.push(store);
    pools[last].volumes.push(log);
    Ok(())
}

/// Whole GiB, or hundredths of a small size, downwards.
fn rounded(gb: f64) -> f64 {
    if gb >= 10.0 { gb.floor() } else { (gb * 100.0).floor() / 100.0 }
}
