//! What a run is to do, before it does it: passive data, checked, with its cost and its weaknesses.

use super::{
    profile::{Profile, ProfileError},
    setting::Confidence,
};
use serde::{Deserialize, Serialize};
use std::{fmt, time::Duration};
use thiserror::Error;
use world::ByteCount;

/// Over what span the maxima of a verdict are averaged (seed 002, test log: "interval: 15000 ms").
pub const WINDOW: Duration = Duration::from_secs(15);
/// Room a database is left to grow in, as a share of its first size (vendor blog hmlee on
/// capacity percentage: 25 %).
pub const GROWTH_PERCENT: u64 = 25;
/// A run this long is a performance test (seeds 000, 001, 002, 004: two hours).
const PERFORMANCE: Duration = Duration::from_secs(2 * 3600);
/// A run this long is a stress test (seed 002: 24 hours).
const STRESS: Duration = Duration::from_secs(24 * 3600);
/// Databases should be this many times the cache under them (seed 001, "Microsoft Jetstress 2004").
const CACHE_RATIO_WANTED: f64 = 20.0;

/// How far a run's verdict reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunClass {
    /// Shorter than two hours: shows that all works, proves little.
    Smoke,
    /// Two hours and more.
    Performance,
    /// 24 hours and more; maxima are judged by laxer limits.
    Stress,
}

impl RunClass {
    /// The class of a run measured for `span`.
    pub fn of(span: Duration) -> Self {
        match span {
            span if span >= STRESS => Self::Stress,
            span if span >= PERFORMANCE => Self::Performance,
            _ => Self::Smoke,
        }
    }

    /// Its name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Self::Smoke => "Smoke test",
            Self::Performance => "Performance test",
            Self::Stress => "Stress test",
        }
    }
}

/// What drives the storage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Closed loop: sessions of each group, every one beginning anew when it has ended.
    Threads {
        /// Sessions of one storage group.
        per_group: u32,
    },
    /// Open loop: a held rate of database reads and writes.
    Mailboxes {
        /// Mailboxes on all groups together.
        count: u64,
        /// Database reads and writes a second of one mailbox.
        iops_each: f64,
    },
}

impl Load {
    /// Database reads and writes a second that are asked for; none in a closed loop.
    pub fn target_iops(&self) -> Option<f64> {
        match self {
            Self::Threads { .. } => None,
            Self::Mailboxes { count, iops_each } => Some(*count as f64 * iops_each),
        }
    }
}

/// One volume of the storage under test, as the caller found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Path or device, as in the openings of the groups.
    pub name: String,
    /// Whether databases lie on it.
    pub databases: bool,
    /// Whether transaction logs lie on it.
    pub logs: bool,
    /// How it is reached: `io_uring, O_DIRECT`.
    pub io: String,
    /// Whether that way goes round the operating system's page cache.
    pub direct: bool,
    /// What is known about it: filesystem, device model, size.
    pub description: String,
}

/// A run, as asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// What one session does.
    pub profile: Profile,
    /// Storage groups: one transaction log and one thread each.
    pub groups: u32,
    /// Databases of each group.
    pub databases_per_group: u32,
    /// First size of each database, in bytes.
    pub database_bytes: u64,
    /// Size no database grows beyond (by much), in bytes; see [`RunPlan::usual_growth`].
    pub database_bytes_max: u64,
    /// Page cache of each storage group, in bytes; see [`RunPlan::fitting_cache`].
    pub cache_bytes_per_group: u64,
    /// What drives the storage.
    pub load: Load,
    /// How long is measured, in seconds.
    pub duration_s: u64,
    /// Longest time the cache may take to fill before measuring begins all the same, in seconds.
    pub fill_s_max: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// The storage under test.
    pub volumes: Vec<VolumeFacts>,
    /// Cache of the storage system itself, where known, in bytes.
    pub storage_cache_bytes: Option<u64>,
}

