//! Products: arrays, drives, cloud volumes, and the cost of redundancy. All of it is data (`*.toml` here), each
//! figure with its source.

mod array;
mod raid;

pub use array::{Array, ArraySize, Rated, Rating};
pub use raid::{Raid, Redundancy};

use crate::{
    figure::Confidence,
    units::{DriveIops, HostIops, SoldGb},
};
use serde::Deserialize;
use thiserror::Error;

const ARRAYS: &str = include_str!("arrays.toml");
const DRIVES: &str = include_str!("drives.toml");
const CLOUDS: &str = include_str!("clouds.toml");
const RAID: &str = include_str!("raid.toml");

/// Everything that can be chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    /// The papers' arrays.
    pub arrays: Vec<Array>,
    /// Drives of today, for servers, shelves and pools.
    pub drives: Vec<Drive>,
    /// Volumes of cloud providers.
    pub clouds: Vec<Cloud>,
    raid: Vec<Redundancy>,
}

/// A model of drive.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    pub name: String,
    pub kind: DriveKind,
    pub sizes_gb: Vec<SoldGb>,
    /// IOPS of one drive, before redundancy.
    pub array_iops: DriveIops,
    pub source: String,
    pub confidence: Confidence,
}

/// Medium of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriveKind {
    /// Flash on PCIe.
    Nvme,
    /// Flash on SAS or SATA.
    Ssd,
    Spinning,
}

/// A kind of cloud volume.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cloud {
    pub name: String,
    /// Smallest volume, in GiB.
    pub min_gib: u32,
    pub max_gib: u32,
    /// IOPS every volume has.
    pub iops_included: HostIops,
    /// The most that can be provisioned for one.
    pub iops_max: HostIops,
    /// The most of that for each GiB of it.
    pub iops_per_gib: HostIops,
    pub source: String,
    pub confidence: Confidence,
}

impl Cloud {
    /// The most a volume of `gib` can be given.
    pub fn iops_of(&self, gib: f64) -> HostIops {
        HostIops::new((self.iops_per_gib.get() * gib).clamp(self.iops_included.get(), self.iops_max.get()))
    }
}

