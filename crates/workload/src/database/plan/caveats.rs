//! Caveats: properties of a plan that limit the value of its verdict.

use crate::{
    database::plan::{CACHE_RATIO_WANTED, RunPlan},
    time_span::TimeSpan,
    verdict::class::RunClass,
};
use ::plan::figure::Confidence;
use maildb::PageStampMode;
use std::fmt;

/// A property of the plan that limits the value of the verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Caveat {
    /// Too short for a performance test.
    Short {
        /// Measured time, in seconds.
        seconds: u64,
    },
    /// The databases are small compared with the engine's page cache.
    SmallAgainstCache {
        /// Database bytes per cache byte.
        ratio: f64,
    },
    /// The databases are small compared with the storage's own cache.
    SmallAgainstStorageCache {
        /// Database bytes per cache byte.
        ratio: f64,
    },
    /// The size of the storage's own cache was not given.
    StorageCacheUnknown,
    /// I/O to a volume passes through the operating system's page cache.
    NotDirect {
        volume: String,
        /// I/O path.
        io: String,
    },
    /// Databases and logs share a volume.
    SharedVolume { volume: String },
    /// The engine keeps no page stamps, so lost writes go undetected.
    LostWritesUnseen,
    /// Profile figures that are recalled or assumed.
    UnverifiedFigures { keys: Vec<&'static str> },
}

impl fmt::Display for Caveat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short { seconds } => {
                write!(f, "The run measures {} only; a performance test takes two hours.", TimeSpan(*seconds))
            }
            Self::SmallAgainstCache { ratio } => {
                write!(
                    f,
                    "The databases are {ratio:.1} times the page cache, not {CACHE_RATIO_WANTED}: caching makes reads look faster."
                )
            }
            Self::SmallAgainstStorageCache { ratio } => {
                write!(
                    f,
                    "The databases are {ratio:.1} times the storage's own cache, not {CACHE_RATIO_WANTED}: the cache may hide slow drives."
                )
            }
            Self::StorageCacheUnknown => {
                write!(f, "The size of the storage's own cache is unknown: the cache may hide slow drives.")
            }
            Self::NotDirect { volume, io } => {
                write!(
                    f,
                    "{volume} is accessed through {io}: the operating system's cache may answer instead of the storage."
                )
            }
            Self::SharedVolume { volume } => {
                write!(f, "{volume} holds databases and logs: they disturb each other, and fail together.")
            }
            Self::LostWritesUnseen => {
                write!(
                    f,
                    "Lost writes were not checked: a page that the storage never wrote, or returned in an older \
                     version, passes its checksum. page_stamps = 1 detects them."
                )
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

impl Caveat {
    /// Citation; empty if the caveat needs none.
    pub fn source(&self) -> &'static str {
        match self {
            Self::Short { .. } => {
                "HP Continuous Access, HP EVA8000, AMI 2008 and Dell 2010: two hours; AMI 2008: 24 for stress"
            }
            Self::SmallAgainstCache { .. }
            | Self::SmallAgainstStorageCache { .. }
            | Self::StorageCacheUnknown => {
                "HP EVA8000, \"Microsoft Jetstress 2004\": at least 20 times the storage cache"
            }
            Self::SharedVolume { .. } => {
                "both HP papers and AMI 2008 put logs on spindles of their own; Dell 2010 compares"
            }
            Self::NotDirect { .. } | Self::LostWritesUnseen | Self::UnverifiedFigures { .. } => "",
        }
    }

    /// True if the caveat is informational and no reason to doubt the verdict.
    pub fn is_note(&self) -> bool {
        matches!(self, Self::StorageCacheUnknown | Self::UnverifiedFigures { .. } | Self::SharedVolume { .. })
    }
}

impl RunPlan {
    /// All caveats of this plan, the most serious first.
    pub fn caveats(&self) -> Vec<Caveat> {
        let mut found = Vec::new();
        for volume in self.volumes.iter().filter(|volume| !volume.direct) {
            found.push(Caveat::NotDirect { volume: volume.name.clone(), io: volume.io.clone() });
        }
        if RunClass::of(self.duration()) == RunClass::Smoke {
            found.push(Caveat::Short { seconds: self.duration_s });
        }
        let group_bytes = u64::from(self.databases_per_group) * self.database_bytes;
        let ratio = group_bytes as f64 / self.cache_bytes_per_group as f64;
        // Databases are sized in whole pages: 19.9 times counts as 20 times.
        if ratio < CACHE_RATIO_WANTED * 0.995 {
            found.push(Caveat::SmallAgainstCache { ratio });
        }
        let all_bytes = self.database_count() * self.database_bytes;
        match self.storage_cache_bytes {
            None => found.push(Caveat::StorageCacheUnknown),
            Some(cache) if (all_bytes as f64) < CACHE_RATIO_WANTED * cache as f64 => {
                found.push(Caveat::SmallAgainstStorageCache { ratio: all_bytes as f64 / cache as f64 });
            }
            Some(_) => {}
        }
        for volume in self.volumes.iter().filter(|volume| volume.databases && volume.logs) {
            found.push(Caveat::SharedVolume { volume: volume.name.clone() });
        }
        if self.profile.page_stamps() == PageStampMode::Off {
            found.push(Caveat::LostWritesUnseen);
        }
        let unverified = [Confidence::Recalled, Confidence::Assumed];
        let keys: Vec<_> = self
            .profile
            .figures()
            .filter(|(_, setting)| unverified.contains(&setting.confidence))
            .map(|(spec, _)| spec.name)
            .collect();
        if !keys.is_empty() {
            found.push(Caveat::UnverifiedFigures { keys });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::plan::tests::sample_plan;

    fn said(plan: &RunPlan) -> Vec<String> {
        let real = plan.caveats().into_iter().filter(|caveat| !caveat.is_note());
        real.map(|caveat| caveat.to_string()).collect()
    }

    #[test]
    fn the_run_of_ami_2008_has_no_caveat() {
        let plan = sample_plan();
        plan.check().unwrap();
        assert_eq!(said(&plan), Vec::<String>::new());
        assert_eq!(plan.load.target_iops(), Some(270.0), "AMI 2008, report: target 270");
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
                "/mnt/databases is accessed through plain files: the operating system's cache may answer instead of the storage.",
                "The run measures 1 min 30 s only; a performance test takes two hours.",
                "The databases are 4.0 times the page cache, not 20: caching makes reads look faster.",
                "The databases are 1.0 times the storage's own cache, not 20: the cache may hide slow drives.",
            ]
        );
    }
}