/// Why a plan was refused. Every message is one line.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PlanError {
    /// The profile does not hold together.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// A figure is out of range.
    #[error("{what}: {given} is out of range, {least} to {most} make sense")]
    OutOfRange {
        /// Which figure.
        what: &'static str,
        /// What was given.
        given: f64,
        /// Least accepted.
        least: f64,
        /// Most accepted.
        most: f64,
    },
}

/// Something that makes the verdict worth less.
#[derive(Clone, Debug, PartialEq)]
pub enum Weakness {
    /// The run is a smoke test.
    Short {
        /// What is to be measured, in seconds.
        seconds: u64,
    },
    /// The databases are small against the engine's page cache.
    SmallAgainstCache {
        /// Database bytes per cache byte.
        ratio: f64,
    },
    /// The databases are small against the storage's own cache.
    SmallAgainstStorageCache {
        /// Database bytes per cache byte.
        ratio: f64,
    },
    /// Nobody said how large the storage's own cache is.
    StorageCacheUnknown,
    /// A volume is reached through the operating system's page cache.
    NotDirect {
        /// Which volume.
        volume: String,
        /// How it is reached.
        io: String,
    },
    /// Databases and logs share a volume.
    SharedVolume {
        /// Which volume.
        volume: String,
    },
    /// Figures of the profile nobody vouches for.
    UnverifiedFigures {
        /// Their names.
        keys: Vec<&'static str>,
    },
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { seconds } => {
                write!(f, "It measures {} only; two hours make a performance test.", Span(*seconds))
            }
            Self::SmallAgainstCache { ratio } => {
                write!(
                    f,
                    "The databases are {ratio:.1} times the page cache, not {CACHE_RATIO_WANTED}: reads are flattered."
                )
            }
            Self::SmallAgainstStorageCache { ratio } => {
                write!(
                    f,
                    "The databases are {ratio:.1} times the storage's own cache, not {CACHE_RATIO_WANTED}: it may hide the drives."
                )
            }
            Self::StorageCacheUnknown => {
                write!(f, "The size of the storage's own cache is not known: it may hide the drives.")
            }
            Self::NotDirect { volume, io } => {
                write!(
                    f,
                    "{volume} is reached by {io}: the operating system's memory may answer for the storage."
                )
            }
            Self::SharedVolume { volume } => {
                write!(f, "{volume} holds databases and logs: they disturb each other, and fail together.")
            }
            Self::UnverifiedFigures { keys } => {
                write!(
                    f,
                    "The profile's figures for {} are recalled or assumed, not read in a source.",
                    keys.join(", ")
                )
            }
        }
    }
}

impl Weakness {
    /// What it rests on; empty where it speaks for itself.
    pub fn source(&self) -> &'static str {
        match self {
            Self::Short { .. } => "seeds 000, 001, 002, 004: two hours; seed 002: 24 for stress",
            Self::SmallAgainstCache { .. }
            | Self::SmallAgainstStorageCache { .. }
            | Self::StorageCacheUnknown => {
                "seed 001, \"Microsoft Jetstress 2004\": at least 20 times the storage cache"
            }
            Self::SharedVolume { .. } => "seeds 000-002 put logs on spindles of their own; seed 004 compares",
            Self::NotDirect { .. } | Self::UnverifiedFigures { .. } => "",
        }
    }

    /// Whether it is only good to know, rather than a reason to doubt.
    pub fn is_note(&self) -> bool {
        matches!(self, Self::StorageCacheUnknown | Self::UnverifiedFigures { .. } | Self::SharedVolume { .. })
    }
}

/// A span of seconds as a person says it: `2 min`, `1 h 30 min`.
pub struct Span(
    /// Seconds.
    pub u64,
);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hours, minutes, seconds) = (self.0 / 3600, self.0 / 60 % 60, self.0 % 60);
        let mut parts = Vec::new();
        for (count, unit) in [(hours, "h"), (minutes, "min"), (seconds, "s")] {
            if count > 0 {
                parts.push(format!("{count} {unit}"));
            }
        }
        if parts.is_empty() {
            parts.push("0 s".to_owned());
        }
        f.write_str(&parts.join(" "))
    }
}

