//! Arrays as their papers have them.

use super::raid::Raid;
use crate::{
    figure::Confidence,
    units::{DriveIops, Gib, HostIops, SoldGb},
};
use serde::Deserialize;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Array {
    pub name: String,
    /// The line of products it belongs to.
    pub family: String,
    /// Kind of its drives, as the catalogue names it.
    pub drive: String,
    /// True if it is sold with every bay filled. Each such array is one group.
    pub whole: bool,
    pub bays: u32,
    /// Of these, spares: of the whole array, or of each group.
    pub spares: u32,
    /// Controllers that own volumes.
    pub controllers: u32,
    /// Cache of all controllers, where the paper says it.
    pub cache_gb: Option<f64>,
    /// Least drives of a group, where the array has such a rule.
    #[serde(default)]
    pub group_min: u32,
    /// Levels it has, where its paper says so; any if not.
    #[serde(default)]
    pub levels: Vec<Raid>,
    pub source: String,
    pub sizes: Vec<ArraySize>,
    /// Source of the usable sizes.
    pub sizes_source: String,
    /// Measured rates; empty if its paper prints none.
    #[serde(default, rename = "rating")]
    ratings: Vec<RatingRow>,
}

/// One size of drive in an array.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySize {
    /// Label of the drive.
    pub drive_gb: SoldGb,
    /// Formatted size of one drive before redundancy, in GiB; for arrays with groups of any size.
    pub formatted_gib: Option<Gib>,
    /// Usable capacity of a whole array.
    raid50_gb: Option<SoldGb>,
    raid10_gb: Option<SoldGb>,
}

impl ArraySize {
    /// Usable capacity of a whole array at `raid`, if the paper prints it.
    pub fn whole(&self, raid: Raid) -> Option<SoldGb> {
        match raid {
            Raid::Raid50 => self.raid50_gb,
            Raid::Raid10 => self.raid10_gb,
            _ => None,
        }
    }
}

/// A rate of drives or arrays, at one of two places. The two are never added, and only [`Rating::Drives`] is met by I/O
/// with the cost of redundancy on it: "using the host IOPS per spindle value over-factors the RAID impact" (HP EVA8000,
/// appendix A).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rating {
    /// At the host, of so many drives at one level: redundancy is in it.
    Host {
        /// The level it was measured at.
        raid: Raid,
        /// Drives under it.
        drives: u32,
        iops: HostIops,
        /// True if logs shared the drives during the measurement; their IOPS are then not added.
        holds_logs: bool,
    },
    /// Of one drive: redundancy comes on top.
    Drives { each: DriveIops },
}

/// A rating with its origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rated<'a> {
    pub rating: Rating,
    pub source: &'a str,
    pub confidence: Confidence,
}

/// A rating as the table has it: either kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatingRow {
    raid: Option<Raid>,
    drives: Option<u32>,
    host_iops: Option<HostIops>,
    #[serde(default)]
    holds_logs: bool,
    array_iops_each: Option<DriveIops>,
    source: String,
    confidence: Confidence,
}

impl RatingRow {
    fn rating(&self) -> Option<Rating> {
        match (self.raid, self.drives, self.host_iops, self.array_iops_each) {
            (Some(raid), Some(drives), Some(iops), None) if drives > 0 => {
                Some(Rating::Host { raid, drives, iops, holds_logs: self.holds_logs })
            }
            (None, None, None, Some(each)) if each.get() > 0.0 => Some(Rating::Drives { each }),
            _ => None,
        }
    }
}

impl Array {
    /// The rating to plan by at `raid`: of its drives where that is known, else as measured at that level.
    pub fn rated(&self, raid: Raid) -> Option<Rated<'_>> {
        let mut all = self.rated_all();
        let of_drives = all.clone().find(|rated| matches!(rated.rating, Rating::Drives { .. }));
        let measured =
            |rated: &Rated<'_>| matches!(rated.rating, Rating::Host { raid: at, .. } if at == raid);
        of_drives.or_else(|| all.find(measured))
    }

    fn rated_all(&self) -> impl Iterator<Item = Rated<'_>> + Clone {
        let rated = |row: &RatingRow| row.rating().expect("checked when it was read");
        self.ratings.iter().map(move |row| Rated {
            rating: rated(row),
            source: &row.source,
            confidence: row.confidence,
        })
    }

    /// The first contradiction in the table.
    pub(super) fn fault(&self) -> Option<String> {
        if self.ratings.iter().any(|row| row.rating().is_none()) {
            return Some("a rating is raid, drives and host_iops, or array_iops_each alone".to_owned());
        }
        if self.sizes.is_empty() || self.bays <= self.spares || self.controllers == 0 {
            return Some("sizes, more bays than spares, and a controller are needed".to_owned());
        }
        let is_whole = |size: &ArraySize| size.raid50_gb.is_some() || size.raid10_gb.is_some();
        let lacks =
            |size: &ArraySize| if self.whole { !is_whole(size) } else { size.formatted_gib.is_none() };
        let lacking = self.sizes.iter().find(|size| lacks(size))?;
        Some(format!("drives of {} lack what can be used of them", lacking.drive_gb))
    }
}

#[cfg(test)]
impl Array {
    /// True if each rating names its source.
    pub(super) fn ratings_have_sources(&self) -> bool {
        self.ratings.iter().all(|row| row.source.len() > 20)
    }
}
