//! Redundancy: what a level costs in I/O and in drives.

use crate::{
    figure::Confidence,
    units::{DriveIops, HostIops, Share},
};
use serde::{Deserialize, Serialize};

/// RAID level of a group of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Raid {
    /// They do not.
    Raid0,
    /// Pairs that hold the same.
    Raid1,
    /// Stripes over such pairs; an EVA's VRAID1.
    Raid10,
    /// One parity; an EVA's VRAID5.
    Raid5,
    /// Stripes over sets with one parity.
    Raid50,
    Raid6,
    /// Two parities on drives of their own, of the N series.
    RaidDp,
    /// Single drives: a lost one is replaced from the drives of other copies.
    Jbod,
    /// The provider of a cloud volume sees to it.
    Inside,
}

impl Raid {
    pub const ALL: [Self; 9] = [
        Self::Raid0,
        Self::Raid1,
        Self::Raid10,
        Self::Raid5,
        Self::Raid50,
        Self::Raid6,
        Self::RaidDp,
        Self::Jbod,
        Self::Inside,
    ];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Raid0 => "raid0",
            Self::Raid1 => "raid1",
            Self::Raid10 => "raid10",
            Self::Raid5 => "raid5",
            Self::Raid50 => "raid50",
            Self::Raid6 => "raid6",
            Self::RaidDp => "raid-dp",
            Self::Jbod => "jbod",
            Self::Inside => "inside",
        }
    }

    /// The level that `text` names; `RAID 10` and `vraid1` are known, too.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.to_ascii_lowercase().replace([' ', '-', '_'], "");
        match plain.as_str() {
            "vraid1" | "raid1+0" => Some(Self::Raid10),
            "vraid5" => Some(Self::Raid5),
            _ => Self::ALL.into_iter().find(|level| level.word().replace('-', "") == plain),
        }
    }

    /// True if each block lies unchanged on two drives.
    pub fn is_mirrored(self) -> bool {
        matches!(self, Self::Raid1 | Self::Raid10)
    }

    /// True if it survives no lost drive.
    pub fn is_bare(self) -> bool {
        self == Self::Raid0
    }
}

/// Cost of one RAID level.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redundancy {
    pub level: Raid,
    /// I/O of drives for one write of a host.
    pub write_penalty: f64,
    /// Least drives of a group.
    pub min_drives: u32,
    /// By how many a group grows.
    pub step: u32,
    /// Drives of one redundancy set at most; none if the level has no sets.
    pub set_drives: Option<u32>,
    /// Drives of a set that hold parity.
    #[serde(default)]
    pub set_parity: u32,
    /// Sets that there are at least.
    #[serde(default = "one")]
    pub min_sets: u32,
    pub source: String,
    pub confidence: Confidence,
}

impl Redundancy {
    /// Drives that hold data, of `drives`.
    pub fn data_drives(&self, drives: u32) -> u32 {
        match self.set_drives {
            Some(set) => {
                let sets = drives.div_ceil(set).max(self.min_sets);
                drives.saturating_sub(sets.saturating_mul(self.set_parity))
            }
            None if self.level.is_mirrored() => drives / 2,
            None => drives,
        }
    }

    /// The least drives that hold data of `data` drives, in the level's steps; none if that is beyond counting.
    pub fn drives_for(&self, data: u32) -> Option<u32> {
        let overhead = match self.set_drives {
            Some(set) => {
                let sets = u64::from(data).div_ceil(u64::from(set - self.set_parity));
                sets.max(self.min_sets.into()) * u64::from(self.set_parity)
            }
            None if self.level.is_mirrored() => data.into(),
            None => 0,
        };
        let drives = (u64::from(data) + overhead).max(self.min_drives.into());
        let drives = u32::try_from(drives.next_multiple_of(self.step.into())).ok()?;
        assert!(self.data_drives(drives) >= data, "{:?}: {drives} drives do not hold {data}", self.level);
        Some(drives)
    }

    /// Drive IOPS for `iops` of a host, of which `read_share` are reads.
    pub fn on_drives(&self, iops: HostIops, read_share: Share) -> DriveIops {
        iops.on_drives(read_share, self.write_penalty)
    }
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    #[test]
    fn sets_of_raid_50_are_those_of_the_dell_paper() {
        let catalogue = Catalogue::built_in();
        let raid50 = catalogue.redundancy(Raid::Raid50);
        assert_eq!((raid50.data_drives(14), raid50.data_drives(46)), (12, 39), "Dell 2010, table 13");
        assert_eq!((raid50.drives_for(12), raid50.drives_for(39)), (Some(14), Some(46)));
        assert_eq!(raid50.data_drives(6), 4, "two sets at least, each with its parity");
        assert_eq!(raid50.drives_for(5), Some(7));
        assert_eq!(catalogue.redundancy(Raid::Raid5).drives_for(1), Some(3), "the least");
        assert_eq!(catalogue.redundancy(Raid::Raid10).drives_for(7), Some(14));
    }

    #[test]
    fn every_level_holds_what_it_is_asked_to() {
        let catalogue = Catalogue::built_in();
        for level in Raid::ALL {
            for data in 1..500 {
                let drives = catalogue.redundancy(level).drives_for(data).unwrap();
                assert!(drives >= data && drives <= 3 * data + 6, "{level:?} {data} {drives}");
            }
            assert_eq!(Raid::parse(level.word()), Some(level));
        }
        assert_eq!(Raid::parse("VRAID1"), Some(Raid::Raid10));
        assert_eq!(Raid::parse("RAID 5"), Some(Raid::Raid5));
        assert_eq!(Raid::parse("raid7"), None);
    }
}