/// What the storage is guessed to do, for estimates before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpeedGuess {
    /// Bytes a second written or read in long runs, all volumes together.
    pub sequential_bytes_per_second: u64,
    /// Random reads and writes of pages a second, all volumes together.
    pub random_iops: u64,
}

/// What a run will cost. An estimate: space and memory are bounds, the rest is as good as the guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Space the databases may take in the end, growth included.
    pub database_space: ByteCount,
    /// Space the logs may take.
    pub log_space: ByteCount,
    /// Memory: caches, log buffers, one byte a record, and 64 MiB for the rest.
    pub memory: ByteCount,
    /// Bytes written to make the databases, logs included.
    pub written_by_creation: ByteCount,
    /// Bytes written by the measured run, logs included.
    pub written_by_run: ByteCount,
    /// Time to make the databases, in seconds.
    pub create_s: u64,
    /// Time to fill the cache, in seconds.
    pub fill_s: u64,
    /// Measured time, in seconds.
    pub measure_s: u64,
    /// Time to verify every page, in seconds.
    pub verify_s: u64,
}

impl Estimate {
    /// All phases together, in seconds.
    pub fn total_s(&self) -> u64 {
        self.create_s + self.fill_s + self.measure_s + self.verify_s
    }
}

impl RunPlan {
    /// The page cache for a group of `databases` of `database_bytes` each: a twentieth of them,
    /// within the profile's bounds for each (seed 001's ratio, seed 002's bounds).
    pub fn fitting_cache(profile: &Profile, databases: u32, database_bytes: u64) -> ByteCount {
        let (least, most) = profile.cache_bounds();
        let each = (database_bytes / CACHE_RATIO_WANTED as u64).clamp(least.0, most.0);
        ByteCount(u64::from(databases) * each)
    }

    /// The size that databases of `database_bytes` may grow to, if nothing speaks against it.
    pub fn usual_growth(database_bytes: u64) -> u64 {
        database_bytes + database_bytes * GROWTH_PERCENT / 100
    }

    /// Checks every figure.
    pub fn check(&self) -> Result<(), PlanError> {
        self.profile.check()?;
        let gib = (1_u64 << 30) as f64;
        let within = |what, given: f64, least: f64, most: f64| {
            let fits = given.is_finite() && (least..=most).contains(&given);
            if fits { Ok(()) } else { Err(PlanError::OutOfRange { what, given, least, most }) }
        };
        within("storage groups", self.groups.into(), 1.0, 64.0)?;
        within(
            "databases of a group",
            self.databases_per_group.into(),
            1.0,
            maildb::config::DATABASES_MAX as f64,
        )?;
        within("size of a database in GiB", self.database_bytes as f64 / gib, 4.0 / 1024.0, 16.0 * 1024.0)?;
        within("duration in seconds", self.duration_s as f64, 1.0, 30.0 * 86_400.0)?;
        match self.load {
            Load::Threads { per_group } => within("threads of a group", per_group.into(), 1.0, 1024.0)?,
            Load::Mailboxes { count, iops_each } => {
                within("mailboxes", count as f64, 1.0, 10e6)?;
                within("IOPS of a mailbox", iops_each, 0.001, 100.0)?;
                within("target IOPS", count as f64 * iops_each, 0.1, 10e6)?;
            }
        }
        let growth = self.database_bytes_max as f64 / self.database_bytes as f64;
        within("growth of a database", growth, 1.0, 100.0)?;
        within("cache of a group in GiB", self.cache_bytes_per_group as f64 / gib, 4.0 / 1024.0, 1024.0)
    }

