//! The plan of a run: passive data, checked before the run starts.

pub mod caveats;
pub mod estimate;
pub mod load;
pub mod profile;
pub mod protection;
pub mod setting;
pub mod setup;

pub use load::{LoadPlan, ProbePlan};

use crate::{
    database::plan::{
        profile::{ServerProfile, ServerProfileError},
        protection::ProtectionPlan,
        setup::Setup,
    },
    time_span::TimeSpan,
    verdict::judged_part::{JudgedPart, TimeRange},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use thiserror::Error;
use world::ByteCount;

/// Growth allowance of a database, in percent of its initial size (vendor blog hmlee on capacity percentage:
/// 25 %).
pub const GROWTH_PERCENT: u64 = 25;

/// Recommended ratio of database size to page cache (HP EVA8000, "Microsoft Jetstress 2004").
pub(super) const CACHE_RATIO_WANTED: f64 = 20.0;

/// One volume of the storage under test, as the caller describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeFacts {
    /// Path or device, equal to the volume name in each group's storage.
    pub name: String,
    /// True if databases are on it.
    pub databases: bool,
    /// True if transaction logs are on it.
    pub logs: bool,
    /// I/O path: `io_uring, O_DIRECT`.
    pub io: String,
    /// True if I/O bypasses the operating system's page cache.
    pub direct: bool,
    /// Filesystem, device model and size.
    pub description: String,
}

/// Cache pages for each session that serves a held rate. The engine keeps a fifth of its cache free or clean.
/// After a stall of the storage all sessions start at once and each needs a free page: measured at 20,000
/// IOPS of 32 KiB, sessions with four pages each stalled 78 and 2,367 times a second, with 16 pages each less
/// than once.
const PAGES_PER_SESSION: u64 = 16;
/// Minimum and maximum number of sessions that serve a held rate. 1,024 sessions at 20 ms each do 51,200
/// operations a second in one group.
const SESSIONS_BOUNDS: (u32, u32) = (32, 1024);

/// The parameters of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    pub profile: ServerProfile,
    /// Each has one transaction log and one thread.
    pub groups: u32,
    pub databases_per_group: u32,
    /// Initial size of each database, in bytes.
    pub database_bytes: u64,
    /// Approximate maximum size of each database, in bytes; see [`RunPlan::usual_growth`].
    pub database_bytes_max: u64,
    /// Page cache of each storage group, in bytes; see [`RunPlan::fitting_cache`].
    pub cache_bytes_per_group: u64,
    pub load: LoadPlan,
    /// Measured time, in seconds.
    pub duration_s: u64,
    #[serde(default)]
    pub judged: JudgedPart,
    /// Maximum time to fill the cache, in seconds; then measurement starts anyway.
    pub fill_s_max: u64,
    /// Seed of all random choices.
    pub seed: u64,
    pub volumes: Vec<VolumeFacts>,
    /// Cache of the storage system itself, in bytes, if known.
    pub storage_cache_bytes: Option<u64>,
    /// The published test that the run follows.
    #[serde(default)]
    pub setup: Option<Box<Setup>>,
    /// Name of the layout of databases and logs over volumes; None if the user chose none.
    #[serde(default)]
    pub layout: Option<String>,
    /// The user's notes about the storage: keys and values.
    #[serde(default)]
    pub notes: Vec<(String, String)>,
    /// Backups while the load is measured; None if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionPlan>,
}