/// Why a table was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CatalogueError {
    /// It is not what it should be.
    #[error("{table}: {problem}")]
    Syntax { table: &'static str, problem: String },
    /// A row makes no sense.
    #[error("{table}: {name}: {problem}")]
    Nonsense { table: &'static str, name: String, problem: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arrays {
    array: Vec<Array>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Drives {
    drive: Vec<Drive>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clouds {
    cloud: Vec<Cloud>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Levels {
    raid: Vec<Redundancy>,
}

impl Catalogue {
    /// The catalogue that comes with the program.
    pub fn built_in() -> Self {
        Self::parse(ARRAYS, DRIVES, CLOUDS, RAID).expect("a test reads every table")
    }

    /// A catalogue of these tables.
    pub fn parse(arrays: &str, drives: &str, clouds: &str, raid: &str) -> Result<Self, CatalogueError> {
        let catalogue = Self {
            arrays: read::<Arrays>("arrays", arrays)?.array,
            drives: read::<Drives>("drives", drives)?.drive,
            clouds: read::<Clouds>("clouds", clouds)?.cloud,
            raid: read::<Levels>("raid", raid)?.raid,
        };
        let nonsense = |table, name: &str, problem: String| {
            Err(CatalogueError::Nonsense { table, name: name.to_owned(), problem })
        };
        for array in &catalogue.arrays {
            if let Some(problem) = array.fault() {
                return nonsense("arrays", &array.name, problem);
            }
        }
        for drive in &catalogue.drives {
            if drive.array_iops == DriveIops::ZERO || drive.sizes_gb.contains(&SoldGb::ZERO) {
                return nonsense("drives", &drive.name, "a drive holds and does something".to_owned());
            }
        }
        for cloud in &catalogue.clouds {
            if cloud.min_gib > cloud.max_gib || cloud.iops_included > cloud.iops_max {
                return nonsense("clouds", &cloud.name, "the least is more than the most".to_owned());
            }
        }
        match Raid::ALL.into_iter().find(|level| !catalogue.raid.iter().any(|row| row.level == *level)) {
            Some(level) => nonsense("raid", level.word(), "it is missing".to_owned()),
            None => Ok(catalogue),
        }
    }

    pub fn redundancy(&self, raid: Raid) -> &Redundancy {
        self.raid.iter().find(|row| row.level == raid).expect("checked when it was read")
    }

    /// Names that can be asked for: products, and families of arrays.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let arrays = self.arrays.iter().flat_map(|array| [array.family.as_str(), array.name.as_str()]);
        let drives = self.drives.iter().map(|drive| drive.name.as_str());
        let clouds = self.clouds.iter().map(|cloud| cloud.name.as_str());
        for name in arrays.chain(drives).chain(clouds) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Those of [`Catalogue::names`] that `asked` means: the very name, or all that have its words.
    pub fn named(&self, asked: &str) -> Vec<&str> {
        let names = self.names();
        let lower = asked.trim().to_lowercase();
        let (exact, part): (Vec<&str>, Vec<&str>) = names
            .into_iter()
            .filter(|name| !lower.is_empty() && name.to_lowercase().contains(&lower))
            .partition(|name| name.to_lowercase() == lower);
        if exact.is_empty() { part } else { exact }
    }

    /// The name that `asked` may have meant.
    pub fn nearest(&self, asked: &str) -> Option<&str> {
        let lower = asked.to_lowercase();
        let near = |name: &str| strsim::jaro_winkler(&lower, &name.to_lowercase());
        let best = self.names().into_iter().max_by(|a, b| near(a).total_cmp(&near(b)))?;
        (near(best) > 0.7).then_some(best)
    }
}

fn read<T: serde::de::DeserializeOwned>(table: &'static str, text: &str) -> Result<T, CatalogueError> {
    let joined = |error: toml::de::Error| error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    toml::from_str(text).map_err(|error| CatalogueError::Syntax { table, problem: joined(error) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_source() {
        let catalogue = Catalogue::built_in();
        let arrays = catalogue.arrays.iter().flat_map(|array| [&array.source, &array.sizes_source]);
        let rest = catalogue.drives.iter().map(|drive| &drive.source);
        let rest = rest.chain(catalogue.clouds.iter().map(|cloud| &cloud.source));
        let rest = rest.chain(catalogue.raid.iter().map(|row| &row.source));
        assert!(arrays.chain(rest).all(|source| source.len() > 10));
        for array in &catalogue.arrays {
            assert!(array.ratings_have_sources(), "{}", array.name);
        }
    }

    #[test]
    fn the_dell_papers_tables_12_and_13_are_as_printed() {
        let catalogue = Catalogue::built_in();
        let array = |name: &str| catalogue.arrays.iter().find(|array| array.name == name).unwrap();
        let iops = |name: &str, raid| match array(name).rated(raid).map(|rated| rated.rating) {
            Some(Rating::Host { iops, .. }) => iops.get(),
            other => panic!("{name}: {other:?}"),
        };
        let both = |name: &str| (iops(name, Raid::Raid50), iops(name, Raid::Raid10));
        assert_eq!(both("PS6000XV"), (1745.0, 2165.0));
        assert_eq!(both("PS6000X"), (1100.0, 1365.0));
        assert_eq!(both("PS6500E"), (1800.0, 2400.0));
        assert_eq!(array("PS6000E").rated(Raid::Raid50), None, "listed, never tested");
        // Each row of table 13: the series, the drive, which models have it, what RAID 50 and RAID 10 hold.
        let table_13: [(&str, f64, &[&str], f64, f64); 12] = [
            ("PS6000", 250.0, &["E"], 3000.0, 1750.0),
            ("PS6000", 300.0, &["X", "XV"], 3600.0, 2100.0),
            ("PS6000", 400.0, &["X"], 4800.0, 2800.0),
            ("PS6000", 450.0, &["XV"], 5400.0, 3150.0),
            ("PS6000", 500.0, &["E"], 6000.0, 3500.0),
            ("PS6000", 600.0, &["X", "XV"], 7200.0, 4200.0),
            ("PS6000", 1000.0, &["E"], 12000.0, 7000.0),
            ("PS6000", 2000.0, &["E"], 24000.0, 14000.0),
            ("PS6500", 500.0, &["E"], 19500.0, 11500.0),
            ("PS6500", 600.0, &["X"], 23400.0, 13800.0),
            ("PS6500", 1000.0, &["E"], 39000.0, 23000.0),
            ("PS6500", 2000.0, &["E"], 78000.0, 46000.0),
        ];
        let mut rows = 0;
        for (series, drive, models, fifty, ten) in table_13 {
            for model in models {
                let array = array(&format!("{series}{model}"));
                let size = array.sizes.iter().find(|size| size.drive_gb == SoldGb::new(drive));
                let size = size.unwrap_or_else(|| panic!("{} has no drives of {drive} GB", array.name));
                assert_eq!(size.whole(Raid::Raid50), Some(SoldGb::new(fifty)), "{}", array.name);
                assert_eq!(size.whole(Raid::Raid10), Some(SoldGb::new(ten)), "{}", array.name);
                rows += 1;
            }
        }
        let sizes = catalogue.arrays.iter().filter(|array| array.whole).map(|array| array.sizes.len());
        assert_eq!(rows, sizes.sum::<usize>(), "nothing beside the table");
    }

    #[test]
    fn names_are_found_by_their_words_and_near_misses_named() {
        let catalogue = Catalogue::built_in();
        assert_eq!(catalogue.named("ps6500e"), ["PS6500E"]);
        assert_eq!(catalogue.named("equallogic"), ["EqualLogic"]);
        assert_eq!(catalogue.named("nvme"), ["NVMe SSD"]);
        assert_eq!(catalogue.named("aws").len(), 2);
        assert!(catalogue.named("PS6600E").is_empty());
        assert_eq!(catalogue.nearest("PS6600E"), Some("PS6500E"));
        assert_eq!(catalogue.nearest("zzz"), None);
    }

    #[test]
    fn a_spoiled_table_is_refused_in_one_line() {
        let parse = |arrays: &str, raid: &str| {
            Catalogue::parse(arrays, DRIVES, CLOUDS, raid).unwrap_err().to_string()
        };
        let spoiled = ARRAYS.replacen("host_iops = 1100", "array_iops_each = 1100", 1);
        assert_eq!(
            parse(&spoiled, RAID),
            "arrays: PS6000X: a rating is raid, drives and host_iops, or array_iops_each alone"
        );
        let said = parse(&ARRAYS.replacen("bays", "bais", 1), RAID);
        assert!(said.starts_with("arrays: TOML parse error") && said.contains("bais"), "{said}");
        assert!(!said.contains('\n'), "{said}");
        assert_eq!(parse(ARRAYS, &RAID.replacen("\"raid6\"", "\"raid5\"", 1)), "raid: raid6: it is missing");
    }
}