    /// What is to be measured, as a span.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_s)
    }

    /// Databases of all groups.
    pub fn database_count(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.databases_per_group)
    }

    /// Everything that makes the verdict of this plan worth less, the gravest first.
    pub fn weaknesses(&self) -> Vec<Weakness> {
        let mut found = Vec::new();
        for volume in self.volumes.iter().filter(|volume| !volume.direct) {
            found.push(Weakness::NotDirect { volume: volume.name.clone(), io: volume.io.clone() });
        }
        if RunClass::of(self.duration()) == RunClass::Smoke {
            found.push(Weakness::Short { seconds: self.duration_s });
        }
        let group_bytes = u64::from(self.databases_per_group) * self.database_bytes;
        let ratio = group_bytes as f64 / self.cache_bytes_per_group as f64;
        // A database can only be sized in whole pages: 19.9 times is 20 times.
        if ratio < CACHE_RATIO_WANTED * 0.995 {
            found.push(Weakness::SmallAgainstCache { ratio });
        }
        let all_bytes = self.database_count() * self.database_bytes;
        match self.storage_cache_bytes {
            None => found.push(Weakness::StorageCacheUnknown),
            Some(cache) if (all_bytes as f64) < CACHE_RATIO_WANTED * cache as f64 => {
                found.push(Weakness::SmallAgainstStorageCache { ratio: all_bytes as f64 / cache as f64 });
            }
            Some(_) => {}
        }
        for volume in self.volumes.iter().filter(|volume| volume.databases && volume.logs) {
            found.push(Weakness::SharedVolume { volume: volume.name.clone() });
        }
        let unverified = [Confidence::Recalled, Confidence::Assumed];
        let keys: Vec<_> = self
            .profile
            .figures()
            .filter(|(_, setting)| unverified.contains(&setting.confidence))
            .map(|(spec, _)| spec.name)
            .collect();
        if !keys.is_empty() {
            found.push(Weakness::UnverifiedFigures { keys });
        }
        found
    }

    /// What this plan will cost on storage as fast as `guess`.
    pub fn estimate(&self, guess: SpeedGuess) -> Estimate {
        let databases = self.database_count();
        let groups = u64::from(self.groups);
        let all_bytes = databases * self.database_bytes;
        let page = self.profile.page_size().bytes() as u64;
        let record = self.profile.record_bytes() as u64;
        let logged_at_creation = all_bytes;
        let written_by_creation = all_bytes + logged_at_creation;
        let run_iops = self.load.target_iops().map_or(guess.random_iops, |target| target.ceil() as u64);
        // An I/O stands for about one operation: half of them write a page, most log a record.
        let run_bytes_per_second = run_iops * (page / 2 + record + 512);
        let cache = groups * self.cache_bytes_per_group;
        let sequential = guess.sequential_bytes_per_second.max(1);
        let log_space_per_group = 2 * self.profile.checkpoint_depth().0 + 10 * self.profile.log_file().0;
        Estimate {
            database_space: ByteCount(databases * self.database_bytes_max),
            log_space: ByteCount(groups * log_space_per_group),
            memory: ByteCount(cache + groups * self.profile.log_buffer().0 + all_bytes / record + (64 << 20)),
            written_by_creation: ByteCount(written_by_creation),
            written_by_run: ByteCount(run_bytes_per_second * self.duration_s),
            create_s: written_by_creation / sequential + 1,
            fill_s: (cache / page / run_iops.max(1) + 1).min(self.fill_s_max),
            measure_s: self.duration_s,
            verify_s: all_bytes / sequential + 1,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn sample_plan() -> RunPlan {
        let volume = |name: &str, databases, logs| VolumeFacts {
            name: name.to_owned(),
            databases,
            logs,
            io: "io_uring, O_DIRECT".to_owned(),
            direct: true,
            description: "ext4 on a test drive".to_owned(),
        };
        RunPlan {
            profile: Profile::load("exchange-2007").unwrap(),
            groups: 1,
            databases_per_group: 1,
            database_bytes: 138_868_178_944,
            database_bytes_max: RunPlan::usual_growth(138_868_178_944),
            cache_bytes_per_group: 256 << 20,
            load: Load::Mailboxes { count: 600, iops_each: 0.45 },
            duration_s: 7200,
            fill_s_max: 1800,
            seed: 1,
            volumes: vec![volume("/mnt/databases", true, false), volume("/mnt/logs", false, true)],
            storage_cache_bytes: Some(1 << 30),
        }
    }

    fn said(plan: &RunPlan) -> Vec<String> {
        let real = plan.weaknesses().into_iter().filter(|weakness| !weakness.is_note());
        real.map(|weakness| weakness.to_string()).collect()
    }

    #[test]
    fn the_run_of_seed_002_has_no_weakness() {
        let plan = sample_plan();
        plan.check().unwrap();
        assert_eq!(said(&plan), Vec::<String>::new());
        assert_eq!(plan.load.target_iops(), Some(270.0), "seed 002 report: target 270");
    }

    #[test]
    fn a_small_short_buffered_run_says_so() {
        let mut plan = sample_plan();
        plan.database_bytes = 1 << 30;
        plan.database_bytes_max = 2 << 30;
        plan.duration_s = 90;
        plan.volumes[0].direct = false;
        plan.volumes[0].io = "plain files".to_owned();
        assert_eq!(
            said(&plan),
            [
                "/mnt/databases is reached by plain files: the operating system's memory may answer for the storage.",
                "It measures 1 min 30 s only; two hours make a performance test.",
                "The databases are 4.0 times the page cache, not 20: reads are flattered.",
                "The databases are 1.0 times the storage's own cache, not 20: it may hide the drives.",
            ]
        );
    }

    #[test]
    fn classes_begin_at_two_and_at_24_hours() {
        let class = |seconds| RunClass::of(Duration::from_secs(seconds));
        assert_eq!(class(7199), RunClass::Smoke);
        assert_eq!(class(7200), RunClass::Performance);
        assert_eq!(class(86_399), RunClass::Performance);
        assert_eq!(class(86_400), RunClass::Stress);
    }

    #[test]
    fn absurd_figures_are_refused_in_one_line() {
        let refused = |change: fn(&mut RunPlan)| {
            let mut plan = sample_plan();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert_eq!(refused(|p| p.groups = 0), "storage groups: 0 is out of range, 1 to 64 make sense");
        assert_eq!(
            refused(|p| p.load = Load::Mailboxes { count: 5, iops_each: f64::NAN }),
            "IOPS of a mailbox: NaN is out of range, 0.001 to 100 make sense"
        );
        assert_eq!(
            refused(|p| p.cache_bytes_per_group = 5000 << 30),
            "cache of a group in GiB: 5000 is out of range, 0.00390625 to 1024 make sense"
        );
    }

    #[test]
    fn the_cache_is_a_twentieth_within_the_profiles_bounds() {
        let profile = Profile::load("exchange-2007").unwrap();
        let cache = |bytes| RunPlan::fitting_cache(&profile, 2, bytes).0 >> 20;
        assert_eq!((cache(100 << 20), cache(2 << 30), cache(1 << 40)), (64, 204, 512));
    }

    #[test]
    fn an_estimate_bounds_space_and_memory() {
        let plan = sample_plan();
        let guess = SpeedGuess { sequential_bytes_per_second: 100_000_000, random_iops: 300 };
        let estimate = plan.estimate(guess);
        assert_eq!(estimate.database_space.0, plan.database_bytes_max);
        assert!(estimate.memory.0 > 256 << 20 && estimate.memory.0 < 600 << 20, "{}", estimate.memory);
        assert_eq!(estimate.measure_s, 7200);
        assert!(estimate.create_s > 2700, "277 GB at 100 MB/s: {}", estimate.create_s);
    }
}