/// A rejected plan. Every message is one line.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RunPlanError {
    #[error(transparent)]
    Profile(#[from] ServerProfileError),
    /// A figure is out of range.
    #[error("{what}: {given} is out of range, {least} to {most} make sense")]
    OutOfRange { what: &'static str, given: f64, least: f64, most: f64 },
    /// The judged part is longer than the run.
    #[error("{judged} cannot be judged of a run of {}; judge less, or run longer", TimeSpan(*.duration_s))]
    JudgedTooLong {
        judged: JudgedPart,
        /// Duration of the run, in seconds.
        duration_s: u64,
    },
}

impl RunPlan {
    /// Default page cache of a group of `databases` of `database_bytes` each: a twentieth of their size (HP
    /// EVA8000's ratio), within the profile's bounds for each database (AMI 2008's bounds).
    pub fn fitting_cache(profile: &ServerProfile, databases: u32, database_bytes: u64) -> ByteCount {
        let (least, most) = profile.cache_bounds();
        let each = (database_bytes / CACHE_RATIO_WANTED as u64).clamp(least.0, most.0);
        ByteCount(u64::from(databases) * each)
    }

    /// Default maximum size of a database with an initial size of `database_bytes`.
    pub fn usual_growth(database_bytes: u64) -> u64 {
        database_bytes + database_bytes * GROWTH_PERCENT / 100
    }

    pub fn check(&self) -> Result<(), RunPlanError> {
        self.profile.check()?;
        let gib = (1_u64 << 30) as f64;
        let within = |what, given: f64, least: f64, most: f64| {
            let fits = given.is_finite() && (least..=most).contains(&given);
            if fits { Ok(()) } else { Err(RunPlanError::OutOfRange { what, given, least, most }) }
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
                return Err(RunPlanError::JudgedTooLong { judged: self.judged, duration_s: self.duration_s });
            }
            within("judged part in seconds", seconds as f64, 1.0, 30.0 * 86_400.0)?;
        }
        match self.load {
            LoadPlan::Threads { per_group } => within("threads of a group", per_group.into(), 1.0, 1024.0)?,
            LoadPlan::Maximum { probe } | LoadPlan::TunedThreads { probe } => {
                within("measured seconds of a probe", probe.measure_s as f64, 1.0, 3600.0)?;
                within("settling seconds of a probe", probe.settle_s as f64, 1.0, 3600.0)?;
                within("probes", probe.probes_max.into(), 1.0, 100.0)?;
                within("holds", probe.holds_max.into(), 1.0, 10.0)?;
            }
            LoadPlan::Mailboxes { count, iops_each } => {
                within("mailboxes", count as f64, 1.0, 10e6)?;
                within("IOPS of a mailbox", iops_each, 0.001, 100.0)?;
                within("target IOPS", count as f64 * iops_each, 0.1, 10e6)?;
            }
        }
        let growth = self.database_bytes_max as f64 / self.database_bytes as f64;
        within("growth of a database", growth, 1.0, 100.0)?;
        within("cache of a group in GiB", self.cache_bytes_per_group as f64 / gib, 4.0 / 1024.0, 1024.0)
    }

    /// Sessions of each group under a held or searched rate: one for `PAGES_PER_SESSION` cache pages, within
    /// `SESSIONS_BOUNDS`. Further operations wait for a session, and their latency includes the wait.
    pub fn sessions_max(&self) -> u32 {
        let pages = self.cache_bytes_per_group / self.profile.page_size().bytes() as u64;
        let (least, most) = SESSIONS_BOUNDS;
        u32::try_from(pages / PAGES_PER_SESSION).unwrap_or(most).clamp(least, most)
    }

    pub fn sessions(&self) -> u32 {
        match self.load {
            LoadPlan::Threads { per_group } => per_group,
            LoadPlan::Mailboxes { .. } | LoadPlan::Maximum { .. } | LoadPlan::TunedThreads { .. } => {
                self.sessions_max()
            }
        }
    }

    /// Measured time.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.duration_s)
    }

    pub fn judged_part(&self) -> TimeRange {
        self.judged.part(self.duration_s)
    }

    /// Databases of all groups together.
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
            profile: ServerProfile::load("exchange-2007").unwrap(),
            groups: 1,
            databases_per_group: 1,
            database_bytes: 138_868_178_944,
            database_bytes_max: RunPlan::usual_growth(138_868_178_944),
            cache_bytes_per_group: 256 << 20,
            load: LoadPlan::Mailboxes { count: 600, iops_each: 0.45 },
            duration_s: 7200,
            judged: JudgedPart::All,
            fill_s_max: 1800,
            seed: 1,
            volumes: vec![volume("/mnt/databases", true, false), volume("/mnt/logs", false, true)],
            storage_cache_bytes: Some(1 << 30),
            setup: None,
            notes: Vec::new(),
            layout: None,
            protection: None,
        }
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
            refused(|p| p.load = LoadPlan::Mailboxes { count: 5, iops_each: f64::NAN }),
            "IOPS of a mailbox: NaN is out of range, 0.001 to 100 make sense"
        );
        assert_eq!(
            refused(|p| p.cache_bytes_per_group = 5000 << 30),
            "cache of a group in GiB: 5000 is out of range, 0.00390625 to 1024 make sense"
        );
        assert_eq!(
            refused(|p| p.judged = JudgedPart::Middle { seconds: 4 * 3600 }),
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
        let profile = ServerProfile::load("exchange-2007").unwrap();
        let cache = |bytes| RunPlan::fitting_cache(&profile, 2, bytes).0 >> 20;
        assert_eq!((cache(100 << 20), cache(2 << 30), cache(1 << 40)), (64, 204, 512));
    }
}
