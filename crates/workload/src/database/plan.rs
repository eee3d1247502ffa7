//! What a run is to do, before it does it: passive data, checked.

pub use super::load::{Load, ProbePlan};
use super::{
    judged::{Judged, Part},
    profile::{Profile, ProfileError},
    setup::Setup,
    span::Span,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;
use world::ByteCount;

/// Over what span the maxima of a verdict are averaged (AMI 2008, test log: "interval: 15000 ms").
pub const WINDOW: Duration = Duration::from_secs(15);
/// Room a database is left to grow in, as a share of its first size (vendor blog hmlee on
/// capacity percentage: 25 %).
pub const GROWTH_PERCENT: u64 = 25;
/// A run this long is a performance test (HP Continuous Access, HP EVA8000, AMI 2008 and Dell 2010: two hours).
const PERFORMANCE: Duration = Duration::from_secs(2 * 3600);
/// A run this long is a stress test (AMI 2008: 24 hours).
const STRESS: Duration = Duration::from_secs(24 * 3600);
/// Databases should be this many times the cache under them (HP EVA8000, "Microsoft Jetstress 2004").
pub(super) const CACHE_RATIO_WANTED: f64 = 20.0;

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

/// Cache pages for each session that serves a held rate. The engine keeps a fifth of its cache free or clean. Where
/// the storage has stood still for a moment, all sessions begin at once, and each wants a page of that: measured at
/// 20,000 I/O a second of 32 KiB, sessions with four pages each stalled 78 and 2,367 times a second, with 16 each less
/// than once.
const PAGES_PER_SESSION: u64 = 16;
/// Sessions that serve a held rate, at least and at most. 1024 of them with 20 ms each are 51,200 operations a
/// second of one group.
const SESSIONS_BOUNDS: (u32, u32) = (32, 1024);

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
    /// Which part of that is judged.
    #[serde(default)]
    pub judged: Judged,
    /// Longest time the cache may take to fill before measuring begins all the same, in seconds.
    pub fill_s_max: u64,
    /// Seed of everything random.
    pub seed: u64,
    /// The storage under test.
    pub volumes: Vec<VolumeFacts>,
    /// Cache of the storage system itself, where known, in bytes.
    pub storage_cache_bytes: Option<u64>,
    /// The published test this run goes by, if it goes by one.
    #[serde(default)]
    pub setup: Option<Box<Setup>>,
    /// How databases and logs are spread over the volumes, by name; none if that was not chosen.
    #[serde(default)]
    pub layout: Option<String>,
    /// What the person who ran it says of the storage: keys and values.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
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
    /// More is to be judged than is run.
    #[error("{judged} cannot be judged of a run of {}; judge less, or run longer", Span(*.duration_s))]
    JudgedTooLong {
        /// What was to be judged.
        judged: Judged,
        /// How long is run, in seconds.
        duration_s: u64,
    },
}

impl RunPlan {
    /// The page cache for a group of `databases` of `database_bytes` each: a twentieth of them,
    /// within the profile's bounds for each (HP EVA8000's ratio, AMI 2008's bounds).
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
        if let Some(seconds) = self.judged.seconds() {
            if seconds > self.duration_s {
                return Err(PlanError::JudgedTooLong { judged: self.judged, duration_s: self.duration_s });
            }
            within("judged part in seconds", seconds as f64, 1.0, 30.0 * 86_400.0)?;
        }
        match self.load {
            Load::Threads { per_group } => within("threads of a group", per_group.into(), 1.0, 1024.0)?,
            Load::Maximum { probe } | Load::TunedThreads { probe } => {
                within("measured seconds of a probe", probe.measure_s as f64, 1.0, 3600.0)?;
                within("settling seconds of a probe", probe.settle_s as f64, 1.0, 3600.0)?;
                within("probes", probe.probes_max.into(), 1.0, 100.0)?;
                within("holds", probe.holds_max.into(), 1.0, 10.0)?;
            }
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

    /// Sessions of each group where a rate is held or the load is searched for: as many as its cache has pages
    /// for, `PAGES_PER_SESSION` each, within `SESSIONS_BOUNDS`. Operations beyond that wait their turn, and the wait is
    /// in their latency.
    pub fn sessions_max(&self) -> u32 {
        let pages = self.cache_bytes_per_group / self.profile.page_size().bytes() as u64;
        let (least, most) = SESSIONS_BOUNDS;
        u32::try_from(pages / PAGES_PER_SESSION).unwrap_or(most).clamp(least, most)
    }

    /// Sessions of each group.
    pub fn sessions(&self) -> u32 {
        match self.load {
            Load::Threads { per_group } => per_group,
            Load::Mailboxes { .. } | Load::Maximum { .. } | Load::TunedThreads { .. } => self.sessions_max(),
        }
    }

    /// What is to be measured, as a span.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_s)
    }

    /// What of it is judged.
    pub fn judged_part(&self) -> Part {
        self.judged.part(self.duration_s)
    }

    /// Databases of all groups.
    pub fn database_count(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.databases_per_group)
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
            judged: Judged::All,
            fill_s_max: 1800,
            seed: 1,
            volumes: vec![volume("/mnt/databases", true, false), volume("/mnt/logs", false, true)],
            storage_cache_bytes: Some(1 << 30),
            setup: None,
            notes: Vec::new(),
            layout: None,
        }
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
        assert_eq!(
            refused(|p| p.judged = Judged::Middle { seconds: 4 * 3600 }),
            "the middle 4 h cannot be judged of a run of 2 h; judge less, or run longer"
        );
    }

    #[test]
    fn a_held_rate_has_as_many_sessions_as_the_cache_has_room_for() {
        let sessions =
            |mib: u64| RunPlan { cache_bytes_per_group: mib << 20, ..sample_plan() }.sessions_max();
        assert_eq!([4, 16, 32, 256].map(sessions), [32, 128, 256, 1024], "pages of 8 KiB, 16 each");
    }

    #[test]
    fn the_cache_is_a_twentieth_within_the_profiles_bounds() {
        let profile = Profile::load("exchange-2007").unwrap();
        let cache = |bytes| RunPlan::fitting_cache(&profile, 2, bytes).0 >> 20;
        assert_eq!((cache(100 << 20), cache(2 << 30), cache(1 << 40)), (64, 204, 512));
    }
}
